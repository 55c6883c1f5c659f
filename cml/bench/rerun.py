"""Training again what results claim: trials, final runs and rows without trials, drawn at random, and compared.

What a file cannot show - trials that were never run, ranks of the labels with noise - only this does.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from cml.bench.check_result import CheckedResult, fixed_row_options, trained_options
from cml.bench.computing import run_final, run_trials
from cml.bench.fixed_rows import rank_fixed_row
from cml.bench.result import compute_scores, read_ranks
from cml.bench.scores import FIRST, PRIMARY, Ranks
from cml.bench.sets import BenchSet, open_set
from cml.bench.suite import SUITES, UNTRAINED, method
from cml.runs.search_space import with_settings

_SCORE = 0.05
_COMMON = 0.5


class Run(NamedTuple):
    """A part of a result that can be run again.

    Attributes:
        path: The file of the result.
        kind: A trial, a final run, or a row without trials.
        number: Number of the trial, from 0, or seed of the final run, from 1.
    """

    path: Path
    kind: Literal["trial", "final run", "row"]
    number: int = 0

    def __str__(self) -> str:
        return f"{self.path}" if self.kind == "row" else f"{self.path}, {self.kind} {self.number}"


class Comparison(NamedTuple):
    """What a run gave again, beside what the file says.

    Attributes:
        agrees: Whether the two agree, but for rounding.
        text: Both, as a clause.
    """

    agrees: bool
    text: str


def draw_runs(checked: Mapping[Path, CheckedResult], count: int) -> list[Run]:
    """Draw what is run again, which nobody can foresee: of a trained method final runs as often as trials.

    Args:
        checked: The results by file, in which nothing is wrong.
        count: Number of runs at most.

    Returns:
        The runs, of one set after another. Embeddings that were made elsewhere have none.
    """
    draw = random.SystemRandom()
    weighted: list[tuple[float, Run]] = []
    for path, one in checked.items():
        for runs in _runs_of(path, one):
            # the largest of u^(1/w) are a draw without replacement with weights w (Efraimidis and Spirakis, 2006)
            weighted += [(draw.random() ** len(runs), run) for run in runs]
    chosen = sorted(weighted, reverse=True)[:count]
    return sorted((run for _, run in chosen), key=lambda run: (checked[run.path].result.set, run))


def _runs_of(path: Path, checked: CheckedResult) -> Iterator[list[Run]]:
    result = checked.result
    if result.track == "C":
        return
    if not result.trials:
        yield [Run(path, "row")]
        return
    yield [Run(path, "trial", trial.number) for trial in result.trials]
    if not result.failed:
        yield [Run(path, "final run", seed) for seed in range(1, len(result.values) + 1)]


def rerun(run: Run, checked: CheckedResult) -> Comparison:
    """Run a trial, a final run or a row again, and compare it with what the file says.

    Args:
        run: The run.
        checked: Its result.

    Returns:
        The comparison.

    Raises:
        UserError: it cannot be run here.
    """
    result = checked.result
    data, rules = open_set(result.set, result.suite), SUITES[result.suite]
    letter = result.track.partition("-")[0]
    if run.kind == "row":
        config = rules.heads if result.method in UNTRAINED else fixed_row_options(result, rules, data)
        ranks, _ = rank_fixed_row(result.method, data, config)
        return _compare_ranks(ranks, checked, run, data)
    how = method(result.method, result.suite)
    assert how is not None
    if run.kind == "trial":
        base = trained_options(result, how, rules, data, {})
        trial = result.trials[run.number]
        (scored,) = run_trials(data, letter, [rules.trial(letter, with_settings(base, trial.settings))])
        return _compare_scores(scored.score, trial.score, scored.failed)
    chosen = result.trials[result.chosen or 0].settings
    config = replace(trained_options(result, how, rules, data, chosen), seed=run.number)
    final = run_final(data, letter, config, rules.trials, rules.trials)
    if final.ranks is None:
        return Comparison(False, f"it fails here: {final.failed}")
    return _compare_ranks(final.ranks, checked, run, data)


def _compare_scores(again: float | None, stated: float | None, failed: str) -> Comparison:
    if again is None or stated is None:
        here = f"it fails ({failed})" if again is None else f"validation score {again:.4f}"
        there = "it fails too" if stated is None else f"validation score {stated:.4f}"
        return Comparison(again is stated, f"{here}, in the file {there}")
    return Comparison(abs(again - stated) <= _SCORE, f"validation score {again:.4f}, in the file {stated:.4f}")


def _compare_ranks(again: Ranks, checked: CheckedResult, run: Run, data: BenchSet) -> Comparison:
    """Compare the ranks of one run: the share of the first items that are the same, and the score."""
    result = checked.result
    row = max(run.number - 1, 0)
    ranks = read_ranks(run.path, result, data)
    pairs = zip(again.top[0, :, :FIRST].tolist(), ranks.top[row, :, :FIRST].tolist(), strict=True)
    common = float(np.mean([len(set(ours) & set(theirs)) / FIRST for ours, theirs in pairs]))
    score = compute_scores(again, data, own=()).scores[PRIMARY].mean
    stated = result.scores[PRIMARY].seeds[row]
    is_close = score is not None and stated is not None and abs(score - stated) <= _SCORE
    text = f"score {score}, in the file {stated}; {100 * common:.0f} % of the first {FIRST} items are the same"
    return Comparison(is_close and common >= _COMMON, text)
