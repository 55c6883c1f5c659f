"""Results of one version and track beside each other: scores, mean ranks, Borda counts, significant differences."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.comparing.bench.methods import UNTRAINED, chosen_on
from cml.comparing.bench.result import Result, read_result, results_in
from cml.comparing.bench.scores import PRIMARY, interval
from cml.comparing.bench.suite import SETS, SUITES
from cml.errors import UserError, did_you_mean
from cml.retrieval import text_table
from cml.retrieval.best_methods import find_best
from cml.retrieval.comparison import interval_text
from cml.retrieval.metric_result import none_for_nan
from cml.retrieval.metrics import describe

BEST = "*"  # marks the best of a set, and what does not differ from it significantly
CHOSEN = "°"  # marks the sets on which the defaults of a method were chosen
OTHERS = "other sets"  # the title of the mean rank on sets on which no default was chosen
_NONE = "-"
_LEVEL = 0.05


@dataclass(frozen=True)
class Board:
    """What the methods of one version and track reached."""

    version: str
    track: str  # with its backbone
    sets: list[str]
    results: Mapping[str, Mapping[str, Result]]  # method to set to result
    # method to its ranks on the sets, 1 the best, of those that were run on all; who failed on a set is last there
    ranks: Mapping[str, Float64]
    # (method, set) of the best of each set and of those not significantly worse, see ``find_best``
    best: frozenset[tuple[str, str]]
    # p of the hypothesis that all methods perform alike (Friedman, 1937); NaN for fewer than 3 methods or sets
    friedman: float
    # mean ranks that are farther apart differ (Nemenyi, 1963; Demsar, Statistical Comparisons of Classifiers over
    # Multiple Data Sets, JMLR 2006)
    critical: float
    # set to the (Q,) scores of the oracle, which are the denominators of all scores; without them they are held fixed
    reaches: Mapping[str, Float64] = field(default_factory=dict)

    @property
    def means(self) -> dict[str, float]:
        """Method to mean rank."""
        return {method: float(ranks.mean()) for method, ranks in self.ranks.items()}

    @property
    def other_sets(self) -> list[str]:
        """The sets on which the defaults of no ranked method were chosen."""
        chosen = {name for method in self.ranks for name in chosen_on(method)}
        return [name for name in self.sets if name not in chosen]

    @property
    def other_means(self) -> dict[str, float]:
        """Method to its mean rank on ``other_sets``; empty where these are all sets, or none."""
        columns = [self.sets.index(name) for name in self.other_sets]
        if not 0 < len(columns) < len(self.sets):
            return {}
        return {method: float(ranks[columns].mean()) for method, ranks in self.ranks.items()}

    @property
    def borda(self) -> dict[str, float]:
        """Method to the sum over sets of how many others it is ahead of."""
        return {method: float((len(self.ranks) - ranks).sum()) for method, ranks in self.ranks.items()}

    @property
    def order(self) -> list[str]:
        """Methods, the oracle first, then by mean rank, those without one by their mean score."""

        def key(method: str) -> tuple[int, float]:
            if method in UNTRAINED:
                return (0 if method == "oracle" else 3), 0.0
            if method in self.ranks:
                return 1, self.means[method]
            return 2, -float(np.mean([score_of(result) for result in self.results[method].values()]))

        return sorted(self.results, key=key)

    def grid(self) -> list[list[str]]:
        """Header and rows as text."""
        means, borda, others = self.means, self.borda, self.other_means
        rows = [["", *self.sets, "mean rank", *([OTHERS] if others else []), "Borda", "seconds"]]
        for method in self.order:
            cells = [self._cell(method, name) for name in self.sets]
            over = [""] * (3 if others else 2)
            if method in means:
                on_others = [f"{others[method]:.2f}"] if others else []
                over = [f"{means[method]:.2f}", *on_others, f"{borda[method]:g}"]
            seconds = np.mean([result.seconds["run"] for result in self.results[method].values()])
            rows.append([method, *cells, *over, f"{seconds:.2f}"])
        return rows

    def _cell(self, method: str, name: str) -> str:
        result = self.results[method].get(name)
        if result is None:
            return "not run"
        if result.failed:
            return "failed"
        text = interval_text((score_of(result), *self._score_ends(result)), describe(PRIMARY))
        return text + CHOSEN * (name in chosen_on(method)) + BEST * ((method, name) in self.best)

    def _score_ends(self, result: Result) -> tuple[float, float]:
        """The ends of the interval of a score."""
        low, high = interval(result.values, self._reach_of(result))
        low, high = describe(PRIMARY).clip_intervals(score_of(result), (low, high)).tolist()
        return low, high

    def _reach_of(self, result: Result) -> Float64 | None:
        reach = self.reaches.get(result.set)
        return reach if reach is not None and len(reach) == result.values.shape[1] else None

    def notes(self) -> str:
        """What the figures are."""
        some = [result for row in self.results.values() for result in row.values()]
        runs = max((len(result.values) for result in some), default=0)
        trials = max((len(result.trials) for result in some), default=0)
        how = f"Each figure is the mean of {runs} runs with the best of {trials} trials on validation items."
        tests = ""
        if not math.isnan(self.friedman):
            rejected = "is" if self.friedman < _LEVEL else "is not"
            tests = (
                f" The hypothesis that all methods perform alike {rejected} rejected (Friedman test, "
                f"p = {self.friedman:.2g}). Two methods differ significantly if their mean ranks differ by "
                f"{self.critical:.2f} or more (Nemenyi test, 5 %)."
            )
        return (
            f"Suite {self.version}, track {self.track}. The score is 1 - (d@10 - oracle) / (random - oracle): 0 for "
            "chance, 1 for the ranking by the labels. ± is half the width of its 95 % interval over seeds and queries, "
            f"given the galleries. The row random is one random ranking. {how} {BEST} marks the best method of a set "
            "and those that are not significantly worse, paired by seeds and queries: whichever method truly is best "
            "is marked with a probability of 95 %, however many methods there are. The last column is the seconds of "
            f"one run.{tests}{self._other_notes()}"
        )

    def _other_notes(self) -> str:
        if not self.other_means:
            return ""
        return (
            f" {CHOSEN} marks the sets on whose training items the defaults of a method were chosen. {OTHERS!r} is the "
            f"mean rank on the sets without such a mark: {', '.join(self.other_sets)}."
        )

    def against(self, method: str) -> tuple[list[list[str]], str]:
        """Paired differences of all methods' scores from those of one: header and rows as text, and what they are."""
        if method not in self.results:
            raise UserError(
                f"There are no results of {method!r}.{did_you_mean(method, self.results)} There are those of "
                f"{', '.join(self.order)}."
            )
        rows = [["", *self.sets]]
        for other in self.order:
            if other != method and other not in UNTRAINED:
                ours, theirs = self.results[other], self.results[method]
                differences = [self._difference(ours.get(name), theirs.get(name)) for name in self.sets]
                rows.append([other, *(_NONE if pair is None else _difference_text(*pair) for pair in differences)])
        return rows, (
            f"Suite {self.version}, track {self.track}. Differences of the score from that of {method}, with the 95 % "
            "interval over seeds and queries of the paired difference, given the galleries. "
            f"{BEST} marks intervals that do not contain 0, each on its own: of 20 differences that are 0, one is "
            f"marked by chance. {_NONE} where one of the two failed or was not run."
        )

    def means_of(self, score: str) -> tuple[list[list[str]], str]:
        """Means of another score, or of a metric of the user's own: header and rows as text, and what they are."""
        known = sorted({name for row in self.results.values() for result in row.values() for name in result.scores})
        if score not in known:
            raise UserError(
                f"The results hold no score {score!r}.{did_you_mean(score, known)} They hold {', '.join(known)}."
            )
        rows = [["", *self.sets]]
        for method in self.order:
            there = [self.results[method].get(name) for name in self.sets]
            means = [None if result is None else result.mean(score) for result in there]
            rows.append([method, *(_NONE if mean is None else f"{mean:.4g}" for mean in means)])
        info = describe(score)
        note = f" {info.note[0].upper()}{info.note[1:].rstrip('.')}." if info.note else ""
        return rows, (
            f"Suite {self.version}, track {self.track}. Means of {score} over runs and queries.{note} {_NONE} where a "
            "method failed, was not run, or has no such score."
        )

    def trials(self) -> tuple[list[list[str]], str]:
        """What tuning brings: header and rows as text, the method with the best defaults first, and what they are."""
        methods = [method for method in self.ranks if any(result.trials for result in self.results[method].values())]
        sets = [name for name in self.sets if not any(self.results[method][name].failed for method in methods)]
        if not methods or not sets:
            raise UserError(f"No set of {self.version} {self.track} has trials of all ranked methods.")
        others = [name for name in sets if name in self.other_sets] if self.other_means else []
        rows: dict[str, list[float]] = {}
        for method in methods:
            scores = {name: self.results[method][name].trial_scores for name in sets}
            every = np.array(list(scores.values()))
            parts = every[:, 0], np.median(every, axis=1), every.max(axis=1)
            rows[method] = [float(part.mean()) for part in parts]
            if others:
                rows[method].append(float(np.mean([scores[name][0] for name in others])))
        ordered = sorted(rows.items(), key=lambda row: -row[1][0])
        texts = [[method, *(f"{value:.3f}" for value in row)] for method, row in ordered]
        header = ["", "defaults", "median", "best", *([f"defaults, {OTHERS}"] if others else [])]
        notes = f" The last column is of the sets on which no default was chosen: {', '.join(others)}."
        return [header, *texts], (
            f"Suite {self.version}, track {self.track}. Scores of the trials on validation items: of the first trial, "
            f"which has the defaults, the median trial and the best one, as means over {', '.join(sets)}. A trial that "
            f"failed counts as 0.{notes if others else ''}"
        )

    def markdown(self) -> str:
        """The table and its notes as Markdown."""
        return f"{text_table.markdown(self.grid())}\n\n{self.notes()}\n"

    def __str__(self) -> str:
        return f"{text_table.align_columns(self.grid())}\n{self.notes()}"

    def _json_ends(self, result: Result) -> list[float | None] | None:
        """The ends of the interval of the score; None where the result failed."""
        return None if result.failed else none_for_nan(self._score_ends(result))

    def _difference(self, ours: Result | None, theirs: Result | None) -> tuple[float, float, float] | None:
        """The mean of the paired differences of two results, and the ends of its 95 % interval."""
        if ours is None or theirs is None or ours.failed or theirs.failed:
            return None
        mine, other = ours.values, theirs.values
        if mine.shape[1] != other.shape[1] or not (len(mine) == len(other) or 1 in (len(mine), len(other))):
            return None
        difference = mine - other  # what has no seeds is one row, which goes with all of the other
        return float(np.nanmean(difference)), *interval(difference, self._reach_of(ours))

    def to_json(self) -> dict[str, Any]:
        """The figures for machines."""
        tests = {"friedman_p": self.friedman, "critical_difference": self.critical}
        scores: dict[str, dict[str, float | None]] = {}
        ends: dict[str, dict[str, list[float | None] | None]] = {}
        for method, row in self.results.items():
            scores[method] = {name: None if result.failed else score_of(result) for name, result in row.items()}
            ends[method] = {name: self._json_ends(result) for name, result in row.items()}
        return {
            "suite": self.version,
            "track": self.track,
            "scores": scores,
            "intervals": ends,
            "mean_ranks": self.means,
            "other_sets": self.other_sets,
            "mean_ranks_on_other_sets": self.other_means,
            "borda": self.borda,
            **{name: None if math.isnan(value) else value for name, value in tests.items()},
        }


def score_of(result: Result) -> float:
    """The normalised score, minus infinity where it failed."""
    value = result.mean()
    return -math.inf if value is None else value


def read_board(
    out: Path,
    version: str = "",  # version of the suite; "" takes the latest that has results
    track: str = "",  # the track with its backbone, or its letter; "" takes the first
) -> Board:
    """Read the results of one version and track."""
    every_result = list(map(read_result, results_in(out)))
    versions = {result.suite for result in every_result}
    version = version or next(name for name in SUITES if name in versions)
    every_result = [result for result in every_result if result.suite == version]
    there = sorted({result.track for result in every_result})
    track = next((name for name in there if track in (name, name.partition("-")[0], "")), track)
    if track not in there:
        others = f" There are those of {', '.join(there)}." if there else " Run cml bench."
        raise UserError(f"There are no results of {version} {track} in {out}.{others}")
    oracles = {result.set: result for result in every_result if result.method == "oracle" and not result.failed}
    return build_board(version, track, [result for result in every_result if result.track == track], oracles)


def build_board(version: str, track: str, every_result: list[Result], oracles: Mapping[str, Result]) -> Board:
    """Build the board of results of one version and track: ranks, tests and best methods.

    ``oracles`` has a result of the oracle for each set, of any track: what it is ahead of chance is the denominator of
    scores.
    """
    there = {result.set for result in every_result}
    sets = [*(name for name in SETS if name in there), *sorted(there - SETS.keys())]  # others are somebody's own
    results: dict[str, dict[str, Result]] = {}
    for result in every_result:
        results.setdefault(result.method, {})[result.set] = result
    ranked = [method for method, row in results.items() if method not in UNTRAINED and len(row) == len(sets)]
    scores = np.array([[score_of(results[method][name]) for name in sets] for method in ranked])  # (M, sets)
    best = frozenset((method, name) for name in sets for method in _best(name, results))
    reaches = {name: oracle.values[0] for name, oracle in oracles.items()}
    if not ranked:
        return Board(version, track, sets, results, {}, best, math.nan, math.nan, reaches)
    from scipy import stats

    ranks: Float64 = stats.rankdata(-scores, axis=0)  # equal scores share their mean rank
    friedman = critical = math.nan
    if min(ranks.shape) > 2:
        friedman = float(stats.friedmanchisquare(*ranks).pvalue)
        studentized = float(stats.studentized_range.ppf(1 - _LEVEL, len(ranked), np.inf)) / math.sqrt(2)
        critical = studentized * math.sqrt(len(ranked) * (len(ranked) + 1) / (6 * len(sets)))
    return Board(
        version, track, sets, results, dict(zip(ranked, ranks, strict=True)), best, friedman, critical, reaches
    )


def _best(name: str, results: Mapping[str, Mapping[str, Result]]) -> list[str]:
    """The best method of a set and those that are not significantly worse."""
    here = {method: row[name] for method, row in results.items() if method not in UNTRAINED and name in row}
    values = {method: result.values for method, result in here.items() if not result.failed}
    if not values:
        return []
    first = max(values, key=lambda method: score_of(here[method]))
    seeds, queries = values[first].shape
    if seeds == 1:
        seeds = max(map(len, values.values()))
    paired = [method for method, each in values.items() if each.shape in ((seeds, queries), (1, queries))]
    return [paired[index] for index in find_best([values[method] for method in paired])]


def _difference_text(mean: float, low: float, high: float) -> str:
    return f"{mean:+.3f} ± {(high - low) / 2:.3f}{BEST if low > 0 or high < 0 else ''}"
