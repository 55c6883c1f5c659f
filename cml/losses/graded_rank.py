"""What the losses over graded ranks share: gains of label distances, and the way to the slopes of their formula.

On the CPU a compiled loop fills the values and slopes of rows (``h_ap_rows.py``, ``lambda_ndcg_rows.py``). On other
devices, items are compared two by two in parts of bounded size, by the formula. For nDCG and H-AP as measures of a
finished ranking, see ``cml.retrieval``.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor

from cml.losses.anchor_blocks import AnchorMean
from cml.losses.closed_form import RowTerms, mean_over_rows, slopes_by_autograd
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.pairs import check_matrix
from cml.losses.row_order import ascending_rows, over_row_chunks, sort_rows
from cml.settings import check_above_zero, check_flag, check_whole

SumRows = Callable[..., None]  # see ``h_ap_rows.sum_h_ap``


class GradedRankLoss(LabelDistanceLoss):
    """Base of the losses over graded ranks: gains in place of right and wrong.

    A subclass writes ``anchor_values``, of scores s = 1 - D / 2, the cosines of normalised embeddings, and names its
    compiled loop.
    """

    missing: ClassVar[str] = "two items of different usable label distance"

    def __init__(self, temperature: float, neighbors: int, normalize: bool) -> None:
        super().__init__()
        self.temperature: float | Tensor = check_above_zero("temperature", temperature)
        self.neighbors = check_whole("neighbors", neighbors)
        self.normalize = check_flag("normalize", normalize)

    def load_loop(self) -> SumRows:
        """Import the compiled loop over rows: numba takes a second to import."""
        raise NotImplementedError

    def gains(self, labels: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        """The gain of each item, exp(-D_y / that of the anchor's neighbour of a rank).

        Args:
            labels: (R, B) label distances. The farthest item is taken where there are fewer than ``neighbors``.
            used: (R, B) bool.

        Returns:
            (R, B), 0 where a pair is not used; and whether an anchor counts (R,): its items differ in label distance.
        """
        nearest = labels.where(used, torch.inf).topk(min(self.neighbors, labels.shape[1]), dim=1, largest=False)
        return self._gains_of(labels, used, nearest.values)

    def _gains_of(self, labels: Tensor, used: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """The gains, of the ``neighbors`` smallest used label distances (R, K)."""
        scale = near.where(near < torch.inf, 0).amax(dim=1, keepdim=True)  # (R, 1)
        ratio = torch.where(labels > 0, labels / scale, 0)  # infinite where all neighbours are at distance 0
        return ratio.neg().exp().where(used, 0), labels.where(used, 0).amax(dim=1) > near.amin(dim=1)

    def mean(self, embeddings: Tensor, label_distances: Tensor) -> AnchorMean:
        """The mean over anchors, in the memory of a few anchors."""
        if not self.takes_heads:
            check_matrix("embeddings", embeddings)
        look = self.may_check_numbers(embeddings)
        return mean_over_rows(
            embeddings, label_distances, self.anchor_values, self._slopes, normalize=self.normalize, look=look
        )

    def _slopes(self, squared: Tensor, labels: Tensor, used: Tensor) -> RowTerms:
        if squared.device.type != "cpu":
            size = squared.element_size() * squared[..., 0, :].numel() * squared.shape[-1]
            return slopes_by_autograd(self.anchor_values, squared, labels, used, number_bytes=size)
        known = labels.masked_fill(~used, torch.inf).abs_()  # abs: -0 is 0
        ascending, by_label = ascending_rows(known)
        gains, counts = self._gains_of(labels, used, ascending[:, : self.neighbors])
        values, slopes = self._sum_by_rows(squared, known, by_label, gains, used)
        return RowTerms(values.where(counts, 0), counts, slopes.where(counts[:, None], 0))

    def _sum_by_rows(
        self, squared: Tensor, labels: Tensor, by_label: Tensor, gains: Tensor, used: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Values (..., R), and slopes (..., R, B) in the squared distances, by the compiled loop."""
        sum_rows, (rows, columns) = self.load_loop(), labels.shape
        values, slopes = torch.empty(squared.shape[:-1], dtype=torch.float64), torch.zeros_like(squared)
        distance: Any = squared.masked_fill(~used, torch.inf).view(-1, rows, columns).numpy()
        label, order, gain, numbers = labels.numpy(), by_label.numpy(), gains.numpy(), used.sum(dim=1).numpy()
        heads = torch.as_tensor(self.temperature, dtype=torch.float64).flatten().expand(len(distance)).tolist()
        value_of, slope_of = values.view(-1, rows).numpy(), slopes.view(-1, rows, columns).numpy()

        def fill(chunk: slice) -> None:
            for apart, temperature, value, slope in zip(distance, heads, value_of, slope_of, strict=True):
                _, by_distance = sort_rows(apart[chunk])
                sum_rows(
                    apart[chunk],
                    by_distance,
                    label[chunk],
                    order[chunk],
                    gain[chunk],
                    numbers[chunk],
                    temperature,
                    value[chunk],
                    slope[chunk],
                )

        over_row_chunks(fill, rows, columns)
        return values.to(squared.dtype), slopes
