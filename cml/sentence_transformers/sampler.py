"""Samplers of cml for ``SentenceTransformerTrainer``."""

from dataclasses import replace
from typing import Any

from cml import sampling
from cml.errors import UserError
from cml.processes.ranks import find_ranks
from cml.sampling.epoch_batches import EpochBatches
from cml.sampling.sampler import Sampler


class LabelSampler:
    """Batches by the labels of the items, for the argument ``batch_sampler`` of the trainer.

    The trainer's batch size decides how many items a batch has. With several processes, each gets its part of every
    batch, and ``LabelDistanceLoss`` compares the items of all parts.
    """

    def __init__(
        self,
        sampler: str | Sampler = "random",
        distance: Any = "euclidean",  # noqa: ANN401 - as cml.fit takes it
        labels: Any = None,  # noqa: ANN401 - a sequence of any labels
    ) -> None:
        self.sampler = sampling.get(sampler) if isinstance(sampler, str) else sampler
        self.distance, self.labels = distance, labels

    def __call__(self, dataset: Any, batch_size: int, *, seed: int = 0, **others: object) -> EpochBatches:  # noqa: ANN401
        """Make the batches of a data set, as the trainer asks for them."""
        try:
            labels = list(dataset["label"])
        except KeyError:
            raise UserError("The data set has no column 'label', by which batches are drawn.") from None
        if self.labels is not None:
            if (most := int(max(labels))) >= len(self.labels):
                raise UserError(f"The column 'label' holds {most}, no number of one of {len(self.labels)} labels.")
            labels = [self.labels[int(row)] for row in labels]
        size = min(batch_size * find_ranks().size, len(labels))
        return replace(self.sampler, batch_size=size).batches(self.distance, labels, seed=seed)
