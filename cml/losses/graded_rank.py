"""The formula that the losses over graded ranks share: gains of label distances, and an anchor's items two by two.

For nDCG and H-AP as measures of a finished ranking, see ``cml.retrieval``.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from cml.losses.embedding_checks import check_matrix
from cml.losses.row_blocks import RowTerms, mean_over_rows
from cml.losses.row_mean import RowMean
from cml.settings import check_above_zero, check_whole

MISSING = "two items of different usable label distance"
_PAIR_BYTES = 16 << 20  # of one (R, B, B) tensor of a part

# Values (R,) and their slopes (R, B) in the scores, of scores, gains, label distances and the used pairs, (R, B) each
CompareItems = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def graded_rank_mean(
    embeddings: Tensor, label_distances: Tensor, compare_items: CompareItems, *, neighbors: int, normalize: bool
) -> RowMean:
    """The mean over anchors of a loss that compares their items two by two: O(A B^2) time, memory of a few anchors.

    Args:
        embeddings: (B, D) floating point.
        label_distances: (A, B).
        compare_items: Gives the value (R,) of each of R anchors and its slopes (R, B) in the scores, of scores
            (cosines up to a constant), gains (0 where a pair is not used), label distances and the used pairs.
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
        rows = squared / -2, graded_gains(labels, used, neighbors), labels, used
        at_once = max(1, _PAIR_BYTES // (squared.element_size() * labels.shape[1] ** 2))
        split_rows = [torch.split(block, at_once) for block in rows]
        parts = [compare_items(*part) for part in zip(*split_rows, strict=True)]
        values, slopes = (torch.cat(blocks) for blocks in zip(*parts, strict=True))
        return RowTerms(values.where(counts, 0), counts.long(), (slopes / -2).where(counts[:, None], 0))

    return mean_over_rows(embeddings, label_distances, _row_terms, normalize=normalize)


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
