"""The batches of a training on a stream: drawn from a buffer, and then made as those of any other data."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.distances.labels import LabelError, Labels
from cml.errors import UserError
from cml.items import LabelledItems
from cml.sampling.epoch_batches import Batch
from cml.sampling.sampler import Sampler
from cml.streams.first_items import FirstItems
from cml.streams.item_reader import Item, label_misfit
from cml.streams.share_reader import Arrivals, Part, ShareReader
from cml.streams.shuffle import shuffled_batches
from cml.streams.skipped_items import SkippedItems
from cml.training.batches import BatchSource, Step
from cml.training.own_functions import OwnAugmentation
from cml.training.training import Training
from cml.training.training_targets import TrainingTargets


class StreamBatches:
    """Batches of a stream. Each process reads its part of it, and all know the labels of a whole batch."""

    def __init__(self, training: Training, first: FirstItems) -> None:
        config, ranks = training.config, training.ranks
        self._training, self._reader = training, first.reader
        self._reference = first.items[0].label  # of the form that all labels should have
        part = Part(ranks.rank, ranks.size, first.stream.shares)
        own_share = ranks.share(training.sampler.batch_size)
        augment = training.own.augment
        if ranks.size > 1 and augment is not None and OwnAugmentation(augment).takes_labels:
            raise UserError(
                "An 'augment' that changes labels needs all items of a batch in one process, but each process reads "
                "its part of the stream: let it take the item alone, or train in one process."
            )
        skipped = SkippedItems(is_shown=ranks.rank == 0)
        skipped.note(first.faults)
        arrivals = Arrivals(
            ShareReader(first.stream, first.reader, part, first.seed, dict(first.chunks)),
            workers=min(config.workers, len(part.own_shares)),
            timeout=config.worker_timeout,
            first=first.take(part),
            first_share=first.next_share,
            ended=first.ended,
            skipped=skipped,
        )
        self._drawn: Iterator[list[Item]] = shuffled_batches(
            arrivals,
            batch_size=own_share.stop - own_share.start,
            buffer=math.ceil(first.stream.buffer / ranks.size),
            make_generator=lambda number: np.random.default_rng((first.seed, number, ranks.rank)),
            refuse=lambda count: _too_few(count, own_share.stop - own_share.start, arrivals.epoch),
        )

    def check(self, step: int) -> None:
        """Do nothing: the batches are made here, and not in data workers."""

    def steps(self, first: int, last: int) -> Iterator[Step]:
        """Iterate over the batches of some steps."""
        for step in range(first, last):
            yield self._make(next(self._drawn), step)

    def _make(self, own: Sequence[Item], step: int) -> Step:
        """Make a batch of the items of this process and those of the others."""
        training = self._training
        known = [(item.label, item.name) for item in own]
        labels, names = zip(*(pair for part in training.ranks.all_gather(known) for pair in part), strict=True)
        values: list[Any] = [None] * len(labels)  # of which this process reads only its own
        values[training.ranks.share(len(labels))] = [item.value for item in own]
        encoded = self._encode(labels, names)
        source = BatchSource(
            LabelledItems(self._reader.open(values), encoded, training.items.distance, given_labels=labels),
            WholeBatch(len(labels)),
            np.empty((len(labels), 0)),
            training.config,
            target=training.loss.target,
            ranks=training.ranks,
            augment=training.own.augment,
            targets=StreamTargets(training.targets, encoded, names),
        )
        return source[step]

    def _encode(self, labels: Sequence[Any], names: Sequence[str]) -> Labels:
        """Encode labels after one that is known to be sound, with which they have to agree."""
        distance = self._training.items.distance
        try:
            return distance.encode([self._reference, *labels])[1:]
        except LabelError as error:
            raise label_misfit(names[error.position - 1], distance, error) from None


def _too_few(
    count: int,
    batch_size: int,
    epoch: int,  # the number of the pass, from 0
) -> UserError:
    """Make the error of a pass that has too few items for a batch."""
    if count == 0 and epoch > 0:
        return UserError(
            "The stream gave its items once, and none when it was read again: a function must return a new iterator at "
            "each call, so create the generator or open the file inside it; an iterable must start anew at each iter()."
        )
    return UserError(
        f"A batch takes {batch_size} items, but pass {epoch + 1} over the stream gives {count}: make the sampler's "
        "batch_size smaller."
    )


@dataclass(frozen=True)
class WholeBatch(Sampler):
    """All items in their order, each an anchor."""

    def batch(self, state: NDArray[Any], *, seed: int, step: int, weights: Float64 | None = None) -> Batch:
        """Take the batch as it is."""
        return Batch(np.arange(self.batch_size), self.batch_size)


class StreamTargets(TrainingTargets):
    """The labels of a batch, with the classes that the first items of the stream have."""

    def __init__(self, whole: TrainingTargets, labels: Labels, names: Sequence[str]) -> None:
        super().__init__(whole.distance, labels)
        self._whole, self._items = whole, names

    def classes(self) -> Int64:
        """Number the classes (B,) of the batch."""
        self._whole.classes()  # which refuses labels that are no classes
        numbers = {name: number for number, name in enumerate(self._whole.class_names())}
        classes = cast("Sequence[str]", self.distance.class_names(self._labels))
        for name, item in zip(classes, self._items, strict=True):
            if name not in numbers:
                raise UserError(
                    f"The class {str(name)!r} of {item} of the stream is none of the {len(numbers)} of its first "
                    f"{len(self._whole):,} items, which the loss learns: make the 'buffer' of the LabelledStream "
                    "larger, mix the classes in the stream, or take a loss over label distances, such as log-ratio."
                )
        return np.array([numbers[name] for name in classes], np.int64)
