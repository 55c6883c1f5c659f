"""The base of the losses that are made of other losses over label distances: ``sum`` and ``matryoshka``."""

from collections.abc import Sequence
from typing import Any, Self

from torch import nn

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss


class CompositeLoss(LabelDistanceLoss):
    """Base of the losses that are made of losses over label distances, each of which keeps its own constants."""

    terms: nn.ModuleList  # The parts

    def set_parts(self, texts: Sequence[str]) -> None:
        """Make the parts and take over whether they normalise embeddings.

        Args:
            texts: Each part as the command line takes it.

        Raises:
            UserError: a part is no loss over label distances, or the parts do not agree on normalising embeddings.
        """
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

    def part_losses(self) -> list[LabelDistanceLoss]:
        """The losses that this one is made of."""
        return [part for part in self.terms if isinstance(part, LabelDistanceLoss)]

    def fit(self, distance: Any, labels: Any = None, *, seed: int = 0) -> Self:  # noqa: ANN401
        """Find the constants of every part.

        Returns the loss.
        """
        for part in self.part_losses():
            part.fit(distance, labels, seed=seed)
        return self

    def constants(self) -> dict[str, float]:
        """The constants of all parts, as ``number.name``."""
        return {
            f"{number}.{name}": value
            for number, part in enumerate(self.part_losses(), 1)
            for name, value in part.constants().items()
        }
