"""How well embeddings agree with what people judged of the same items: rank correlation of pairs, order of triplets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.data.computed_rows import ComputedRows
from cml.distances.known_pairs import KnownTriplets
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.retrieval.mean_interval import mean_intervals
from cml.retrieval.metric_result import MetricResult
from cml.retrieval.metrics import describe
from cml.retrieval.metrics.pair_spearman import compute_pair_spearman
from cml.retrieval.metrics.triplet_agreement import compute_triplet_agreement
from cml.retrieval.oracle_row import ORACLE
from cml.retrieval.random_row import RANDOM
from cml.retrieval.results import Evaluation

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Rows = NDArray[np.floating[Any]] | ComputedRows
Measure = Callable[[Int64, Int64], Float64]  # of two lists of positions (P,) their distances (P,)

PAIR_SPEARMAN, TRIPLET_AGREEMENT = "pair_spearman", "triplet_agreement"
_BLOCK = 1 << 16  # pairs whose embeddings are read at a time


def with_judgements(
    evaluation: Evaluation, distance: LabelDistance, labels: Labels, embeddings: Mapping[str, Rows], *, seed: int
) -> Evaluation:
    """Add to every row of an evaluation its agreement with judgements, where the labels are judgements.

    Args:
        evaluation: The evaluation of queries that are also the gallery.
        distance: The label distance.
        labels: Their N encoded labels.
        embeddings: Row to embeddings (N, D), for every row except oracle and random.
        seed: Random seed of the resamples and of the random row.

    Returns:
        The evaluation with pair_spearman of judged pairs, triplet_agreement of judged triplets; otherwise as it is.
    """
    triplets = distance.known_triplets(labels)
    if triplets is not None:
        return _with_triplets(evaluation, triplets, len(labels), embeddings, seed)
    pairs = distance.known_pairs(labels) if distance.name == "judged-pairs" else None
    if pairs is None or len(np.unique(pairs.first)) < 4:
        return evaluation
    judged, rows = pairs.distances.astype(np.float64), {}
    for name, metrics in evaluation.rows.items():
        measure = _measure_of(name, embeddings, seed)
        ours = judged if measure is None else measure(pairs.first, pairs.second)
        rows[name] = {**metrics, PAIR_SPEARMAN: summarize_spearman(pairs.first, ours, judged, seed=seed)}
    return replace(evaluation, rows=rows)


def summarize_spearman(queries: Int64, ours: Float64, judged: Float64, *, seed: int) -> MetricResult:
    """Spearman's rho of judged pairs with distances, as pair_spearman has it.

    Args:
        queries: (P,) the first item of each pair.
        ours: (P,) distances by a method.
        judged: (P,) distances as people see them.
        seed: Random seed of the resamples.

    Returns:
        The mean over resamples with their 95 % interval.
    """
    values = compute_pair_spearman(queries.tolist(), -ours, -judged, seed=seed)
    values = values[np.isfinite(values)]
    mean = float(values.mean()) if len(values) else float("nan")
    low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (mean, mean)
    return MetricResult(PAIR_SPEARMAN, np.empty(0), mean, float(low), float(high))


def _with_triplets(
    evaluation: Evaluation, triplets: KnownTriplets, items: int, embeddings: Mapping[str, Rows], seed: int
) -> Evaluation:
    """The agreement with triplets in place of metrics of label distances, none of which is known."""
    if not len(triplets.anchor):
        raise UserError(f"No judged triplet is of three of the {items} items that are evaluated.")
    info, rows = describe(TRIPLET_AGREEMENT), {}
    for name in evaluation.rows:
        measure = _measure_of(name, embeddings, seed)
        if measure is None:
            near, far = _majority_distances(triplets)
        else:
            near, far = measure(triplets.anchor, triplets.nearer), measure(triplets.anchor, triplets.farther)
        per_query = compute_triplet_agreement(near, far, triplets.anchor, triplets.counts, items)
        present = per_query[~np.isnan(per_query)]
        mean = float(present.mean())
        low, high = info.clip_interval(mean, *mean_intervals(per_query[:, None])[0].tolist())
        result = MetricResult(TRIPLET_AGREEMENT, per_query, mean, low, high, items - len(present), info)
        rows[name] = {TRIPLET_AGREEMENT: result}
    return replace(evaluation, rows=rows, known_items=None)  # no label distance is


def _majority_distances(triplets: KnownTriplets) -> tuple[Float64, Float64]:
    """0 and 1 where most judgements of the question said so, 1 and 0 where most said the opposite, 0 and 0 at a tie."""
    ends = np.stack([triplets.nearer, triplets.farther], axis=1)
    questions = np.column_stack([triplets.anchor, np.sort(ends, axis=1)])
    _, place = np.unique(questions, axis=0, return_inverse=True)
    side = np.where(triplets.nearer < triplets.farther, 1, -1)
    lead = side * np.bincount(place.ravel(), side * triplets.counts)[place.ravel()]
    return (lead < 0).astype(np.float64), (lead > 0).astype(np.float64)


def _measure_of(name: str, embeddings: Mapping[str, Rows], seed: int) -> Measure | None:
    """The squared distances by a row; None for the oracle, whose distances are the judgements."""
    if name == ORACLE:
        return None
    if name == RANDOM:
        generator = np.random.default_rng(seed)
        return lambda first, second: generator.random(len(first))
    rows = embeddings[name]

    def measure(first: Int64, second: Int64) -> Float64:
        starts = range(0, len(first), _BLOCK)
        parts = [
            np.square(
                np.asarray(rows[first[start : start + _BLOCK]], np.float64)
                - np.asarray(rows[second[start : start + _BLOCK]], np.float64)
            ).sum(axis=1)
            for start in starts
        ]
        return np.concatenate(parts)

    return measure
