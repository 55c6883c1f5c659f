"""Files of results, ``SUITE/SET/TRACK/METHOD.json`` and ranks beside it: written, read, checked by computing again."""

import contextlib
import hashlib
import itertools
import json
import math
import platform
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from cml import plugins
from cml.bench import scores
from cml.bench.own_metrics import (
    OwnMetric,
    describe_own_metrics,
    find_unregistered,
    make_own_metrics,
    measure_own_metrics,
)
from cml.bench.scores import Ranks
from cml.bench.sets import BenchSet, open_set
from cml.bench.suite import SUITES, TRACKS, Method, Suite, look_up, method
from cml.errors import DataError, UserError
from cml.renamed_options import with_current_names
from cml.retrieval.metrics import LABEL_DISTANCE
from cml.runs.search_space import with_settings
from cml.storage.atomic import atomic_file
from cml.storage.json_file import write_json
from cml.storage.provenance import as_json
from cml.storage.saved_options import read_record
from cml.version import __version__

_CLOSE = 2e-5  # relative: files hold six digits


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
    write_json(path, asdict(result))
    return result


@dataclass(frozen=True)
class ComputedScores:
    """What follows from ranks, as a result holds it; see ``Result``."""

    scores: dict[str, Score]
    values: list[list[float | None]]
    metrics: dict[str, OwnMetric]


def compute_scores(ranks: Ranks, data: BenchSet, own: Collection[str] | None = None) -> ComputedScores:
    """Compute the scores of ranks, the primary one of each query, and metrics of one's own.

    Args:
        ranks: The ranks of the final runs.
        data: The set, whose label distances score the ranks.
        own: Names of registered metrics that are not cml's; None measures all that need the kept ranks alone.

    Returns:
        The scores.
    """
    factor, _ = data.report
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
    summaries = {name: Score(**summary) for name, summary in scores.summarize(each).items()}
    return ComputedScores(summaries, values, metrics)


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
    """Read a file of results; an error if it is none, or lies where another one belongs."""
    result = read_record(path, Result, "a result of the benchmark", "It is not as cml bench wrote it.")
    expected = result_path(Path(), result.suite, result.set, result.track, result.method)
    if path.resolve().parts[-4:] != expected.parts:
        raise DataError(f"{path} says that it is {expected}, which is not where it lies.")
    return result


def read_ranks(path: Path, result: Result) -> Ranks:
    """Read the ranks of a result; an error if they are not those whose digest it gives."""
    held = path.with_suffix(".npz")
    if not held.is_file() or hashlib.sha256(held.read_bytes()).hexdigest() != result.ranks_sha256:
        raise DataError(f"{path}: {held.name} does not match its ranks_sha256: a rank was changed.")
    try:
        with np.load(held, allow_pickle=False) as arrays:
            return Ranks(arrays["top"], arrays["probe"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: {held.name} should hold its ranks ({error}).") from error


def results_in(folder: Path) -> list[Path]:
    """The files of results below a folder, or the file itself; an error if there are none."""
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*.json"))
    if not paths:
        raise UserError(f"There are no results in {folder}: run cml bench.")
    return paths


def check(path: Path) -> Result:
    """Check a file of results against its ranks, its set and the rules of its suite.

    Metrics of one's own are computed again if the file holds them and they are registered; see ``find_unregistered``.

    Args:
        path: The file.

    Returns:
        The result.

    Raises:
        DataError: the result does not follow from its ranks, or breaks the rules; the error says how.
        UserError: the plugin of its method is not loaded.
    """
    result = read_result(path)
    of_metrics = {metric.plugin for metric in result.metrics.values()}
    mend = plugins.explain_missing([(name, sha256) for name, sha256 in result.plugins if name not in of_metrics])
    if mend:
        raise UserError(f"{path}: {mend}")
    rules = look_up("suite", result.suite, SUITES)
    data = open_set(result.set, result.suite)

    def refuse(wrong: object, why: str) -> None:
        if wrong:
            raise DataError(f"{path}: {why}.")

    track = result.track.partition("-")[0]
    how = None
    here = data.data[:12]
    split = f"its split is {result.split[:12]}.., that of the suite's set {result.set} is {data.split[:12]}.."
    refuse(track not in TRACKS, f"there is no track {result.track!r}")
    refuse(result.split != data.split, split)
    refuse(result.data != data.data, f"its dataset is {result.data[:12]}.., the one that is prepared here {here}..")
    refuse(config_digest(result.config) != result.config_sha256, "its config does not match its config_sha256")
    changed = plugins.explain_changes(result.plugins)
    refuse(changed, changed.rstrip("."))
    if track != "C":
        try:
            how = method(result.method)
        except UserError as error:
            mend = plugins.explain_missing(result.plugins)
            if mend:
                raise UserError(f"{path}: {mend}") from None
            refuse(True, str(error).rstrip("."))
    if how is not None:
        _check_method(result, how, rules, track, data, refuse)
    refuse(how is None and result.trials, f"{result.method} is no method that has trials")
    if result.failed:
        refuse(result.scores or result.values, "it says that it failed, but has scores")
        return result
    ranks = read_ranks(path, result)
    fault = ranks.fault(1 if how is None else rules.seeds, data.test_distances)
    refuse(fault, f"its ranks: {fault}")
    again = compute_scores(ranks, data, own=result.metrics.keys())
    for name, score in again.scores.items():
        for entry, computed in vars(score).items():
            written = getattr(result.scores.get(name), entry, None)
            refuse(
                not _are_close(written, computed), f"the {entry} of {name} is {written}, but the ranks give {computed}"
            )
    unchecked = find_unregistered(result.metrics)
    for name, metric in again.metrics.items():
        refuse(metric != result.metrics[name], f"its description of the metric {name} differs from that of the plugin")
    columns = {*again.scores, *(column for metric in unchecked.values() for column in metric.columns)}
    agree = result.scores.keys() == columns and _are_close(result.values, again.values, 2e-4)
    refuse(not agree, "the scores of its queries do not follow from its ranks")
    return result


def _check_method(
    result: Result, how: Method, rules: Suite, track: str, data: BenchSet, refuse: Callable[[object, str], None]
) -> None:
    whole = [trial.number for trial in result.trials] == list(range(rules.trials))
    refuse(not whole, f"it should hold the trials 0 to {rules.trials - 1}, all of them")
    for trial in result.trials:
        other = trial.settings != how.settings(trial.number, track)
        refuse(other, f"trial {trial.number} has other settings than the suite draws for it")
    best = getattr(choose(result.trials), "number", None)
    refuse(result.chosen != best, f"trial {result.chosen} was chosen, but {best} has the best score on validation")
    shared = rules.config(track, result.config.get("backbone", ""))
    expected = how.options(replace(shared, label_distance=data.label_distance), data.vectors)
    chosen = next((trial.settings for trial in result.trials if trial.number == result.chosen), {})
    saved = with_current_names(result.config, asdict(expected))
    for name, value in as_json(asdict(with_settings(expected, chosen))).items():
        written = saved.get(name, value)  # an option that came later is not in it
        refuse(written != value, f"it was trained with {name} {written}, where the suite gives {value}")


def _are_close(written: Any, computed: Any, close: float = _CLOSE) -> bool:  # noqa: ANN401 - figures, or lists of them
    if isinstance(written, list):
        return len(written) == len(computed) and all(map(_are_close, written, computed, itertools.repeat(close)))
    if written is None or computed is None:
        return written is computed
    return math.isclose(written, computed, rel_tol=close, abs_tol=close)
