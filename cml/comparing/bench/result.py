"""Files of results, ``SUITE/SET/TRACK/METHOD.json``: what a row scored, in every run and query, with what it took.

Whether a result is true, only running it again can tell (``cml.comparing.bench.check``).
"""

import contextlib
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from cml.array_types import Float64
from cml.comparing.bench.bench_set import BenchSet
from cml.comparing.bench.methods import FIXED_ROWS, find_plugins
from cml.comparing.bench.scores import LABEL_ERRORS, PRIMARY, SCORES
from cml.comparing.bench.suite import SUITES, track_folder
from cml.comparing.bench.trials import Final, Trial, measure_peak_memory
from cml.errors import DataError, UserError, did_you_mean
from cml.storage.atomic import atomic_file
from cml.storage.json_file import FORMAT, check_format, read_json
from cml.storage.saved_options import record
from cml.version import __version__

_LARGEST = 1 << 22  # bytes of a file of results, a thousand times as many as published ones have
_PARTS = 10_000  # of 1 in which files hold the score of a query


@dataclass(frozen=True)
class Result:
    """What a file of results holds."""

    format: int  # number of the format
    suite: str  # version of the suite
    set: str  # name of the set
    track: str  # "A" or "B", then the backbone: "A-efficientnet-lite0"
    method: str  # name of the row
    backbone: str  # the backbone of the track
    split: str  # SHA-256 of the parts of the set
    pretraining: str  # the data on which the network was trained before
    loss: str  # the loss of the final runs, as ``--loss`` takes it; "" where the row is not trained
    settings: dict[str, Any]  # what the chosen trial set beside the defaults
    # the validation score of each trial, or why it failed. The settings of a trial follow from its number
    trials: list[float | str]
    seconds: dict[str, float]  # of a final run ("run"), and of all trials ("trials")
    memory_mb: int  # most memory that a process had
    made_with: dict[str, str]  # versions of cml, Python and the libraries that compute, and the processor
    plugins: list[tuple[str, str]]  # name and SHA-256 of each plugin that was needed
    unit: str  # the unit of label distances
    # name of a score or of a metric of the user's own -> its mean in each of the S final runs
    scores: dict[str, list[float | None]]
    query_scores: list[list[int | None]]  # the primary score of each run and query, (S, Q), in ten-thousandths
    failed: str  # why there are no scores; "" if there are

    @property
    def trial_scores(self) -> list[float]:
        """The validation score of each trial, 0 where it failed."""
        return [0.0 if isinstance(trial, str) else trial for trial in self.trials]

    def mean(self, name: str = PRIMARY) -> float | None:
        """A score's mean over all runs; None where it does not exist."""
        runs = [run for run in self.scores.get(name, []) if run is not None]
        return _plain(sum(runs) / len(runs)) if runs else None

    @property
    def values(self) -> Float64:
        """The primary score of each run and query, (S, Q); NaN for a query without one."""
        return np.array(self.query_scores, np.float64) / _PARTS


def choose(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the best score on validation, of equal ones the first; None where all failed."""
    scored = [trial for trial in trials if trial.score is not None]
    return max(scored, key=lambda trial: (trial.score, -trial.number)) if scored else None


def build_result(
    data: BenchSet,
    *,
    suite: str,
    track: str,
    method: str,
    backbone: str,
    options: dict[str, Any],
    settings: dict[str, Any],
    trials: Sequence[Trial],
    finals: Sequence[Final],
) -> Result:
    """Build the result of trials and final runs; one that failed makes all of it fail."""
    weights, loss = options.get("weights", "none"), options.get("loss", "") if trials else ""
    failed = next((run.failed for run in finals or trials if run.failed), "")
    scores, values = {}, []
    if not failed:
        scores = {name: [_plain(_mean(final.scores[name])) for final in finals] for name in finals[0].scores}
        scores |= {name: [_plain(final.label_errors[name]) for final in finals] for name in finals[0].label_errors}
        values = [[_in_parts(value) for value in final.scores[PRIMARY].tolist()] for final in finals]
    run = sum(final.seconds for final in finals) / max(len(finals), 1)
    return Result(
        format=FORMAT,
        suite=suite,
        set=data.name,
        track=track,
        method=method,
        backbone=backbone,
        split=data.split,
        pretraining="ImageNet-1k, classes" if weights == "imagenet" else weights,
        loss=loss,
        settings=settings,
        trials=[trial.failed if trial.score is None else trial.score for trial in trials],
        seconds={"run": round(run, 3), "trials": round(sum(trial.seconds for trial in trials), 3)},
        memory_mb=max((final.memory_mb for final in finals), default=measure_peak_memory()),
        made_with=describe_machine(),
        plugins=sorted({*find_plugins(loss, backbone if options else ""), *_metric_plugins(scores)}),
        unit=data.reported_unit.unit,
        scores=scores,
        query_scores=values,
        failed=failed,
    )


def _metric_plugins(columns: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401 - names
    from cml import plugins
    from cml.retrieval.metrics import family

    return plugins.required_plugins(*(family(column) for column in columns if column not in (*SCORES, *LABEL_ERRORS)))


def _mean(values: Float64) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _plain(value: float) -> float | None:
    """A figure as the files hold it: six digits, null for what does not exist."""
    return None if np.isnan(value) else float(f"{value:.6g}")


def _in_parts(value: float) -> int | None:
    return None if np.isnan(value) else round(value * _PARTS)


def describe_machine() -> dict[str, str]:
    """The versions of cml, Python and the libraries that compute, and the processor."""
    made_with = {"cml": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "optuna"):
        with contextlib.suppress(metadata.PackageNotFoundError):  # optuna: rows without trials need none
            made_with[name] = metadata.version(name)
    made_with["processor"] = platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        made_with["processor"] = next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    return made_with


def result_path(out: Path, version: str, name: str, track: str, method: str) -> Path:
    """The file of a result below the folder of all results."""
    return out / version / name / track / f"{quote(method, safe='(),= ')}.json"


def write_result(path: Path, result: Result) -> None:
    """Write a result, one entry a line."""
    entries = (
        f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(',', ':'))}"
        for name, value in asdict(result).items()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as temporary:
        temporary.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


def read_result(path: Path) -> Result:
    """Read a file of results."""
    with contextlib.suppress(OSError):  # which reading it will explain
        size = path.stat().st_size
        if size > _LARGEST:
            raise DataError(f"{path} has {size:,} bytes. A result of the benchmark has at most {_LARGEST:,}.")
    subject, mend = "a result of the benchmark", "Delete it and run cml bench again."
    saved = read_json(path, subject)
    if isinstance(saved, dict):
        check_format(saved, path, mend)
    result = record(saved, Result, str(path), subject, mend)
    known = {field.name for field in fields(Result)}
    if unknown := next((name for name in saved if name not in known), None):
        raise DataError(f"{path} has the entry {unknown!r}, which no result has.{did_you_mean(unknown, known)} {mend}")
    if result.suite not in SUITES:
        raise DataError(
            f"{path} is of the suite {result.suite!r}, which this version of cml does not know: {', '.join(SUITES)}."
        )
    expected = result_path(Path(), result.suite, result.set, result.track, result.method)
    if path.resolve().parts[-4:] != expected.parts:
        raise DataError(f"{path} says that it is {expected}, which is not where it lies.")
    fault = _find_fault(result)
    if fault:
        raise DataError(f"{path}: {fault}. {mend}")
    return result


def _find_fault(result: Result) -> str:
    """A clause that names what no table can be made of; "" if nothing is wrong."""
    suite = SUITES[result.suite]
    if result.track not in (track_folder(letter, result.backbone) for letter in "AB"):
        return f"its track is {result.track!r}, which is none of the backbone {result.backbone!r}"
    if result.seconds.keys() != {"run", "trials"}:
        return f"its seconds must be those of 'run' and 'trials'. Got {sorted(result.seconds)}"
    trials = 0 if result.method in FIXED_ROWS else suite.trials
    if len(result.trials) != trials:
        return f"it must have {trials} trials. Got {len(result.trials)}"
    if result.failed:
        return ""
    missing = [name for name in SCORES if name not in result.scores]
    if missing:
        return f"it lacks the score {missing[0]!r}"
    runs = suite.seeds if trials else 1
    lengths = {**{name: len(each) for name, each in result.scores.items()}, "query_scores": len(result.query_scores)}
    for name, length in lengths.items():
        if length != runs:
            return f"{name!r} must have {runs} runs. Got {length}"
    if len({len(row) for row in result.query_scores}) != 1 or not result.query_scores[0]:
        return "its query_scores must have one row a run and one column a query"
    return ""


def results_in(folder: Path) -> list[Path]:
    """The files of results below a folder, or a file itself; folders that begin with a dot hold unfinished work."""
    found = [folder] if folder.is_file() else sorted(folder.rglob("*.json"))
    hidden = [path for path in found if any(part[:1] == "." for part in path.relative_to(folder).parts)]
    paths = [path for path in found if path not in hidden]
    if not paths:
        raise UserError(f"There are no results in {folder}: run cml bench.")
    return paths


def decode_trial(saved: object) -> Trial:
    """A trial from the journal of a run."""
    return msgspec.convert(saved, Trial)
