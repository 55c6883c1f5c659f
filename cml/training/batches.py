"""The tensors of a training step, made from a sampler's batch in data workers.

An item of ``BatchSource`` is a whole batch, a pure function of (seed, step): see ``cml.sampling.draws``. So a run
can continue at any step, and data workers can share the blocks of label distances. Each of several processes makes its
share of a batch's images, and they take turns with the label distances.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from cml.array_types import Bools, Int64
from cml.data.augmentation import Jitter, jitter_boxes, mirror_images
from cml.data.images import Images
from cml.data.items import Items
from cml.distances.labels import LabelError, Labels
from cml.distributed.gradient_cache import Parts, count_parts, split_batch
from cml.errors import UserError
from cml.items import LabelledItems
from cml.losses.loss import LabelSource
from cml.processes.ranks import Ranks
from cml.sampling.draws import augmentation_generator, check_weights
from cml.sampling.sampler import Sampler
from cml.training.config import TrainConfig
from cml.training.data_workers import prefetch
from cml.training.own_functions import Augment, OwnAugmentation, check_label_changes
from cml.training.randomness import seeded_randomness
from cml.training.training import Training
from cml.training.training_targets import BatchTargets, TrainingTargets, label_distances, repeat_items

# this process's inputs (b, ...) or batch of any kind, with one process of all B items, and the target of the whole
# batch: label distances (A, B), undefined if it is another process's turn to compute them, class numbers or vectors;
# and the item numbers (B,) of the whole batch
Step = tuple[Any, Tensor, Int64]


class Batches(Protocol):
    """What the loop takes its batches from: ``BatchSource``, or what a learner makes in its place."""

    def check(self, step: int) -> None:
        """Make a batch here, not in a data worker, so that errors come early, where batches can be made twice."""

    def steps(self, first: int, last: int) -> Iterator[Step]:
        """Iterate over the batches of some steps."""


class _Plan(NamedTuple):
    items: Int64  # (B,), with views copies of each
    chosen: Int64  # the sampler's items, each once
    repeats: Int64  # (B,) which of them each item of the batch is a copy of
    flips: Bools  # (B,) which items are mirrored
    anchors: int
    rng: np.random.Generator  # for the jitter, once


@dataclass(eq=False)
class BatchSource(Dataset[Step]):
    """Batches by global step.

    With a memory of M, label distances have a further column for each of the last M items of earlier steps, newest
    batch first, as ``CrossBatchMemory`` stores them.
    """

    data: LabelledItems  # the training data
    sampler: Sampler
    sampler_state: NDArray[Any]  # the result of the sampler's ``sampler_state``
    config: TrainConfig  # the options of the run
    target: Callable[[LabelSource], Tensor] = label_distances  # the loss's ``target``, a function of a batch's labels
    ranks: Ranks = field(default_factory=Ranks)  # the processes that share the batches
    augment: Augment | None = None  # a function of the user's own that augments an item, see ``OwnAugmentation``
    targets: TrainingTargets | None = None  # the labels as losses ask for them; None for those of ``data``

    @classmethod
    def of(cls, training: Training) -> Self:
        """The batches of a training."""
        return cls(
            training.items,
            training.sampler,
            training.sampler.sampler_state(training.targets),
            training.config,
            target=training.loss.target,
            ranks=training.ranks,
            augment=training.own.augment,
        )

    def __post_init__(self) -> None:
        if self.sampler.batch_size < self.ranks.size:
            raise UserError(
                f"A batch of {self.sampler.batch_size} items cannot be split over {self.ranks.size} processes: set the "
                "sampler's batch_size, or start fewer of them."
            )
        options = self.config
        if self.data.weights is not None:
            items = np.arange(len(self.data))
            steps = self.sampler.steps_per_epoch(len(items))
            check_weights(self.data.weights, steps, self.data.positions(items))
        self._augmentation = None if self.augment is None else OwnAugmentation(self.augment)
        if self._augmentation is not None and self._augmentation.takes_labels:
            check_label_changes(options)
        self._training = self.targets or TrainingTargets(self.data.distance, self.data.labels)
        self._jitter = Jitter(
            options.crop, options.scale_jitter, options.shift_jitter, options.brightness_jitter, options.random_crop
        )
        self._plans: dict[int, _Plan] = {}  # of the steps that the memory reaches back to

    def check(self, step: int) -> None:
        """Make a batch, for its errors."""
        self[step]

    def __getitem__(self, step: int) -> Step:
        """Make this process's inputs, images (b, 3, h, w) uint8, (b, ...) or a batch, the target and the items."""
        plan = self._plan(step)
        own_turn = self.ranks.owner(step) == self.ranks.rank
        with contextlib.ExitStack() as stack:
            if self.data.inputs.reads_anew:
                stack.enter_context(seeded_randomness(self.config.seed, step, self.ranks.rank))
            inputs, changed_labels = self._inputs(plan, step, own_turn=own_turn)
        return inputs, self.target(self._targets(plan, step, changed_labels, own_turn=own_turn)), plan.items

    def _inputs(self, plan: _Plan, step: int, *, own_turn: bool) -> tuple[Any, list[Any] | None]:
        """This process's inputs; and the labels of the whole batch, if augmentation changes them and it is its turn."""
        source, augmentation, share = self.data.inputs, self._augmentation, self.ranks.share(len(plan.items))
        changed_labels = None
        if augmentation is None:
            batch = self._read(plan, share)
        else:
            # labels are those of the whole batch, so the process that compares them augments all of it
            part = slice(0, len(plan.items)) if augmentation.takes_labels and own_turn else share
            given = self.data.positions(plan.items[part])
            labels = None
            if augmentation.takes_labels:
                labels = self.data.read_given_labels(plan.items[part])
            batch, changed_labels = augmentation.augment(
                self._read(plan, part), given, labels, seed=self.config.seed, step=step, first=part.start
            )
            batch = batch if part == share else batch[share]
        if isinstance(source, Items):
            batch = self._join(source, batch, plan, share)
        return batch, changed_labels if own_turn else None

    def _join(self, source: Items, values: list[Any], plan: _Plan, share: slice) -> Any:  # noqa: ANN401 - any kind
        """Join this process's items to a batch, or with ``micro_batch`` each part of them to one."""
        items = plan.items[share]
        largest = self.ranks.largest_share(len(plan.items))
        if (count := count_parts(largest, self.config.micro_batch)) == 1:
            return source.join(values, items)
        pieces = zip(split_batch(values, count), split_batch(items.tolist(), count), strict=True)
        return Parts([(source.join(piece, np.array(rows)), len(piece)) for piece, rows in pieces])

    def _read(self, plan: _Plan, part: slice) -> Any:  # noqa: ANN401 - a tensor or a list
        """A part of the batch: images (b, C, h, w), vectors or tensors (b, ...), or a list of items."""
        source = self.data.inputs
        if isinstance(source, Items):
            return source.read_each(plan.items[part])
        batch = source.read(plan.items[part])
        if not isinstance(source, Images):
            return torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch
        total = len(plan.items)
        boxes = jitter_boxes(batch, self.config.image_size, self._jitter, plan.rng, part=part, total=total)
        return mirror_images(boxes, plan.flips[part])

    def _targets(self, plan: _Plan, step: int, changed_labels: list[Any] | None, *, own_turn: bool) -> BatchTargets:
        """What the loss may ask of the labels of the whole batch."""
        stored, stored_flips = self.memory_items(step)
        # of copies with one label, label distances are computed once
        have_equal_labels = self.config.views > 1 and self.config.flip != "image" and changed_labels is None
        if changed_labels is not None:
            labels = self._encode(changed_labels, plan.items)
        elif have_equal_labels:
            labels = self.data.labels[np.concatenate([plan.chosen, stored])]
        else:
            labels = self._labels(np.concatenate([plan.items, stored]), np.concatenate([plan.flips, stored_flips]))
        return BatchTargets(
            training=self._training,
            items=plan.items,
            labels=labels,
            anchors=plan.anchors,
            stored=stored,
            memory=self.config.memory,
            own_turn=own_turn,
            repeats=plan.repeats if have_equal_labels else None,
            are_changed=self._augmentation is not None and self._augmentation.takes_labels,
        )

    def memory_items(
        self, step: int
    ) -> tuple[Int64, Bools]:  # the items (S,), newest step first, S <= M, and which of them were mirrored (S,)
        """List what the memory holds at a step."""
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
        """Iterate over the batches of some steps, which ``config.workers`` processes make ahead."""
        inputs = self.data.inputs
        takes_long = isinstance(inputs, Images) or inputs.reads_anew or self.augment is not None
        workers = self.config.workers if takes_long else 0
        return prefetch(self, range(first, last), workers=workers, timeout=self.config.worker_timeout)

    def _plan(self, step: int) -> _Plan:
        # samplers of the user's own may know no weights
        weights = {} if self.data.weights is None else {"weights": self.data.weights}
        batch = self.sampler.batch(self.sampler_state, seed=self.config.seed, step=step, **weights)
        rng = augmentation_generator(self.config.seed, step)
        repeats = repeat_items(len(batch.items), batch.anchors, self.config.views)
        flips = draw_flips(self.config.flip, len(repeats), rng)
        return _Plan(batch.items[repeats], batch.items, repeats, flips, batch.anchors * self.config.views, rng)

    def _encode(self, labels: list[Any], items: Int64) -> Labels:
        """Encode labels that augmentation has made."""
        distance = self.data.distance
        try:
            return distance.encode(labels)
        except LabelError as error:
            item = self.data.positions(items)[error.position]
            raise UserError(
                f"'augment' gives item {item} a label that does not fit the label distance {distance.name!r}: it "
                f"{error.fault}"
            ) from None

    def _labels(self, items: Int64, flips: Bools) -> Labels:
        labels = self.data.labels[items]
        if self.config.flip != "image":
            return labels
        assert self.data.mirrored_labels is not None
        return mirror_labels(labels, self.data.mirrored_labels[items], flips)


def draw_flips(
    flip: Literal["none", "list", "image"],
    count: int,  # B, the number of images
    rng: np.random.Generator,
) -> Bools:  # (B,) whether each image is mirrored
    """Draw which images of a batch are mirrored, each with probability 1/2."""
    flips = np.zeros(count, bool)
    if flip != "none":
        flips[:] = rng.random(1 if flip == "list" else count) < 0.5
    return flips


def mirror_labels(
    labels: Labels,  # B labels of the images as they are, such as keypoints
    mirrored: Labels,  # B labels of the same images, mirrored, such as keypoints with left and right exchanged
    flips: Bools,  # (B,) whether each image is mirrored
) -> Labels:  # B labels
    """Take the labels of mirrored images where the image is mirrored."""
    arrays = {}
    for name, array in labels.arrays.items():
        is_mirrored = flips.reshape(-1, *[1] * (array.ndim - 1))
        arrays[name] = np.where(is_mirrored, mirrored.arrays[name], array)
    return Labels(arrays)
