"""The contract of a sampler: which items make a batch, and which of them are anchors.

A sampler is a frozen dataclass of settings. It works from its ``sampler_state``: neighbour lists, class numbers, or
nothing but the number of items. A batch is a pure function of (seed, epoch, step): there is no state to save, a run may
continue at any step, and data workers may make batches out of order. Every epoch takes every training item as a counted
anchor exactly once.
"""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Int64
from cml.errors import UserError
from cml.option_types import convert_options
from cml.sampling.draws import batch_generator, epoch_generator, weighted_anchors
from cml.sampling.epoch_batches import Batch, EpochBatches
from cml.sampling.training_labels import TrainingLabels, encode_training_labels


@dataclass(frozen=True)
class Sampler:
    """How batches are composed.

    A subclass overrides what differs: ``sampler_state`` or ``neighbors`` for what it works from, ``counted_anchors``
    for the length of an epoch, ``compose`` for the items of a batch.

    Attributes:
        batch_size: B, items per batch.

    Example:
        >>> from cml import sampling
        >>> sampler = sampling.get("grouped(batch_size=8, groups=2, drawn=1, pool=2)")
        >>> first = next(iter(sampler.batches("euclidean", list(range(20)))))  # items of the first batch
        >>> len(first)
        8
    """

    batch_size: int = 150

    def __post_init__(self) -> None:
        convert_options(self)
        if self.batch_size < 2:
            raise UserError(f"The 'batch_size' must be at least 2. Got {self.batch_size} instead.")

    @property
    def neighbors(self) -> int:
        """How many nearest neighbours of each item the sampler works from; 0 for none."""
        return 0

    @property
    def counted_anchors(self) -> int:
        """Items of a batch that the epoch counts as its anchors; by default all B."""
        return self.batch_size

    def sampler_state(self, labels: TrainingLabels) -> NDArray[Any]:
        """Make the array from which batches are composed, with a row for each of the N items.

        Args:
            labels: The labels of the training set.

        Returns:
            Neighbour ids (N, ``neighbors``), -1 for none, unless a subclass works from something else.
        """
        return labels.neighbors(self.neighbors)

    def compose(self, anchors: Int64, state: NDArray[Any], rng: np.random.Generator) -> Batch:
        """Compose a batch around its counted anchors; by default random items fill it up, and all are anchors.

        Args:
            anchors: Item numbers (C,) of the counted anchors.
            state: The array of ``sampler_state``, a row an item.
            rng: The generator of this batch.

        Returns:
            The batch, of ``batch_size`` different items.
        """
        return Batch(self.fill_batch(anchors, len(state), rng), self.batch_size)

    def fill_batch(self, chosen: Int64, items: int, rng: np.random.Generator) -> Int64:
        """Fill a batch up with random other items.

        Args:
            chosen: Item numbers that the batch begins with, at most B, each once.
            items: N, the number of training items.
            rng: The generator of this batch.

        Returns:
            Item numbers (B,), ``chosen`` first.
        """
        return np.concatenate([chosen, draw_others(chosen, self.batch_size - len(chosen), items, rng)])

    def batches(
        self,
        label_distance: Any,  # noqa: ANN401 - as cml.fit takes it
        labels: Any = None,  # noqa: ANN401 - labels of any kind
        *,
        seed: int = 0,
    ) -> EpochBatches:
        """Make the batches of a training loop of your own; ``DataLoader(batch_sampler=...)`` takes them too.

        Each time that they are iterated over they are those of the next epoch. The first ``batches.anchors`` items of
        a batch are its anchors. With several processes, each gets its part of every batch, and
        ``cml.distributed.gather`` puts the parts together.

        Args:
            label_distance: A string, a ``LabelDistance``, a function of two labels or a matrix, as ``cml.fit`` takes
                it; "classes" for per-class.
            labels: The N labels of the training set, as they are or encoded by the distance.
            seed: Random seed.

        Returns:
            An iterable of lists of B item numbers, or of this process's part of them, with ``len``, ``anchors``,
            ``set_epoch`` and ``state_dict``.

        Raises:
            UserError: there are too few labels for a batch, they do not fit the distance, or per-class has no classes.

        Example:
            >>> from cml import sampling
            >>> sampler = sampling.GroupedSampler(batch_size=10, groups=2)
            >>> batches = sampler.batches("euclidean", [age / 2 for age in range(50)])
            >>> len(batches), batches.anchors, [len(batch) for batch in batches][:2]
            (25, 10, [10, 10])
        """
        state = self.sampler_state(encode_training_labels(label_distance, labels))
        make_batch = functools.partial(self.batch, state, seed=seed)
        return EpochBatches(make_batch, self.steps_per_epoch(len(state)), batch_size=self.batch_size, seed=seed)

    def steps_per_epoch(self, items: int) -> int:
        """Count the batches in which every training item is a counted anchor once.

        Args:
            items: N, the number of training items.

        Returns:
            Steps of an epoch.
        """
        return -(-items // self.counted_anchors)

    def check_count(self, items: int) -> None:
        """Check that there are enough items for a batch.

        Args:
            items: N, the number of training items.

        Raises:
            UserError: There are fewer items than a batch takes.
        """
        if items < self.batch_size:
            raise UserError(
                f"A batch takes {self.batch_size} different items, but there are {items} training items. "
                f'Set the sampler to smaller batches, as in "random(batch_size={suggest_batch_size(items)})".'
            )

    def check_state(self, state: NDArray[Any], dimensions: int, *, rows_are_items: bool = True) -> None:
        """Check the argument of ``batch``.

        Args:
            state: What should be the array of ``sampler_state``.
            dimensions: Its number of dimensions.
            rows_are_items: Whether it has a row for each item; of pairs or triplets it has not.

        Raises:
            UserError: It is something else, or there are fewer items than a batch takes.
        """
        if getattr(state, "ndim", None) != dimensions:
            raise UserError(
                f"batch takes the array that the sampler's 'sampler_state' makes. Got {type(state).__name__} instead; "
                "take sampler.batches(distance, labels) to draw from labels."
            )
        if rows_are_items:
            self.check_count(len(state))

    def batch(self, state: NDArray[Any], *, seed: int, step: int, weights: Float64 | None = None) -> Batch:
        """Compose the batch of a step.

        Args:
            state: The array of ``sampler_state``: (N, k) int32 neighbour ids, k >= ``neighbors``, which may be 0.
            seed: Seed of the run.
            step: Number of the step in the run, from 0, counted through all epochs.
            weights: (N,) how often each item is a counted anchor relative to the others, above 0; None for all alike.

        Returns:
            The batch; equal arguments give equal batches.

        Raises:
            UserError: fewer items than the batch, too few neighbours, or something else than an array of them.
        """
        self.check_state(state, 2)
        items = len(state)
        if state.shape[1] < self.neighbors:
            raise UserError(f"This sampler needs {self.neighbors} neighbors per item. Got {state.shape[1]} instead.")
        steps = self.steps_per_epoch(items)
        epoch, index = divmod(step, steps)
        if weights is not None:
            anchors = weighted_anchors(weights, seed=seed, epoch=epoch, index=index, steps=steps)
            return self.compose(anchors, state, batch_generator(seed, epoch, index))
        order = _epoch_order(items, seed, epoch)
        anchors = order[index * self.counted_anchors : (index + 1) * self.counted_anchors]
        return self.compose(anchors, state, batch_generator(seed, epoch, index))


def suggest_batch_size(
    items: int,  # N, the number of training items
) -> int:  # items per batch, at most N
    """Suggest a batch size where there are fewer items than usual: half of them, so that batches differ."""
    return items if items < 20 else items // 2


def draw_others(
    chosen: Int64,
    count: int,
    items: int,  # N; items are drawn from 0..N-1
    rng: np.random.Generator,
) -> Int64:
    """Draw different items at random that were not chosen yet."""
    if 4 * (len(chosen) + count) > items:  # few are left out: a permutation of the rest is cheaper than rejection
        return rng.permutation(np.setdiff1d(np.arange(items), chosen))[:count]
    excluded = set(chosen.tolist())
    drawn: list[int] = []
    while len(drawn) < count:
        for item in rng.integers(items, size=count - len(drawn)).tolist():
            if item not in excluded:
                excluded.add(item)
                drawn.append(item)
    return np.array(drawn, np.int64)


def drop_repeats(items: Int64) -> Int64:
    """Keep every item once, in the order in which they come first."""
    _, first = np.unique(items, return_index=True)
    return items[np.sort(first)]


def check_setting(name: str, value: int, most: int, *, least: int = 1) -> None:
    """Check that a setting of a sampler is in its range."""
    if not least <= value <= most:
        raise UserError(f"'{name}' must be in {least}..{most}. Got {value} instead.")


@functools.lru_cache(maxsize=2)
def _epoch_order(items: int, seed: int, epoch: int) -> Int64:
    return epoch_generator(seed, epoch).permutation(items)
