"""The evaluation against the slow measures; its intervals, its table and its JSON."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import slow_retrieval

from cml.array_types import Float32, Floating, Int64
from cml.data.vectors import ComputedRows
from cml.distances import LabelDistance, Labels, as_label_distance
from cml.errors import DataError, UserError
from cml.option_types import check_options
from cml.retrieval import EvaluateOptions, Evaluation, embedding_ranker, evaluate, evaluate_embeddings, random_ranker
from cml.retrieval.embedding_ranker import split_rows

pytestmark = pytest.mark.filterwarnings("ignore:The queries have the labels of the gallery")


@dataclass(frozen=True)
class Numbers(LabelDistance):
    """|a - b|; a negative label cannot be compared with anything. ``fault`` breaks the contract."""

    fault: float = 0.0
    name: ClassVar[str] = "numbers"

    @property
    def unit(self) -> str:
        return "years"

    def encode(self, labels: Sequence[float]) -> Labels:
        return Labels({"values": np.asarray(labels, np.float64)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        left, right = a.arrays["values"][:, None], b.arrays["values"]
        distances = np.where((left < 0) | (right < 0), np.inf, np.abs(left - right) + self.fault)
        return distances.astype(np.float32)


def example(
    queries: int = 40, gallery: int = 130, seed: int = 0, steps: float = 50
) -> tuple[Floating, Floating, Floating, Floating]:
    """Labels of queries and gallery, tied and some not comparable, and embeddings that follow them."""
    rng = np.random.default_rng(seed)
    labels = np.floor(rng.random(queries + gallery) * steps)
    labels[rng.random(len(labels)) < 0.1] = -1
    labels[:2] = -1, 3
    embeddings = np.stack([labels, labels**2 / steps, np.zeros_like(labels)], axis=1)
    embeddings += rng.standard_normal(embeddings.shape) * steps / 20
    return labels[:queries], labels[queries:], embeddings[:queries], embeddings[queries:]


def run(**settings: Any) -> Evaluation:  # noqa: ANN401 - handed on to evaluate
    labels, gallery_labels, query, gallery = example()
    distance = Numbers()
    rankers = {"embedding": embedding_ranker(query, gallery), "random": random_ranker(len(query), len(gallery))}
    call = {name: settings.pop(name) for name in ("oracle", "progress") if name in settings}
    options = EvaluateOptions(**settings)
    return evaluate(rankers, distance, distance.encode(labels), distance.encode(gallery_labels), options, **call)


def test_evaluate_equals_the_slow_measures() -> None:
    labels, gallery_labels, query, gallery = example()
    found = run(distance_ks=[1, 3, 10], ndcg_ks=[10, 100], hit_ks=[1, 5], hit_neighbors=7)
    block = Numbers().pairwise(Labels({"values": labels}), Labels({"values": gallery_labels})).tolist()
    direct = ((query[:, None] - gallery) ** 2).sum(axis=2).tolist()
    draws = random_ranker(len(query), len(gallery))(slice(0, len(query))).tolist()
    for ranker, scores in (("embedding", direct), ("random", draws), ("oracle", block)):
        row = found.rows[ranker]
        assert list(row) == [
            "label_distance@1", "label_distance@3", "label_distance@10", "score@10", "ndcg@10", "ndcg@100", "hit@1",
            "hit@5", "kendall_tau", "spearman_rho", "h_ap",
        ]  # fmt: skip
        for name, metric in row.items():
            kind, _, k = name.partition("@")
            if kind == "score":  # of all queries together: see below
                continue
            slow: list[float] = []
            for query_number, (a, b) in enumerate(zip(block, scores, strict=True)):
                order = slow_retrieval.ranking(b, query_number)
                if kind == "label_distance":
                    slow.append(slow_retrieval.mean_label_distance(a, order, int(k)))
                elif kind == "ndcg":
                    slow.append(slow_retrieval.ndcg(a, order, int(k)))
                elif kind == "hit":
                    slow.append(slow_retrieval.hit(a, order, int(k), 7))
                elif kind == "h_ap":
                    is_random = ranker == "random"
                    slow.append(slow_retrieval.expected_h_ap(a) if is_random else slow_retrieval.h_ap(a, order))
                elif ranker == "random":  # 0 where the value of an order exists
                    slow.append(0 * getattr(slow_retrieval, kind)(a, b))
                else:
                    slow.append(getattr(slow_retrieval, kind)(a, b))
            assert metric.per_query == pytest.approx(slow, abs=1e-9, nan_ok=True)
            assert metric.undefined == np.isnan(slow).sum() >= 1  # query 0 cannot be compared
            assert metric.mean == pytest.approx(np.nanmean(slow))
            assert metric.low <= metric.mean <= metric.high
    assert (found.queries, found.gallery, found.unit, found.gain) == (40, 130, "years", "reciprocal")


def comparable_means(scores: Floating, block: Floating, k: int) -> Floating:
    """The slow way: mean label distance of the first k items among those that can be compared, of each query."""
    means = []
    for by, distances in zip(scores, block, strict=True):
        known = [item for item in np.argsort(by, kind="stable").tolist() if np.isfinite(distances[item])]
        means.append(np.mean([distances[item] for item in known[:k]]) if known else np.nan)
    return np.array(means)


def test_score_is_0_for_chance_and_1_for_the_oracle() -> None:
    found = run(distance_ks=[3], ndcg_ks=[], hit_ks=[], whole_ranking=False)
    labels, gallery_labels, query, gallery = example()
    block = Numbers().pairwise(Labels({"values": labels}), Labels({"values": gallery_labels})).astype(float)
    chance = np.array([row[np.isfinite(row)].mean() if np.isfinite(row).any() else np.nan for row in block])
    every = slice(0, len(query))
    scores = {"embedding": embedding_ranker(query, gallery)(every), "random": random_ranker(40, 130)(every)}
    means = {name: comparable_means(by, block, 3) for name, by in {**scores, "oracle": block}.items()}
    for name, row in found.rows.items():
        known = np.isfinite(means[name] + chance)
        gain = np.mean((chance - means[name])[known])
        assert row["score@3"].mean == pytest.approx(gain / np.mean((chance - means["oracle"])[known]))
        assert row["score@3"].per_query[known].mean() == pytest.approx(row["score@3"].mean)
    score = {name: row["score@3"] for name, row in found.rows.items()}
    assert score["oracle"].mean == score["oracle"].low == score["oracle"].high == pytest.approx(1)
    assert score["random"].low < 0 < score["random"].high
    assert score["random"].high < score["embedding"].low < score["embedding"].mean < score["embedding"].high < 1
    assert found.in_unit(60, "months").rows["embedding"]["score@3"].mean == score["embedding"].mean


@pytest.mark.parametrize("same_items", [False, True])
def test_score_is_at_most_1_where_hardly_anything_can_be_compared(same_items: bool) -> None:
    rng = np.random.default_rng(4)
    labels, gallery_labels = np.full(40, -1.0), np.full(300, -1.0)
    labels[::3], gallery_labels[::9] = rng.random(14), rng.random(34)
    gallery_labels[0] = labels[0]
    if same_items:
        labels = gallery_labels
    points = [rng.standard_normal((len(values), 3)) for values in (labels, gallery_labels)]
    near = np.argmin(np.abs(labels[:, None] - gallery_labels), axis=1)  # found first, then what cannot be compared
    points[0] = points[1][near] + 1e-6
    distance = Numbers()
    encoded = [distance.encode(values.tolist()) for values in (labels, gallery_labels)]
    block = distance.pairwise(*encoded)
    if same_items:
        np.fill_diagonal(block, np.inf)
    ranker = embedding_ranker(*points)
    scores = np.array(ranker(slice(0, len(labels))))
    options = [EvaluateOptions(threads=threads, block_bytes=size) for threads, size in ((1, 1 << 30), (2, 1))]
    first, second = (evaluate({"ours": ranker}, distance, *encoded, one, same_items=same_items) for one in options)
    score = first.rows["ours"]["score@10"]
    assert first.rows["oracle"]["score@10"].mean == pytest.approx(1)
    assert score.mean < 1
    ours, best = comparable_means(scores, block, 10), comparable_means(block, block, 10)
    chance = comparable_means(block, block, 300)
    known = np.isfinite(chance)
    assert known.sum() == (34 if same_items else 14)
    assert (ours[known] >= best[known]).all()
    assert score.mean == pytest.approx((chance - ours)[known].mean() / (chance - best)[known].mean())
    assert score.undefined == (~known).sum()
    np.testing.assert_array_equal(score.per_query, second.rows["ours"]["score@10"].per_query)


def test_score_of_labels_that_are_all_alike_is_undefined() -> None:
    distance = Numbers()
    labels = distance.encode([2.0] * 30)
    row = evaluate({"random": random_ranker(30, 30)}, distance, labels, labels).rows["random"]
    assert math.isnan(row["score@7"].mean)


@dataclass(frozen=True)
class Ages(Numbers):
    """Numbers that say so."""

    name: ClassVar[str] = "ages"

    def label_vectors(self, labels: Labels) -> Floating:
        return labels.arrays["values"][:, None]


@pytest.mark.parametrize("distance", [Ages(), Numbers()])
def test_worst_decile_is_the_tenth_of_the_labels_with_the_largest_mean(distance: Numbers) -> None:
    rng = np.random.default_rng(3)
    labels = np.concatenate([rng.uniform(0, 20, 180), rng.uniform(60, 100, 40)])  # the old are few
    gallery = np.concatenate([rng.uniform(0, 20, 400), rng.uniform(60, 100, 30)])
    ranker = embedding_ranker(*(np.sqrt(one)[:, None] + rng.standard_normal((len(one), 1)) / 2
                                for one in (labels, gallery)))  # fmt: skip
    queries = distance.encode(labels.tolist())
    found = evaluate({"ours": ranker}, distance, queries, distance.encode(gallery.tolist())).rows
    for row in found.values():
        errors = row["label_distance@10"].per_query
        if isinstance(distance, Ages):
            tenth = np.minimum((10 * (labels - labels.min()) / (labels.max() - labels.min())).astype(int), 9)
            parts = [tenth == part for part in range(10) if (tenth == part).sum() >= 10]
            assert 2 <= len(parts) < 10  # nobody is 20 to 60
        else:
            parts = np.array_split(np.argsort(found["oracle"]["label_distance@10"].per_query, kind="stable"), 10)
        metric = row["worst_decile@10"]
        assert metric.mean == pytest.approx(max(errors[part].mean() for part in parts))
        assert metric.low < metric.mean < metric.high
        assert not metric.higher_is_better
    assert found["ours"]["worst_decile@10"].mean > found["ours"]["label_distance@10"].mean
    few = evaluate({"ours": ranker}, distance, queries[:99], distance.encode(gallery.tolist())).rows["ours"]
    assert "worst_decile@10" not in few


def test_recall_under_a_threshold() -> None:
    found = run(recall_ks=[1, 4], recall_within=2.0).in_unit(12, "months")
    labels, gallery_labels, query, gallery = example()
    block = Numbers().pairwise(Labels({"values": labels}), Labels({"values": gallery_labels}))
    direct = ((query[:, None] - gallery) ** 2).sum(axis=2)
    for k in (1, 4):
        slow = [
            float(any(row[item] <= 2 for item in slow_retrieval.ranking(scores, number)[:k]))
            if (row <= 2).any()
            else math.nan
            for number, (row, scores) in enumerate(zip(block, direct.tolist(), strict=True))
        ]
        assert found.rows["embedding"][f"recall@{k}"].per_query == pytest.approx(slow, nan_ok=True)
    assert "map@r" not in found.rows["embedding"]
    assert "recall: one of the first K is within 24 months" in found.table()
    again = Evaluation.from_json(found.to_json())
    assert again.recall_within == 24
    assert again.table() == found.table()
    for wrong in (-1, math.nan, math.inf):
        with pytest.raises(UserError, match=r"'recall_within' must be a label distance of at least 0\. Got"):
            run(recall_within=wrong)


def test_oracle_is_the_best_possible() -> None:
    rows = run().rows
    for name in ("ndcg@10", "ndcg@30", "kendall_tau", "spearman_rho", "h_ap"):
        assert rows["oracle"][name].mean == 1
    assert {name for name, metric in rows["oracle"].items() if not metric.higher_is_better} == {
        f"label_distance@{k}" for k in range(1, 11)
    }
    for name, oracle in rows["oracle"].items():
        for ranker in ("embedding", "random"):
            if oracle.higher_is_better:
                if name == "score@10":  # its parts of the queries may lie beyond it
                    continue
                assert np.nanmin(oracle.per_query - rows[ranker][name].per_query) >= -1e-12
            else:
                assert rows[ranker][name].mean > oracle.mean
    assert rows["embedding"]["kendall_tau"].mean > 0.5 > abs(rows["random"]["kendall_tau"].mean) + 0.4
    assert list(run(oracle=False).rows) == ["embedding", "random"]


def test_oracle_has_no_correlation_with_constant_labels() -> None:
    distance = Numbers()
    labels = distance.encode([2.0] * 30)
    row = evaluate({"random": random_ranker(30, 30)}, distance, labels, labels).rows["oracle"]
    assert row["kendall_tau"].undefined == 30
    assert math.isnan(row["kendall_tau"].mean)
    assert row["ndcg@7"].mean == 1


def test_result_depends_neither_on_blocks_nor_threads() -> None:
    whole = run(threads=1, block_bytes=1 << 30).to_json(per_query=True)
    assert run(threads=2, block_bytes=1).to_json(per_query=True) == whole
    assert run(threads=3, block_bytes=18 * 4 * 130).to_json(per_query=True) == whole


def test_result_does_not_depend_on_the_parts_of_the_gallery(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    labels, gallery_labels = rng.normal(size=(60, 2)), rng.normal(size=(1500, 2))
    query, gallery = labels.astype(np.float32), gallery_labels.astype(np.float16)
    gallery[700:900] = gallery[:200]  # ties
    query, gallery = (np.repeat(rows, 9, axis=1) + np.float32(3) for rows in (query, gallery))

    def measure(gallery: Any) -> dict[str, Any]:  # noqa: ANN401 - rows of any kind
        return evaluate_embeddings(query, labels, gallery, gallery_labels).to_json(per_query=True)

    whole = measure(gallery)
    direct = np.square(query[:, None].astype(np.float64) - gallery).sum(axis=2)
    slow = evaluate(
        {"embedding": lambda rows: direct[rows]},
        as_label_distance("euclidean"),
        *map(as_label_distance("euclidean").encode, (labels, gallery_labels)),
    )
    for name, result in slow.rows["embedding"].items():
        np.testing.assert_allclose(whole["rows"]["embedding"][name]["per_query"], result.per_query, rtol=1e-12)
    monkeypatch.setattr(sys.modules["cml.retrieval.embedding_ranker"], "_PART", 18 * 128)
    parts = split_rows(gallery)
    assert len(parts) > 8
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(1500))
    assert measure(gallery) == whole
    read: list[int] = []

    def compute(rows: slice | Int64) -> Float32:
        read.append(len(gallery[rows]))
        return gallery[rows]

    assert measure(ComputedRows((1500, 18), compute)) == whole
    assert max(read) < 500


def test_progress_counts_all_queries() -> None:
    done: list[int] = []
    run(block_bytes=1, progress=done.append)
    assert sum(done) == 40
    assert len(done) > 1


def test_default_lists_are_cut_to_the_gallery_but_given_ones_are_not() -> None:
    distance = Numbers()
    for gallery, distance_ks, ndcg_ks in ((4, [1], [1]), (12, [1, 2, 3], [3]), (47, range(1, 11), [10])):
        labels, rankers = distance.encode(list(map(float, range(gallery)))), {"random": random_ranker(gallery, gallery)}
        found = evaluate(rankers, distance, labels, labels)
        score = f"score@{max(distance_ks)}"
        names = [*(f"label_distance@{k}" for k in distance_ks), score, *(f"ndcg@{k}" for k in ndcg_ks)]
        assert list(found.rows["random"])[:-3] == names
        assert f"K is at most {gallery // 4}, a quarter of the gallery" in found.table()
    labels, rankers = distance.encode([1.0, 2.0, 4.0, 8.0]), {"random": random_ranker(4, 4)}
    options = EvaluateOptions(distance_ks=(4,), ndcg_ks=(2,), hit_ks=(1,), hit_neighbors=2)
    given = evaluate(rankers, distance, labels, labels, options)
    assert list(given.rows["random"])[:4] == ["label_distance@4", "score@4", "ndcg@2", "hit@1"]
    for name, ks in (("distance_ks", [5]), ("ndcg_ks", [10]), ("hit_ks", [0]), ("hit_ks", [2, 2])):
        with pytest.raises(UserError, match=f"{name}.* gallery's 4 items"):
            evaluate(rankers, distance, labels, labels, EvaluateOptions(**{name: ks}))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="hit_neighbors"):
        evaluate(rankers, distance, labels, labels, EvaluateOptions(hit_neighbors=5))


def test_bad_input_of_evaluate() -> None:
    labels = Numbers().encode([1.0, 2.0, 3.0])
    none = Numbers().encode([1.0])[:0]
    good = random_ranker(3, 3)

    def check(message: str, rankers: dict[str, Any], distance: LabelDistance | None = None, **settings: Any) -> None:  # noqa: ANN401
        query, oracle = settings.pop("query", labels), settings.pop("oracle", True)
        with pytest.raises(UserError, match=message):
            evaluate(rankers, distance or Numbers(), query, labels, EvaluateOptions(**settings), oracle=oracle)

    check("ranker 'a' gives NaN", {"a": lambda rows: np.full((3, 3), np.nan)})
    check(r"ranker 'a' must give .* \(3, 3\).* Got shape \(3, 2\)", {"a": lambda rows: np.zeros((3, 2))})
    check("Got shape .* int64", {"a": lambda rows: np.zeros((3, 3), np.int64)})
    check("'numbers' gives NaN", {"a": good}, Numbers(fault=math.nan))
    check("'numbers' must be at least 0. Got -5", {"a": good}, Numbers(fault=-5))
    check("'oracle' is taken", {"oracle": good})
    check("at least one query.* Got 0, 3, 2", {"a": good}, query=none)
    check("Got 3, 3, 0", {}, oracle=False)
    check("3, 3, 2 and 0 instead", {"a": good}, distance_ks=[], ndcg_ks=[], hit_ks=[], whole_ranking=False)
    check("'gain' must be one of", {"a": good}, gain="linear")
    check("Got 0 and 1 instead", {"a": good}, threads=0, block_bytes=1)


def test_json_round_trip_without_nan() -> None:
    found = run()
    text = json.dumps(found.to_json(per_query=True), allow_nan=False)
    again = Evaluation.from_json(json.loads(text))
    assert again.to_json(per_query=True) == found.to_json(per_query=True)
    assert again.table() == found.table()
    metric = again.rows["embedding"]["ndcg@10"]
    assert np.array_equal(metric.per_query, found.rows["embedding"]["ndcg@10"].per_query, equal_nan=True)
    assert metric.undefined > 0
    brief = Evaluation.from_json(found.to_json())
    assert brief.rows["embedding"]["ndcg@10"].per_query.size == 0
    assert brief.table() == found.table()


@pytest.mark.parametrize("value", [None, [], {"rows": 3}, {"rows": {"a": {"ndcg@1": {"mean": "high"}}}}])
def test_json_of_another_form(value: object) -> None:
    with pytest.raises(DataError, match=r"evaluation.*Run cml evaluate again"):
        Evaluation.from_json(value)


def test_table() -> None:
    found = run()
    lines = found.table().splitlines()
    columns = ["label_distance@10", "score@10", "ndcg@30", "kendall_tau", "spearman_rho"]
    assert lines[0].split() == columns  # no Hit@K, see below
    assert "Also measured: h_ap." in lines
    assert [line.split()[0] for line in lines[1:4]] == ["embedding", "random", "oracle"]
    assert len({len(line) for line in lines[:4]}) == 1
    metric = found.rows["embedding"]["kendall_tau"]
    assert f"{metric.mean:.3f} [{metric.low:.3f}, {metric.high:.3f}]" in lines[1]
    assert "40 queries, 130 gallery items" in lines[4]
    assert "years" in lines[4]
    assert "1/(1+d)" in lines[4]
    undefined = found.rows["oracle"]["kendall_tau"].undefined
    (note,) = [line for line in lines[5:] if "undefined" in line]
    assert re.match(r"(.*, )?kendall_tau(, .*)? (is|are) undefined for some queries", note)
    assert f": {undefined} in each row." in note
    markdown = found.table(["ndcg@10"], markdown=True).splitlines()
    assert markdown[:2] == ["|  | ndcg@10 |", "|---|---:|"]
    assert markdown[2].startswith("| embedding | 0.")
    with pytest.raises(UserError, match=r"No metric 'ndcg@7' was measured\. There are: label_distance@1,"):
        found.table(["ndcg@7"])


def test_hit_is_measured_unasked_where_its_neighbours_are_few() -> None:
    for neighbors, shown in ((13, True), (14, False)):  # of 130 gallery items
        found = run(hit_neighbors=neighbors)
        assert ("hit@10" in found.table()) is shown
        assert ("hit@10" in found.to_json()["rows"]["embedding"]) is shown
    assert "hit@9" in run(hit_neighbors=50, hit_ks=[9]).table()


MEASURES = {
    "label_distance@3": lambda labels, order: slow_retrieval.mean_label_distance(labels, order, 3),
    "ndcg@4": lambda labels, order: slow_retrieval.ndcg(labels, order, 4),
    "hit@2": lambda labels, order: slow_retrieval.hit(labels, order, 2, 2),
}


def test_tied_items_score_what_they_do_in_the_mean_over_their_orders() -> None:
    distance, gallery = Numbers(), [0.0, 1.0, 2.0, 5.0, 5.0, 9.0]
    scores = np.array([3.0, 1.0, 3.0, 3.0, 0.0, 3.0])
    labels = np.abs(np.array(gallery) - 1).tolist()
    found = evaluate(
        {"tied": lambda rows: np.tile(scores, (rows.stop - rows.start, 1))}, distance, distance.encode([1.0] * 4000),
        distance.encode(gallery),
        EvaluateOptions(distance_ks=(3,), ndcg_ks=(4,), hit_ks=(2,), hit_neighbors=2),
    )  # fmt: skip
    for name, measure in MEASURES.items():
        expected = slow_retrieval.expected(lambda order, measure=measure: measure(labels, order), scores.tolist())
        metric = found.rows["tied"][name]
        spread = metric.per_query.std() / math.sqrt(4000)
        assert metric.mean == pytest.approx(expected, abs=4 * spread), name
    assert found.ties == {"tied": 4000}


@pytest.mark.parametrize("falling", [False, True])
def test_a_constant_embedding_scores_like_a_random_one_however_the_gallery_is_sorted(falling: bool) -> None:
    distance = Numbers()
    ages = np.sort(np.random.default_rng(0).uniform(0, 90, 400))[:: -1 if falling else 1]
    labels, constant = distance.encode(ages.tolist()), np.ones((400, 4))
    rankers = {"constant": embedding_ranker(constant, constant), "random": random_ranker(400, 400)}
    found = evaluate(rankers, distance, labels, labels, same_items=True)
    for name in ("label_distance@1", "label_distance@10", "ndcg@10", "ndcg@90"):
        one, other = (found.rows[ranker][name] for ranker in rankers)
        assert one.low < other.high, name
        assert other.low < one.high, name
    assert found.ties == {"constant": 400}
    assert "Items with equal scores are ranked in random order. Queries with such ties: constant 400." in found.table()
    assert Evaluation.from_json(found.to_json()).table() == found.table()
    again = evaluate(rankers, distance, labels, labels, EvaluateOptions(threads=1, block_bytes=1), same_items=True)
    assert again.to_json(per_query=True) == found.to_json(per_query=True)
    other = evaluate(rankers, distance, labels, labels, EvaluateOptions(seed=1), same_items=True)
    assert other.rows["constant"]["ndcg@10"].mean != found.rows["constant"]["ndcg@10"].mean


def test_reported_unit_is_of_the_label_distances_alone() -> None:
    found = run()
    there = found.in_unit(12.0, "months")
    for ranker, row in found.rows.items():
        for name, metric in row.items():
            factor = 12.0 if name.startswith("label_distance") else 1.0
            moved = there.rows[ranker][name]
            assert moved.mean == pytest.approx(factor * metric.mean, nan_ok=True)
            assert (moved.low, moved.high) == pytest.approx((factor * metric.low, factor * metric.high), nan_ok=True)
            np.testing.assert_allclose(moved.per_query, factor * metric.per_query)
    assert "label_distance in months" in there.table()
    assert "d in years" in there.table()
    assert Evaluation.from_json(there.to_json()).table() == there.table()
    assert found.in_unit(1.0, "years").to_json() == found.to_json()


def test_whole_rankings_of_large_galleries_are_measured_on_a_sample_of_them() -> None:
    rng = np.random.default_rng(5)
    query, gallery = rng.normal(size=(30, 2)), rng.normal(size=(500, 2))
    points = {
        "query": (query + rng.normal(0, 0.3, query.shape)).astype(np.float32),
        "gallery": gallery.astype(np.float32),
    }

    def run(**changes: Any) -> Evaluation:  # noqa: ANN401
        options = EvaluateOptions(**changes)
        return evaluate_embeddings(points["query"], query, points["gallery"], gallery, options=options)

    whole, sampled = run(), run(ranking_sample=200)
    assert (whole.ranking_sample, sampled.ranking_sample) == (0, 200)
    said = "Computed on a random sample of 200 of the 500 gallery items: kendall_tau, spearman_rho, h_ap."
    assert said in sampled.table()
    assert "random sample" not in whole.table()
    again = Evaluation.from_json(sampled.to_json())
    assert again.table() == sampled.table()
    chosen = np.sort(np.random.default_rng([0, 500]).choice(500, 200, replace=False))
    of_sample = evaluate_embeddings(points["query"], query, points["gallery"][chosen], gallery[chosen])
    for row in ("embedding", "oracle"):
        for name, result in sampled.rows[row].items():
            other = of_sample if name in ("kendall_tau", "spearman_rho", "h_ap") else whole
            np.testing.assert_array_equal(result.per_query, other.rows[row][name].per_query)
    with pytest.raises(UserError, match="'ranking_sample' must be at least 2"):
        check_options(EvaluateOptions(ranking_sample=1))


def test_a_person_who_waits_is_told_that_code_is_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from numba import njit

    from cml.retrieval import compile_notice

    monkeypatch.setattr(compile_notice, "_PATIENCE", 0.0)
    for is_watched in (False, True):
        monkeypatch.setattr(compile_notice, "_is_watched", lambda answer=is_watched: answer)
        caplog.clear()
        with caplog.at_level("INFO", logger="cml"), compile_notice.say_what_compiles():
            njit(lambda number: number + 1)(2)
        assert ("Compiling the measures of rankings once" in caplog.text) == is_watched
