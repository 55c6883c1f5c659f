"""Trials and final runs as calls: computed in this process, or by the workers of a Dask cluster.

    dask scheduler --port 8786                                  # on one machine
    dask worker tcp://HOST:8786 --nthreads 1 --nworkers 4       # on each of the others, with cml installed
    cml bench --scheduler tcp://HOST:8786

A worker prepares a set in its own cache, and sends back scores and ranks. The asking process alone writes, so that the
files are those of one machine, to rounding, with the seconds and the hardware of the workers; a killed worker costs
what it had under way.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from cml import plugins
from cml.bench.fitted import fit
from cml.bench.result import made_on
from cml.bench.scores import FIRST, Ranks
from cml.bench.sets import BenchSet, open_set
from cml.distances.label_distance import Float32
from cml.errors import UserError
from cml.retrieval.metrics import retrieved_distances
from cml.retrieval.rankers import embedding_ranker
from cml.training.config import TrainConfig

if TYPE_CHECKING:
    from cml.processes.cluster import Workers

R = TypeVar("R")
T = TypeVar("T")
_one_at_a_time = threading.Lock()  # in a worker: training draws from random numbers of the whole process


class Tried(NamedTuple):
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


class Here:
    """Calls are computed one after the other in this process."""

    def each(
        self, data: BenchSet, call: Callable[..., R], arguments: Sequence[tuple[Any, ...]], parts: str
    ) -> Iterator[tuple[int, R]]:
        """Make a call with the set and each of some arguments: yields their numbers and results as they come.

        Pickle finds the call by its name; ``parts`` are the loss and the backbone, which plugins may bring.
        """
        for number, some in enumerate(arguments):
            yield number, call(data, *some)

    def every(self, work: Callable[[T], bool], pieces: Sequence[T]) -> list[bool]:
        """Do pieces of work whose calls may be computed side by side."""
        return [work(piece) for piece in pieces]

    def kept(self, path: Path) -> Path | None:
        """Where a call keeps its state for one that comes after a kill; None where that may be on another machine."""
        return path


class There(Here):
    """Calls are computed by the workers of a cluster, each of which opens the sets of this version of the suite."""

    def __init__(self, workers: Workers, version: str) -> None:
        self._workers, self._version = workers, version

    def each(
        self, data: BenchSet, call: Callable[..., R], arguments: Sequence[tuple[Any, ...]], parts: str
    ) -> Iterator[tuple[int, R]]:
        """Send the calls to workers."""
        needed = data.name, self._version, data.split, parts, plugins.sources(), plugins.needed(parts)
        calls = [(_in_worker, call, some, *needed) for some in arguments]
        yield from self._workers.each(calls, lambda number: f"A run of {parts} on {data.name}")

    def every(self, work: Callable[[T], bool], pieces: Sequence[T]) -> list[bool]:
        """Do as many at a time as the workers have threads: each waits for its own calls."""
        with ThreadPoolExecutor(self._workers.threads) as pool:
            try:
                return list(pool.map(work, pieces))
            except BaseException:  # nobody waits for what is under way
                pool.shutdown(wait=False, cancel_futures=True)
                self._workers.client.close()
                raise

    def kept(self, path: Path) -> Path | None:
        """Nowhere."""
        return None


def tried(data: BenchSet, track: str, configs: Sequence[TrainConfig], kept: Path | None = None) -> list[Tried]:
    """Train with each of the options of trials, and score them on the validation items."""
    done = []
    for one in fit(track, data, configs, kept):
        score = None if one.failed else validated(one.embed(data.validation), data.validation_distances)
        done.append(Tried(score, round(one.seconds, 3), one.failed))
    return done


def final(data: BenchSet, track: str, config: TrainConfig, trials: int, wanted: int) -> Final:
    """Train with the chosen options, and rank the test items; an error if trials are missing."""
    query, gallery = data.test(trials, wanted)
    (one,) = fit(track, data, [config])
    ranks = None
    if not one.failed:
        ranks = Ranks.of([embedding_ranker(one.embed(query), one.embed(gallery))], len(query), len(gallery))
    return Final(ranks, one.seconds, one.failed, memory_mb(), made_on())


def validated(embeddings: Float32, distances: Float32) -> float:
    """The normalised score of items (V, D), each searched among all others, of label distances (V, V)."""
    found = embedding_ranker(embeddings, embeddings)(slice(0, len(distances)))
    np.fill_diagonal(found, np.inf)
    some = (retrieved_distances(distances, found, FIRST), retrieved_distances(distances, distances, FIRST), distances)
    ours, best, chance = (float(one.mean(where=np.isfinite(one), dtype=np.float64)) for one in some)
    return round((chance - ours) / (chance - best), 6)


def memory_mb() -> int:
    """The most memory that this process had, in MiB; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(most / (1 << 20 if sys.platform == "darwin" else 1 << 10))


def _in_worker(
    call: Callable[..., R],
    arguments: tuple[Any, ...],
    name: str,
    version: str,
    split: str,
    parts: str,
    sources: tuple[str, ...],
    needed: tuple[tuple[str, str], ...],
) -> R:
    """Make a call in a worker, if it has the same set and the same plugins."""
    with _one_at_a_time:
        try:
            for source in sources:
                plugins.load(source)
            data = open_set(name, version)
        except UserError as error:
            raise UserError(f"A worker of the cluster cannot compute on {name}: {error}") from None
        if data.split != split:
            raise UserError(
                f"A worker of the cluster has another split of {name}, {data.split[:12]}.. in place of {split[:12]}..: "
                f"delete {data.folder} there, and install the same versions everywhere."
            )
        if plugins.needed(parts) != needed:
            raise UserError(f"A worker of the cluster has other code of {', '.join(name for name, _ in needed)}.")
        return call(data, *arguments)
