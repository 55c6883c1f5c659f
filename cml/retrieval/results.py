"""The result of an evaluation: metrics with their intervals, as a text table, as JSON and as a pandas frame."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import numpy as np

from cml.errors import DataError, UserError
from cml.retrieval import text_table
from cml.retrieval.gains import GAINS
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.metric_result import MetricResult, Over, drawn_items, nan_if_none
from cml.retrieval.metrics import LABEL_DISTANCE, MetricInfo, describe, family
from cml.retrieval.metrics.metric import largest_k
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


class _SavedGain(_SavedResult):
    metric: str


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
    gains: NotRequired[dict[str, _SavedGain]]
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
        gains: Row name -> how much better the embedding is than that row in the metric of the verdict, paired by items
            or groups; above 0 is better. The verdict says on which side of 0 the interval of each lies.

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
    gains: Mapping[str, MetricResult] = field(default_factory=dict)

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
        rows, gains = self.rows, self.gains
        if factor != 1:
            rows = {
                ranker: {name: result.scale(factor) for name, result in row.items()} for ranker, row in rows.items()
            }
            gains = {ranker: gain.scale(factor) for ranker, gain in gains.items()}
        reported_unit = "" if factor == 1 and unit == self.unit else unit
        recall_within = factor * self.recall_within
        return replace(self, rows=rows, gains=gains, reported_unit=reported_unit, recall_within=recall_within)

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
        gains = {ranker: {"metric": gain.name, **gain.to_json()} for ranker, gain in self.gains.items()}
        return {**values, "ties": dict(self.ties), "gains": gains, "metrics": metrics, "rows": rows}

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
        gains = {
            ranker: _result_from_json(gain["metric"], gain, infos) for ranker, gain in saved.get("gains", {}).items()
        }
        return cls(**{**fields, "rows": rows, "gains": gains})

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


_WIDTH = 80  # characters of a terminal
_GAIN = "paired gain"  # title of the column of the gains that the verdict tests


def format_table(
    evaluation: Evaluation,
    metrics: Sequence[str] | None,  # names of columns; None for those that are shown by default
    *,
    markdown: bool,
) -> str:
    """Write an evaluation as a table with notes."""
    first = next(iter(evaluation.rows.values()))
    names = _shown_columns(evaluation) if metrics is None else list(metrics)
    unknown = [name for name in names if name not in first and name != _GAIN]
    if unknown:
        raise UserError(f"No metric {unknown[0]!r} was measured. There are: {', '.join(first)}.")
    grid = _make_grid(evaluation, names)
    table = f"{text_table.markdown(grid)}\n" if markdown else text_table.align_columns(grid)
    return "\n".join([table, *_notes(evaluation, names)])


def format_summary(evaluation: Evaluation, *, whole: str) -> str:  # ``whole``: what shows the rest
    """Write as many of the main metrics as fit a terminal, what they mean, and the headline."""
    columns = _shown_columns(evaluation)
    names = columns[:1]
    while len(names) < len(columns):
        table = text_table.align_columns(_make_grid(evaluation, [*names, columns[len(names)]]))
        if max(map(len, table.splitlines())) > _WIDTH:
            break
        names.append(columns[len(names)])
    notes = _meanings(evaluation, names)
    more = len(columns) - len(names)
    if more:
        notes.append(f"{whole} shows {more} more {'column' if more == 1 else 'columns'} and the whole verdict.")
    lines = [line for note in notes for line in textwrap.wrap(note, _WIDTH, break_on_hyphens=False)]
    table = text_table.align_columns(_make_grid(evaluation, names))
    return "\n".join([table, *lines, *([evaluation.headline] if evaluation.headline else [])])


def format_html(evaluation: Evaluation) -> str:
    """Write an evaluation as an HTML table with notes, with the columns that are shown by default."""
    names = _shown_columns(evaluation)
    return text_table.html(_make_grid(evaluation, names), _notes(evaluation, names))


def _make_grid(evaluation: Evaluation, names: Sequence[str]) -> list[list[str]]:
    columns = [_gain_column(evaluation) if name == _GAIN else _metric_column(evaluation, name) for name in names]
    return [["", *names], *([ranker, *cells] for ranker, *cells in zip(evaluation.rows, *columns, strict=True))]


def _metric_column(evaluation: Evaluation, name: str) -> list[str]:
    return _format_column([row[name] for row in evaluation.rows.values()])


def _gain_column(evaluation: Evaluation) -> list[str]:
    """The gain over each row; "" for those that the verdict leaves out."""
    gains = dict(zip(evaluation.gains, _format_column(list(evaluation.gains.values())), strict=True))
    return [gains.get(ranker, "") for ranker in evaluation.rows]


def _shown_columns(evaluation: Evaluation) -> list[str]:
    """The columns that are shown by default, with the gains beside the metric that they are gains in."""
    names = default_columns(next(iter(evaluation.rows.values())).values())
    for gain in [*evaluation.gains.values()][:1]:
        families = [family(name) for name in names]
        names.insert(families.index(family(gain.name)) + 1, _GAIN)
    return names


def default_columns(results: Iterable[MetricResult]) -> list[str]:
    """The columns that a table shows by default: of each metric its largest K, or all, as its ``info`` says."""
    columns = {}
    for result in results:
        if result.info.shown != "never":
            columns[result.name if result.info.shown == "every_k" else family(result.name)] = result.name
    return list(columns.values())


def _notes(evaluation: Evaluation, names: Sequence[str]) -> list[str]:
    """The lines below the table."""
    first = next(iter(evaluation.rows.values()))
    notes = _meanings(evaluation, names)
    names = [name for name in names if name != _GAIN]
    if evaluation.ranking_sample:
        whole = [name for name, result in first.items() if result.info.whole_ranking]
        size = f"{evaluation.ranking_sample:,} of the {evaluation.gallery:,} gallery items"
        notes.append(f"Computed on a random sample of {size}: {', '.join(whole)}.")
    if evaluation.known_items is not None:
        count = f"{evaluation.known_items} in the median"
        notes.append(f"Each query ranks only the gallery items whose label distance is known, {count}.")
    not_shown = [name for name, result in first.items() if result.info.shown == "never" and name not in names]
    if not_shown:
        notes.append(f"Also measured: {', '.join(not_shown)}.")
    ranked = evaluation.gallery if evaluation.known_items is None else evaluation.known_items
    most = 8 if any(family(name) == "recall" for name in names) else 100
    if any("@" in name for name in names) and ranked < 4 * most:
        items = "the gallery" if evaluation.known_items is None else "these"
        notes.append(
            f"K is at most {largest_k(ranked)}, a quarter of {items}: at larger K all rankings score similarly."
        )
    if evaluation.ties:
        counts = ", ".join(f"{ranker} {count}" for ranker, count in evaluation.ties.items())
        notes.append(f"Items with equal scores are ranked in random order. Queries with such ties: {counts}.")
    metrics_of: dict[str, list[str]] = {}  # by the counts that they share
    for name in names:
        counted = {ranker: row[name].undefined for ranker, row in evaluation.rows.items()}
        undefined = [f"{ranker} {count}" for ranker, count in counted.items() if count]
        if undefined and family(name) != "worst_decile":  # of few queries, as it says
            same = len(set(counted.values())) == 1
            counts = f"{next(iter(counted.values()))} in each row" if same else ", ".join(undefined)
            metrics_of.setdefault(counts, []).append(name)
    for counts, metrics in metrics_of.items():
        verb, mean = ("is", "its mean excludes") if len(metrics) == 1 else ("are", "their means exclude")
        notes.append(f"{', '.join(metrics)} {verb} undefined for some queries, which {mean}: {counts}.")
    return [*notes, *([evaluation.verdict] if evaluation.verdict else [])]


def _meanings(evaluation: Evaluation, names: Sequence[str]) -> list[str]:
    """What was searched in what, and what the metrics mean."""
    first = next(iter(evaluation.rows.values()))
    metrics = [name for name in names if name != _GAIN]
    infos = {family(name): first[name].info for name in metrics}
    meanings = [_explain(kind, info, evaluation) for kind, info in infos.items()]
    if _GAIN in names:
        tested = next(iter(evaluation.gains.values())).name
        means = f"how much better than each row the embedding is in {tested}; the verdict tests whether it is above 0"
        meanings.insert(1, f"{_GAIN}: {means}")
    over, others = drawn_items(first[name] for name in metrics)
    summary = f"{evaluation.queries} queries, {evaluation.gallery} gallery items; mean [95 % interval over {over}]"
    return ["; ".join([summary, *filter(None, meanings)]) + ".", *filter(None, [others])]


def _explain(kind: str, info: MetricInfo, evaluation: Evaluation) -> str:
    """Unit, direction and meaning of a metric; "" if its name says everything."""
    words = [kind]
    if info.unit:
        words.append(f"in {evaluation.distance_unit if info.unit == LABEL_DISTANCE else info.unit}")
    text = " ".join(words)
    if not info.higher_is_better:
        text += ", lower is better"
    if info.note:
        text += f": {_fill_in(info.note, evaluation)}"
    return "" if text == kind else text


def _fill_in(note: str, evaluation: Evaluation) -> str:
    """A note with what the evaluation says in the place of ``{gain}`` and the like."""
    unit = evaluation.distance_unit
    formula = GAINS[evaluation.gain][0] if evaluation.gain in GAINS else evaluation.gain
    singletons = "a miss" if evaluation.singletons_as_misses else "left out"
    relevant = f"has the query's class; a query alone of its class is {singletons}"
    if evaluation.recall_within:
        relevant = f"is within {evaluation.recall_within:g} {unit}"
    values = {
        "{unit}": unit,
        "{gain}": formula + (f", d in {evaluation.unit}" if "d" in formula else ""),
        "{hit_neighbors}": str(evaluation.hit_neighbors),
        "{relevant}": relevant,
    }
    for placeholder, value in values.items():
        note = note.replace(placeholder, value)
    return note


def _format_column(results: Sequence[MetricResult]) -> list[str]:
    """Texts of one column, all with the same number of decimals."""
    largest = max((abs(result.mean) for result in results if math.isfinite(result.mean)), default=0.0)
    decimals = min(6, max(0, 3 - math.floor(math.log10(largest) + 1e-9))) if largest > 0 else 3
    return [_format_cell(result, decimals) for result in results]


def _format_cell(result: MetricResult, decimals: int) -> str:
    if math.isnan(result.mean):
        return "undefined"
    mean, low, high = (f"{value:.{decimals}f}" for value in (result.mean, result.low, result.high))
    return mean if math.isnan(result.low) else f"{mean} [{low}, {high}]"
