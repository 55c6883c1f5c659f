"""The formula that the losses over graded ranks share: gains of label distances, and the items of each anchor.

A loss gives its formula twice. On the CPU a compiled loop fills the values and slopes of rows (``h_ap_rows.py``,
``lambda_ndcg_rows.py``). On other devices, and where torch follows the distances, items are compared two by two in
parts of bounded size. For nDCG and H-AP as measures of a finished ranking, see ``cml.retrieval``.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from cml.losses.closed_form import is_followed
from cml.losses.embedding_checks import check_matrix
from cml.losses.row_blocks import RowTerms, mean_over_rows
from cml.losses.row_mean import RowMean
from cml.losses.row_order import over_row_chunks, sort_rows
from cml.settings import check_above_zero, check_whole

MISSING = "two items of different usable label distance"
_PAIR_BYTES = 16 << 20  # of one (R, B, B) tensor of a part

# Values (R,) and their slopes (R, B) in the scores, of scores, gains, label distances and the used pairs, (R, B) each
CompareItems = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
SumRows = Callable[..., None]  # see ``h_ap_rows.sum_h_ap``


def graded_rank_mean(
    embeddings: Tensor,
    label_distances: Tensor,
    compare_items: CompareItems,
    load_sum_rows: Callable[[], SumRows],
    *,
    temperature: float,
    neighbors: int,
    normalize: bool,
) -> RowMean:
    """The mean over anchors of a loss that compares their items two by two, in the memory of a few anchors.

    Args:
        embeddings: (B, D) floating point.
        label_distances: (A, B).
        compare_items: Gives the value (R,) of each of R anchors and its slopes (R, B) in the scores, of scores
            (cosines up to a constant), gains (0 where a pair is not used), label distances and the used pairs.
        load_sum_rows: Imports the compiled loop over rows for the CPU: numba takes a second to import.
        temperature: Divides differences of scores.
        neighbors: The rank whose label distance has a gain of 1 / e.
        normalize: Whether to L2-normalise the embeddings first.

    Returns:
        The loss, and 1 for each anchor whose items differ in label distance.

    Raises:
        UserError: a tensor has another shape or type, or a label distance is NaN or negative.
    """
    check_matrix("embeddings", embeddings)

    def _row_terms(squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        counts = labels.where(used, 0).amax(dim=1) > labels.where(used, torch.inf).amin(dim=1)
        gains = graded_gains(labels, used, neighbors)
        if squared.device.type == "cpu" and not is_followed(squared):
            values, slopes = _sum_by_rows(load_sum_rows(), squared, labels, gains, used, temperature)
        else:
            values, slopes = _compare_in_parts(compare_items, squared, labels, gains, used)
        return RowTerms(values.where(counts, 0), counts.long(), slopes.where(counts[:, None], 0))

    return mean_over_rows(embeddings, label_distances, _row_terms, normalize=normalize)


def _sum_by_rows(
    sum_rows: SumRows, squared: Tensor, labels: Tensor, gains: Tensor, used: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Values (R,), and slopes (R, B) in the squared distances, by the compiled loop."""
    rows, columns = squared.shape
    values, slopes = torch.empty(rows, dtype=torch.float64), torch.zeros_like(squared)
    distance: Any = squared.masked_fill(~used, torch.inf).numpy()
    label: Any = labels.masked_fill(~used, torch.inf).abs_().numpy()  # abs: -0 is 0
    numbers = used.sum(dim=1).numpy()

    def fill(chunk: slice) -> None:
        _, by_distance = sort_rows(distance[chunk])
        _, by_label = sort_rows(label[chunk])
        sum_rows(
            distance[chunk],
            by_distance,
            label[chunk],
            by_label,
            gains[chunk].numpy(),
            numbers[chunk],
            temperature,
            values[chunk].numpy(),
            slopes[chunk].numpy(),
        )

    over_row_chunks(fill, rows, columns)
    return values.to(squared.dtype), slopes


def _compare_in_parts(
    compare_items: CompareItems, squared: Tensor, labels: Tensor, gains: Tensor, used: Tensor
) -> tuple[Tensor, Tensor]:
    """Values (R,), and slopes (R, B) in the squared distances, of a few anchors at a time."""
    at_once = max(1, _PAIR_BYTES // (squared.element_size() * labels.shape[1] ** 2))
    split_rows = [torch.split(block, at_once) for block in (squared / -2, gains, labels, used)]
    parts = [compare_items(*part) for part in zip(*split_rows, strict=True)]
    values, slopes = (torch.cat(blocks) for blocks in zip(*parts, strict=True))
    return values, slopes / -2


def graded_gains(labels: Tensor, used: Tensor, neighbors: int) -> Tensor:
    """The gain of each item: exp(-D_y / that of the anchor's neighbour of a rank).

    Args:
        labels: (R, B) label distances.
        used: (R, B) bool.
        neighbors: The rank, from 1; the farthest item is taken where there are fewer.

    Returns:
        (R, B), 0 where a pair is not used.
    """
    known = labels.where(used, torch.inf)
    near = known.topk(min(neighbors, labels.shape[1]), dim=1, largest=False).values
    scale = near.where(near < torch.inf, 0).amax(dim=1, keepdim=True)  # (R, 1)
    ratio = torch.where(labels > 0, labels / scale, 0)  # infinite where all neighbours are at distance 0
    return ratio.neg().exp().where(used, 0)


def check_graded_rank(temperature: float, neighbors: int) -> tuple[float, int]:
    """Check the settings that the losses over graded ranks share.

    Args:
        temperature: Must be above 0.
        neighbors: Must be at least 1.

    Returns:
        Both.

    Raises:
        UserError: one is out of range.
    """
    return check_above_zero("temperature", temperature), check_whole("neighbors", neighbors)
