"""The base of the losses over classes: ``loss(embeddings (B, D), classes (B,) int64) -> scalar``.

Such a loss would take continuous labels for classes of one item each and learn nothing from them. A rule must come
first: ``binary.py``.
"""

import warnings

import torch
from torch import Tensor

from cml.errors import UserError
from cml.losses.loss import LabelSource, Loss
from cml.losses.pairs import check_matrix


class ClassLoss(Loss):
    """Base of the losses over classes.

    A subclass writes ``value``, or ``forward`` if it counts no pairs. Items whose batch held no positive or no negative
    are counted in ``skipped_anchors``.
    """

    labels = "classes"

    def __init__(self) -> None:
        super().__init__()
        self._warnings_shown: set[str] = set()

    def target(self, batch: LabelSource) -> Tensor:  # (B,) int64
        """The class numbers of a batch, or of a training set."""
        return torch.from_numpy(batch.classes())

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """Compute the loss of a batch.

        Args:
            embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
            classes: (B,) int64.

        Returns:
            A scalar.

        Raises:
            UserError: a shape or type does not fit, or a number is not a class.
        """
        value = self.value(embeddings, classes)
        self.count_classes(classes)
        return value

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The formula, a pure function that counts nothing.

        Args:
            embeddings: (B, D) floating point.
            classes: (B,) int64.

        Returns:
            A scalar.
        """
        raise NotImplementedError

    def count_classes(self, classes: Tensor) -> None:
        """Count the items of a batch that have no positive or no negative there, and warn once.

        Args:
            classes: (B,) int64.
        """
        same = (classes[:, None] == classes).sum(dim=1)  # (B,)
        usable = (same > 1) & (same < len(classes))
        self.count_skipped(usable)
        if not self.may_check_numbers(classes) or bool(usable.all()):
            return
        if bool(usable.any()):
            text = "Some items of a batch have no positive or no negative there (counted in skipped_anchors)."
        else:
            text = (
                "No item of a batch has both a positive and a negative: that batch contributes little or no gradient. "
                "Use a sampler that draws both, such as per-class."
            )
        if text not in self._warnings_shown:
            self._warnings_shown.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def check_classes(embeddings: Tensor, classes: Tensor, count: int | None = None, *, look: bool = True) -> None:
    """Check a batch (B, D), (B,) of a loss over classes, B at least 2.

    With ``count`` classes and ``look``, class numbers must be in 0..count-1.
    """
    check_matrix("embeddings", embeddings)
    if classes.is_floating_point() or classes.is_complex():
        raise UserError(
            f"The 'classes' must be whole numbers (B,), torch.int64. Got continuous labels, {classes.dtype}, instead: "
            "a loss over classes takes them through a rule, as in binary(loss=triplet, rule=nearest, k=5)."
        )
    if classes.dtype != torch.int64 or classes.shape != embeddings.shape[:1]:
        got = f"Got shape {tuple(classes.shape)}, {classes.dtype} instead."
        raise UserError(f"The 'classes' must be one torch.int64 number per embedding, ({len(embeddings)},). {got}")
    if len(embeddings) < 2:
        raise UserError(f"A batch needs at least 2 items. Got {len(embeddings)} instead.")
    if count is not None and look and not (int(classes.min()) >= 0 and int(classes.max()) < count):
        got = f"Got {int(classes.min())}..{int(classes.max())} instead."
        raise UserError(f"Every class number must be in 0..{count - 1}, the class of a proxy. {got}")
