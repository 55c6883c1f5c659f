"""The result of an evaluation: metrics with their intervals, as a text table and as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, TypeVar

import numpy as np

from cml.errors import DataError, UserError
from cml.retrieval import text_table
from cml.retrieval.metrics import GAINS, Float64
from cml.storage.saved_options import Count, record

if TYPE_CHECKING:
    import pandas

T = TypeVar("T")
_UNASKED = ("h_ap", "worst_decile@")  # left out of a table by default


@dataclass(frozen=True, eq=False)
class Metric:
    """One measure of one ranker.

    Attributes:
        name: "label_distance@10", "score@10", "ndcg@100", "hit@5", "spearman_rho" ..
        per_query: (Q,) float64, NaN for a query without a value; empty if it was not saved.
        mean: Mean over the queries with a value; NaN if there are none.
        low: Lower end of the 95 % bootstrap interval of the mean over queries.
        high: Upper end.
        undefined: Number of queries left out.
    """

    name: str
    per_query: Float64 = field(repr=False)
    mean: float
    low: float
    high: float
    undefined: int = 0

    @property
    def higher_is_better(self) -> bool:
        """False only for label distances."""
        return not self.name.startswith(("label_distance@", "worst_decile@"))


class _SavedMetric(TypedDict):
    mean: float | None
    low: float | None
    high: float | None
    undefined: Count
    per_query: NotRequired[list[float | None]]


class _Saved(TypedDict):
    unit: str
    reported_unit: str
    gain: str
    queries: Count
    gallery: Count
    hit_neighbors: Count
    singletons_as_misses: NotRequired[bool]
    recall_within: NotRequired[float]
    verdict: NotRequired[str]
    ties: NotRequired[dict[str, Count]]
    rows: dict[str, dict[str, _SavedMetric]]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The metrics of every ranker on one set of queries and one gallery.

    Attributes:
        rows: Ranker name -> metric name -> metric.
        unit: Unit of the label distance, on which nDCG depends for most gains.
        gain: Name of nDCG's gain.
        queries: Q.
        gallery: G.
        hit_neighbors: Number of true nearest items that Hit@K looks for.
        reported_unit: Unit of label_distance@K if it is another one; see ``reported``.
        ties: Ranker name -> queries with tied scores among the measured top items, which are in random order.
        singletons_as_misses: Whether Recall@K counts a query that has no item of its class as a miss.
        recall_within: The label distance up to which an item is relevant to Recall@K, as reported; 0 for classes.
        verdict: A conclusion in one sentence, where embeddings were evaluated; "" of rankers.
    """

    rows: Mapping[str, Mapping[str, Metric]]
    unit: str
    gain: str
    queries: int
    gallery: int
    hit_neighbors: int = 50
    reported_unit: str = ""
    ties: Mapping[str, int] = field(default_factory=dict)
    singletons_as_misses: bool = False
    recall_within: float = 0.0
    verdict: str = ""

    @property
    def distance_unit(self) -> str:
        """Unit of label_distance@K."""
        return self.reported_unit or self.unit

    def reported(self, factor: float, unit: str) -> Evaluation:
        """The evaluation with label distances multiplied by ``factor``, in ``unit``; nDCG does not change."""

        def scaled(_: str, metric: Metric) -> Metric:
            keys = () if metric.higher_is_better else ("per_query", "mean", "low", "high")
            return replace(metric, **{key: factor * getattr(metric, key) for key in keys})

        rows, within = _changed(self.rows, scaled), factor * self.recall_within
        unit = "" if factor == 1 and unit == self.unit else unit
        return replace(self, rows=rows, reported_unit=unit, recall_within=within)

    def to_json(self, *, per_query: bool = False) -> dict[str, Any]:
        """The evaluation as JSON can hold it, NaN as null; ``per_query`` adds the values of all queries (megabytes)."""

        def plain(_: str, metric: Metric) -> dict[str, Any]:
            values: dict[str, Any] = {key: none_if_nan(float(getattr(metric, key))) for key in ("mean", "low", "high")}
            values["undefined"] = metric.undefined
            if per_query:
                values["per_query"] = list(map(none_if_nan, metric.per_query.tolist()))
            return values

        said = {name: getattr(self, name) for name in _Saved.__annotations__}
        return {**said, "ties": dict(self.ties), "rows": _changed(self.rows, plain)}

    @classmethod
    def from_json(cls, value: Any) -> Evaluation:  # noqa: ANN401 - whatever a file held
        """Read the result of ``to_json``; ``DataError`` if the value has another form."""

        def metric(name: str, found: _SavedMetric) -> Metric:
            mean, low, high = (_nan(one) for one in (found["mean"], found["low"], found["high"]))
            per_query = np.array([_nan(item) for item in found.get("per_query", [])], np.float64)
            return Metric(name, per_query, mean, low, high, found["undefined"])

        mend = "Run cml evaluate again."
        if isinstance(value, dict) and "count_lone" in value:
            value = {**value, "singletons_as_misses": value["count_lone"]}
        saved = record(value, _Saved, "The evaluation", "an evaluation that cml wrote", mend)
        fields: dict[str, Any] = {**saved, "rows": (rows := _changed(saved["rows"], metric))}
        if not rows or len({tuple(sorted(metrics)) for metrics in rows.values()}) > 1 or not all(rows.values()):
            raise DataError(f"The rankers of an evaluation should have the same metrics, one at least. {mend}")
        return cls(**fields)

    def table(self, metrics: Sequence[str] | None = None, *, markdown: bool = False) -> str:
        """A table with a row per ranker and "mean [low, high]" per metric.

        Args:
            metrics: Metric names; by default one of each kind, at its largest K, without h_ap and worst_decile.
            markdown: A Markdown table instead of aligned text.

        Raises:
            UserError: a metric was not measured.
        """
        measured = list(next(iter(self.rows.values())))
        last = {name if name.startswith("recall@") else name.partition("@")[0]: name for name in measured}
        names = [name for name in last.values() if not name.startswith(_UNASKED)] if metrics is None else list(metrics)
        if unknown := [name for name in names if name not in measured]:
            raise UserError(f"No metric {unknown[0]!r} was measured. There are: {', '.join(measured)}.")
        columns = [_cells([row[name] for row in self.rows.values()]) for name in names]
        grid = [["", *names], *([ranker, *cells] for ranker, *cells in zip(self.rows, *columns, strict=True))]
        made = f"{text_table.markdown(grid)}\n" if markdown else text_table.aligned(grid)
        return "\n".join([made, *self._notes(names)])

    def markdown(self) -> str:
        """The table as Markdown."""
        return self.table(markdown=True)

    def to_pandas(self) -> pandas.DataFrame:
        """One line per ranker and metric: mean, ends of its 95 % interval, queries left out; it needs pandas."""
        keys = ("mean", "low", "high", "undefined")
        return text_table.frame(
            {"ranker": ranker, "metric": name, **{key: getattr(metric, key) for key in keys}}
            for ranker, metrics in self.rows.items()
            for name, metric in metrics.items()
        )

    def __str__(self) -> str:
        return self.table()

    def _notes(self, names: Sequence[str]) -> list[str]:
        kinds, unit = {name.partition("@")[0] for name in names}, self.distance_unit
        formula = GAINS[self.gain][0] if self.gain in GAINS else self.gain
        singletons = "a miss" if self.singletons_as_misses else "left out"
        recall = f"has the query's class; a query alone of its class is {singletons}"
        if self.recall_within:
            recall = f"is within {self.recall_within:g} {unit}"
        meaning = {
            "label_distance": f"label_distance in {unit}, lower is better",
            "score": "score: (random - it) / (random - oracle) of label_distance; 1 is the oracle; "
            "0 is the mean of all random rankings, of which the row random is one",
            "worst_decile": f"worst_decile: label_distance in {unit}, in the worst tenth of the labels",
            "ndcg": f"ndcg with gain {formula}" + (f", d in {self.unit}" if "d" in formula else ""),
            "pair_spearman": "pair_spearman: correlation with the similarity that people see, its interval over "
            "resamples",
            "hit": f"hit: one of the {self.hit_neighbors} true nearest is found",
            "recall": f"recall: one of the first K {recall}",
        }
        parts = [f"{self.queries} queries, {self.gallery} gallery items; mean [95 % interval over queries]"]
        notes = ["; ".join([*parts, *(text for kind, text in meaning.items() if kind in kinds)]) + "."]
        unseen = [name for name in next(iter(self.rows.values())) if name.startswith(_UNASKED) and name not in names]
        if unseen:
            notes.append(f"Also measured: {', '.join(unseen)}.")
        if self.gallery < 4 * (8 if "recall" in kinds else 100):
            most = largest_k(self.gallery)
            notes.append(f"K is at most {most}, a quarter of the gallery: beyond, all rankings score alike.")
        if self.ties:
            counts = ", ".join(f"{ranker} {count}" for ranker, count in self.ties.items())
            notes.append(f"Items of one score come in random order. Queries with such items: {counts}.")
        for name in names:
            undefined = [f"{ranker} {row[name].undefined}" for ranker, row in self.rows.items() if row[name].undefined]
            if undefined and not name.startswith("worst_decile@"):  # of few queries, as it says
                counts = ", ".join(undefined)
                notes.append(f"{name} does not exist for some queries, which are left out of its mean: {counts}.")
        return [*notes, *([self.verdict] if self.verdict else [])]


def largest_k(gallery: int) -> int:
    """The largest K at which rankings of a gallery of that size differ."""
    return max(1, gallery // 4)


def _changed(rows: Mapping[str, Mapping[str, Any]], change: Callable[[str, Any], T]) -> dict[str, dict[str, T]]:
    return {ranker: {name: change(name, one) for name, one in row.items()} for ranker, row in rows.items()}


def _cells(metrics: Sequence[Metric]) -> list[str]:
    """Texts of one column, all with the same number of decimals."""
    largest = max((abs(metric.mean) for metric in metrics if math.isfinite(metric.mean)), default=0.0)
    decimals = min(6, max(0, 3 - math.floor(math.log10(largest)))) if largest > 0 else 3

    def text(metric: Metric) -> str:
        if math.isnan(metric.mean):
            return "undefined"
        mean, low, high = (f"{value:.{decimals}f}" for value in (metric.mean, metric.low, metric.high))
        return mean if math.isnan(metric.low) else f"{mean} [{low}, {high}]"

    return [text(metric) for metric in metrics]


def none_if_nan(value: float) -> float | None:
    """A number as JSON can hold it."""
    return None if math.isnan(value) else value


def _nan(value: float | None) -> float:
    return math.nan if value is None else float(value)
