"""The table of an evaluation as text: a row per ranker, "mean [low, high]" per metric, and notes below it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from cml.errors import UserError
from cml.retrieval import text_table
from cml.retrieval.gains import GAINS
from cml.retrieval.metric_result import MetricResult, drawn_items
from cml.retrieval.metrics import LABEL_DISTANCE, MetricInfo, family
from cml.retrieval.metrics.metric import largest_k

_WIDTH = 80  # characters of a terminal


class Tabulated(Protocol):
    """What the table shows of an evaluation; its attributes are those of ``cml.retrieval.Evaluation``."""

    @property
    def rows(self) -> Mapping[str, Mapping[str, MetricResult]]: ...  # noqa: D102
    @property
    def unit(self) -> str: ...  # noqa: D102
    @property
    def distance_unit(self) -> str: ...  # noqa: D102
    @property
    def gain(self) -> str: ...  # noqa: D102
    @property
    def queries(self) -> int: ...  # noqa: D102
    @property
    def gallery(self) -> int: ...  # noqa: D102
    @property
    def hit_neighbors(self) -> int: ...  # noqa: D102
    @property
    def ties(self) -> Mapping[str, int]: ...  # noqa: D102
    @property
    def singletons_as_misses(self) -> bool: ...  # noqa: D102
    @property
    def recall_within(self) -> float: ...  # noqa: D102
    @property
    def ranking_sample(self) -> int: ...  # noqa: D102
    @property
    def known_items(self) -> int | None: ...  # noqa: D102
    @property
    def verdict(self) -> str: ...  # noqa: D102
    @property
    def headline(self) -> str: ...  # noqa: D102


def format_table(
    evaluation: Tabulated,
    metrics: Sequence[str] | None,  # names of columns; None for those that are shown by default
    *,
    markdown: bool,
) -> str:
    """Write an evaluation as a table with notes."""
    first = next(iter(evaluation.rows.values()))
    names = default_columns(first.values()) if metrics is None else list(metrics)
    unknown = [name for name in names if name not in first]
    if unknown:
        raise UserError(f"No metric {unknown[0]!r} was measured. There are: {', '.join(first)}.")
    grid = _make_grid(evaluation, names)
    table = f"{text_table.markdown(grid)}\n" if markdown else text_table.align_columns(grid)
    return "\n".join([table, *_notes(evaluation, names)])


def format_summary(evaluation: Tabulated, *, whole: str) -> str:  # ``whole``: what shows the rest
    """Write as many of the main metrics as fit a terminal, what they mean, and the headline."""
    first = next(iter(evaluation.rows.values()))
    columns = default_columns(first.values())
    names = columns[:1]
    while len(names) < len(columns):
        table = text_table.align_columns(_make_grid(evaluation, [*names, columns[len(names)]]))
        if max(map(len, table.splitlines())) > _WIDTH:
            break
        names.append(columns[len(names)])
    notes = _meanings(evaluation, names)
    more = len(first) - len(names)
    if more:
        notes.append(f"{whole} shows {more} more {'metric' if more == 1 else 'metrics'} and the whole verdict.")
    lines = [line for note in notes for line in textwrap.wrap(note, _WIDTH, break_on_hyphens=False)]
    table = text_table.align_columns(_make_grid(evaluation, names))
    return "\n".join([table, *lines, *([evaluation.headline] if evaluation.headline else [])])


def format_html(evaluation: Tabulated) -> str:
    """Write an evaluation as an HTML table with notes, with the columns that are shown by default."""
    names = default_columns(next(iter(evaluation.rows.values())).values())
    return text_table.html(_make_grid(evaluation, names), _notes(evaluation, names))


def _make_grid(evaluation: Tabulated, names: Sequence[str]) -> list[list[str]]:
    columns = [_format_column([row[name] for row in evaluation.rows.values()]) for name in names]
    return [["", *names], *([ranker, *cells] for ranker, *cells in zip(evaluation.rows, *columns, strict=True))]


def default_columns(results: Iterable[MetricResult]) -> list[str]:
    """The columns that a table shows by default: of each metric its largest K, or all, as its ``info`` says."""
    columns = {}
    for result in results:
        if result.info.shown != "never":
            columns[result.name if result.info.shown == "every_k" else family(result.name)] = result.name
    return list(columns.values())


def _notes(evaluation: Tabulated, names: Sequence[str]) -> list[str]:
    """The lines below the table."""
    first = next(iter(evaluation.rows.values()))
    notes = _meanings(evaluation, names)
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
        notes.append(f"K is at most {largest_k(ranked)}, a quarter of {items}. At larger K all rankings score alike.")
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


def _meanings(evaluation: Tabulated, names: Sequence[str]) -> list[str]:
    """What was searched in what, and what the metrics mean."""
    first = next(iter(evaluation.rows.values()))
    infos = {family(name): first[name].info for name in names}
    meanings = [_explain(kind, info, evaluation) for kind, info in infos.items()]
    over, others = drawn_items(first[name] for name in names)
    summary = f"{evaluation.queries} queries, {evaluation.gallery} gallery items; mean [95 % interval over {over}]"
    return ["; ".join([summary, *filter(None, meanings)]) + ".", *filter(None, [others])]


def _explain(kind: str, info: MetricInfo, evaluation: Tabulated) -> str:
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


def _fill_in(note: str, evaluation: Tabulated) -> str:
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
