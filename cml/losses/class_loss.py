"""What the losses over classes share: the check of class numbers, the count of items without a pair, proxies."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.embeddings import check_matrix
from cml.losses.loss import LabelSource, Loss


class ClassLoss(Loss):
    """Base of the losses over classes; ``left_out`` counts items whose batch held no positive or no negative."""

    labels = "classes"

    def __init__(self) -> None:
        super().__init__()
        self._warned: set[str] = set()

    def target(self, batch: LabelSource) -> Tensor:
        """The class numbers (B,) int64."""
        return torch.from_numpy(batch.classes())

    def forward(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss of a batch: embeddings (B, D), in at least float32, classes (B,) int64, result a scalar.

        Raises:
            UserError: a tensor has another shape or type than it should, or a number is not a class.
        """
        value = self.value(embeddings, classes)
        self.count_classes(classes)
        return value

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The loss as a pure function, which counts nothing, of the losses whose anchors need pairs."""
        raise NotImplementedError

    def count_classes(self, classes: Tensor) -> None:
        """Count the items of a batch of class numbers (B,) that lack a positive or a negative, and say so once."""
        same = (classes[:, None] == classes).sum(dim=1)  # (B,)
        usable = (same > 1) & (same < len(classes))
        self.count_left_out(usable)
        if bool(usable.all()):
            return
        said = "Some items of a batch have no positive or no negative there (the module counts them in left_out)."
        if not bool(usable.any()):
            said = "No item of a batch has both a positive and a negative: that batch teaches little or nothing. "
            said += "Take a sampler that brings both, such as per-class."
        if said not in self._warned:
            self._warned.add(said)
            warnings.warn(said, RuntimeWarning, stacklevel=3)


class ProxyLoss(ClassLoss):
    """Base of the losses with proxies, learnt points that stand for classes: all of its parameters.

    ``prepare`` makes them, so a loss that is loaded from a ``state_dict`` needs it as well, with as many classes.
    """

    normalize = True

    def prepare(
        self, target: Tensor, *, dimension: int, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """Make the proxies, before the optimiser that shall hold them: ``loss.prepare(classes, dimension=128)``.

        ``target`` are the class numbers 0..C-1 (N,) int64 of the training items, or else it is a ``UserError``. Without
        ``names`` C is the largest number and 1. The ``generator`` says where the proxies start; ``None``: seed 0.
        """
        if not isinstance(target, Tensor) or target.dtype != torch.int64 or target.ndim != 1 or len(target) == 0:
            got = f"{target.dtype} {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
            raise UserError(
                f"prepare takes the class numbers (N,) of the training items, torch.int64. Got {got} instead."
            )
        count = len(names) if names else int(target.max()) + 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0 if generator is None else int(torch.randint(2**62, (), generator=generator)))
            self.make_proxies(count, dimension)

    def make_proxies(self, classes: int, dimension: int) -> None:
        """Make the parameters for so many classes and dimensions, from torch's random numbers."""
        raise NotImplementedError

    def proxies(self) -> list[nn.Parameter]:
        """The proxies, once they are made."""
        return list(self.parameters())

    def check_prepared(self) -> None:
        """Refuse if the proxies are not made yet."""
        if not self.proxies():
            raise UserError(
                f"{type(self).__name__} has no proxies yet: call prepare(classes, dimension=D) with the class numbers "
                "of the training items, before the optimiser is made."
            )


def check_classes(embeddings: Tensor, classes: Tensor, count: int | None = None) -> None:
    """Check that embeddings are (B, D) floating point, B >= 2, and classes (B,) int64, below ``count`` if given."""
    check_matrix("embeddings", embeddings)
    if classes.is_floating_point() or classes.is_complex():
        said = "The 'classes' must be whole numbers (B,), torch.int64."
        advice = "a loss over classes takes them through a rule, as in binary(loss=triplet, rule=nearest, k=5)."
        raise UserError(f"{said} Got continuous labels, {classes.dtype}, instead: {advice}")
    if classes.dtype != torch.int64 or classes.shape != embeddings.shape[:1]:
        got = f"Got shape {tuple(classes.shape)}, {classes.dtype} instead."
        raise UserError(f"The 'classes' must be one torch.int64 number per embedding, ({len(embeddings)},). {got}")
    if len(embeddings) < 2:
        raise UserError(f"A batch needs at least 2 items. Got {len(embeddings)} instead.")
    if count is not None and not (int(classes.min()) >= 0 and int(classes.max()) < count):
        got = f"Got {int(classes.min())}..{int(classes.max())} instead."
        raise UserError(f"Every class number must be in 0..{count - 1}, the class of a proxy. {got}")
