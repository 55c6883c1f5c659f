"""Evaluation by label distances that are known of few pairs: each query ranks the items of known distance alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
import slow_retrieval

from cml.distances import SparseDistances, as_label_distance
from cml.retrieval import EvaluateOptions, Evaluation, embedding_ranker, evaluate, evaluate_embeddings, random_ranker

QUERIES, GALLERY = 30, 90
OPTIONS = EvaluateOptions(distance_ks=(1, 3, 10), ndcg_ks=(10, 20), hit_ks=(1, 5), hit_neighbors=4, recall_within=3.0)


def judged(share: float = 0.15, seed: int = 0) -> tuple[np.ndarray, np.ndarray, SparseDistances]:
    """Embeddings of queries and gallery, and distances of some pairs of them; nobody knows any of query 0."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(QUERIES + GALLERY, 3))
    i, j = np.nonzero(np.triu(rng.random((len(points),) * 2) < share, 1))
    kept = (i != 0) & (j != 0)
    i, j = i[kept], j[kept]
    distance = np.round(4 * np.abs(points[i, 0] - points[j, 0]))  # ties
    return points[:QUERIES], points[QUERIES:], SparseDistances.from_triples(i, j, distance, items=len(points))


def measure(
    *, same_items: bool = False, block_bytes: int = 4 << 20
) -> tuple[Evaluation, np.ndarray, dict[str, np.ndarray]]:
    query, gallery, sparse = judged()
    distance = as_label_distance(sparse, unit="points")
    labels = distance.encode(range(QUERIES)), distance.encode(range(QUERIES, QUERIES + GALLERY))
    if same_items:
        query = gallery = np.concatenate([query, gallery])
        labels = (distance.encode(range(len(query))),) * 2
    rankers = {"embedding": embedding_ranker(query, gallery), "random": random_ranker(len(query), len(gallery))}
    options = EvaluateOptions(**{**vars(OPTIONS), "recall_ks": (5,), "block_bytes": block_bytes})
    evaluation = evaluate(rankers, distance, *labels, options, same_items=same_items)
    block = distance.pairwise(*labels)
    if same_items:
        np.fill_diagonal(block, np.inf)
    scores = {name: np.asarray(ranker(slice(0, len(query)))) for name, ranker in rankers.items()}
    return evaluation, block, {**scores, "oracle": block}


@pytest.mark.parametrize("same_items", [False, True])
def test_equals_the_slow_measures_of_the_known_items(same_items: bool) -> None:
    evaluation, block, scores = measure(same_items=same_items)
    counts = np.isfinite(block).sum(axis=1)
    assert evaluation.known_items == int(np.median(counts))
    assert 0 < evaluation.known_items < block.shape[1] / 4
    for ranker, rows in scores.items():
        for name, metric in evaluation.rows[ranker].items():
            kind, _, k = name.partition("@")
            if kind in ("score", "worst_decile"):  # of all queries together
                continue
            slow: list[float] = []
            for row, of_all in zip(block.tolist(), rows.tolist(), strict=True):
                known = [item for item, label in enumerate(row) if label < math.inf]
                labels, by = [row[item] for item in known], [of_all[item] for item in known]
                if not known:
                    slow.append(math.nan)
                    continue
                order = sorted(range(len(known)), key=lambda item: by[item])
                near = sorted(labels)[min(OPTIONS.hit_neighbors, len(known)) - 1]
                if kind == "label_distance":
                    slow.append(slow_retrieval.mean_label_distance(labels, order, int(k)))
                elif kind == "ndcg":
                    slow.append(slow_retrieval.ndcg(labels, order, int(k)))
                elif kind == "hit":
                    slow.append(float(any(labels[item] <= near for item in order[: int(k)])))
                elif kind == "recall":
                    relevant = [label <= OPTIONS.recall_within for label in labels]
                    slow.append(float(any(relevant[item] for item in order[: int(k)])) if any(relevant) else math.nan)
                elif kind == "h_ap" and ranker == "random":
                    slow.append(slow_retrieval.expected_h_ap(labels))
                elif kind == "h_ap":
                    slow.append(slow_retrieval.h_ap(labels, order) if ranker != "oracle" else 1.0)
                elif ranker == "random":  # 0 where the value of an order exists
                    slow.append(0 * getattr(slow_retrieval, kind)(labels, by))
                else:
                    slow.append(getattr(slow_retrieval, kind)(labels, by))
            assert metric.per_query == pytest.approx(slow, abs=1e-9, nan_ok=True), (ranker, name)
            assert metric.undefined == np.isnan(slow).sum() >= 1  # query 0
            assert metric.mean == pytest.approx(np.nanmean(slow))


def test_score_lies_between_random_and_oracle() -> None:
    evaluation, block, _ = measure()
    score = {name: row["score@10"].mean for name, row in evaluation.rows.items()}
    assert score["oracle"] == pytest.approx(1)
    assert abs(score["random"]) < 0.25
    assert score["random"] < score["embedding"] < 1
    known = np.isfinite(block)
    chance = np.where(known, block, 0).sum(axis=1)[1:] / known.sum(axis=1)[1:]
    nearest = np.sort(block, axis=1)[1:, :10]
    best = np.where(np.isfinite(nearest), nearest, 0).sum(axis=1) / np.isfinite(nearest).sum(axis=1)
    ours = evaluation.rows["embedding"]["label_distance@10"].per_query[1:]
    assert score["embedding"] == pytest.approx((chance - ours).mean() / (chance - best).mean())


def test_blocks_change_nothing() -> None:
    whole, parts = measure()[0], measure(block_bytes=1)[0]
    for ranker, row in whole.rows.items():
        for name, metric in row.items():
            np.testing.assert_array_equal(metric.per_query, parts.rows[ranker][name].per_query)
    assert whole.known_items == parts.known_items


def test_the_table_says_what_was_ranked_and_unknown_items_are_no_ties() -> None:
    evaluation = measure()[0]
    table = evaluation.table()
    assert f"only the gallery items whose label distance is known, {evaluation.known_items} in the median." in table
    assert "label_distance@10, " in table
    assert "are undefined for some queries, which their means exclude: 1 in each row." in table
    assert "recall@5 is undefined for some queries, which its mean excludes: 2 in each row." in table
    assert evaluation.ties == {}
    assert Evaluation.from_json(evaluation.to_json()).known_items == evaluation.known_items


def test_embeddings_of_a_sparse_matrix() -> None:
    import scipy.sparse

    query, gallery, sparse = judged()
    points = np.concatenate([query, gallery])
    owners = np.repeat(sparse.rows, np.diff(sparse.starts))
    matrix = scipy.sparse.csr_array((sparse.distances, (owners, sparse.columns)), shape=(len(points),) * 2)
    found = evaluate_embeddings(points, range(len(points)), label_distance=matrix)
    assert found.rows["oracle"]["score@4"].mean == pytest.approx(1)
    assert found.verdict.startswith("Verdict: better than random")


def test_default_ks_are_cut_to_the_known_items() -> None:
    query, gallery, sparse = judged(share=0.2)
    points = np.concatenate([query, gallery])
    found = evaluate_embeddings(points, range(len(points)), label_distance=sparse)
    most = found.known_items // 4  # type: ignore[operator]
    assert 4 <= most <= 8
    columns = [f"label_distance@{k}" for k in range(1, most + 1)] + [f"score@{most}", f"ndcg@{most}"]
    assert [name for name in found.rows["oracle"] if "@" in name and not name.startswith("worst")] == columns
    assert f"K is at most {most}, a quarter of these: " in found.table()


def test_a_matrix_keeps_the_ranking_of_all_items() -> None:
    query, gallery, sparse = judged()
    points = np.concatenate([query, gallery])
    matrix = sparse.block(np.arange(len(points)), np.arange(len(points)))
    found = evaluate_embeddings(points, range(len(points)), label_distance=matrix)
    assert found.known_items is None
    assert found.rows["random"]["label_distance@1"].undefined > 50  # the first item is of unknown distance
