"""How embeddings are made: heads on frozen features (A), whole networks (B), and the rows without training."""

import functools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cml.bench.sets import BenchSet, Part, features_of
from cml.data.augmentation import stored_size
from cml.data.images import Images, Size
from cml.distances.label_distance import Float32
from cml.errors import UserError
from cml.training.config import TrainConfig

_MDS_DIMENSION = 32
_RIDGE = tuple(10.0**power for power in range(-2, 7))  # of which leave-one-out errors, in closed form, choose
AT_ONCE = {"A": 20, "B": 1}  # options that are trained at a time


class Fitted(NamedTuple):
    """What embeds the items of a part, (N, D); the seconds of its training; and why it failed, or ""."""

    embed: Callable[[Part], Float32]
    seconds: float = 0.0
    failed: str = ""


def fit(track: str, data: BenchSet, configs: Sequence[TrainConfig], kept: Path | None = None) -> list[Fitted]:
    """Train with each of the options, which share seed, size and batches; ``kept`` is the state of killed heads."""
    if track == "B":
        return [_network(data, config) for config in configs]
    from cml.bench.heads import train_heads

    features = functools.partial(features_of, configs[0])
    heads = train_heads(configs, features(data.train), data.train_distances, data.vectors, kept)
    return [Fitted(lambda part, head=head: head.embed(features(part)), head.seconds, head.failed) for head in heads]


def frozen(data: BenchSet, config: TrainConfig) -> Fitted:
    """The features as they are."""
    return Fitted(functools.partial(features_of, config))


def label_mds(data: BenchSet, config: TrainConfig) -> Fitted:
    """Classical scaling of the training labels' distances, and ridge regression of it on features.

    Reference: Torgerson, Multidimensional scaling: I, Psychometrika 1952.
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    features, before = features_of(config, data.train), time.perf_counter()
    distances = data.train_distances
    known = np.isfinite(distances)
    squared = np.square(np.where(known, distances, distances[known].max()), dtype=np.float64)
    centred = -0.5 * (squared - squared.mean(axis=0) - squared.mean(axis=1)[:, None] + squared.mean())
    values, vectors = np.linalg.eigh(centred)
    kept = min(_MDS_DIMENSION, int((values > 1e-9 * values[-1]).sum()))
    ridge = make_pipeline(StandardScaler(), RidgeCV(alphas=_RIDGE))
    ridge.fit(features, vectors[:, -kept:] * np.sqrt(values[-kept:]))

    def embed(part: Part) -> Float32:
        return np.asarray(ridge.predict(features_of(config, part)), np.float32).reshape(len(part), -1)

    return Fitted(embed, time.perf_counter() - before)


def _network(data: BenchSet, config: TrainConfig) -> Fitted:
    from cml.training.batches import TrainingData
    from cml.training.loop import train

    before, images = time.perf_counter(), _images(tuple(data.train.paths), config)
    try:
        model = train(TrainingData(images, data.train.labels, data.distance), config, quiet=True).model
    except (UserError, FloatingPointError) as error:
        return Fitted(functools.partial(features_of, config), time.perf_counter() - before, str(error))
    return Fitted(lambda part: model.embed(_images(tuple(part.paths), config)), time.perf_counter() - before)


def _images(paths: tuple[Path, ...], config: TrainConfig) -> Images:
    return _decoded(paths, stored_size(config.image_size, config.crop), config.cache_bytes)


@functools.lru_cache(maxsize=8)  # once for all trials
def _decoded(paths: tuple[Path, ...], size: Size, cache_bytes: int) -> Images:
    images = Images(paths, size, cache_bytes=cache_bytes)
    images.load()
    return images
