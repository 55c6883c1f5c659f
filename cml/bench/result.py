"""Files of results, ``SUITE/SET/TRACK/METHOD.json`` and the ranks beside each: written and read.

Not for: whether they are true (``cml.bench.check_result``).
"""

import contextlib
import hashlib
import json
import math
import platform
import reprlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from cml import plugins
from cml.bench import scores
from cml.bench.own_metrics import OwnMetric, describe_own_metrics, make_own_metrics, measure_own_metrics
from cml.bench.scores import SCORES, Intervals, Ranks
from cml.bench.sets import BenchSet
from cml.bench.suite import SUITES
from cml.errors import DataError, UserError
from cml.retrieval.metrics import LABEL_DISTANCE
from cml.storage.atomic import atomic_file
from cml.storage.json_file import write_json
from cml.storage.npz import DigestError, read_npz
from cml.storage.saved_options import read_record
from cml.version import __version__

_LARGEST = 1 << 24  # bytes of a file of results, a thousand times as many as published ones have


@dataclass(frozen=True)
class BenchTrial:
    """One trial: what it set beside the defaults, its score on validation, None where it failed, and why it did."""

    number: int
    settings: dict[str, Any]
    score: float | None
    seconds: float  # of heads trained together, the part of one
    failed: str = ""


@dataclass(frozen=True)
class Score:
    """A score: its mean over seeds and queries, the ends of its 95 % interval, and the mean of each seed."""

    mean: float | None
    low: float | None
    high: float | None
    seeds: list[float | None]


@dataclass(frozen=True)
class Result:
    """What a file of results holds."""

    suite: str  # version of the suite
    set: str
    track: str  # "A", "B" or "C", then the backbone: "A-efficientnet-lite0"
    method: str
    kind: str  # of label
    split: str  # sha256 of the parts of the set
    data: str  # sha256 of the prepared dataset
    pretraining: str  # what the network was trained on before
    config: dict[str, Any]  # the options of the final runs
    config_sha256: str
    cml: str  # version of cml
    versions: dict[str, str]  # of Python and of the libraries that compute
    hardware: str  # processor
    trials: list[BenchTrial]  # all of them
    chosen: int | None  # number of the trial with the best score on validation; None where there are no trials
    seconds: dict[str, float]  # of a final run, and of all trials
    memory_mb: float  # most memory that the process had
    unit: str  # of label distances
    scores: dict[str, Score] = field(default_factory=dict)
    values: list[list[float | None]] = field(default_factory=list)  # the normalised score: (seeds, queries), 4 decimals
    ranks_sha256: str = ""  # of the file of ranks
    failed: str = ""  # why there are no scores
    plugins: tuple[tuple[str, str], ...] = ()  # name and SHA-256 of each that was needed
    metrics: dict[str, OwnMetric] = field(
        default_factory=dict
    )  # those of one's own, whose columns are among the scores
    intervals: Intervals = "bootstrap"  # how those of the scores were computed


def choose(trials: Sequence[BenchTrial]) -> BenchTrial | None:
    """The trial with the best score on validation, of equal ones the first; None where all failed."""
    scored = [trial for trial in trials if trial.score is not None]
    return max(scored, key=lambda trial: (trial.score, -trial.number)) if scored else None


def result_path(out: Path, version: str, name: str, track: str, method: str) -> Path:
    """Return the path of the JSON file of a result.

    Args:
        out: Folder of the results.
        version: Version of the suite.
        name: Name of the set.
        track: The track, with its backbone.
        method: Name of the method.

    Returns:
        The path; the ranks are beside it, with the suffix ``.npz``.
    """
    return out / version / name / track / f"{quote(method, safe='(),= ')}.json"


def write_result(path: Path, result: Result, ranks: Ranks | None, data: BenchSet) -> Result:
    """Write the ranks of a result, then the result with the scores that follow from them.

    Args:
        path: File of the result.
        result: The result, without scores.
        ranks: The ranks of its final runs; None if they failed.
        data: The set, whose label distances score the ranks.

    Returns:
        The result with its scores.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if ranks is not None:
        with atomic_file(path.with_suffix(".npz")) as temporary:
            np.savez_compressed(temporary, top=ranks.top, probe=ranks.probe)
            digest = hashlib.sha256(temporary.read_bytes()).hexdigest()
        computed = compute_scores(ranks, data)
        needed = {*result.plugins, *plugins.required_plugins(*computed.metrics)}
        result = replace(result, ranks_sha256=digest, plugins=tuple(sorted(needed)))
        result = replace(result, scores=computed.scores, values=computed.values, metrics=computed.metrics)
        result = replace(result, intervals="skew-t")
    write_json(path, asdict(result))
    return result


@dataclass(frozen=True)
class ComputedScores:
    """What follows from ranks, as a result holds it; see ``Result``."""

    scores: dict[str, Score]
    values: list[list[float | None]]
    metrics: dict[str, OwnMetric]


def compute_scores(
    ranks: Ranks, data: BenchSet, own: Collection[str] | None = None, *, intervals: Intervals = "skew-t"
) -> ComputedScores:
    """Compute the scores of ranks, the primary one of each query, and metrics of one's own.

    Args:
        ranks: The ranks of the final runs.
        data: The set, whose label distances score the ranks.
        own: Names of registered metrics that are not cml's; None measures all that need the kept ranks alone.
        intervals: How intervals are computed.

    Returns:
        The scores.
    """
    factor = data.reported_unit.factor
    each = scores.score_queries(ranks, data.test_distances)
    each["label_distance"] *= factor
    chosen = make_own_metrics(data.test_distances, classes=data.spec.kind == "classes", names=own)
    each |= measure_own_metrics(chosen, ranks, data.test_distances)
    metrics = describe_own_metrics(chosen)
    for metric in metrics.values():
        if metric.unit == LABEL_DISTANCE:
            for column in metric.columns:
                each[column] *= factor
    primary = each[scores.PRIMARY].tolist()
    values = [[None if math.isnan(value) else round(value, 4) for value in row] for row in primary]
    reaches = scores.score_reaches(data.test_distances)
    summaries = scores.summarize(each, reaches, intervals=intervals)
    return ComputedScores({name: Score(**summary) for name, summary in summaries.items()}, values, metrics)


def describe_machine() -> dict[str, Any]:
    """Versions and processor of this machine."""
    versions, processor = {"python": platform.python_version()}, platform.machine()
    for name in ("torch", "numpy", "optuna"):
        with contextlib.suppress(metadata.PackageNotFoundError):  # of an embedding made elsewhere nothing was drawn
            versions[name] = metadata.version(name)
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        processor = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return {"cml": __version__, "versions": versions, "hardware": processor}


def config_digest(config: Mapping[str, Any]) -> str:
    """sha256 of options."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()


def read_result(path: Path) -> Result:
    """Read a file of results.

    Args:
        path: The file.

    Returns:
        The result, whose entries are all there. Whether they are true, ``cml.bench.check_result`` tells.

    Raises:
        DataError: the file is none of results, lacks an entry, or lies where another one belongs.
    """
    with contextlib.suppress(OSError):  # which reading it will explain
        size = path.stat().st_size
        if size > _LARGEST:
            raise DataError(f"{path} has {size:,} bytes. A result of the benchmark has at most {_LARGEST:,}.")
    result = read_record(path, Result, "a result of the benchmark", "It is not as cml bench wrote it.")
    expected = result_path(Path(), result.suite, result.set, result.track, result.method)
    if path.resolve().parts[-4:] != expected.parts:
        raise DataError(f"{path} says that it is {expected}, which is not where it lies.")
    fault = _find_missing(result)
    if fault:
        raise DataError(f"{path}: {fault}. It is not as cml bench wrote it.")
    return result


def _find_missing(result: Result) -> str:
    """A clause that names an entry without which no table can be made; "" if all are there."""
    if result.seconds.keys() != {"run", "trials"}:
        return f"its seconds must be those of 'run' and 'trials'. Got {reprlib.repr(sorted(result.seconds))}"
    if result.failed:
        return ""
    taken = next((name for name, metric in result.metrics.items() if SCORES & set(metric.columns)), None)
    if taken is not None:
        return f"the metric {taken!r} has the name of a score of the benchmark"
    columns = SCORES.union(*(metric.columns for metric in result.metrics.values()))
    missing = sorted(columns - result.scores.keys())
    if missing:
        return f"it lacks the score {missing[0]!r}"
    surplus = sorted(result.scores.keys() - columns)
    if surplus:
        return f"it has the score {surplus[0]!r}, which is none of the benchmark and of no metric that it states"
    widths = {len(row) for row in result.values}
    if len(widths) != 1 or 0 in widths:
        return "its values must have one row per final run and one column per query"
    runs = len(result.values)
    uneven = next((name for name, score in result.scores.items() if len(score.seeds) != runs), None)
    if uneven is not None:
        return f"the score {uneven!r} must have {runs} seeds, one per final run. Got {len(result.scores[uneven].seeds)}"
    return ""


def read_ranks(path: Path, result: Result, data: BenchSet) -> Ranks:
    """Read the ranks of a result.

    Args:
        path: The file of the result.
        result: The result.
        data: Its set.

    Returns:
        The ranks.

    Raises:
        DataError: the ranks are missing or damaged, are not those whose digest the result gives, have other shapes than
            the set and the suite ask for, or rank an item twice. Shapes are checked before anything is decompressed.
    """
    held = path.with_suffix(".npz")
    queries, gallery = data.test_distances.shape
    runs = SUITES[result.suite].seeds if result.trials else 1
    for what, number, many in (("final runs", runs, len(result.values)), ("queries", queries, len(result.values[0]))):
        if number != many:
            raise DataError(f"{path}: it must have {number} {what}. Got {many}.")
    try:
        arrays = read_npz(held, Ranks.specs(runs, queries, gallery), sha256=result.ranks_sha256)
    except FileNotFoundError:
        raise DataError(f"{path}: {held.name}, which should hold its ranks, is missing.") from None
    except OSError as error:
        raise DataError(f"{path}: {held.name} should hold its ranks, but cannot be read ({error.strerror}).") from None
    except DigestError:
        raise DataError(f"{path}: {held.name} does not match its ranks_sha256: a rank was changed.") from None
    except ValueError as error:
        raise DataError(f"{path}: {held.name} does not hold its ranks: {error}.") from None
    ranks = Ranks(**arrays)
    fault = ranks.fault(gallery)
    if fault:
        raise DataError(f"{path}: {held.name} does not hold its ranks: {fault}.")
    return ranks


def results_in(folder: Path) -> list[Path]:
    """List the files of results.

    Args:
        folder: A folder of results, or a file of results.

    Returns:
        The files below the folder, or the file itself. Folders whose names begin with a dot hold the work of runs that
        are not done.

    Raises:
        UserError: there are none.
    """
    found = [folder] if folder.is_file() else sorted(folder.rglob("*.json"))
    hidden = [path for path in found if any(part[:1] == "." for part in path.relative_to(folder).parts)]
    paths = [path for path in found if path not in hidden]
    if not paths:
        raise UserError(f"There are no results in {folder}: run cml bench.")
    return paths
