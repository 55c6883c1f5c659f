"""The tensors of a training step, made from a sampler's batch in data workers.

An item of this dataset is a whole batch, a pure function of (seed, global step). So a run can continue at any step, and
workers can share the blocks of label distances. Each of several processes makes its share of a batch's images, and they
take turns with the label distances.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from cml.data.augmentation import Jitter, jittered_box, mirrored
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
    """Images and their labels, in the same order.

    Attributes:
        images: N images, or their features by a frozen backbone.
        labels: N encoded labels.
        distance: The label distance that encoded them.
        mirrored_labels: Labels of the mirrored images; needed if images are mirrored one by one.
    """

    images: Images | Features
    labels: Labels
    distance: LabelDistance
    mirrored_labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, items: slice) -> TrainingData:
        """A part of it."""
        twins = None if self.mirrored_labels is None else self.mirrored_labels[items]
        return TrainingData(self.images.subset(items), self.labels[items], self.distance, twins)

    def held_out(self, config: TrainConfig) -> tuple[TrainingData, TrainingData]:
        """The items to train on, and those to validate on, none if the run is not validated.

        The latter are the last items, so that neighbours, such as video frames, stay together.
        """
        kept = items_left(config, len(self))
        return self.subset(slice(0, kept)), self.subset(slice(kept, len(self)))


def items_left(config: TrainConfig, items: int) -> int:
    """How many of ``items`` are trained on, and not held out for validation.

    Raises:
        UserError: too few for both.
    """
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


class BatchSource(Dataset[Step]):
    """Batches by global step.

    With a memory of M, label distances have a further column for each of the last M items of earlier steps, newest
    batch first, as ``CrossBatchMemory`` stores them.

    Args:
        data: The training data.
        sampler: The sampler.
        given: The result of the sampler's ``given``.
        config: The options of the run.
        target: The loss's ``target``, a function of a batch's labels.
        ranks: The processes that share the batches; None for this one alone.

    Raises:
        UserError: there are more processes than items in a batch; at a batch, the label distance lacks what the target
            needs, or there is a memory and the target is not label distances.
    """

    def __init__(
        self,
        data: TrainingData,
        sampler: Sampler,
        given: NDArray[Any],
        config: TrainConfig,
        *,
        target: Callable[[LabelSource], Tensor] = label_distances,
        ranks: Ranks | None = None,
    ) -> None:
        ranks = Ranks() if ranks is None else ranks
        if sampler.batch_size < ranks.size:
            raise UserError(
                f"A batch of {sampler.batch_size} items cannot be split over {ranks.size} processes: set the sampler's "
                "batch_size, or start fewer of them."
            )
        self._training, self._target, self._ranks = TrainingLabels(data.distance, data.labels), target, ranks
        self._data, self._sampler, self._given, self._config = data, sampler, given, config
        self._jitter = Jitter(config.crop, config.scale_jitter, config.shift_jitter, config.brightness_jitter)
        self._plans: dict[int, _Plan] = {}  # of the steps that the memory reaches back to

    def items(self, step: int) -> Int64:
        """The item numbers (B,) of a step."""
        return self._plan(step).items

    def __getitem__(self, step: int) -> Step:
        """Inputs (b, 3, h, w) uint8, or features (b, F), and the target, of a step."""
        items, flips, anchors, rng = self._plan(step)
        stored, stored_flips = self.remembered(step)
        labels = BatchLabels(
            self._training,
            items,
            self._labels(np.concatenate([items, stored]), np.concatenate([flips, stored_flips])),
            anchors,
            stored=stored,
            memory=self._config.memory,
            own_turn=self._ranks.turn(step) == self._ranks.rank,
        )
        target = self._target(labels)
        own = self._ranks.share(len(items))
        images, size = self._data.images, self._config.image_size
        if isinstance(images, Features):
            return torch.from_numpy(images.read(items[own])), target
        boxes = jittered_box(images.read(items[own]), size, self._jitter, rng, part=own, total=len(items))
        return mirrored(boxes, flips[own]), target

    def shared(self, target: Tensor, step: int) -> Tensor:
        """The target of a step, from the process whose turn it was to make it."""
        return self._ranks.send(target, self._ranks.turn(step))

    def _plan(self, step: int) -> _Plan:
        batch = self._sampler.batch(self._given, seed=self._config.seed, step=step)
        rng = np.random.default_rng((self._config.seed, step, 7))  # 7: a stream of its own beside the sampler's
        flips = np.zeros(len(batch.items), bool)
        if self._config.flip == "list":
            flips[:] = rng.random() < 0.5
        elif self._config.flip == "image":
            flips = rng.random(len(batch.items)) < 0.5
        return _Plan(batch.items, flips, batch.anchors, rng)

    def remembered(self, step: int) -> tuple[Int64, NDArray[np.bool_]]:
        """The items in the memory at a step, and which of them were mirrored, newest step first, (S,) each, S <= M."""
        plans: dict[int, _Plan] = {}
        items, flips, count = [np.empty(0, np.int64)], [np.empty(0, bool)], 0
        while count < self._config.memory and step - len(plans) > 0:
            earlier = step - len(plans) - 1
            plans[earlier] = self._plans.get(earlier) or self._plan(earlier)
            items.append(plans[earlier].items)
            flips.append(plans[earlier].flips)
            count += len(plans[earlier].items)
        self._plans = plans
        return np.concatenate(items)[: self._config.memory], np.concatenate(flips)[: self._config.memory]

    def _labels(self, items: Int64, flips: NDArray[np.bool_]) -> Labels:
        labels = self._data.labels[items]
        if self._config.flip != "image":
            return labels
        assert self._data.mirrored_labels is not None
        twins = self._data.mirrored_labels[items]
        return Labels(
            {
                name: np.where(flips.reshape(-1, *[1] * (array.ndim - 1)), twins.arrays[name], array)
                for name, array in labels.arrays.items()
            }
        )

    def steps(self, first: int, last: int) -> Iterator[Step]:
        """The batches of global steps ``first`` to ``last`` - 1, made ahead by ``config.workers`` processes."""
        workers = 0 if isinstance(self._data.images, Features) else self._config.workers
        return made_ahead(self, range(first, last), workers=workers, timeout=self._config.worker_timeout)
