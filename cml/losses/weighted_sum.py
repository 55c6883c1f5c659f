"""Losses made of losses over label distances: a weighted sum of several, or one at several sizes of the embedding."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Self

from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import About
from cml.settings import check_above_zero, check_whole

_WEIGHTED = re.compile(r"\s*(?:(?P<weight>[\d.]+(?:[eE][-+]?\d+)?)\s*\*)?\s*(?P<loss>.+)", re.DOTALL)


class _OfLosses(LabelDistanceLoss):
    """What losses made of others share: each keeps its own constants."""

    terms: nn.ModuleList

    def take(self, texts: Sequence[str]) -> None:
        """Make the parts, losses over label distances all of which must leave embeddings alike."""
        from cml.losses import registry

        parts = [registry.get(text) for text in texts]
        for text, part in zip(texts, parts, strict=True):
            if not isinstance(part, LabelDistanceLoss):
                raise UserError(f"{text!r} is a loss over {part.labels}; take one over label distances here.")
        self.terms = nn.ModuleList(parts)
        self.normalize = parts[0].normalize
        for part in parts:
            if part.normalize != self.normalize:
                raise UserError(
                    f"The losses of a sum must agree on normalising embeddings: {type(parts[0]).__name__} has "
                    f"normalize={self.normalize}, {type(part).__name__} has normalize={part.normalize}. Set that of "
                    "the one that has such a setting, or take another loss."
                )

    def losses(self) -> Iterable[LabelDistanceLoss]:
        """The parts."""
        return (part for part in self.terms if isinstance(part, LabelDistanceLoss))

    def fit(self, distance: Any, labels: Any = None, *, seed: int = 0) -> Self:  # noqa: ANN401
        """Find the constants of every part; see ``LabelDistanceLoss.fit``."""
        for part in self.losses():
            part.fit(distance, labels, seed=seed)
        return self

    def fitted(self) -> dict[str, float]:
        """The constants of all parts, as ``part.name``."""
        parts = enumerate(self.losses(), 1)
        return {f"{number}.{name}": value for number, one in parts for name, value in one.fitted().items()}


class SumLoss(_OfLosses):
    """A weighted sum of losses over label distances, each with its own constants.

    Written ``sum(log-ratio, 0.3*cosent(scale=2.0))``. All parts must agree on normalising embeddings, as retrieval
    with the trained embedding has to know: ``rkd-distance`` does not normalise them unless it is told to.

    Args:
        parts: The losses, each as the command line takes it, with a weight before it: "0.3*cosent(scale=2.0)".

    Example:
        >>> import torch
        >>> from cml import losses
        >>> both = losses.get("sum(rkd-distance(normalize=true), 0.5*cosent)")
        >>> points, labels = torch.randn(6, 3), torch.rand(6, 6)
        >>> first, second = losses.get("rkd-distance", normalize=True), losses.get("cosent")
        >>> bool(both(points, labels).isclose(first(points, labels) + 0.5 * second(points, labels)))
        True
    """

    _when = "Each of two losses has what the other lacks, such as proportions and one order of all pairs."
    about = About("that of its parts", "a sum", _when)

    def __init__(self, parts: Sequence[str] = ("log-ratio", "0.3*cosent(scale=2.0)")) -> None:
        super().__init__()
        found = [one for part in parts if (one := _WEIGHTED.fullmatch(part))]
        if isinstance(parts, str) or not parts or len(found) < len(parts):
            raise UserError(f"A sum lists its losses, as in sum(log-ratio, 0.3*cosent). Got {parts!r} instead.")
        self.parts = list(parts)
        self.weights = [check_above_zero("weight", float(one["weight"] or 1)) for one in found]
        self.take([one["loss"] for one in found])

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The sum of the parts' losses, a scalar."""
        total = embeddings.new_zeros(())
        for weight, part in zip(self.weights, self.losses(), strict=True):
            total = total + weight * part(embeddings, label_distances)
        self.left_out = min(part.left_out for part in self.losses())
        return total


class MatryoshkaLoss(_OfLosses):
    """The mean of a loss over the first numbers of the embedding: one model, to be cut off at any of these sizes.

    Args:
        loss: A loss over label distances, as the command line takes it.
        dimensions: The sizes beside the whole embedding; larger ones than that are passed over.

    Example:
        >>> import torch
        >>> loss, points, labels = MatryoshkaLoss("rkd-distance", (2,)), torch.randn(6, 3), torch.rand(6, 6)
        >>> from cml.losses import rkd_distance_loss
        >>> apart = (rkd_distance_loss(points, labels) + rkd_distance_loss(points[:, :2], labels)) / 2
        >>> bool(loss(points, labels).isclose(apart))
        True

    Reference:
        Kusupati et al.: Matryoshka Representation Learning, NeurIPS 2022.
    """

    _when = "One model should serve several sizes of embedding."
    about = About("that of its loss, once per size", "Kusupati et al., NeurIPS 2022", _when)

    def __init__(self, loss: str = "log-ratio", dimensions: Sequence[int] = (16, 32, 64)) -> None:
        super().__init__()
        self.loss = loss
        sizes = [dimensions] if isinstance(dimensions, int) else list(dimensions)
        self.dimensions = tuple(sorted({check_whole("dimensions", size) for size in sizes}))
        self.take([loss])

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The mean over the sizes, a scalar."""
        (part,) = self.losses()
        whole = embeddings.shape[1]
        sizes = [*(size for size in self.dimensions if size < whole), whole]
        before = part.left_out
        total = embeddings.new_zeros(())
        for size in sizes:
            part.left_out = before
            total = total + part(embeddings[:, :size], label_distances)
        self.left_out = part.left_out
        return total / len(sizes)
