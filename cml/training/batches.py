"""The tensors of a training step, made from a sampler's batch in data workers.

An item of ``BatchSource`` is a whole batch, a pure function of (seed, step): see ``cml.sampling.batch_seed``. So a run
can continue at any step, and data workers can share the blocks of label distances. Each of several processes makes its
share of a batch's images, and they take turns with the label distances.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from cml.data.augmentation import Jitter, jitter_boxes, mirror_images
from cml.data.images import Images
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.loss import LabelSource
from cml.processes.ranks import Ranks
from cml.sampling.batch import Int64
from cml.sampling.batch_seed import augmentation_generator
from cml.sampling.sampler import Sampler
from cml.training.batch_targets import BatchTargets, label_distances
from cml.training.config import TrainConfig
from cml.training.data_workers import prefetch
from cml.training.horizontal_flip import draw_flips, mirror_labels
from cml.training.seeded_randomness import seeded_randomness
from cml.training.training_data import TrainingData
from cml.training.training_targets import TrainingTargets

# this process's inputs (b, ..) or batch of any kind, with one process of all B items, and the target of the whole
# batch: label distances (A, B), undefined if it is another process's turn to compute them, class numbers or vectors
Step = tuple[Any, Tensor]


class _Plan(NamedTuple):
    items: Int64  # (B,)
    flips: NDArray[np.bool_]  # (B,) which of them are mirrored
    anchors: int
    rng: np.random.Generator  # for the jitter, once


@dataclass(eq=False)
class BatchSource(Dataset[Step]):
    """Batches by global step.

    With a memory of M, label distances have a further column for each of the last M items of earlier steps, newest
    batch first, as ``CrossBatchMemory`` stores them.

    Attributes:
        data: The training data.
        sampler: The sampler.
        sampler_state: The result of the sampler's ``sampler_state``.
        config: The options of the run.
        target: The loss's ``target``, a function of a batch's labels.
        ranks: The processes that share the batches.

    Raises:
        UserError: There are more processes than items in a batch. At a batch: the label distance lacks what the target
            needs, or there is a memory and the target is not label distances.
    """

    data: TrainingData
    sampler: Sampler
    sampler_state: NDArray[Any]
    config: TrainConfig
    target: Callable[[LabelSource], Tensor] = label_distances
    ranks: Ranks = field(default_factory=Ranks)

    def __post_init__(self) -> None:
        if self.sampler.batch_size < self.ranks.size:
            raise UserError(
                f"A batch of {self.sampler.batch_size} items cannot be split over {self.ranks.size} processes: set the "
                "sampler's batch_size, or start fewer of them."
            )
        options = self.config
        self._training = TrainingTargets(self.data.distance, self.data.labels)
        self._jitter = Jitter(options.crop, options.scale_jitter, options.shift_jitter, options.brightness_jitter)
        self._plans: dict[int, _Plan] = {}  # of the steps that the memory reaches back to

    def items(self, step: int) -> Int64:
        """The item numbers (B,) of the batch of a step."""
        return self._plan(step).items

    def __getitem__(self, step: int) -> Step:
        """Make this process's inputs, images (b, 3, h, w) uint8, (b, ..) or a batch, and the target of a step."""
        items, flips, anchors, rng = self._plan(step)
        stored, stored_flips = self.memory_items(step)
        targets = BatchTargets(
            training=self._training,
            items=items,
            labels=self._labels(np.concatenate([items, stored]), np.concatenate([flips, stored_flips])),
            anchors=anchors,
            stored=stored,
            memory=self.config.memory,
            own_turn=self.ranks.owner(step) == self.ranks.rank,
        )
        target = self.target(targets)
        share = self.ranks.share(len(items))
        inputs = self.data.inputs
        with contextlib.ExitStack() as stack:
            if inputs.reads_anew:
                stack.enter_context(seeded_randomness(self.config.seed, step, self.ranks.rank))
            batch = inputs.read(items[share])
        if not isinstance(inputs, Images):
            return torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch, target
        boxes = jitter_boxes(batch, self.config.image_size, self._jitter, rng, part=share, total=len(items))
        return mirror_images(boxes, flips[share]), target

    def memory_items(self, step: int) -> tuple[Int64, NDArray[np.bool_]]:
        """List what the memory holds at a step.

        Args:
            step: Number of the step, from 0.

        Returns:
            The items (S,), newest step first, S <= M, and which of them were mirrored (S,).
        """
        plans: dict[int, _Plan] = {}
        size, count = self.config.memory, 0
        earlier = step - 1
        while count < size and earlier >= 0:
            plans[earlier] = self._plans.get(earlier) or self._plan(earlier)
            count += len(plans[earlier].items)
            earlier -= 1
        self._plans = plans
        items = np.concatenate([np.empty(0, np.int64), *(plan.items for plan in plans.values())])
        flips = np.concatenate([np.empty(0, bool), *(plan.flips for plan in plans.values())])
        return items[:size], flips[:size]

    def steps(self, first: int, last: int) -> Iterator[Step]:
        """Iterate over the batches of some steps, which ``config.workers`` processes make ahead.

        Args:
            first: The first step.
            last: The step after the last one.

        Returns:
            The batches, in order.
        """
        inputs = self.data.inputs
        workers = self.config.workers if isinstance(inputs, Images) or inputs.reads_anew else 0
        return prefetch(self, range(first, last), workers=workers, timeout=self.config.worker_timeout)

    def _plan(self, step: int) -> _Plan:
        batch = self.sampler.batch(self.sampler_state, seed=self.config.seed, step=step)
        rng = augmentation_generator(self.config.seed, step)
        flips = draw_flips(self.config.flip, len(batch.items), rng)
        return _Plan(batch.items, flips, batch.anchors, rng)

    def _labels(self, items: Int64, flips: NDArray[np.bool_]) -> Labels:
        labels = self.data.labels[items]
        if self.config.flip != "image":
            return labels
        assert self.data.mirrored_labels is not None
        return mirror_labels(labels, self.data.mirrored_labels[items], flips)
