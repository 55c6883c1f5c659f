"""Running results again: all trials and final runs of some, which is the only proof that they are true."""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from cml import plugins
from cml.comparing.bench.result import Result, read_result
from cml.comparing.bench.run import Plan, compute_result
from cml.comparing.bench.sets import open_set
from cml.comparing.bench.suite import OWN, SETS, SUITES
from cml.errors import DataError, UserError, did_you_mean

ROUNDING, FEWEST = 5e-5, 3  # differences in one direction that are larger, in as many runs at least, are no rounding
TOLERANCE = 1e-3  # differences of scores up to it are rounding; of label distances above 1, relative ones


def draw_results(paths: Sequence[Path], count: int) -> list[Path]:
    """Draw files that are run again, which nobody can foresee, in the order of ``paths``."""
    drawn = {*random.SystemRandom().sample(paths, min(count, len(paths)))}
    return [path for path in paths if path in drawn]


def rerun(path: Path) -> list[str]:  # a sentence for each score that differs by more than ``TOLERANCE``
    """Run a result again, with its chosen settings in the final runs, and compare all of its scores."""
    result = read_result(path)
    if result.set.startswith(OWN) and result.set not in SETS:
        raise UserError(f"the set {result.set} is somebody's own dataset: give its folder with --data.")
    if result.set not in SETS:
        raise DataError(f"{path}: there is no set {result.set!r}.{did_you_mean(result.set, SETS)}")
    missing = plugins.explain_missing(result.plugins) or plugins.explain_changes(result.plugins)
    if missing:
        raise UserError(missing)
    data = open_set(result.set, result.suite)
    if data.split != result.split:
        return [f"its split is {result.split[:12]}..., that of the set here {data.split[:12]}..."]
    plan = Plan(SUITES[result.suite], result.track[0], [result.set], [result.method], Path(), result.backbone)
    settings = None if result.failed else result.settings
    return list(compare(compute_result(plan, data, result.method, settings=settings), result))


def compare(again: Result, saved: Result) -> Iterator[str]:
    """Yield a sentence for each score of a result that another run of it does not have.

    Rounding goes both ways: where all runs differ in one direction, by less than the tolerance, that is said too.
    """
    if again.failed != saved.failed:
        yield f"it {_fate(again)}, in the file it {_fate(saved)}"
        return
    for number, (ours, theirs) in enumerate(zip(again.trials, saved.trials, strict=True)):
        if isinstance(ours, str) or isinstance(theirs, str):
            if isinstance(ours, str) != isinstance(theirs, str):
                yield f"trial {number}: {ours}, in the file {theirs}"
        else:
            yield from _difference(f"validation score of trial {number}", ours, theirs)
    for name, runs in saved.scores.items():
        for number, (mine, other) in enumerate(zip(again.scores.get(name, [None] * len(runs)), runs, strict=True), 1):
            yield from _difference(f"{name} of run {number}", mine, other)
        yield from _common_direction(name, again.scores.get(name, []), runs)
    if again.query_scores and saved.query_scores:
        pairs = zip(again.values, saved.values, strict=True)
        for number, (mine, other) in enumerate(pairs, 1):
            same_shape = mine.shape == other.shape
            means = [float(np.nanmean(row)) if np.isfinite(row).any() else None for row in (mine, other)]
            if not same_shape:
                yield f"run {number} has {len(mine)} queries, in the file {len(other)}"
            yield from _difference(f"mean of the query scores of run {number}", *means)


def _common_direction(name: str, again: Sequence[float | None], saved: Sequence[float | None]) -> Iterator[str]:
    pairs = [(ours, theirs) for ours, theirs in zip(again, saved, strict=False) if None not in (ours, theirs)]
    gaps = np.array([theirs - ours for ours, theirs in pairs], np.float64)  # type: ignore[operator]
    least = ROUNDING * max(1.0, *(abs(theirs or 0) for _, theirs in pairs), 1.0)
    is_one_sided = len(gaps) >= FEWEST and ((gaps > least).all() or (gaps < -least).all())
    if is_one_sided and np.abs(gaps).max() <= TOLERANCE:
        yield f"{name} of all {len(gaps)} runs differs in one direction, by {gaps.mean():+.6f} in the file on average"


def _fate(result: Result) -> str:
    return f"fails ({result.failed})" if result.failed else "has scores"


def _difference(name: str, again: float | None, saved: float | None) -> Iterator[str]:
    if again is None or saved is None:
        if again is not saved:
            yield f"{name}: {again}, in the file {saved}"
    elif not abs(again - saved) <= TOLERANCE * max(1.0, abs(saved)):
        yield f"{name}: {again:.6f}, in the file {saved:.6f}"
