"""How well embeddings agree with what people judged of the same items: rank correlation of pairs, order of triplets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cml.array_types import Bools, Float64, Floating, Int64
from cml.data.judgement_questions import (
    TripletQuestions,
    estimate_pair_ceiling,
    estimate_triplet_ceiling,
    find_questions,
)
from cml.data.vectors import ComputedRows
from cml.distances.judged_pairs import JudgedPairs
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import KnownPairs, KnownTriplets
from cml.errors import UserError
from cml.retrieval.mean_interval import mean_intervals
from cml.retrieval.metric_result import MetricResult
from cml.retrieval.metrics import describe
from cml.retrieval.metrics.pair_spearman import compute_pair_spearman
from cml.retrieval.metrics.triplet_agreement import compute_triplet_agreement
from cml.retrieval.reference_rows import ORACLE, RANDOM
from cml.retrieval.results import Evaluation

Rows = Floating | ComputedRows
Measure = Callable[[Int64, Int64], Float64]  # of two lists of positions (P,) their distances (P,)

PAIR_SPEARMAN, TRIPLET_AGREEMENT = "pair_spearman", "triplet_agreement"
REPEATED_SPEARMAN, REPEATED_AGREEMENT = "repeated_spearman", "repeated_agreement"  # of questions judged several times
_BLOCK = 1 << 16  # pairs whose embeddings are read at a time


class JudgementAgreement(NamedTuple):
    """How well rows of embeddings agree with judgements."""

    # row to its metrics by name: pair_spearman or triplet_agreement; and repeated_spearman or repeated_agreement, which
    # are of the questions alone that were judged several times, where these are 10 or more
    rows: Mapping[str, Mapping[str, MetricResult]]
    ceiling: float | None  # what the latter can be at most; None without them
    repeated_questions: int  # number of those questions


def with_judgements(
    evaluation: Evaluation,
    distance: LabelDistance,
    labels: Labels,
    embeddings: Mapping[str, Rows],  # row to embeddings (N, D), for every row except oracle and random
    *,
    seed: int,
) -> Evaluation:
    """Add to every row of an evaluation its agreement with judgements, where the labels are judgements."""
    agreement = measure_agreement(list(evaluation.rows), distance, labels, embeddings, seed=seed)
    if agreement is None:
        return evaluation
    has_distances = isinstance(distance, JudgedPairs)
    return replace(
        evaluation,
        rows={
            name: {**(metrics if has_distances else {}), **agreement.rows[name]}
            for name, metrics in evaluation.rows.items()
        },
        known_items=evaluation.known_items if has_distances else None,
        ceiling=agreement.ceiling,
        repeated_questions=agreement.repeated_questions,
    )


def measure_agreement(
    names: Sequence[str],
    distance: LabelDistance,
    labels: Labels,  # N encoded labels
    embeddings: Mapping[str, Rows],  # row to embeddings (N, D), for every row except oracle and random
    *,
    seed: int,
) -> JudgementAgreement | None:  # the agreement; None where the labels are no judgements
    """Measure how well rows agree with judgements."""
    triplets = distance.known_triplets(labels)
    if triplets is not None:
        return _measure_triplets(names, triplets, len(labels), embeddings, seed)
    if not isinstance(distance, JudgedPairs):
        return None
    pairs = distance.known_pairs(labels)
    return None if len(np.unique(pairs.first)) < 4 else _measure_pairs(names, distance, labels, pairs, embeddings, seed)


def _measure_pairs(
    names: Sequence[str],
    distance: JudgedPairs,
    labels: Labels,
    pairs: KnownPairs,
    embeddings: Mapping[str, Rows],
    seed: int,
) -> JudgementAgreement:
    judged, rows = pairs.distances.astype(np.float64), {}
    is_repeated, ceiling = _find_repeated(distance, labels, pairs)
    for name in names:
        measure = _measure_of(name, embeddings, seed)
        ours = judged if measure is None else measure(pairs.first, pairs.second)
        rows[name] = {PAIR_SPEARMAN: summarize_spearman(pairs.first, ours, judged, seed=seed)}
        if ceiling is not None:
            some = pairs.first[is_repeated], ours[is_repeated], judged[is_repeated]
            rows[name][REPEATED_SPEARMAN] = summarize_spearman(*some, name=REPEATED_SPEARMAN, seed=seed)
    return JudgementAgreement(rows, ceiling, 0 if ceiling is None else int(is_repeated.sum()))


def _find_repeated(distance: JudgedPairs, labels: Labels, pairs: KnownPairs) -> tuple[Bools, float | None]:
    """Which pairs (P,) were judged several times, and the ceiling by these; None for too few."""
    single = distance.repeated_pairs(labels)
    keys = pairs.first * len(labels) + pairs.second
    lower, upper = np.minimum(single.first, single.second), np.maximum(single.first, single.second)
    places = np.searchsorted(keys, lower * len(labels) + upper)  # pairs are in this order
    is_repeated = np.bincount(places, minlength=len(keys)) > 0
    if len(np.unique(pairs.first[is_repeated])) < 4:
        return is_repeated, None
    return is_repeated, estimate_pair_ceiling(places, single.distances)


def summarize_spearman(
    queries: Int64,  # (P,) the first item of each pair
    ours: Float64,  # (P,) distances by a method
    judged: Float64,  # (P,) distances as people see them
    *,
    name: str = PAIR_SPEARMAN,
    seed: int,
) -> MetricResult:
    """Spearman's rho of judged pairs with distances, as pair_spearman has it."""
    values = compute_pair_spearman(queries.tolist(), -ours, -judged, seed=seed)
    values = values[np.isfinite(values)]
    mean = float(values.mean()) if len(values) else float("nan")
    low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (mean, mean)
    return MetricResult(name, np.empty(0), mean, float(low), float(high))


def _measure_triplets(
    names: Sequence[str], triplets: KnownTriplets, items: int, embeddings: Mapping[str, Rows], seed: int
) -> JudgementAgreement:
    if not len(triplets.anchor):
        raise UserError(f"No judged triplet is of three of the {items} items that are evaluated.")
    asked = find_questions(triplets.anchor, triplets.nearer, triplets.farther)
    votes = asked.count_votes(triplets.counts)
    ceiling = estimate_triplet_ceiling(votes, asked.questions[:, 0])
    is_repeated = votes.sum(axis=1)[asked.place] > 1
    rows: dict[str, dict[str, MetricResult]] = {}
    for name in names:
        measure = _measure_of(name, embeddings, seed)
        if measure is None:
            near, far = _majority_distances(votes, asked)
        else:
            near, far = measure(triplets.anchor, triplets.nearer), measure(triplets.anchor, triplets.farther)
        rows[name] = {TRIPLET_AGREEMENT: _summarize_triplets(TRIPLET_AGREEMENT, near, far, triplets, items)}
        if ceiling is not None:
            some = KnownTriplets(*(column[is_repeated] for column in triplets))
            result = _summarize_triplets(REPEATED_AGREEMENT, near[is_repeated], far[is_repeated], some, items)
            rows[name][REPEATED_AGREEMENT] = result
    return JudgementAgreement(rows, ceiling, 0 if ceiling is None else int((votes.sum(axis=1) > 1).sum()))


def _summarize_triplets(name: str, near: Float64, far: Float64, triplets: KnownTriplets, items: int) -> MetricResult:
    """The share of each anchor's triplets that distances to the nearer and the farther item agree with."""
    info = describe(name)
    per_query = compute_triplet_agreement(near, far, triplets.anchor, triplets.counts, items)
    present = per_query[~np.isnan(per_query)]
    mean = float(present.mean())
    low, high = info.clip_intervals(mean, mean_intervals(per_query[:, None])[0]).tolist()
    return MetricResult(name, per_query, mean, low, high, items - len(present), info)


def _majority_distances(votes: Float64, asked: TripletQuestions) -> tuple[Float64, Float64]:
    """0 and 1 where most judgements of the question said so, 1 and 0 where most said the opposite, 0 and 0 at a tie."""
    side = asked.is_swapped.astype(np.int64)
    lead = votes[asked.place, side] - votes[asked.place, 1 - side]
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
