"""Lifted structure: each positive pair is compared with all negatives of both its items."""

from typing import Any

from cml.errors import UserError
from cml.losses.loss import LossInfo
from cml.losses.pml import PmlPairLoss, lp_distance, pml
from cml.settings import check_above_zero

_BYTES_PER_COMPARISON = 25  # of the library's loss: numbers and masks
_MOST_BYTES = 8e9


class LiftedStructureLoss(PmlPairLoss):
    """Compare each positive pair with all negatives of both its items.

    The mean over positive pairs (i, j) of

        1/2 [ D_ij + log( sum_{n of i} exp(margin - D_in) + sum_{n of j} exp(margin - D_jn) ) ]_+^2

    with D the Euclidean distance of embeddings. The library holds a table of positive pairs by negative pairs; a table
    of more than 8 GB is refused.

    Inputs: embeddings (B, D), class numbers (B,) int64.

    Relations: ``triplet`` compares a positive with one negative at a time. ``multi-similarity`` has soft weights too,
    at O(B^2) memory.

    Args:
        margin: Above 0.
        normalize: Whether to L2-normalise the embeddings first; the paper does not.

    Raises:
        UserError: a setting is out of range; in ``forward``, the table of pairs does not fit.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[0.0], [1.0], [3.0], [4.0]]), torch.tensor([0, 0, 1, 1])
        >>> LiftedStructureLoss(margin=1.0, normalize=False)(points, classes).shape
        torch.Size([])

    Reference:
        Oh Song, Xiang, Jegelka, Savarese: Deep Metric Learning via Lifted Structured Feature Embedding, CVPR 2016.
    """

    info = LossInfo(
        cost="O(positive pairs x negative pairs)",
        source="Oh Song et al., CVPR 2016",
        when="Batches with several items each of a few classes.",
    )

    def __init__(self, margin: float = 1.0, normalize: bool = True) -> None:
        class Bounded(pml("losses").LiftedStructureLoss):  # type: ignore[misc]
            def _compute_loss(self, pos_pairs: Any, neg_pairs: Any, indices_tuple: Any) -> Any:  # noqa: ANN401
                needed = _BYTES_PER_COMPARISON * len(pos_pairs) * len(neg_pairs)
                if needed > _MOST_BYTES:
                    raise UserError(
                        f"lifted-structure compares {len(pos_pairs):,} positive with {len(neg_pairs):,} negative pairs "
                        f"of this batch, which takes about {needed / 1e9:.0f} GB; take a smaller batch or "
                        "multi-similarity."
                    )
                return super()._compute_loss(pos_pairs, neg_pairs, indices_tuple)

        check_above_zero("margin", margin)
        super().__init__(Bounded(neg_margin=margin, distance=lp_distance(normalize)))
        self.margin = margin
