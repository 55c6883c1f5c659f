"""The scores of a final run on test items and of a trial on validation items, and intervals over runs and queries."""

import numpy as np

from cml.array_types import Float32, Float64, Floating, Int64
from cml.comparing.bench.bench_set import BenchSet
from cml.errors import UserError
from cml.protocols.protocol import EmbeddedItems
from cml.protocols.regression import Regression, average_vectors
from cml.retrieval import metrics
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.gains import compute_gains
from cml.retrieval.mean_interval import mean_intervals, ratio_intervals
from cml.retrieval.metrics import LABEL_DISTANCE, Metric
from cml.retrieval.metrics.label_distance import compute_label_distance
from cml.retrieval.metrics.ndcg import compute_ndcg
from cml.retrieval.metrics.score import over_mean, score_terms
from cml.retrieval.ranking import LabelBlock, Ranking, rank_columns, retrieved_distances

PRIMARY = "score"
SCORES = (PRIMARY, "label_distance", "ndcg", "worst")
"""The scores that every result has, see ``score_queries``."""
LABEL_ERRORS = ("mae_knn", "mae_probe")
"""Scores of labels that have a mean, see ``measure_label_errors``."""
_FIRST = 10  # items whose mean label distance is the primary score
_DEPTH = 100  # items that ndcg looks at, or a quarter of a small gallery


def score_run(
    rank_scores: Floating,  # (Q, G) by which the gallery is ranked, rising; equal ones are in random order
    data: BenchSet,
) -> dict[str, Float64]:  # name -> (Q,) values, label distances in the reported unit; NaN for a query without a value
    """Score a ranking of the test items of a set: each score, and each metric of the user's own, of each query."""
    distances, factor = data.test_distances, data.reported_unit.factor
    own = _make_own_metrics(distances.shape[1], classes=data.spec.kind == "classes")
    labels = LabelBlock(distances, own)
    top = rank_columns(rank_scores, max(depth(distances), labels.depth))[0]
    values = score_queries(top, distances)
    values["label_distance"] *= factor
    ranking = Ranking.from_columns(labels, rank_scores, top)
    for metric in own:
        measured = np.asarray(metric.measure(ranking), np.float64)
        columns = measured[:, None] if measured.ndim == 1 else measured
        if columns.shape != (len(distances), len(metric.columns)):
            raise UserError(
                f"The metric {metric.name!r} must return {(len(distances), len(metric.columns))}, one number for each "
                f"query and column. Got {measured.shape} instead."
            )
        unit = factor if metric.info.unit == LABEL_DISTANCE else 1.0
        values |= {name: unit * column for name, column in zip(metric.columns, columns.T, strict=True)}
    return values


def score_queries(top: Int64, distances: Float32) -> dict[str, Float64]:
    """Each score of each query, (Q,), of the items ``top`` (Q, K) that it retrieves first; its mean is the score.

    score: 1 - (d@10 - oracle) / (random - oracle) of mean label distances, 0 for chance and 1 for the order of the
    labels. ndcg: with the gain 1 / (1 + number of nearer items), of the first 100 items or a quarter of the gallery.
    worst: the score of the tenth of the queries with the lowest, NaN for the others.
    """
    kept = depth(distances)
    retrieved = np.take_along_axis(distances, top[:, :kept], axis=1)
    ideal = retrieved_distances(distances, distances, kept)
    ours = compute_label_distance(retrieved, [_FIRST])[:, 0]
    score = over_mean(*score_terms(ours, _chance(distances), _best(ideal)))
    worst, lowest = np.full(len(score), np.nan), np.argsort(score, kind="stable")[: max(1, len(score) // 10)]
    worst[lowest] = score[lowest]
    ours_gain, ideal_gain = (compute_gains(some, distances, "rank") for some in (retrieved, ideal))
    ndcg = compute_ndcg(ours_gain, ideal_gain, [kept])[:, 0]
    return {PRIMARY: score, "label_distance": ours, "ndcg": ndcg, "worst": worst}


def measure_label_errors(data: BenchSet, train: Float32, query: Float32) -> dict[str, float]:
    """Mean absolute errors of the labels that embeddings of training items (N, D) predict for queries (Q, D).

    By neighbours and by a linear probe, as the protocol ``regression`` measures them, in the reported unit; nothing
    where labels have no mean.
    """
    if average_vectors(data.distance, data.train.labels) is None:
        return {}
    asked = EmbeddedItems(query, data.test(0, 0)[0].labels)
    figures = Regression().measure(data.distance, asked, EmbeddedItems(train, data.train.labels)).figures
    factor = data.reported_unit.factor
    return {f"mae_{row}": factor * figures[row]["mae"].value for row in ("knn", "probe")}


def score_validation(embeddings: Float32, distances: Float32) -> float:
    """The score of items (V, D), each searched among all that it can be compared with: label distances (V, V)."""
    scores = embedding_ranker(embeddings, embeddings)(slice(0, len(distances)))
    scores = np.where(np.isfinite(distances), scores, np.inf)
    some = (
        retrieved_distances(distances, scores, _FIRST),
        retrieved_distances(distances, distances, _FIRST),
        distances,
    )
    ours, best, chance = (float(part.mean(where=np.isfinite(part), dtype=np.float64)) for part in some)
    return round((chance - ours) / (chance - best), 6)


def interval(
    values: Float64,  # (S, Q) values
    reaches: Float64 | None = None,  # (Q,) denominators, if the mean of the values is a ratio of two means
) -> tuple[float, float]:  # the ends; NaN for one value
    """95 % interval of a mean over runs and queries; of a difference of two methods it is the paired one."""
    columns = values[:, :, None]
    ends = mean_intervals(columns) if reaches is None else ratio_intervals(columns, reaches[:, None])
    low, high = ends[0].tolist()
    return low, high


def _make_own_metrics(gallery: int, *, classes: bool) -> list[Metric]:
    """The registered metrics that are not cml's and are measured query by query; none may be called as a score."""
    measured_on = ("top_k", "whole_ranking", "classes") if classes else ("top_k", "whole_ranking")
    chosen = []
    for name in metrics.own_names():
        metric_class = metrics.read_class(name)
        if metric_class.needs not in measured_on:
            continue
        metric = metric_class(EvaluateOptions(), gallery)
        metric.name = name
        taken = sorted({*SCORES, *LABEL_ERRORS} & {*metric.columns})
        if taken:
            raise UserError(
                f"The metric {name!r} has the name of a score of the benchmark, {taken[0]!r}. Register it under "
                "another name."
            )
        if metric.columns:
            chosen.append(metric)
    return chosen


def depth(distances: Float32) -> int:
    """How many of the first items of a ranking are looked at."""
    gallery: int = distances.shape[1]
    return min(_DEPTH, max(_FIRST, gallery // 4))


def _chance(distances: Float32) -> Float64:
    """Mean label distance of all items to each query, (Q,)."""
    finite = np.isfinite(distances)
    total = np.where(finite, distances, 0).sum(axis=1, dtype=np.float64)
    mean: Float64 = total / np.maximum(finite.sum(axis=1), 1)
    return mean


def _best(ideal: Float32) -> Float64:
    """Mean label distance of the first ten of the nearest items, (Q,)."""
    return compute_label_distance(ideal, [_FIRST])[:, 0]
