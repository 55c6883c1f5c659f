"""The Matryoshka loss: a loss over label distances at several sizes of the embedding."""

from collections.abc import Sequence

from torch import Tensor

from cml.errors import UserError
from cml.losses.composite_loss import CompositeLoss
from cml.losses.loss import LossInfo
from cml.option_types import convert_option
from cml.settings import check_whole


class MatryoshkaLoss(CompositeLoss):
    """The mean of a loss over the first numbers of the embedding: one model, to be cut off at any of these sizes.

    Inputs: embeddings (B, D), label distances (A, B).

    Relations: ``sum`` is several losses at one size.

    Args:
        loss: A loss over label distances, as the command line takes it.
        dimensions: The sizes beside the whole embedding, at least 1 each; larger ones than that are skipped.

    Raises:
        UserError: the loss is not one over label distances, or holds a Matryoshka loss itself; or a size is below 1.

    Example:
        >>> import torch
        >>> loss, points = MatryoshkaLoss("rkd-distance", (2,)), torch.randn(6, 3)
        >>> labels = torch.rand(6, 6).fill_diagonal_(0)
        >>> from cml.losses import RKDDistanceLoss
        >>> whole = RKDDistanceLoss()
        >>> apart = (whole(points, labels) + whole(points[:, :2], labels)) / 2
        >>> bool(loss(points, labels).isclose(apart))
        True

    Reference:
        Kusupati et al.: Matryoshka Representation Learning, NeurIPS 2022.
    """

    info = LossInfo(
        cost="that of its loss, once per size",
        source="Kusupati et al., NeurIPS 2022",
        when="One model should serve several sizes of embedding.",
    )

    def __init__(self, loss: str = "log-ratio", dimensions: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()
        self.loss = loss
        self.set_parts([loss])
        sizes = convert_option(
            "dimensions", [dimensions] if isinstance(dimensions, int) else dimensions, tuple[int, ...]
        )
        if not sizes:
            raise UserError("The 'dimensions' must name at least one size. Got none instead.")
        self.dimensions = tuple(sorted({check_whole("dimensions", size) for size in sizes}))
        if any(isinstance(part, MatryoshkaLoss) for part in self.terms.modules()):
            raise UserError(f"A Matryoshka loss cannot hold another one; name all sizes in one. Got {loss!r} instead.")

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The mean of the loss over the sizes."""
        (part,) = self.part_losses()
        whole = embeddings.shape[-1]
        sizes = [*(size for size in self.dimensions if size < whole), whole]
        skipped_before = part._skipped
        total = embeddings.new_zeros(())
        for size in sizes:
            part._skipped = skipped_before
            total = total + part(embeddings[..., :size], label_distances)
        self._skipped = part._skipped
        return total / len(sizes)
