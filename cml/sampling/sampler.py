"""The contract of a sampler: which items make a batch, and which of them are anchors.

A batch is a pure function of (seed, epoch, step): a run may continue at any step, and data workers may make batches out
of order. Every epoch takes every training item as a counted anchor exactly once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.distances import LabelDistance, Labels, made
from cml.distances.label_distance import Int32
from cml.errors import UserError

Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Items of one batch; the first ``anchors`` of them are the anchors.

    Attributes:
        items: (B,) distinct item numbers.
        anchors: A, 1 <= A <= B.
    """

    items: Int64
    anchors: int


class LabelsOf:
    """The N labels of a training set, as samplers ask for them."""

    def __init__(self, distance: LabelDistance, labels: Labels) -> None:
        self.distance, self._labels = distance, labels

    def neighbors(self, k: int) -> Int32:
        """The ids (N, k) of each label's nearest labels, -1 for none; k is at most N - 1."""
        if k == 0:
            return np.empty((len(self._labels), 0), np.int32)
        from cml.distances.jobs.stored_lists import stored_neighbors

        return stored_neighbors(self.distance, self._labels, min(k, len(self._labels) - 1)).ids

    @functools.cached_property
    def _classes(self) -> tuple[Int64, Sequence[str]] | None:
        """Class numbers (N,) and the C sorted names; None if the labels are not classes."""
        if (names := self.distance.class_names(self._labels)) is None:
            return None
        known, numbers = np.unique(names, return_inverse=True)
        return numbers.astype(np.int64), tuple(known.tolist())

    def classes(self) -> Int64:
        """The class numbers (N,), 0..C-1, of at least 2 classes."""
        if self._classes is None:
            raise UserError(
                f"The label distance {self.distance.name!r} has no classes. Use label_distance=classes for labels "
                "that are classes; for continuous labels use a rule, as in binary(loss=.., rule=nearest, k=5)."
            )
        numbers, names = self._classes
        if len(names) < 2:
            got = f"Got only {names[0]!r} instead."
            raise UserError(f"Losses and samplers over classes need at least 2 training classes. {got}")
        return numbers

    def class_names(self) -> Sequence[str]:
        """The names of the C classes, in the order of their numbers; none if the labels are not classes."""
        return () if self._classes is None else self._classes[1]


@dataclass(frozen=True)
class Sampler:
    """How batches are composed.

    Attributes:
        batch_size: B, items per batch.
    """

    batch_size: int = 150

    def __post_init__(self) -> None:
        if self.batch_size < 2:
            raise UserError(f"The 'batch_size' must be at least 2. Got {self.batch_size} instead.")

    @property
    def neighbors(self) -> int:
        """How many nearest neighbours of each item the sampler works from; 0 for none."""
        return 0

    def given(self, labels: LabelsOf) -> NDArray[Any]:
        """What the batches are made from, a row for each of the N items: neighbour ids (N, ``neighbors``)."""
        return labels.neighbors(self.neighbors)

    @property
    def counted_anchors(self) -> int:
        """Items of a batch that the epoch counts as its anchors: all of them, where the sampler does not say."""
        return self.batch_size

    def compose(self, anchors: Int64, given: NDArray[Any], rng: np.random.Generator) -> Batch:
        """Make a batch around ``anchors`` (C,) from what is ``given``: neighbour ids (N, k) have -1 for none.

        A sampler that does not say fills up with random items, every one of them an anchor (A = B).
        """
        return Batch(self.filled(anchors, len(given), rng), self.batch_size)

    def filled(self, chosen: Int64, items: int, rng: np.random.Generator) -> Int64:
        """The chosen items, then others of the N drawn at random, up to the batch size."""
        return np.concatenate([chosen, others(chosen, self.batch_size - len(chosen), items, rng)])

    def batches(self, labels: Any, label_distance: Any = "euclidean", *, seed: int = 0) -> Batches:  # noqa: ANN401
        """The batches of a loop of your own, as arrays of item numbers (B,): also ``DataLoader(batch_sampler=..)``.

        Each time that they are iterated over they are those of the next epoch. The first ``batches.anchors`` items of
        a batch are its anchors.

        Args:
            labels: The N labels of the training set, as they are or encoded by the distance.
            label_distance: A text, a ``LabelDistance``, a function of two labels or a matrix, as ``cml.fit`` takes it;
                "classes" for per-class.
            seed: Of the draw.

        Raises:
            UserError: there are too few labels for a batch, they do not fit the distance, or per-class has no classes.

        Example:
            >>> from cml import sampling
            >>> batches = sampling.get("grouped(batch_size=10, groups=2)").batches([age / 2 for age in range(50)])
            >>> len(batches), batches.anchors, [batch.shape for batch in batches][:2]
            (25, 10, [(10,), (10,)])
        """
        return Batches(self, label_distance, labels, seed)

    def steps_per_epoch(self, items: int) -> int:
        """Batches in which every one of ``items`` training items is a counted anchor once."""
        return -(-items // self.counted_anchors)

    def check_count(self, items: int) -> None:
        """Raise ``UserError`` if there are fewer items than a batch takes."""
        if items < self.batch_size:
            raise UserError(
                f"A batch takes {self.batch_size} different items, but there are {items} training items. "
                f'Set the sampler to smaller batches, as in "random(batch_size={suited_batch(items)})".'
            )

    def check_given(self, given: NDArray[Any], dimensions: int) -> None:
        """``check_count`` of what is given, which should be an array of so many dimensions."""
        if getattr(given, "ndim", None) != dimensions:
            got = f"Got {type(given).__name__} instead; take sampler.batches(labels, distance) to draw from labels."
            raise UserError(f"batch takes the array that the sampler's 'given' makes. {got}")
        self.check_count(len(given))

    def batch(self, given: NDArray[Any], *, seed: int, step: int) -> Batch:
        """The batch of global step ``step`` (0-based, counted through all epochs) of the run with ``seed``.

        ``given`` is what the method of that name makes: (N, k) int32 neighbour ids, k >= ``neighbors``, which may be 0.

        Raises:
            UserError: fewer items than the batch, too few neighbours, or something else than an array of them.
        """
        self.check_given(given, 2)
        items = len(given)
        if given.shape[1] < self.neighbors:
            raise UserError(f"This sampler needs {self.neighbors} neighbors per item. Got {given.shape[1]} instead.")
        epoch, within = divmod(step, self.steps_per_epoch(items))
        order = _epoch_order(items, seed, epoch)
        anchors = order[within * self.counted_anchors : (within + 1) * self.counted_anchors]
        return self.compose(anchors, given, np.random.default_rng((seed, epoch, within + 1)))


class Batches:
    """What ``Sampler.batches`` gives: each time that it is iterated over, the next epoch's batches."""

    def __init__(self, sampler: Sampler, distance: Any, labels: Any, seed: int) -> None:  # noqa: ANN401
        if not hasattr(labels, "__len__") or isinstance(labels, str | LabelDistance):
            takes = "the labels of the training set, then the label distance, as in batches(labels, 'euclidean')"
            raise UserError(f"batches takes {takes}. Got {type(labels).__name__} for the labels instead.")
        distance = made(distance) if isinstance(labels, Labels) else made(distance).fit(labels)
        encoded = distance.encode(labels)
        self._sampler, self._seed, self._step = sampler, seed, 0
        self._given = sampler.given(LabelsOf(distance, encoded))
        self._steps = sampler.steps_per_epoch(len(encoded))
        self.anchors = sampler.batch(self._given, seed=seed, step=0).anchors

    def __len__(self) -> int:
        return self._steps

    def __iter__(self) -> Iterator[Int64]:
        first, self._step = self._step, self._step + self._steps
        for step in range(first, first + self._steps):
            yield self._sampler.batch(self._given, seed=self._seed, step=step).items


def suited_batch(items: int) -> int:
    """A batch size for so few items that the usual one is too large: half of them, so that batches differ."""
    return items if items < 20 else items // 2


def others(chosen: Int64, count: int, items: int, rng: np.random.Generator) -> Int64:
    """``count`` different items drawn at random from 0..items-1 that are not in ``chosen``."""
    if 4 * (len(chosen) + count) > items:  # few are left out: a permutation of the rest is cheaper than rejection
        return rng.permutation(np.setdiff1d(np.arange(items), chosen))[:count]
    taken = set(chosen.tolist())
    drawn: list[int] = []
    while len(drawn) < count:
        for item in rng.integers(items, size=count - len(drawn)).tolist():
            if item not in taken:
                taken.add(item)
                drawn.append(item)
    return np.array(drawn, np.int64)


@functools.lru_cache(maxsize=2)
def _epoch_order(items: int, seed: int, epoch: int) -> Int64:
    return np.random.default_rng((seed, epoch, 0)).permutation(items)
