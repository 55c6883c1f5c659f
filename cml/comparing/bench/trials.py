"""What a row learns of a set, and what that scores: one trial, one final run, or a row without trials."""

import functools
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from cml.array_types import Float32, Float64, Floating
from cml.comparing.bench.bench_set import BenchSet, Part
from cml.comparing.bench.methods import UNTRAINED
from cml.comparing.bench.scores import measure_label_errors, score_run, score_validation
from cml.comparing.bench.sets import compute_features
from cml.comparing.bench.suite import NO_BACKBONE, Suite
from cml.data.images import Images, Size, stored_size
from cml.data.input_form import Inputs
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.label_regression import fit_ridge, scale_labels
from cml.retrieval.reference_rows import random_ranker
from cml.training.config import TrainConfig


@dataclass(frozen=True)
class Trial:
    """A trial: its score on the validation items, None where it failed, its seconds, and why it failed or ""."""

    number: int
    score: float | None
    seconds: float
    failed: str = ""


class Final(NamedTuple):
    """A final run: each score of each query, (Q,), or why it failed; its seconds; the most memory that was used.

    ``label_errors`` has those of labels that have a mean.
    """

    scores: Mapping[str, Float64]
    seconds: float
    failed: str
    memory_mb: int
    label_errors: Mapping[str, float] = MappingProxyType({})


Embed = Callable[[Part], Float32]


def run_trial(data: BenchSet, config: TrainConfig, number: int) -> Trial:
    """Train with the options of a trial, and score it on the validation items."""
    embed, seconds, failed = _learn(data, config)
    score = None if embed is None else score_validation(embed(data.validation), data.validation_distances)
    return Trial(number, score, round(seconds, 3), failed)


def run_final(data: BenchSet, config: TrainConfig, trials: int, wanted: int) -> Final:
    """Train with the chosen options, of which the seed is that of this run, and score the test items."""
    query, gallery = data.test(trials, wanted)
    embed, seconds, failed = _learn(data, config)
    if embed is None:
        return Final({}, seconds, failed, measure_peak_memory())
    asked = embed(query)
    scores = score_run(_rank(asked, embed(gallery)), data)
    errors = measure_label_errors(data, embed(data.train), asked)
    return Final(scores, seconds, failed, measure_peak_memory(), errors)


def run_fixed_row(method: str, data: BenchSet, config: TrainConfig) -> Final:
    """Score the test items by a row that has no trials."""
    query, gallery = data.test(0, 0)
    everything, seconds = slice(0, len(query)), 0.0
    errors: Mapping[str, float] = {}
    scores: Floating
    if method == "oracle":
        scores = data.test_distances
    elif method == "random":
        scores = random_ranker(len(query), len(gallery))(everything)
    else:
        fit = FITTED_ROWS.get(method)
        features, before = compute_features(config, data.train), time.perf_counter()
        predict = None if fit is None else fit(features, data, config)
        seconds = 0.0 if fit is None else time.perf_counter() - before
        parts = [features, *(compute_features(config, part) for part in (query, gallery))]
        train, asked, searched = parts if predict is None else map(predict, parts)
        scores = _rank(asked, searched)
        errors = measure_label_errors(data, train, asked)
    return Final(score_run(scores, data), seconds, "", measure_peak_memory(), errors)


def _fit_label_mds(features: Float32, data: BenchSet, config: TrainConfig) -> Callable[[Float32], Float32]:
    """Scale the label distances of training items (classical MDS, Torgerson, 1952), and regress it on the features."""
    return fit_ridge(features, scale_labels(data.train_distances))


def _fit_labels(features: Float32, data: BenchSet, config: TrainConfig) -> Callable[[Float32], Float32]:
    """Regress the training labels, which are vectors, on the features."""
    assert data.vectors is not None  # other sets have no such row
    return fit_ridge(features, np.asarray(data.vectors, np.float64))


def _tune(features: Float32, data: BenchSet, config: TrainConfig) -> Callable[[Float32], Float32]:
    """Let ``tune`` choose an embedding of the features by splits of the training items, in the order of the files."""
    from cml.tuning.tune import tune

    order = np.argsort(data.train.item_ids)  # the suite shuffles items, but neighbours in a film have to stay together
    names = data.distance.class_names(data.train.labels) if data.spec.new_classes else data.train.groups
    groups = None if names is None or not len(names) else np.unique(names, return_inverse=True)[1][order]
    chosen, _ = tune(features[order], data.train.labels[order], data.distance, config.dimension, groups=groups)
    return chosen.embed


FITTED_ROWS: Mapping[str, Callable[[Float32, BenchSet, TrainConfig], Callable[[Float32], Float32]]] = {
    "label-mds": _fit_label_mds,
    "ridge": _fit_labels,
    "tune": _tune,
}


def fixed_row_config(suite: Suite, track: str, backbone: str, method: str) -> TrainConfig | None:
    """The options of a row without trials, if it uses features: those of heads where the network is from scratch."""
    config = suite.config(track, backbone)
    if method in UNTRAINED:
        return None
    return suite.heads if config.weights == "none" and config.backbone != NO_BACKBONE else config


def _learn(data: BenchSet, config: TrainConfig) -> tuple[Embed | None, float, str]:
    """Train with some options: what embeds a part, or None and why it failed; and the seconds that it took."""
    from cml.items import LabelledItems
    from cml.training.gradient_descent import GradientDescent
    from cml.training.learner import Place

    inputs, before = _inputs(data.train, config), time.perf_counter()
    try:
        items = LabelledItems(inputs, data.train.labels, data.distance)
        model = GradientDescent(config).learn(items, place=Place(quiet=True)).model
    except (UserError, FloatingPointError) as error:
        return None, time.perf_counter() - before, str(error)
    seconds = time.perf_counter() - before
    if config.freeze_backbone and data.train.vectors is None:
        return lambda part: model.embed_feature_rows(compute_features(config, part)), seconds, ""
    return lambda part: model.embed(_inputs(part, config)), seconds, ""


def _inputs(part: Part, config: TrainConfig) -> Inputs:
    """What a part's items are to the network: vectors, the features of a frozen backbone, or images."""
    from cml.training.head_alone import Features

    if part.vectors is not None:
        return Vectors(part.vectors)
    if config.freeze_backbone:
        return Features(compute_features(config, part))
    return _decode_images(tuple(part.paths), stored_size(config.image_size, config.crop), config.cache_bytes)


@functools.lru_cache(maxsize=8)  # once for all trials
def _decode_images(paths: tuple[Path, ...], size: Size, cache_bytes: int) -> Images:
    images = Images(paths, size, cache_bytes=cache_bytes)
    images.load()
    return images


def _rank(query: Float32, gallery: Float32) -> Any:  # noqa: ANN401 - a block of scores
    return embedding_ranker(query, gallery)(slice(0, len(query)))


def measure_peak_memory() -> int:
    """The most memory that this process had, in MiB; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / (1 << 20 if sys.platform == "darwin" else 1 << 10))
