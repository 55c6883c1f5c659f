"""The results of several trained methods and references on one dataset: means, intervals over seeds, a table."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.retrieval import text_table
from cml.retrieval.best_methods import MethodScores
from cml.retrieval.feature_forms import find_best_form
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.label_regression import RIDGE_ROWS
from cml.retrieval.mean_interval import LEVEL, MeanEstimate
from cml.retrieval.metric_result import GIVEN_GALLERY, MetricResult, drawn_items, none_for_nan
from cml.retrieval.metrics import LABEL_DISTANCE, MetricInfo, family
from cml.retrieval.results import Evaluation
from cml.retrieval.verdict import FEW_QUERIES, main_metric

if TYPE_CHECKING:
    import pandas

Interval = tuple[float, float, float]  # mean and the two ends of its 95 % interval
Rows = Mapping[str, Mapping[str, Interval]]  # method to metric to interval

_MOST_SEEDS = 20
_UNBOUNDED = MetricInfo()
CUT = ", cut"  # ends the name of a method with larger embeddings that were cut to their first dimensions
APART = "*"  # marks a figure whose interval does not overlap that of the first method


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of a comparison."""

    trained: Mapping[str, Sequence[Evaluation]]  # method to the evaluations of its runs, one per seed
    references: Evaluation  # the rows that need no training: frozen features, random, oracle
    row: str  # of the trained embedding in an evaluation
    dimension: int  # of the embeddings in the table
    at: Mapping[int, Mapping[str, Sequence[Evaluation]]]  # other dimensions, to what ``trained`` is there

    @property
    def unit(self) -> str:
        """Unit of label_distance@K."""
        return self.references.distance_unit

    @property
    def seeds(self) -> int:
        """Runs per method."""
        return len(next(iter(self.trained.values())))

    @property
    def dimensions(self) -> list[int]:
        """That of the table, and the others."""
        return sorted({self.dimension, *self.at})

    @property
    def reference_names(self) -> list[str]:
        """The rows that need no training."""
        return [name for name in self.references.rows if name != self.row]

    def values(self, metric: str, *, dimension: int | None = None) -> dict[str, list[float]]:
        """One figure per seed of each trained method."""
        runs = self.trained if dimension in (None, self.dimension) else self.at[dimension or 0]
        return {
            method: [evaluation.rows[self.row][metric].mean for evaluation in evaluations]
            for method, evaluations in runs.items()
        }

    def rows(self, dimension: int | None = None) -> Rows:
        """Mean and 95 % interval: over seeds for trained methods (Student's t), over items for the references.

        The intervals hold only values that the metric can have, see ``MetricInfo``.
        """
        measured = self.references.rows[self.row]
        columns = {metric: self.values(metric, dimension=dimension) for metric in measured}
        rows = {
            method: {metric: over_seeds(column[method], measured[metric].info) for metric, column in columns.items()}
            for method in next(iter(columns.values()))
        }
        for name in self.reference_names:
            row = self.references.rows[name]
            rows[name] = {key: (metric.mean, metric.low, metric.high) for key, metric in row.items()}
        return rows

    def table(self) -> list[list[str]]:
        """Header and rows as text, with the columns that the ``info`` of each metric names."""
        rows = self.rows()
        first = next(iter(rows.values()))
        measured = self.references.rows[self.row]
        metrics = compared_columns(list(measured.values()))
        lines = [["method", *metrics]]
        for method, row in rows.items():
            marked = {name for name in metrics if self.seeds > 1 and apart(row[name], first[name])}
            cells = [interval_text(row[name], measured[name].info) + APART * (name in marked) for name in metrics]
            lines.append([method, *cells])
        return lines

    def notes(self) -> str:
        """An explanation of the table, and the verdict."""
        over = f"over {self.seeds} seeds for trained methods (Student's t)" if self.seeds > 1 else "one seed each"
        shown = self.table()[0][1:]
        kinds = {name.partition("@")[0] for name in shown}
        better = "Higher is better"
        if "label_distance" in kinds:
            better = f"Label distances in {self.unit}, lower is better; the rest, higher is better"
        results = self.references.rows[self.row]
        for name in shown:
            info = results[name].info
            if not info.higher_is_better and family(name) != "label_distance":
                unit = self.unit if info.unit == LABEL_DISTANCE else info.unit
                better += f"; {name}{f' in {unit}' if unit else ''}, lower is better"
        if "score" in kinds:
            better += "; score is 1 for the oracle and 0 for the average random ranking, of which 'random' is a draw"
        if self.references.recall_within:
            better += f"; recall: within {self.references.recall_within:g} {self.unit}"
        what, rest = drawn_items(self.references.rows[row][name] for row in self.reference_names for name in shown)
        sentences = [f"{better}. 95 % intervals: {over}; for the references over {what}.", *filter(None, [rest])]
        if self.seeds > 1:
            sentences.append(f"{APART} marks an interval that does not overlap that of {next(iter(self.trained))}.")
        return f"{' '.join(sentences)}\n{self.verdict()}"

    def verdict(self) -> str:
        """Whether the first method differs from a reference, and from the best of the others, paired."""
        name = main_metric(list(self.references.rows[self.row]))
        if self.seeds < 2:
            return "Verdict: one seed does not show the spread between training runs; use --seeds 3."
        first_reference = next(name for name in self.reference_names if name != "oracle")  # frozen, or else random
        other = find_best_form(self.references.rows, name) or first_reference
        sign = 1 if self.references.rows[other][name].higher_is_better else -1
        scores, reference, given = self._scores(name, self.references.rows[other][name])
        (first, ours), *rest = ((method, values * sign) for method, values in scores.items())
        against = self._compare_with(other, reference * sign, first, ours, name)
        for regression in (row for row in RIDGE_ROWS if row in self.references.rows):
            _, reference, _ = self._scores(name, self.references.rows[regression][name])
            against += f" Against a regression: {self._compare_with(regression, reference * sign, first, ours, name)}"
        if not rest:
            sentences = [f"Verdict: {against}"]
        else:
            every = MethodScores.of([ours, *(values for _, values in rest)])
            estimates = every.compare_with(0)
            best = int(np.argmax(estimates.mean))
            probability = every.simultaneous_probability(0, two_sided=True)
            answer = self._answer(first, rest[best][0], estimates.select(best), sign, name, probability)
            sentences = [f"Verdict: {answer}"]
            if len(rest) > 1:
                sentences.append(f"The interval allows for the choice among {len(rest)} methods.")
            sentences.append(f"Against what needs no training: {against}")
        if given:
            sentences.append(given)
        if self.references.queries < FEW_QUERIES:
            sentences.append(f"Few queries ({self.references.queries}): the size of differences is uncertain.")
        return " ".join(sentences)

    def _compare_with(self, row: str, reference: ItemInfluences, first: str, ours: ItemInfluences, name: str) -> str:
        """A sentence on the first method against a row of the references; scores are higher for better ones."""
        return self._compare_text(first, row, MethodScores.of([reference, ours]).compare_with(0), name)

    def _scores(self, name: str, reference: MetricResult) -> tuple[dict[str, ItemInfluences], ItemInfluences, str]:
        """Influences on a metric: (S,) of each trained method and (1,) of a reference, and a sentence on the gallery.

        Where those of items were not kept, they are of queries, given the gallery, and else of the mean alone.
        """
        results = {method: [run.rows[self.row][name] for run in runs] for method, runs in self.trained.items()}
        every = [reference, *(result for runs in results.values() for result in runs)]
        has_items = all(result.minus(reference) is not None for result in every)
        has_queries = all(len(result.per_query) == len(reference.per_query) > 0 for result in every)

        def influences(runs: Sequence[MetricResult]) -> ItemInfluences:
            if has_items:
                return ItemInfluences.stack([result.influences for result in runs if result.influences is not None])
            return ItemInfluences.of_queries(
                np.array([result.per_query if has_queries else [result.mean] for result in runs], np.float64)
            )

        over = "seeds and queries" if has_queries else "seeds alone"
        given = "" if has_items else f"The intervals are over {over}{GIVEN_GALLERY}."
        return {method: influences(runs) for method, runs in results.items()}, influences([reference]), given

    def _answer(self, first: str, other: str, gain: MeanEstimate, sign: int, name: str, probability: float) -> str:
        """One line on the first method against the best of the others, whose gain over it is given."""
        start = f"{first} against the best other, {other}:"
        mean = -sign * float(gain.mean[0])
        if math.isnan(mean):
            return f"{start} {name} is undefined."
        low, high = sorted((-sign * gain.intervals(2 * probability - 1)[0]).tolist())
        unit = f" {self.unit}" if "label_distance" in name else ""
        figures = f"{mean:+.3g} [{low:+.3g}, {high:+.3g}]{unit} in {name}"
        if low > 0 or high < 0:
            return f"{start} {figures}, {first if mean * sign > 0 else other} is better."
        if low == high:
            return f"{start} equal in {name}."
        return f"{start} {figures}, no clear difference; {self._describe_needed_seeds(gain, probability)}."

    def _describe_needed_seeds(self, gain: MeanEstimate, probability: float) -> str:
        """How many seeds would tell."""
        seeds = next((n for n in range(self.seeds + 1, _MOST_SEEDS + 1) if self._tells(gain, n, probability)), None)
        return f"even {_MOST_SEEDS} seeds would not be enough" if seeds is None else f"{seeds} seeds would be needed"

    def _compare_text(
        self, method: str, other: str, gain: MeanEstimate, name: str, probability: float = (1 + LEVEL) / 2
    ) -> str:
        """A sentence on the mean gain of one method over another, with the interval between two such quantiles."""
        mean = float(gain.mean[0])
        low, high = gain.intervals(2 * probability - 1)[0].tolist()
        half, gap = (high - low) / 2, abs(mean)
        unit = f" {self.unit}" if "label_distance" in name else ""
        if math.isnan(mean):
            return f"{method} and {other} cannot be compared: {name} is undefined."
        if low == high == 0:
            return f"{method} and {other} are equal in {name}."
        if low > 0 or high < 0:
            side = "better" if mean > 0 else "worse"
            return f"{method} is {side} than {other} by {gap:.3g} ± {half:.3g}{unit} in {name}."
        over = f"{self.seeds} seeds" + (f" and {self.references.queries} queries" if gain.item_variance[0] > 0 else "")
        return (
            f"there is no clear difference between {method} and {other}: it is {gap:.3g}{unit} in {name}, and its 95 % "
            f"interval over {over} is ± {half:.3g}; {self._describe_needed_seeds(gain, probability)}."
        )

    def _tells(self, gain: MeanEstimate, seeds: int, probability: float) -> bool:
        """Whether so many seeds would make half of the interval at most half of the mean gain."""
        seed_variance = gain.seed_variance * self.seeds / seeds
        more = replace(gain, seed_variance=seed_variance, seed_freedom=np.full(1, seeds - 1.0))
        return bool((more.error * more.critical_values(probability) <= np.abs(gain.mean) / 2)[0])

    def markdown(self) -> str:
        """The table as Markdown."""
        return text_table.markdown(self.table())

    def to_dict(
        self,
        dimension: int | None = None,  # that of the embeddings; None for that of the table
    ) -> dict[str, dict[str, dict[str, float]]]:
        """Give method -> metric -> its mean and the ends of its 95 % interval, "low" and "high"; see ``rows``."""
        return {
            method: {name: dict(zip(("mean", "low", "high"), interval, strict=True)) for name, interval in row.items()}
            for method, row in self.rows(dimension).items()
        }

    def to_pandas(self) -> pandas.DataFrame:
        """One line per dimension, method and metric: its mean and the ends of its 95 % interval; see ``rows``."""
        return text_table.frame(
            {"dimension": size, "method": method, "metric": name, **figures}
            for size in self.dimensions
            for method, row in self.to_dict(size).items()
            for name, figures in row.items()
        )

    def _repr_html_(self) -> str:
        """The table as HTML, which notebooks show."""
        return text_table.html(self.table(), self.notes().splitlines())

    def __repr__(self) -> str:
        return f"{text_table.align_columns(self.table())}\n{self.notes()}"

    def to_json(self) -> dict[str, Any]:
        """All figures: intervals, and every seed's value."""
        values = {metric: _lists(self.values(metric)) for metric in self.references.rows[self.row]}
        sizes = {size: {method: _lists(row) for method, row in self.rows(size).items()} for size in self.dimensions}
        figures = {"unit": self.unit, "seeds": self.seeds, "dimension": self.dimension, "rows": sizes[self.dimension]}
        return {**figures, "values": values, "dimensions": {str(size): rows for size, rows in sizes.items()}}


def compared_columns(results: Sequence[MetricResult]) -> list[str]:
    """The columns that the table of a comparison shows.

    Each metric is shown at the K that its ``info`` names, or at its largest K where none of these was measured. Label
    distances of classes, 0 and 1, are not shown beside metrics of classes.
    """
    are_classes = any(result.name == "map@r" for result in results)
    by_family: dict[str, list[MetricResult]] = {}
    for result in results:
        if result.info.compared:
            by_family.setdefault(family(result.name), []).append(result)
    columns: set[str] = set()
    for name, members in by_family.items():
        info, largest = members[0].info, members[-1].name
        wanted = {f"{name}@{k}" for k in info.compared_ks}
        if info.shown == "every_k":
            wanted = {member.name for member in members}
        elif not wanted or re.search(r"@[1-9]$", largest):
            wanted.add(largest)
        elif are_classes and members[0].is_label_distance:
            wanted = set()
        columns |= wanted
    return [result.name for result in results if result.name in columns]


def over_seeds(values: Sequence[float], info: MetricInfo = _UNBOUNDED) -> Interval:
    """Mean and 95 % interval (Student's t) of one figure per seed; no interval for a single seed."""
    from scipy.special import stdtrit  # the quantile itself: scipy.stats takes half a second to import

    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    half = float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(len(values)))
    low, high = info.clip_intervals(mean, (mean - half, mean + half)).tolist()
    return mean, low, high


def apart(first: Interval, second: Interval) -> bool:
    """Whether two intervals have nothing in common."""
    return first[1] > second[2] or second[1] > first[2]


def interval_text(value: Interval, info: MetricInfo = _UNBOUNDED) -> str:
    """A mean and half of its interval, as tables write it."""
    mean = value[0]
    digits = 3 if abs(mean) <= 1 else 2 if abs(mean) < 100 else 1
    spread = info.half_width(*value)
    return f"{mean:.{digits}f}" if not spread > 0 else f"{mean:.{digits}f} ± {spread:.{digits}f}"


def _lists(row: Mapping[str, Sequence[float]]) -> dict[str, list[float | None]]:
    return {name: none_for_nan(values) for name, values in row.items()}
