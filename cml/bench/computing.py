"""Trials and final runs, in this process, or by Dask workers, each with its own cache; the asking process writes."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from cml import plugins
from cml.array_types import Float32
from cml.bench.needed_plugins import find_needed_plugins
from cml.bench.result import BenchTrial, Result, choose, config_digest, describe_machine
from cml.bench.scores import FIRST, Ranks
from cml.bench.sets import BenchSet, Part, compute_features, open_set
from cml.data.augmentation import stored_size
from cml.data.images import Images, Size
from cml.errors import UserError
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.label_regression import fit_ridge, scale_labels
from cml.retrieval.ranking import retrieved_distances
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.processes.dask_client import Workers

AT_ONCE = {"A": 20, "B": 1}  # options that are trained at a time
R = TypeVar("R")
T = TypeVar("T")
_one_at_a_time = threading.Lock()  # in a worker: training draws from random numbers of the whole process


class Fitted(NamedTuple):
    """What embeds the items of a part, (N, D); the seconds of its training; and why it failed, or ""."""

    embed: Callable[[Part], Float32]
    seconds: float = 0.0
    failed: str = ""


def fit(track: str, data: BenchSet, configs: Sequence[TrainConfig], kept: Path | None = None) -> list[Fitted]:
    """Train with each of some options, which share seed, steps and batches.

    Args:
        track: "A" trains linear heads on frozen features, all at once; "B" trains whole networks, one after the other.
        data: The set whose training items are used.
        configs: The options.
        kept: File of the state of the heads, which resumes them after the process was killed; None keeps no state.

    Returns:
        What each of the options has trained.
    """
    if track == "B":
        return [_network(data, config) for config in configs]
    from cml.bench.heads import Head, train_heads

    def embed(head: Head, part: Part) -> Float32:
        return head.embed(compute_features(configs[0], part))

    heads = train_heads(configs, compute_features(configs[0], data.train), data.train_distances, data.vectors, kept)
    return [Fitted(functools.partial(embed, head), head.seconds, head.failed) for head in heads]


def fit_nothing(data: BenchSet, config: TrainConfig) -> Fitted:
    """Take the frozen features as the embedding, without training."""
    return Fitted(functools.partial(compute_features, config))


def fit_label_mds(data: BenchSet, config: TrainConfig) -> Fitted:
    """Scale the label distances of training items (classical MDS, Torgerson, 1952), and regress it on the features."""
    features, before = compute_features(config, data.train), time.perf_counter()
    predict = fit_ridge(features, scale_labels(data.train_distances))
    return Fitted(lambda part: predict(compute_features(config, part)), time.perf_counter() - before)


def fit_ridge_of_labels(data: BenchSet, config: TrainConfig) -> Fitted:
    """Regress the training labels, which are vectors, on the features."""
    assert data.vectors is not None  # other sets have no such row
    features, before = compute_features(config, data.train), time.perf_counter()
    predict = fit_ridge(features, np.asarray(data.vectors, np.float64))
    return Fitted(lambda part: predict(compute_features(config, part)), time.perf_counter() - before)


def fit_with_tune(data: BenchSet, config: TrainConfig) -> Fitted:
    """Let ``tune`` choose an embedding of the features by splits of the training items, in the order of the files."""
    from cml.tuning.tune import tune

    order = np.argsort(data.train.item_ids)  # the suite shuffles items, but neighbours in a film have to stay together
    groups = np.unique(data.train.groups, return_inverse=True)[1][order] if data.train.groups else None
    features, before = compute_features(config, data.train), time.perf_counter()
    chosen, _ = tune(features[order], data.train.labels[order], data.distance, config.dimension, groups=groups)
    return Fitted(lambda part: chosen.embed(compute_features(config, part)), time.perf_counter() - before)


def _network(data: BenchSet, config: TrainConfig) -> Fitted:
    from cml.items import LabelledItems
    from cml.training.gradient_descent import GradientDescent
    from cml.training.learner import Place

    before, images = time.perf_counter(), _images(tuple(data.train.paths), config)
    try:
        items = LabelledItems(images, data.train.labels, data.distance)
        model = GradientDescent(config).learn(items, place=Place(quiet=True)).model
    except (UserError, FloatingPointError) as error:
        return Fitted(functools.partial(compute_features, config), time.perf_counter() - before, str(error))
    return Fitted(lambda part: model.embed(_images(tuple(part.paths), config)), time.perf_counter() - before)


def _images(paths: tuple[Path, ...], config: TrainConfig) -> Images:
    return _decode_images(paths, stored_size(config.image_size, config.crop), config.cache_bytes)


@functools.lru_cache(maxsize=8)  # once for all trials
def _decode_images(paths: tuple[Path, ...], size: Size, cache_bytes: int) -> Images:
    images = Images(paths, size, cache_bytes=cache_bytes)
    images.load()
    return images


class ScoredTrial(NamedTuple):
    """A trial: its score on the validation items, None where it failed, its seconds, and why it failed or ""."""

    score: float | None
    seconds: float
    failed: str


class Final(NamedTuple):
    """A final run: its ranks of the test items, None where it failed, and what ``Result`` says of where it was run."""

    ranks: Ranks | None
    seconds: float
    failed: str
    memory_mb: int
    made_on: dict[str, Any]


class LocalComputing:
    """Calls are computed one after the other in this process."""

    def call_each(
        self, data: BenchSet, call: Callable[..., R], arguments: Sequence[tuple[Any, ...]], parts: str
    ) -> Iterator[tuple[int, R]]:
        """Call a function with each of some arguments.

        Args:
            data: The set, which is the first argument of each call.
            call: The function, which a worker can import by its name.
            arguments: The further arguments, one tuple per call.
            parts: The loss and the backbone, as text, which may come from plugins.

        Yields:
            The number of a call and its result, in the order in which they finish.
        """
        for number, some in enumerate(arguments):
            yield number, call(data, *some)

    def do_all(self, work: Callable[[T], bool], pieces: Sequence[T]) -> list[bool]:
        """Do pieces of work whose calls may be computed side by side."""
        return [work(piece) for piece in pieces]

    def state_path(self, path: Path) -> Path | None:
        """Where a call keeps its state for one that comes after a kill; None where that may be on another machine."""
        return path


class DaskComputing(LocalComputing):
    """Calls are computed by the workers of a cluster, each of which opens the sets of this version of the suite."""

    def __init__(self, workers: Workers, version: str) -> None:
        self._workers, self._version = workers, version

    def call_each(
        self, data: BenchSet, call: Callable[..., R], arguments: Sequence[tuple[Any, ...]], parts: str
    ) -> Iterator[tuple[int, R]]:
        """Send the calls to workers; see ``LocalComputing.call_each``.

        Args:
            data: The set.
            call: The function.
            arguments: The further arguments, one tuple per call.
            parts: The loss and the backbone, as text.

        Yields:
            The number of a call and its result, in the order in which they finish.
        """
        recipe = data.name, self._version, data.split, parts, plugins.sources(), plugins.required_plugins(parts)
        calls = [(_in_worker, recipe, call, some) for some in arguments]
        yield from self._workers.each(calls, lambda number: f"A run of {parts} on {data.name}")

    def do_all(self, work: Callable[[T], bool], pieces: Sequence[T]) -> list[bool]:
        """Do as many at a time as the workers have threads: each waits for its own calls."""
        with ThreadPoolExecutor(self._workers.threads) as pool:
            try:
                return list(pool.map(work, pieces))
            except BaseException:  # nobody waits for what is under way
                pool.shutdown(wait=False, cancel_futures=True)
                self._workers.client.close()
                raise

    def state_path(self, path: Path) -> None:
        """Nowhere."""


def run_trials(
    data: BenchSet, track: str, configs: Sequence[TrainConfig], kept: Path | None = None
) -> list[ScoredTrial]:
    """Train with each of the options of trials, and score them on the validation items.

    Args:
        data: The set.
        track: "A" or "B".
        configs: The options, one per trial.
        kept: File of the state of the heads; None keeps no state.

    Returns:
        The score, the seconds and the failure of each trial.
    """
    done = []
    for fitted in fit(track, data, configs, kept):
        score = None if fitted.failed else score_validation(fitted.embed(data.validation), data.validation_distances)
        done.append(ScoredTrial(score, round(fitted.seconds, 3), fitted.failed))
    return done


def run_final(data: BenchSet, track: str, config: TrainConfig, trials: int, wanted: int) -> Final:
    """Train with the chosen options, and rank the test items.

    Args:
        data: The set.
        track: "A" or "B".
        config: The options, with the seed of this run.
        trials: Number of trials that are done.
        wanted: Number of trials that the suite asks for.

    Returns:
        The final run.

    Raises:
        UserError: trials are missing.
    """
    query, gallery = data.test(trials, wanted)
    (fitted,) = fit(track, data, [config])
    ranks = None
    if not fitted.failed:
        ranks = Ranks.from_rankers(
            [embedding_ranker(fitted.embed(query), fitted.embed(gallery))], len(query), len(gallery)
        )
    return Final(ranks, fitted.seconds, fitted.failed, measure_peak_memory(), describe_machine())


def build_result(
    data: BenchSet,
    version: str,
    track: str,
    method: str,
    pretraining: str,
    config: dict[str, Any],
    finals: Sequence[Final],
    trials: Sequence[BenchTrial] = (),
) -> Result:
    """Build the result of final runs and their trials, still without scores.

    Args:
        data: The set.
        version: Version of the suite.
        track: The track, with its backbone.
        method: Name of the method.
        pretraining: The data on which the network was trained before.
        config: The options of the final runs, as JSON holds them.
        finals: The final runs.
        trials: The trials.

    Returns:
        The result.
    """
    seconds = sum(final.seconds for final in finals) / max(len(finals), 1)
    return Result(
        suite=version,
        set=data.name,
        track=track,
        method=method,
        kind=data.spec.kind,
        split=data.split,
        data=data.data,
        pretraining=pretraining,
        config=config,
        config_sha256=config_digest(config),
        trials=list(trials),
        chosen=getattr(choose(trials), "number", None),
        seconds={"run": round(seconds, 3), "trials": round(sum(trial.seconds for trial in trials), 3)},
        memory_mb=max((final.memory_mb for final in finals), default=measure_peak_memory()),
        unit=data.reported_unit.unit,
        plugins=find_needed_plugins(config.get("loss", ""), config.get("backbone", "")),
        **(finals[-1].made_on if finals else describe_machine()),
    )


def score_validation(embeddings: Float32, distances: Float32) -> float:
    """The normalised score of items (V, D), each searched among all others, of label distances (V, V)."""
    scores = embedding_ranker(embeddings, embeddings)(slice(0, len(distances)))
    np.fill_diagonal(scores, np.inf)
    some = (retrieved_distances(distances, scores, FIRST), retrieved_distances(distances, distances, FIRST), distances)
    ours, best, chance = (float(part.mean(where=np.isfinite(part), dtype=np.float64)) for part in some)
    return round((chance - ours) / (chance - best), 6)


def measure_peak_memory() -> int:
    """The most memory that this process had, in MiB; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / (1 << 20 if sys.platform == "darwin" else 1 << 10))


def _in_worker(recipe: tuple[Any, ...], call: Callable[..., R], arguments: tuple[Any, ...]) -> R:
    """Make a call in a worker, if it has the same set and the same plugins."""
    name, version, split, parts, sources, needed = recipe
    with _one_at_a_time:
        try:
            for source in sources:
                plugins.load(source)
            data = open_set(name, version)
        except UserError as error:
            raise UserError(f"A worker of the cluster cannot compute on {name}: {error}") from None
        if data.split != split:
            raise UserError(
                f"A worker of the cluster has another split of {name}, {data.split[:12]}... in place of "
                f"{split[:12]}...: delete {data.folder} there, and install the same versions everywhere."
            )
        if plugins.required_plugins(parts) != needed:
            raise UserError(f"A worker of the cluster has other code of {', '.join(name for name, _ in needed)}.")
        return call(data, *arguments)
