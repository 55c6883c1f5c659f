"""Effects of gallery items and influences of items: equal to measuring again without the item."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cml import distances
from cml.array_types import Float32, Float64
from cml.processes.ranks import Ranks
from cml.retrieval import EvaluateOptions, Evaluation, embedding_ranker, evaluate, evaluate_embeddings
from cml.retrieval.effect_sums import _place_pair, _sign
from cml.retrieval.gains import graded_gains
from cml.retrieval.item_influences import Effects
from cml.retrieval.mean_interval import item_intervals, mean_intervals
from cml.retrieval.metric_result import MetricResult
from cml.retrieval.metrics import Metric, compute_ndcg, make_metrics
from cml.retrieval.rank_correlation import dense_ranks, rank_correlations
from cml.retrieval.rank_effects import rank_effects
from cml.retrieval.ranking import LabelBlock, Ranking, rank_columns

QUERIES = 7
RECALL = {"recall_ks": (1, 3), "recall_within": 0.4}


def draw_labels(kind: str, gallery: int, rng: np.random.Generator) -> Float32:
    """Label distances (Q, G): continuous, of few values, many infinite, or 0 and 1 of classes."""
    if kind == "classes":
        classes = rng.integers(0, 4, (QUERIES, 1)), rng.integers(0, 4, gallery)
        return (classes[0] != classes[1]).astype(np.float32)
    labels = rng.random((QUERIES, gallery)).astype(np.float32)
    if kind == "ties":
        labels = np.round(3 * labels)
    if kind == "infinite":
        labels[rng.random(labels.shape) < 0.7] = np.inf
        labels[0], labels[1, 1:] = np.inf, np.inf  # nothing, and one item, can be compared
    return labels


def rank(labels: Float32, scores: Float64, metrics: Sequence[Metric]) -> Ranking:
    block = LabelBlock(labels, metrics)
    return Ranking.from_columns(block, scores, rank_columns(scores, block.depth, next_too=True)[0])


def without(metrics: Sequence[Metric], labels: Float32, scores: Float64, item: int) -> dict[str, Float64]:
    """The values (Q,) or (Q, columns) of metrics without an item."""
    ranking = rank(np.delete(labels, item, 1), np.delete(scores, item, 1), metrics)
    return {metric.name: metric.measure(ranking).reshape(QUERIES, -1) for metric in metrics}


def dense(effects: Effects, gallery: int) -> Float64:
    """Effects (Q, G, columns), each item of a query listed once."""
    found = np.zeros((QUERIES, gallery, effects.changes.shape[2]))
    np.add.at(found, (np.arange(QUERIES)[:, None], effects.items), effects.changes)
    return found


@pytest.mark.parametrize("gallery", [4, 5, 9, 30])
@pytest.mark.parametrize("kind", ["continuous", "ties", "infinite", "classes"])
@pytest.mark.parametrize("misses", [False, True])
def test_effects_equal_measuring_again_without_the_item(gallery: int, kind: str, misses: bool) -> None:
    rng = np.random.default_rng(gallery)
    labels, scores = draw_labels(kind, gallery, rng), rng.random((QUERIES, gallery))
    recall: dict[str, Any] = {"recall_ks": (1, 3)} if kind == "classes" else RECALL
    options = EvaluateOptions(
        distance_ks=(1, 3),
        ndcg_ks=(1, 2, gallery - 1),
        hit_ks=(1, 3),
        hit_neighbors=2,
        singletons_as_misses=misses,
        **recall,
    )
    metrics = [
        metric for metric in make_metrics(options, gallery) if metric.needs in ("top_k", "whole_ranking", "classes")
    ]
    metrics = [metric for metric in metrics if metric.name != "h_ap"]  # whose gains are those of the whole gallery
    assert len(metrics) == (8 if kind == "classes" else 6)
    ranking = rank(labels, scores, metrics)
    for metric in metrics:
        values = metric.measure(ranking).reshape(QUERIES, -1)
        effects = metric.effects(ranking)
        assert effects is not None
        found = dense(effects, gallery)
        for item in range(gallery):
            expected = without([metric], labels, scores, item)[metric.name] - values
            expected[np.isnan(values)] = 0  # a query without a value is left out
            np.testing.assert_allclose(found[:, item], expected, atol=1e-6, err_msg=f"{metric.name}, item {item}")


@pytest.mark.parametrize("kind", ["continuous", "ties", "infinite"])
@pytest.mark.parametrize("tied_scores", [False, True])
def test_whole_rankings_keep_the_gains_of_h_ap(kind: str, tied_scores: bool) -> None:
    rng = np.random.default_rng(3)
    labels = draw_labels(kind, 25, rng)
    scores = rng.integers(0, 6, labels.shape) / 1.0 if tied_scores else rng.random(labels.shape)
    ranks, gains = dense_ranks(labels), graded_gains(labels, np.sort(labels, axis=1))
    values, found = np.stack(rank_correlations(scores, ranks, gains), axis=-1), rank_effects(scores, ranks, gains)
    for item in range(25):
        parts = (np.ascontiguousarray(np.delete(part, item, 1)) for part in (scores, labels, gains))
        fewer, near, worth = parts
        expected = np.stack(rank_correlations(fewer, dense_ranks(near), worth), axis=-1) - values
        np.testing.assert_allclose(found[:, item], np.where(np.isnan(values), 0, expected), atol=1e-9)


@pytest.mark.parametrize("kind", ["continuous", "ties", "infinite", "classes"])
def test_random_whole_rankings_have_the_mean_over_all_orders(kind: str) -> None:
    labels = draw_labels(kind, 6, np.random.default_rng(5))
    metrics = [metric for metric in make_metrics(EvaluateOptions(), 6) if metric.needs == "whole_ranking"]
    rankings = [
        rank(labels, np.broadcast_to(np.array(order, float), labels.shape), metrics) for order in permutations(range(6))
    ]
    assert len(rankings) == 720
    assert {metric.name for metric in metrics} == {"kendall_tau", "spearman_rho", "h_ap"}
    for metric in metrics:
        expected = np.mean([metric.measure(ranking) for ranking in rankings], axis=0)
        np.testing.assert_allclose(metric.measure_random(rankings[0]), expected, atol=1e-12, err_msg=metric.name)


@pytest.mark.parametrize("gallery", [1, 2, 8])
@pytest.mark.parametrize("kind", ["continuous", "ties", "infinite", "classes"])
def test_effects_on_random_rankings_equal_measuring_again(kind: str, gallery: int) -> None:
    rng = np.random.default_rng(6)
    labels, scores = draw_labels(kind, 12, rng)[:, :gallery], rng.random((QUERIES, gallery))
    metrics = [metric for metric in make_metrics(EvaluateOptions(), gallery) if metric.needs == "whole_ranking"]
    for metric in metrics:
        ranking = rank(labels, scores, [metric])
        values, effects = metric.measure_random(ranking), metric.random_effects(ranking)
        found = np.zeros((QUERIES, gallery)) if effects is None else dense(effects, gallery)[:, :, 0]
        assert (effects is not None) == (metric.name == "h_ap")
        for item in range(gallery if metric.name == "h_ap" else 0):
            fewer = rank(np.delete(labels, item, 1), np.delete(scores, item, 1), [metric]) if gallery > 1 else None
            again = np.full(QUERIES, np.nan)
            if fewer is not None:
                # gains stay those of the whole gallery
                vars(fewer.labels)["graded_gains"] = np.delete(ranking.labels.graded_gains, item, 1)
                again = metric.measure_random(fewer)
            np.testing.assert_allclose(found[:, item], np.where(np.isnan(values), 0, again - values), atol=1e-12)


@pytest.mark.parametrize("gain", ["exponential", "rank"])
def test_ndcg_keeps_the_gains_of_the_gallery(gain: str) -> None:
    rng = np.random.default_rng(4)
    labels, scores = draw_labels("continuous", 20, rng), rng.random((QUERIES, 20))
    [metric] = make_metrics(
        EvaluateOptions(gain=gain, distance_ks=(), ndcg_ks=(5,), hit_ks=(), whole_ranking=False), 20
    )
    ranking = rank(labels, scores, [metric])
    effects = metric.effects(ranking)
    assert effects is not None
    found = dense(effects, 20)
    order, best = np.argsort(scores, axis=1), np.argsort(labels, axis=1)
    gains = dict(zip("ab", (ranking.labels.ideal_gains(gain, 6), ranking.gains(gain, 6)), strict=True))
    for item in range(20):
        lists = [
            np.array([np.append(values[ids[:6] != item], 0)[:5] for values, ids in zip(some, places, strict=True)])
            for some, places in ((gains["b"], order), (gains["a"], best))
        ]
        expected = compute_ndcg(*lists, [5]) - metric.measure(ranking)
        np.testing.assert_allclose(found[:, item], expected, atol=1e-9)


def draw(count: int, seed: int = 0, spread: float = 0.7) -> tuple[Float64, Float64]:
    """Labels, and an embedding that shows them with noise."""
    rng = np.random.default_rng(seed)
    labels = rng.normal(size=count)
    return labels, np.stack([labels, 0 * labels], axis=1) + rng.normal(0, spread, (count, 2))


def measure(labels: Float64, points: Float64, queries: int | None, **options: object) -> Evaluation:
    """The evaluation among each other, or of the first items in a gallery of the others."""
    distance = distances.get("euclidean")
    at = replace(EvaluateOptions(distance_ks=(4,), ndcg_ks=(5,), hit_ks=()), **options)  # type: ignore[arg-type]
    if queries is None:
        encoded = distance.encode(labels)
        return evaluate({"ours": embedding_ranker(points, points)}, distance, encoded, encoded, at, same_items=True)
    sides = (distance.encode(labels[:queries]), distance.encode(labels[queries:]))
    return evaluate({"ours": embedding_ranker(points[:queries], points[queries:])}, distance, *sides, at)


@pytest.mark.parametrize("queries", [None, 15])
@pytest.mark.parametrize("column", ["label_distance@4", "ndcg@5", "kendall_tau", "spearman_rho"])
def test_influences_equal_the_jackknife(queries: int | None, column: str) -> None:
    labels, points = draw(40)
    result = measure(labels, points, queries).rows["ours"][column]
    assert result.influences is not None

    def again(item: int) -> float:
        kept = np.arange(40) != item
        fewer = None if queries is None else queries - (item < queries)
        return measure(labels[kept], points[kept], fewer).rows["ours"][column].mean

    means = np.array([again(item) for item in range(40)])
    if queries is None:
        np.testing.assert_allclose(result.influences.first, -39 * (means - means.mean()), atol=1e-6)
        return
    np.testing.assert_allclose(result.influences.first, result.per_query - result.mean, atol=1e-9)
    of_gallery = means[queries:]
    np.testing.assert_allclose(result.influences.second, -24 * (of_gallery - of_gallery.mean()), atol=1e-6)
    given = mean_intervals(result.per_query[:, None])[0]
    np.testing.assert_allclose(result.given_gallery, result.info.clip_intervals(result.mean, given), rtol=1e-9)
    assert result.low < result.given_gallery[0]  # type: ignore[index]


@pytest.mark.parametrize("queries", [None, 15])
def test_the_score_has_the_influences_of_a_ratio(queries: int | None) -> None:
    labels, points = draw(40)
    rows = measure(labels, points, queries).rows
    found = rows["ours"]["score@4"].influences
    assert found is not None

    def again(item: int) -> float:
        kept = np.arange(40) != item
        fewer = None if queries is None else queries - (item < queries)
        return measure(labels[kept], points[kept], fewer).rows["ours"]["score@4"].mean

    means = np.array([again(item) for item in range(40)])
    units = found.first if queries is None else found.second
    without = means if queries is None else means[queries:]
    slow = -(len(without) - 1) * (without - without.mean())
    assert np.corrcoef(units, slow)[0, 1] > 0.99  # to first order
    assert np.polyfit(slow, units, 1)[0] == pytest.approx(1, abs=0.1)
    oracle = rows["oracle"]["score@4"]
    assert (oracle.low, oracle.high) == (1, 1)


@pytest.mark.parametrize("queries", [None, 100])
def test_what_the_jackknife_counts_twice_is_estimated_without_bias(queries: int | None) -> None:
    labels, points = draw(200)
    at, to = (slice(200), slice(200)) if queries is None else (slice(queries), slice(queries, 200))
    distance = np.abs(labels[at, None] - labels[to])
    scores = np.square(points[at, None] - points[to]).sum(axis=2)
    if queries is None:
        np.fill_diagonal(scores, np.inf)
    order = np.argsort(scores, axis=1)
    effects = np.zeros(distance.shape)
    for query in range(len(distance)):
        near = distance[query, order[query, :5]]
        effects[query, order[query, :4]] = (near[4] - near[:4]) / 4
    found = measure(labels, points, queries).rows["ours"]["label_distance@4"].influences
    assert found is not None
    if queries is None:  # what two items do to each other's queries, they do together
        both = effects + effects.T
        np.testing.assert_allclose(found.total, both.sum(axis=1), atol=1e-5)
        pairs = both[np.triu_indices(200, 1)]
        first, second = np.triu_indices(200, 1)
        single = (np.arange(200) == first[:, None]).astype(float) + (np.arange(200) == second[:, None])
        rest = pairs - single @ np.linalg.lstsq(single, pairs, rcond=None)[0]
    else:
        np.testing.assert_allclose(found.total, effects.sum(axis=1), atol=1e-5)
        pairs, rest = effects, effects - effects.mean(axis=1, keepdims=True)
    signed = np.zeros(len(found.signed))
    for query, item in zip(*np.nonzero(effects), strict=True):
        keeper, sign = _place_pair(query, item, queries is None)
        signed[keeper] += sign * effects[query, item]
    np.testing.assert_allclose(found.signed, signed, atol=1e-5)
    assert (found.signed**2).sum() == pytest.approx((pairs**2).sum(), rel=0.4)  # three standard errors
    main = (found._main_effects() ** 2).sum()
    assert (pairs**2).sum() - main == pytest.approx((rest**2).sum(), rel=1e-5)
    signs = np.array([_sign(query, item) for query in range(100) for item in range(100)])
    assert abs(signs.mean()) < 0.03
    kept = [[_place_pair(first, second, True) for second in range(first)] for first in range(100)]
    assert kept == [[_place_pair(second, first, True) for second in range(first)] for first in range(100)]
    counts = np.bincount([unit for row in kept for unit, _ in row])
    assert counts.min() >= 49
    assert counts.max() <= 50


def test_groups_are_drawn_as_wholes() -> None:
    labels, points = draw(40)
    groups = np.arange(40) // 4
    alone = evaluate_embeddings(points, labels).rows["embedding"]
    grouped = evaluate_embeddings(points, labels, groups=[f"patient {group}" for group in groups]).rows["embedding"]
    name = "label_distance@9"
    single, whole = alone[name].influences, grouped[name].influences
    assert single is not None
    assert whole is not None
    assert whole.first.shape == (10,)
    assert grouped[name].mean == alone[name].mean
    one_each = evaluate_embeddings(points, labels, groups=list(range(40))).rows["embedding"][name]
    np.testing.assert_allclose((one_each.low, one_each.high), (alone[name].low, alone[name].high))
    # slow: without the effects on queries of the item's own group
    per_query = alone[name].per_query
    scores = np.square(points[:, None] - points).sum(axis=2)
    np.fill_diagonal(scores, np.inf)
    order = np.argsort(scores, axis=1)
    sums = np.zeros(10)
    for query in range(40):
        near = np.abs(labels[query] - labels[order[query, :10]])
        for place in range(9):
            if groups[order[query, place]] != groups[query]:
                sums[groups[order[query, place]]] += (near[9] - near[place]) / 9
    rest = np.bincount(groups, per_query - per_query.mean())
    np.testing.assert_allclose(whole.first, 10 / 40 * (rest - sums + sums.mean()), atol=1e-6)


def test_a_group_on_both_sides_of_a_gallery_is_one_unit() -> None:
    labels, points = draw(60)
    sides = points[:20], labels[:20], points[20:], labels[20:]
    names = [f"scene {item % 12}" for item in range(60)]
    apart = evaluate_embeddings(*sides, groups=names[:20], gallery_groups=[f"other {name}" for name in names[20:]])
    joint = evaluate_embeddings(*sides, groups=names[:20], gallery_groups=names[20:])
    two, one = (found.rows["embedding"]["label_distance@10"] for found in (apart, joint))
    assert two.influences is not None
    assert one.influences is not None
    assert (two.influences.first.shape, two.influences.second.shape) == ((12,), (12,))
    assert (one.influences.first.shape, one.influences.second.shape) == ((12,), (0,))
    assert two.given_gallery is not None
    assert one.given_gallery is None  # as its gallery is drawn with the queries
    assert one.mean == two.mean


@pytest.mark.parametrize("queries", [None, 15])
def test_equal_embeddings_differ_by_nothing(queries: int | None) -> None:
    labels, points = draw(50)
    distance, at = distances.get("euclidean"), EvaluateOptions(hit_neighbors=3, hit_ks=(1, 5))
    q, g = (slice(50), slice(50)) if queries is None else (slice(queries), slice(queries, 50))
    rankers = {name: embedding_ranker(points[q], points[g]) for name in ("one", "same")}
    encoded = distance.encode(labels[q]), distance.encode(labels[g])
    rows = evaluate(rankers, distance, *encoded, at, same_items=queries is None).rows
    for name, result in rows["one"].items():
        difference = result.minus(rows["same"][name])
        if result.over == "items":
            assert difference is not None
            assert not difference.first.any()
            assert not difference.signed.any()
            assert difference.mean == 0
            assert item_intervals(difference).tolist() == ([0, 0] if math.isfinite(result.low) else [math.nan] * 2)


def test_influences_of_lists_of_all_items_equal_the_jackknife() -> None:
    labels, points = draw(4)
    scores = np.square(points[:, None] - points).sum(axis=2)
    distance = np.abs(labels[:, None] - labels)

    def again(items: list[int]) -> float:
        found = []
        for query in items:
            others = sorted((item for item in items if item != query), key=lambda item: scores[query, item])
            found.append(np.mean([distance[query, item] for item in others[:3]]))
        return float(np.mean(found))

    result = measure(labels, points, None, distance_ks=(3,), ndcg_ks=(1,)).rows["ours"]["label_distance@3"]
    means = np.array([again([item for item in range(4) if item != left]) for left in range(4)])
    assert result.influences is not None
    assert result.mean == pytest.approx(again([0, 1, 2, 3]), rel=1e-6)
    np.testing.assert_allclose(result.influences.first, -3 * (means - means.mean()), atol=1e-6)
    assert result.low < result.mean < result.high


@pytest.mark.parametrize("count", [2, 3, 5, 11])
def test_fewer_items_than_lists_are_long_have_intervals(count: int) -> None:
    labels, points = draw(count, seed=count)
    found = measure(labels, points, None, distance_ks=(count - 1,), ndcg_ks=(count - 1,))
    for name, result in found.rows["ours"].items():
        assert math.isfinite(result.mean) or name.startswith(("kendall_tau", "spearman_rho", "score"))
        assert not result.low > result.mean
        assert not result.high < result.mean


def test_one_query_and_undefined_queries_have_no_interval() -> None:
    labels, points = draw(20)
    alone = measure(labels, points, 1).rows["ours"]
    assert all(math.isnan(result.low) for result in alone.values())
    constant = measure(0 * labels, points, None).rows["ours"]
    assert math.isnan(constant["kendall_tau"].mean)
    assert math.isnan(constant["kendall_tau"].low)
    flat = constant["label_distance@4"]
    assert (flat.low, flat.mean, flat.high) == (0, 0, 0)  # no spread
    assert math.isnan(
        measure(labels, points, 19, distance_ks=(1,), ndcg_ks=(1,)).rows["ours"]["label_distance@1"].low
    )  # one item


def _recall(points: Float64, classes: Sequence[str]) -> Mapping[str, MetricResult]:
    return evaluate_embeddings(points, list(classes), label_distance="classes").rows["embedding"]


def test_a_query_that_loses_its_only_relevant_item_is_left_out() -> None:
    _, points = draw(24)
    classes = [f"class {item // 2}" for item in range(24)]  # pairs: without one the other has no value
    rows = _recall(points, classes)

    def again(item: int, column: str) -> float:
        kept = np.arange(24) != item
        return float(_recall(points[kept], np.array(classes)[kept].tolist())[column].mean)

    for column in ("recall@1", "map@r", "r_precision"):
        means = np.array([again(item, column) for item in range(24)])
        slow = -23 * (means - means.mean())
        found = rows[column].influences.first
        assert np.corrcoef(found, slow)[0, 1] > 0.99
        assert np.polyfit(slow, found, 1)[0] == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize("change", [{"block_bytes": 1, "threads": 1}, {"block_bytes": 5000}])
def test_influences_do_not_depend_on_blocks(change: dict[str, int]) -> None:
    labels, points = draw(150)
    rows, again = (measure(labels, points, None, **options).rows["ours"] for options in ({}, change))
    for name, result in rows.items():
        if result.influences is not None:
            np.testing.assert_array_equal(again[name].influences.first, result.influences.first)  # type: ignore[union-attr]
            assert (again[name].low, again[name].high) == (result.low, result.high)


@dataclass(frozen=True)
class Half(Ranks):
    """One of two threads that share an evaluation as two processes do."""

    size: int = 2
    parts: list[Any] = field(default_factory=lambda: [None, None])
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(2))

    def all_reduce_array(self, array: NDArray[Any]) -> NDArray[Any]:
        self.parts[self.rank] = array
        self.barrier.wait(60)
        total: NDArray[Any] = self.parts[0] + self.parts[1]
        self.barrier.wait(60)
        return total


@pytest.mark.parametrize("queries", [None, 50])
def test_influences_of_several_processes_are_those_of_one(queries: int | None) -> None:
    _, points = draw(120)
    distance = distances.get("classes")  # pairs, so that values are lost as well
    encoded = distance.encode([f"class {item % 60}" for item in range(120)])
    at, to = (slice(120), slice(120)) if queries is None else (slice(queries), slice(queries, 120))
    ranker = {"ours": embedding_ranker(points[at], points[to])}
    options = EvaluateOptions(block_bytes=1, threads=1, whole_ranking=True)

    def run(ranks: Ranks | None) -> Evaluation:
        return evaluate(ranker, distance, encoded[at], encoded[to], options, same_items=queries is None, ranks=ranks)

    alone, first = run(None).rows["ours"], Half()
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(run, [first, replace(first, rank=1)]))
    for found in both:
        for name, result in found.rows["ours"].items():
            assert (result.low, result.high) == pytest.approx((alone[name].low, alone[name].high), nan_ok=True)
            if result.influences is not None:
                np.testing.assert_allclose(result.influences.first, alone[name].influences.first, atol=1e-12)  # type: ignore[union-attr]
                np.testing.assert_allclose(result.influences.signed, alone[name].influences.signed, atol=1e-12)  # type: ignore[union-attr]


def test_a_sample_of_the_gallery_counts_its_own_items() -> None:
    labels, points = draw(400)
    some, whole = (measure(labels, points, 100, ranking_sample=size).rows["ours"]["kendall_tau"] for size in (60, 1000))
    assert some.influences is not None
    assert some.influences.ranked == 60
    assert (some.influences.second != 0).sum() == 60
    assert some.high - some.low > whole.high - whole.low
    assert some.given_gallery is not None


def test_whole_rankings_of_128_queries_show_what_items_do(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, points = draw(300)
    result = measure(labels, points, None).rows["ours"]["spearman_rho"]
    half = (result.high - result.low) / 2
    given = np.ptp(mean_intervals(result.per_query[:, None])[0]) / 2
    assert 1.3 * given < half < 3 * given  # each item counts as a query and in 299 rankings
    monkeypatch.setattr("cml.retrieval.evaluation._EFFECT_QUERIES", 300)
    every = measure(labels, points, None).rows["ours"]["spearman_rho"]
    assert every.mean == result.mean
    assert 0 != (every.high - every.low) / 2 - half == pytest.approx(0, abs=0.1 * half)


def test_a_metric_without_effects_keeps_the_interval_over_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    from cml.retrieval.metrics.label_distance import LabelDistanceAtK

    monkeypatch.setattr(LabelDistanceAtK, "effects", Metric.effects)
    labels, points = draw(40)
    found = measure(labels, points, None)
    result = found.rows["ours"]["label_distance@4"]
    assert result.over == "queries"
    np.testing.assert_allclose((result.low, result.high), mean_intervals(result.per_query[:, None])[0])
    assert "Intervals over queries, given this gallery: label_distance@4." in found.table()


def test_influences_are_saved_with_the_values_of_queries() -> None:
    labels, points = draw(40)
    found = measure(labels, points, 15)
    name = "label_distance@4"
    saved = Evaluation.from_json(found.to_json(per_query=[name]))
    kept, result = saved.rows["ours"][name], found.rows["ours"][name]
    assert kept.influences is not None
    assert result.influences is not None
    np.testing.assert_allclose(kept.influences.second, result.influences.second, rtol=1e-6)
    assert kept.given_gallery == pytest.approx(result.given_gallery)
    assert kept.minus(kept) is not None
    assert kept.scale(2.0).influences.first[0] == pytest.approx(2 * kept.influences.first[0])  # type: ignore[union-attr]
    assert saved.rows["ours"]["ndcg@5"].influences is None
    assert saved.to_dict()["ours"][name]["low_given_gallery"] == kept.given_gallery[0]  # type: ignore[index]
    old = found.to_json(per_query=[name])
    for row in old["rows"].values():
        for value in row.values():
            for key in ("over", "given_gallery", "influences"):
                value.pop(key, None)
    assert Evaluation.from_json(old).rows["ours"][name].over == "queries"
    assert "mean [95 % interval over queries, given this gallery]" in Evaluation.from_json(old).table()
