"""Metrics of one's own in the results of the benchmark, measured on the ranks that a result keeps."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cml.array_types import Float32, Float64
from cml.bench.scores import SCORES, Ranks, depth
from cml.errors import UserError
from cml.retrieval import metrics
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.metrics import LABEL_DISTANCE, Metric
from cml.retrieval.ranking import LabelBlock, Ranking


@dataclass(frozen=True)
class OwnMetric:
    """What a file of results states of a metric that is not cml's.

    Attributes:
        columns: Its names among the scores: the name of the metric, or ``name@K`` for each K.
        higher_is_better: Its direction.
        unit: Its unit, ``LABEL_DISTANCE`` for that of the label distance; "" for a plain number.
        note: What it is.
        shown: At which K tables show it.
        plugin: The plugin, package or module that registered it; "" for a script.
    """

    columns: list[str]
    higher_is_better: bool
    unit: str
    note: str
    shown: Literal["largest_k", "every_k", "never"]
    plugin: str

    @property
    def shown_columns(self) -> list[str]:
        """The columns that tables show."""
        if self.shown == "never":
            return []
        return self.columns if self.shown == "every_k" else self.columns[-1:]

    def describe(self) -> str:
        """Describe the shown columns in a sentence: unit, direction and note."""
        words = [" and ".join(self.shown_columns)]
        if self.unit:
            words.append(f"in {'the unit of the label distance' if self.unit == LABEL_DISTANCE else self.unit}")
        words.append("higher is better" if self.higher_is_better else "lower is better")
        return ", ".join(words) + (f": {self.note}." if self.note else ".")


class _KeptDepth:
    """Asks for the label distances of all kept items."""

    def __init__(self, kept: int) -> None:
        self.kept = kept

    def depth(self, labels: LabelBlock) -> int:
        return self.kept

    def nearest_depth(self, labels: LabelBlock) -> int:
        return self.kept


def make_own_metrics(distances: Float32, *, classes: bool, names: Collection[str] | None = None) -> list[Metric]:
    """Make the registered metrics that are not cml's and need the kept ranks alone.

    Args:
        distances: (Q, G) label distances.
        classes: Whether the labels are classes, which metrics of class labels need.
        names: Names of metrics; None makes all of them.

    Returns:
        The metrics, each at those of its K that are at most the number of kept items. A metric that looks at more items
        is left out.

    Raises:
        UserError: what is registered under a name is no metric, or a column has the name of a score of the benchmark.
    """
    measured_on = ("top_k", "classes") if classes else ("top_k",)
    gallery = distances.shape[1]
    kept = depth(gallery)
    chosen = []
    for name in metrics.own_names():
        if names is not None and name not in names:
            continue
        metric_class = metrics.read_class(name)
        if metric_class.needs not in measured_on:
            continue
        metric = metric_class(EvaluateOptions(), gallery)
        metric.name = name
        metric.ks = tuple(k for k in metric.ks if k <= kept)
        taken = sorted(SCORES & set(metric.columns))
        if taken:
            raise UserError(
                f"The metric {name!r} has the name of a score of the benchmark, {taken[0]!r}. Register it under "
                "another name."
            )
        if metric.columns:
            chosen.append(metric)
    if not chosen:
        return []
    labels = LabelBlock(distances, [_KeptDepth(kept)])
    return [metric for metric in chosen if metric.depth(labels) <= kept]


def measure_own_metrics(chosen: Sequence[Metric], ranks: Ranks, distances: Float32) -> dict[str, Float64]:
    """Measure metrics on the kept ranks of S final runs.

    ``Ranking.retrieved`` has the kept items. ``Ranking.scores`` are the places of the items; those that are not kept
    share the last one.

    Args:
        chosen: The metrics.
        ranks: The ranks of Q queries.
        distances: (Q, G) label distances.

    Returns:
        Column -> (S, Q) values, NaN for a query for which the metric does not exist.

    Raises:
        UserError: a metric returns values of another shape.
    """
    if not chosen:
        return {}
    queries, gallery = distances.shape
    kept = depth(gallery)
    labels = LabelBlock(distances, [*chosen, _KeptDepth(kept)])
    values: dict[str, list[Float64]] = {column: [] for metric in chosen for column in metric.columns}
    for top in ranks.top.astype(np.int64):
        places = np.full((queries, gallery), float(kept))
        np.put_along_axis(places, top, np.arange(kept, dtype=np.float64)[None], axis=1)
        ranking = Ranking.from_columns(labels, places, top)
        for metric in chosen:
            measured = np.asarray(metric.measure(ranking), np.float64)
            columns = measured[:, None] if measured.ndim == 1 else measured
            if columns.shape != (queries, len(metric.columns)):
                raise UserError(
                    f"The metric {metric.name!r} must return {(queries, len(metric.columns))}, one number for each "
                    f"query and column. Got {measured.shape} instead."
                )
            for name, column in zip(metric.columns, columns.T, strict=True):
                values[name].append(np.where(np.isfinite(column), column, np.nan))
    return {name: np.stack(runs) for name, runs in values.items()}


def describe_own_metrics(chosen: Iterable[Metric]) -> dict[str, OwnMetric]:
    """State columns, direction, unit, note and plugin of metrics, as a file of results does.

    Args:
        chosen: The metrics.

    Returns:
        Name of a metric -> its statement.
    """
    return {
        metric.name: OwnMetric(
            columns=list(metric.columns),
            higher_is_better=metric.info.higher_is_better,
            unit=metric.info.unit,
            note=metric.info.note,
            shown=metric.info.shown,
            plugin=metrics.registry.origin(metric.name),
        )
        for metric in chosen
    }


def find_unregistered(stated: Mapping[str, OwnMetric]) -> dict[str, OwnMetric]:
    """Find the metrics of a file of results whose plugin is not loaded, which cannot be computed again.

    Args:
        stated: The metrics that the file states.

    Returns:
        Those that are not registered.
    """
    registered = metrics.own_names() if stated else []
    return {name: metric for name, metric in stated.items() if name not in registered}


def explain_unregistered(absent: Iterable[OwnMetric]) -> str:
    """Explain that metrics were not checked.

    Args:
        absent: Metrics whose plugin is not loaded.

    Returns:
        A line for the user; "" if there are none.
    """
    absent = list(absent)
    columns = dict.fromkeys(column for metric in absent for column in metric.columns)
    if not columns:
        return ""
    flags = "".join(f" --plugin {name}" for name in sorted({metric.plugin for metric in absent} - {""}))
    mend = f"give{flags}" if flags else "register them, as the script did that measured them"
    return f"Not checked: {', '.join(columns)}. Their plugin is not loaded; to check them, {mend}."
