"""The result of an evaluation: metrics with their intervals, as a text table, as JSON and as a pandas frame."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import numpy as np

from cml.errors import DataError
from cml.retrieval import text_table
from cml.retrieval.evaluation_table import format_html, format_summary, format_table
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.metric_result import MetricResult, Over, nan_if_none
from cml.retrieval.metrics import MetricInfo, describe, family
from cml.storage.saved_options import Count, record

if TYPE_CHECKING:
    import pandas

Rows = Mapping[str, Mapping[str, MetricResult]]

_MEND = "Run cml evaluate again."
_FIGURES = ("mean", "low", "high", "undefined")  # of a result, as tables for further work hold them


class _SavedInfluences(TypedDict):
    first: list[float]
    second: list[float]
    signed: list[float]
    total: list[float]
    known: Count
    ranked: Count


class _SavedResult(TypedDict):
    mean: float | None
    low: float | None
    high: float | None
    undefined: Count
    over: NotRequired[Over]
    given_gallery: NotRequired[list[float | None] | None]
    per_query: NotRequired[list[float | None]]
    influences: NotRequired[_SavedInfluences]


class _SavedInfo(TypedDict):
    higher_is_better: bool
    unit: str
    note: str
    shown: Literal["largest_k", "every_k", "never"]


class _Saved(TypedDict):
    unit: str
    reported_unit: str
    gain: str
    queries: Count
    gallery: Count
    hit_neighbors: Count
    singletons_as_misses: NotRequired[bool]
    recall_within: NotRequired[float]
    ranking_sample: NotRequired[Count]
    known_items: NotRequired[Count | None]
    ceiling: NotRequired[float | None]
    repeated_questions: NotRequired[Count]
    verdict: NotRequired[str]
    headline: NotRequired[str]
    ties: NotRequired[dict[str, Count]]
    metrics: NotRequired[dict[str, _SavedInfo]]
    rows: dict[str, dict[str, _SavedResult]]


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The metrics of every ranker on one set of queries and one gallery.

    Attributes:
        rows: Ranker name -> metric name -> its result.
        unit: Unit of the label distance, on which nDCG depends for most gains.
        gain: Name of nDCG's gain.
        queries: Q.
        gallery: G.
        hit_neighbors: Number of true nearest items that Hit@K looks for.
        reported_unit: Unit of label_distance@K if it is another one; see ``in_unit``.
        ties: Ranker name -> queries with tied scores among the measured top items, which are in random order.
        singletons_as_misses: Whether Recall@K counts a query that has no item of its class as a miss.
        recall_within: The label distance up to which an item is relevant to Recall@K, as reported; 0 for classes.
        ranking_sample: Number of gallery items on which the metrics of the whole ranking were computed; 0 for all.
        known_items: Number of gallery items that a query ranks, the median over queries, where it ranks those of known
            label distance alone; None if it ranks all. See ``LabelDistance.is_partial``.
        ceiling: What repeated_spearman or repeated_agreement can reach at most, by the judgements that they are
            measured on; None without judgements, or where too few were repeated.
        repeated_questions: Number of questions, pairs or triplets, that were judged several times.
        verdict: What the figures say, where embeddings were evaluated, with what to do next; "" of rankers.
        headline: The verdict in two lines: how the embedding stands beside each reference, and the greatest caution or
            what to do next.

    Example:
        >>> from cml import distances
        >>> from cml.retrieval import evaluate
        >>> distance = distances.get("euclidean")
        >>> labels = distance.encode([[float(number)] for number in range(20)])
        >>> found = evaluate({}, distance, labels, labels, same_items=True)  # the oracle alone
        >>> list(found.rows), found.queries
        (['oracle'], 20)
    """

    rows: Rows
    unit: str
    gain: str
    queries: int
    gallery: int
    hit_neighbors: int = 50
    reported_unit: str = ""
    ties: Mapping[str, int] = field(default_factory=dict)
    singletons_as_misses: bool = False
    recall_within: float = 0.0
    ranking_sample: int = 0
    known_items: int | None = None
    ceiling: float | None = None
    repeated_questions: int = 0
    verdict: str = ""
    headline: str = ""

    @property
    def distance_unit(self) -> str:
        """Unit of label_distance@K."""
        return self.reported_unit or self.unit

    def in_unit(self, factor: float, unit: str) -> Evaluation:
        """Express label distances in another unit; nDCG does not change.

        Args:
            factor: What label distances are multiplied by.
            unit: Their unit then.

        Returns:
            The evaluation in that unit.
        """
        rows = self.rows
        if factor != 1:
            rows = {
                ranker: {name: result.scale(factor) for name, result in row.items()} for ranker, row in rows.items()
            }
        reported_unit = "" if factor == 1 and unit == self.unit else unit
        return replace(self, rows=rows, reported_unit=reported_unit, recall_within=factor * self.recall_within)

    def to_json(self, *, per_query: bool | Collection[str] = False) -> dict[str, Any]:
        """Give the evaluation as JSON can hold it, NaN as null.

        Args:
            per_query: Add the values of all queries, of all metrics (megabytes) or of those named.

        Returns:
            What ``from_json`` reads, with the direction, the unit and the note of each metric as "metrics".
        """
        values = {name: getattr(self, name) for name in _Saved.__annotations__ if name != "metrics"}
        first = next(iter(self.rows.values()))
        infos = {family(name): result.info for name, result in first.items()}
        keys = _SavedInfo.__annotations__
        metrics = {kind: {key: getattr(info, key) for key in keys} for kind, info in infos.items()}
        names = per_query if isinstance(per_query, Collection) else tuple(first) if per_query else ()
        rows = {
            ranker: {name: result.to_json(per_query=name in names) for name, result in row.items()}
            for ranker, row in self.rows.items()
        }
        return {**values, "ties": dict(self.ties), "metrics": metrics, "rows": rows}

    @classmethod
    def from_json(cls, value: Any) -> Evaluation:  # noqa: ANN401 - whatever a file held
        """Read the result of ``to_json``.

        Args:
            value: What a JSON file held.

        Returns:
            The evaluation.

        Raises:
            DataError: the value has another form.
        """
        saved = record(value, _Saved, "The evaluation", "an evaluation that cml wrote", _MEND)
        infos = {kind: replace(describe(kind), **info) for kind, info in saved.get("metrics", {}).items()}
        rows = {
            ranker: {name: _result_from_json(name, result, infos) for name, result in row.items()}
            for ranker, row in saved["rows"].items()
        }
        if not rows or len({tuple(sorted(metrics)) for metrics in rows.values()}) > 1 or not all(rows.values()):
            raise DataError(f"The rankers of an evaluation should have the same metrics, one at least. {_MEND}")
        fields: dict[str, Any] = {name: value for name, value in saved.items() if name != "metrics"}
        return cls(**{**fields, "rows": rows})

    def table(self, metrics: Sequence[str] | None = None, *, markdown: bool = False) -> str:
        """Write a table with a row per ranker and "mean [low, high]" per metric.

        Args:
            metrics: Metric names; by default one of each kind, at its largest K, without h_ap and worst_decile.
            markdown: A Markdown table instead of aligned text.

        Returns:
            The table with its notes.

        Raises:
            UserError: a metric was not measured.
        """
        return format_table(self, metrics, markdown=markdown)

    def summary(self, whole: str = "table()") -> str:
        """Write the main metrics, as many as fit 80 characters, with the headline; ``table`` gives all of it.

        Args:
            whole: What shows the rest, which the summary says.

        Returns:
            What ``print`` shows of an evaluation.
        """
        return format_summary(self, whole=whole)

    def markdown(self) -> str:
        """The table as Markdown."""
        return self.table(markdown=True)

    def to_dict(self) -> dict[str, dict[str, dict[str, float]]]:
        """Give ranker -> metric -> its mean, the ends of its 95 % interval ("low", "high") and queries left out.

        Where the gallery has items of its own, "low_given_gallery" and "high_given_gallery" are the ends of the
        interval that holds for this gallery alone.
        """
        return {ranker: {name: _figures(result) for name, result in row.items()} for ranker, row in self.rows.items()}

    def to_pandas(self) -> pandas.DataFrame:
        """Give one line per ranker and metric: mean, ends of its 95 % interval, queries left out.

        Raises:
            UserError: pandas is not installed.
        """
        return text_table.frame(
            {"ranker": ranker, "metric": name, **figures}
            for ranker, row in self.to_dict().items()
            for name, figures in row.items()
        )

    def extend_verdict(self, sentence: str, *, is_caution: bool = False) -> Evaluation:
        """Add a sentence to the verdict, before the command at its end, if it names one.

        Args:
            sentence: What else should be known of the evaluation.
            is_caution: Whether the headline says it too, because the figures mislead without it.

        Returns:
            The evaluation with the longer verdict.
        """
        headline = _put_before_command(self.headline, sentence, "\n") if is_caution else self.headline
        return replace(self, verdict=_put_before_command(self.verdict, sentence, " "), headline=headline)

    def _repr_html_(self) -> str:
        """The table as HTML, which notebooks show."""
        return format_html(self)

    def __repr__(self) -> str:
        return self.summary()


def _put_before_command(said: str, sentence: str, mark: str) -> str:
    """A text with one more sentence, before the command that it ends with after the ``mark``."""
    before, found, command = said.rpartition(f"{mark}Next: ")
    parts = (before, found, command) if found else (command, "", "")
    return "".join((f"{parts[0]}{mark if parts[0] and sentence else ''}{sentence}", *parts[1:]))


def _figures(result: MetricResult) -> dict[str, float]:
    figures = {key: getattr(result, key) for key in _FIGURES}
    if result.given_gallery is None:
        return figures
    return figures | dict(zip(("low_given_gallery", "high_given_gallery"), result.given_gallery, strict=True))


def _result_from_json(name: str, saved: _SavedResult, infos: Mapping[str, MetricInfo]) -> MetricResult:
    per_query = np.array([nan_if_none(value) for value in saved.get("per_query", [])], np.float64)
    mean, low, high = (nan_if_none(value) for value in (saved["mean"], saved["low"], saved["high"]))
    info = infos.get(family(name))
    ends = saved.get("given_gallery")
    given_gallery = (nan_if_none(ends[0]), nan_if_none(ends[1])) if ends and len(ends) == 2 else None
    kept = saved.get("influences")
    influences = None if kept is None else ItemInfluences.from_json(mean, kept)
    over = saved.get("over", "queries")
    return MetricResult(name, per_query, mean, low, high, saved["undefined"], info, over, given_gallery, influences)
