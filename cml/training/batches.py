"""The tensors of a training step, a pure function of (seed, step), so that a run can continue at any step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from cml.data.augmentation import Jitter, jitter_boxes, mirror_images
from cml.data.images import Images
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.loss import LabelSource
from cml.processes.ranks import Ranks
from cml.sampling.sampler import Int64, Sampler
from cml.training.config import TrainConfig
from cml.training.frozen import Features
from cml.training.targets import BatchLabels, TrainingLabels, label_distances
from cml.training.workers import made_ahead

# this process's inputs (b, ..), with one process all B, and the target of the whole batch: label distances (A, B),
# undefined if it is another process's turn to compute them, class numbers or vectors
Step = tuple[Tensor, Tensor]
FEWEST_HELD_OUT = 8  # rankings of fewer items say little
MOST_HELD_OUT = 1000  # all pairs of them are compared


@dataclass(frozen=True)
class TrainingData:
    """Images and their labels, in the same order."""

    images: Images | Features  # N images, or their features by a frozen backbone
    labels: Labels  # N encoded labels
    distance: LabelDistance  # the one that encoded them
    mirrored_labels: Labels | None = None  # of the mirrored images; needed if images are mirrored one by one

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, items: slice) -> Self:
        """A part of it."""
        twins = None if self.mirrored_labels is None else self.mirrored_labels[items]
        return replace(self, images=self.images.subset(items), labels=self.labels[items], mirrored_labels=twins)

    def held_out(self, config: TrainConfig) -> tuple[Self, Self]:
        """The items to train on, and the last ones, so that video frames stay together, to validate on, if any."""
        kept = items_left(config, len(self))
        return self.subset(slice(0, kept)), self.subset(slice(kept, len(self)))


def items_left(config: TrainConfig, items: int) -> int:
    """How many of ``items`` are trained on, and not held out for validation; a UserError if they are too few."""
    if not config.evaluate_every:
        return items
    left = items - min(MOST_HELD_OUT, max(FEWEST_HELD_OUT, round(config.validation_share * items)))
    if left < FEWEST_HELD_OUT:
        raise UserError(
            f"{items} training items are too few to hold {items - left} of them out for validation: at least "
            f"{FEWEST_HELD_OUT} must be left to train on. Set evaluate_every to 0."
        )
    return left


class _Plan(NamedTuple):
    items: Int64  # (B,)
    flips: NDArray[np.bool_]  # (B,) which of them are mirrored
    anchors: int
    rng: np.random.Generator  # for the jitter, once


@dataclass(eq=False)
class BatchSource(Dataset[Step]):
    """Batches by global step; with a memory, label distances have columns for its M items, newest batch first."""

    data: TrainingData
    sampler: Sampler
    given: NDArray[Any]  # by the sampler
    config: TrainConfig
    target: Callable[[LabelSource], Tensor] = label_distances  # the loss's
    ranks: Ranks = field(default_factory=Ranks)

    def __post_init__(self) -> None:
        if self.sampler.batch_size < self.ranks.size:
            raise UserError(
                f"A batch of {self.sampler.batch_size} items cannot be split over {self.ranks.size} processes: set the "
                "sampler's batch_size, or start fewer of them."
            )
        options = self.config
        self._training = TrainingLabels(self.data.distance, self.data.labels)
        self._jitter = Jitter(options.crop, options.scale_jitter, options.shift_jitter, options.brightness_jitter)
        self._plans: dict[int, _Plan] = {}  # of the steps that the memory reaches back to

    def items(self, step: int) -> Int64:
        """The item numbers (B,) of a step."""
        return self._plan(step).items

    def __getitem__(self, step: int) -> Step:
        items, flips, anchors, rng = self._plan(step)
        stored, stored_flips = self.remembered(step)
        labels = self._labels(np.concatenate([items, stored]), np.concatenate([flips, stored_flips]))
        own_turn = self.ranks.owner(step) == self.ranks.rank
        target = self.target(BatchLabels(self._training, items, labels, anchors, stored, self.config.memory, own_turn))
        own = self.ranks.share(len(items))
        images, size = self.data.images, self.config.image_size
        if isinstance(images, Features):
            return torch.from_numpy(images.read(items[own])), target
        boxes = jitter_boxes(images.read(items[own]), size, self._jitter, rng, part=own, total=len(items))
        return mirror_images(boxes, flips[own]), target

    def _plan(self, step: int) -> _Plan:
        batch = self.sampler.batch(self.given, seed=self.config.seed, step=step)
        rng = np.random.default_rng((self.config.seed, step, 7))  # 7: a stream of its own beside the sampler's
        flips = np.zeros(len(batch.items), bool)
        if self.config.flip != "none":
            flips[:] = rng.random(1 if self.config.flip == "list" else len(flips)) < 0.5
        return _Plan(batch.items, flips, batch.anchors, rng)

    def remembered(self, step: int) -> tuple[Int64, NDArray[np.bool_]]:
        """The items in the memory at a step, and which of them were mirrored, newest step first, (S,) each, S <= M."""
        plans: dict[int, _Plan] = {}
        size, count = self.config.memory, 0
        while count < size and (earlier := step - len(plans) - 1) >= 0:
            plans[earlier] = self._plans.get(earlier) or self._plan(earlier)
            count += len(plans[earlier].items)
        self._plans = plans
        items = np.concatenate([np.empty(0, np.int64), *(plan.items for plan in plans.values())])
        flips = np.concatenate([np.empty(0, bool), *(plan.flips for plan in plans.values())])
        return items[:size], flips[:size]

    def _labels(self, items: Int64, flips: NDArray[np.bool_]) -> Labels:
        labels = self.data.labels[items]
        if self.config.flip != "image":
            return labels
        assert self.data.mirrored_labels is not None
        twins = self.data.mirrored_labels[items]
        arrays = labels.arrays.items()
        flags = {name: flips.reshape(-1, *[1] * (array.ndim - 1)) for name, array in arrays}
        return Labels({name: np.where(flags[name], twins.arrays[name], array) for name, array in arrays})

    def steps(self, first: int, last: int) -> Iterator[Step]:
        """The batches of global steps ``first`` to ``last`` - 1, made ahead by ``config.workers`` processes."""
        workers = 0 if isinstance(self.data.images, Features) else self.config.workers
        return made_ahead(self, range(first, last), workers=workers, timeout=self.config.worker_timeout)
