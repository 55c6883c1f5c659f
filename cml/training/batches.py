"""From a sampler's plan to the tensors of a training step, made in data workers.

One item of this dataset is one whole batch, numbered by the global step and a pure function of (seed, step). That is
what lets a run continue in mid-epoch, and lets workers share label-distance blocks out among themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cml.data.augmentation import Jitter, jittered_box, mirrored
from cml.data.images import Images, Size
from cml.distances.label_distance import Float32, Int32, LabelDistance, Labels
from cml.sampling.sampler import Sampler

Step = tuple[Tensor, Tensor]  # inputs (B, ..) and label distances (A, B)


@dataclass(frozen=True)
class TrainingData:
    """What is trained on: images and their labels, in the same order.

    Attributes:
        images: N images.
        labels: N encoded labels.
        distance: The label distance that encoded them.
        mirrored_labels: Labels of the mirrored images; needed where images are mirrored one by one.
    """

    images: Images
    labels: Labels
    distance: LabelDistance
    mirrored_labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, items: slice) -> TrainingData:
        """A part of it."""
        twins = None if self.mirrored_labels is None else self.mirrored_labels[items]
        return TrainingData(self.images.subset(items), self.labels[items], self.distance, twins)


class BatchSource(Dataset[Step]):
    """Batches by global step.

    Args:
        data: What is trained on.
        sampler: What makes a batch.
        nearest: (N, k) neighbour ids for the sampler.
        seed: Of the run.
        image_size: (height, width) that the network sees.
        jitter: How much an image may move.
        flip: Whether whole lists ("list") or single images ("image") are mirrored.
        features: (N, F) features to train on instead of the images.
    """

    def __init__(
        self,
        data: TrainingData,
        sampler: Sampler,
        nearest: Int32,
        *,
        seed: int,
        image_size: Size,
        jitter: Jitter,
        flip: str = "none",
        features: Float32 | None = None,
    ) -> None:
        self._data, self._sampler, self._nearest, self._seed = data, sampler, nearest, seed
        self._image_size, self._jitter, self._flip, self._features = image_size, jitter, flip, features

    def __getitem__(self, step: int) -> Step:
        """Inputs (B, 3, h, w) uint8, or features (B, F), and label distances (A, B) float32 of a step."""
        batch = self._sampler.batch(self._nearest, seed=self._seed, step=step)
        rng = np.random.default_rng((self._seed, step, 7))  # 7: a stream of its own beside the sampler's
        flips = np.zeros(len(batch.items), bool)
        if self._flip == "list":
            flips[:] = rng.random() < 0.5
        elif self._flip == "image":
            flips = rng.random(len(batch.items)) < 0.5
        labels = self._data.labels[batch.items]
        if self._flip == "image":
            assert self._data.mirrored_labels is not None
            twins = self._data.mirrored_labels[batch.items]
            labels = Labels(
                {
                    name: np.where(flips.reshape(-1, *[1] * (array.ndim - 1)), twins.arrays[name], array)
                    for name, array in labels.arrays.items()
                }
            )
        distances = torch.from_numpy(self._data.distance.pairwise(labels[: batch.anchors], labels))
        if self._features is not None:
            return torch.from_numpy(self._features[batch.items]), distances
        boxes = jittered_box(self._data.images.read(batch.items), self._image_size, self._jitter, rng)
        return mirrored(boxes, flips), distances

    def steps(self, first: int, last: int, workers: int) -> Iterator[Step]:
        """The batches of global steps ``first`` to ``last`` - 1, made ahead by ``workers`` processes."""
        loader = DataLoader(
            self,
            batch_size=None,
            sampler=range(first, last),
            num_workers=workers if self._features is None else 0,
            pin_memory=torch.cuda.is_available(),
            prefetch_factor=4 if workers and self._features is None else None,
            generator=torch.Generator(),  # its own: making a loader must not advance the run's random numbers
        )
        return cast("Iterator[Step]", iter(loader))
