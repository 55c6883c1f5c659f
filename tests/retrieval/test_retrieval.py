"""Rankings and their measures against slow loops, SciPy and scikit-learn."""

from __future__ import annotations

import math
import subprocess
import sys
import tracemalloc
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import slow_retrieval
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import average_precision_score, ndcg_score

from cml.array_types import Float32, Float64, Floating
from cml.errors import UserError
from cml.retrieval import embedding_ranker, metrics, random_ranker
from cml.retrieval.embedding_ranker import _as_words, _hash_rows, find_duplicates
from cml.retrieval.gains import GAINS, compute_gains
from cml.retrieval.rank_correlation import dense_ranks, rank_correlations
from cml.retrieval.ranking import retrieved_distances
from cml.retrieval.search import nearest_embeddings
from cml.retrieval.top_k import top_columns


def kendall_tau(scores: Floating, labels: Float32) -> Float64:
    return rank_correlations(scores, dense_ranks(labels))[0]


VALUES = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 7.0, math.inf])
SCORES = st.sampled_from([-math.inf, -3.0, -0.0, 0.0, 1e-9, 2.0, 2.5, math.inf])
BLOCKS = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.tuples(st.lists(VALUES, min_size=n, max_size=n), st.lists(SCORES, min_size=n, max_size=n)),
                       min_size=1, max_size=3)
)  # fmt: skip


@pytest.mark.parametrize("kind", ["continuous", "tied", "falling", "float32", "float16", "infinite", "constant"])
@pytest.mark.parametrize(("gallery", "k"), [(1, 1), (40, 7), (40, 40), (3000, 50), (3000, 100), (3000, 300)])
def test_top_columns_is_the_start_of_a_stable_sort(kind: str, gallery: int, k: int) -> None:
    rng = np.random.default_rng(gallery + k)
    scores: Floating = rng.standard_normal((6, gallery))
    if kind == "tied":
        scores = np.floor(scores * 3)
    elif kind == "falling":
        scores = -np.sort(scores, axis=1)
    elif kind in ("float32", "float16"):
        scores = scores.astype(kind)
    elif kind == "infinite":
        scores[rng.random(scores.shape) < 0.99] = np.inf
    elif kind == "constant":
        scores[:] = 3
    assert np.array_equal(top_columns(scores, k), np.argsort(scores, axis=1, kind="stable")[:, :k])


@pytest.mark.parametrize("k", [0, 6])
def test_k_beyond_the_gallery_is_an_error(k: int) -> None:
    block = np.ones((2, 5), np.float32)
    with pytest.raises(UserError, match=f"5. Got k={k} instead"):
        retrieved_distances(block, block, k)
    for measure in (
        lambda: metrics.compute_label_distance(block, [k]),
        lambda: metrics.compute_ndcg(block.astype(float), block.astype(float), [k]),
        lambda: metrics.compute_hits(block, block, [k], 1),
        lambda: metrics.compute_hits(block, block, [1], k),
    ):
        with pytest.raises(UserError, match="at most 5"):
            measure()


@settings(deadline=None, max_examples=50)
@given(BLOCKS)
def test_measures_equal_the_slow_ones(rows: list[tuple[list[float], list[float]]]) -> None:
    labels = np.array([row[0] for row in rows], np.float32)
    scores = np.array([row[1] for row in rows])
    gallery = labels.shape[1]
    ks = range(1, gallery + 1)
    retrieved = retrieved_distances(labels, scores, gallery)
    ideal = retrieved_distances(labels, labels, gallery)
    gains = compute_gains(retrieved, labels)
    ideal_gains = compute_gains(ideal, labels)
    neighbors = (gallery + 1) // 2
    found = {
        "mean": metrics.compute_label_distance(retrieved, ks),
        "ndcg": metrics.compute_ndcg(gains, ideal_gains, ks),
        "hit": metrics.compute_hits(retrieved, ideal, ks, neighbors),
    }
    tau, rho = kendall_tau(scores, labels), metrics.compute_spearman_rho(scores, labels)
    for r, (label, score) in enumerate(rows):
        order = sorted(range(gallery), key=score.__getitem__)  # stable: here ties go to the lower column
        for column, k in enumerate(ks):
            assert found["mean"][r, column] == pytest.approx(
                slow_retrieval.mean_label_distance(label, order, k), abs=1e-12, nan_ok=True
            )
            assert found["ndcg"][r, column] == pytest.approx(
                slow_retrieval.ndcg(label, order, k), abs=1e-12, nan_ok=True
            )
            assert found["hit"][r, column] == pytest.approx(slow_retrieval.hit(label, order, k, neighbors), nan_ok=True)
        assert tau[r] == pytest.approx(slow_retrieval.kendall_tau(label, score), abs=1e-12, nan_ok=True)
        assert rho[r] == pytest.approx(slow_retrieval.spearman_rho(label, score), abs=1e-12, nan_ok=True)


@settings(deadline=None, max_examples=50)
@given(
    st.integers(1, 6).flatmap(
        lambda n: st.tuples(*(st.lists(values, min_size=n, max_size=n) for values in (VALUES, SCORES)))
    )
)
def test_h_ap_is_the_mean_over_the_orders_of_tied_items(row: tuple[list[float], list[float]]) -> None:
    labels, scores = row
    found = metrics.compute_h_ap(np.array([scores]), np.array([labels], np.float32))[0]
    slow = slow_retrieval.expected(lambda order: slow_retrieval.h_ap(labels, order), scores)
    assert found == pytest.approx(slow, abs=1e-12, nan_ok=True)


def test_h_ap_of_a_long_ranking_and_of_gains_that_are_0_and_1() -> None:
    rng = np.random.default_rng(8)
    labels = rng.random((3, 400)).astype(np.float32) ** 3
    scores = labels + rng.standard_normal(labels.shape)
    for row, value in enumerate(metrics.compute_h_ap(scores, labels)):
        slow = slow_retrieval.h_ap(labels[row].tolist(), np.argsort(scores[row]).tolist())
        assert value == pytest.approx(slow, abs=1e-9)
    assert metrics.compute_h_ap(labels, labels) == pytest.approx(1)
    relevant = rng.random(400) < 0.1  # ten and more at distance 0: the others gain nothing
    found = metrics.compute_h_ap(scores[:1], (~relevant[None]).astype(np.float32))
    assert found == pytest.approx(average_precision_score(relevant, -scores[0]))


@pytest.mark.parametrize("score_steps", [None, 40, 3])
@pytest.mark.parametrize("label_steps", [None, 40, 2])
@pytest.mark.parametrize("gallery", [2, 61, 700])
def test_correlations_equal_scipy(score_steps: int | None, label_steps: int | None, gallery: int) -> None:
    rng = np.random.default_rng(gallery)
    labels = rng.random((8, gallery))
    scores = labels + rng.standard_normal(labels.shape)
    if score_steps:
        scores = np.floor(scores * score_steps)
    if label_steps:
        labels = np.floor(labels * label_steps)
    labels[rng.random(labels.shape) < 0.2] = np.inf
    tau, rho, _ = rank_correlations(scores, dense_ranks(labels.astype(np.float32)))
    for r in range(len(labels)):
        kept = np.isfinite(labels[r])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # SciPy warns of constant and small samples, where it gives NaN too
            expected = [
                function(scores[r, kept], labels[r, kept].astype(np.float32)).statistic if kept.sum() > 1 else np.nan
                for function in (stats.kendalltau, stats.spearmanr)
            ]
        assert [tau[r], rho[r]] == pytest.approx(expected, abs=1e-12, nan_ok=True)


def test_scores_that_are_close_in_a_wide_range_are_ranked_by_all_of_their_bits() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random(500).astype(np.float32)
    scores = 1 + 1e-12 * (np.argsort(np.argsort(labels + 0.3 * rng.random(500))) // 2)
    scores[7], scores[8] = 1e300, -1e300  # the first digits of all others are the same
    tau, rho, _ = rank_correlations(scores[None], dense_ranks(labels[None]))
    assert tau[0] == pytest.approx(stats.kendalltau(scores, labels).statistic, abs=1e-12)
    assert rho[0] == pytest.approx(stats.spearmanr(scores, labels).statistic, abs=1e-12)


def test_ndcg_equals_scikit_learn_without_ties() -> None:
    rng = np.random.default_rng(3)
    labels = rng.random((20, 90)).astype(np.float32) * 5
    scores = labels + rng.standard_normal(labels.shape)
    for gain in ("reciprocal", "exponential"):
        whole = 1 / (1 + labels.astype(float)) if gain == "reciprocal" else np.exp(-labels.astype(float))
        retrieved = retrieved_distances(labels, scores, 60)
        ideal = retrieved_distances(labels, labels, 60)
        found = metrics.compute_ndcg(
            compute_gains(retrieved, labels, gain), compute_gains(ideal, labels, gain), [10, 60]
        )
        for column, k in enumerate((10, 60)):
            assert found[:, column].mean() == pytest.approx(ndcg_score(whole, -scores, k=k), abs=1e-9)


def test_gains() -> None:
    labels = np.array([[2000.0, 1000.0, 1000.0, 1001.0, np.inf]], np.float32)
    assert compute_gains(labels, labels, "reciprocal")[0] == pytest.approx([1 / 2001, 1 / 1001, 1 / 1001, 1 / 1002, 0])
    exponential = compute_gains(labels, labels, "exponential")[0]
    assert exponential == pytest.approx([0, 1, 1, math.exp(-1), 0])  # not underflown to nothing
    assert compute_gains(labels, labels, "rank")[0] == pytest.approx([1 / 4, 1, 1, 1 / 3, 0])
    with pytest.raises(UserError, match=r"exponential, rank\. Got 'square'"):
        compute_gains(labels, labels, "square")


def test_nothing_comparable_is_undefined_not_zero() -> None:
    labels = np.full((1, 4), np.inf, np.float32)
    scores = np.arange(4.0)[None]
    for gain in GAINS:
        gains = compute_gains(labels, labels, gain)
        assert gains.tolist() == [[0, 0, 0, 0]]
        assert np.isnan(metrics.compute_ndcg(gains, gains, [2])).all()
    assert np.isnan(metrics.compute_label_distance(labels, [2])).all()
    assert np.isnan(metrics.compute_hits(labels, labels, [2], 2)).all()
    assert np.isnan(kendall_tau(scores, labels)).all()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([np.exp, np.cbrt, lambda x: 5 * x - 7]))
def test_only_the_order_of_the_scores_counts(seed: int, rising: Callable[[Floating], Floating]) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.random((3, 50)).astype(np.float32)
    scores = np.round(rng.standard_normal((3, 50)), 1)
    changed = rising(scores)
    assert np.array_equal(retrieved_distances(labels, scores, 50), retrieved_distances(labels, changed, 50))
    assert np.array_equal(kendall_tau(scores, labels), kendall_tau(changed, labels))
    assert np.array_equal(metrics.compute_spearman_rho(scores, labels), metrics.compute_spearman_rho(changed, labels))
    assert np.array_equal(metrics.compute_h_ap(scores, labels), metrics.compute_h_ap(changed, labels))
    assert metrics.compute_h_ap(scores, 7 * labels) == pytest.approx(metrics.compute_h_ap(scores, labels), rel=1e-5)
    assert kendall_tau(-scores, labels) == pytest.approx(-kendall_tau(scores, labels))
    shuffled = rng.permutation(50)
    assert kendall_tau(scores[:, shuffled], labels[:, shuffled]) == pytest.approx(kendall_tau(scores, labels))


def test_embedding_ranker_gives_squared_distances() -> None:
    rng = np.random.default_rng(5)
    query = (rng.standard_normal((7, 16)) + 1000).astype(np.float32)  # far from the origin
    gallery = np.concatenate([query[:3], (rng.standard_normal((20, 16)) + 1000).astype(np.float32)])
    direct = ((query[:, None].astype(np.float64) - gallery) ** 2).sum(axis=2)
    scores = embedding_ranker(query, gallery)
    assert np.abs(scores(slice(0, 7)) - direct).max() < 1e-11
    assert np.abs(scores(slice(2, 5)) - direct[2:5]).max() < 1e-11


def test_of_equally_far_items_the_first_is_found_although_a_later_part_is_looked_at_before() -> None:
    gallery = np.full((256, 1), 9.0, np.float32)
    gallery[[3, 200, 201], 0] = 1, 0.5, 1  # the part with the nearest item is looked at first
    _, found = nearest_embeddings(np.zeros((1, 1), np.float32), gallery, 2)
    assert found.tolist() == [[200, 3]]


def test_equal_gallery_embeddings_tie_exactly() -> None:
    rng = np.random.default_rng(6)
    points = rng.standard_normal((300, 37)).astype(np.float32)
    points[:, 5] = 0
    repeated = points[rng.permutation(300)]
    gallery = np.concatenate([points, repeated, points[:1]])  # 601: a matrix kernel treats its last columns apart
    gallery[600:, 5] = -0.0
    _, group = np.unique(gallery + np.float32(0), axis=0, return_inverse=True)
    scores = embedding_ranker(rng.standard_normal((50, 37)), gallery)(slice(0, 50))
    for value in range(300):
        columns = scores[:, group == value]
        assert (columns == columns[:, :1]).all()


@pytest.mark.parametrize("different_hashes", [1, 3, 40])
def test_equal_rows_are_found_whatever_the_hashes(different_hashes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    rows = rng.integers(0, 3, (400, 4)).astype(np.float32)
    monkeypatch.setattr(
        sys.modules["cml.retrieval.embedding_ranker"],
        "_hash_rows",
        lambda words: words[:, 0].astype(np.uint64) % different_hashes,
    )
    seen: dict[bytes, int] = {}
    firsts = [seen.setdefault(row.tobytes(), number) for number, row in enumerate(rows)]
    copies, originals = find_duplicates(rows)
    assert dict(zip(copies.tolist(), originals.tolist(), strict=True)) == {
        number: first for number, first in enumerate(firsts) if number != first
    }


def test_hashes_tell_rows_apart() -> None:
    rows = np.stack(np.meshgrid(*[np.arange(12, dtype=np.float32)] * 4), axis=-1).reshape(-1, 4)
    for kind in (np.float16, np.float32, np.float64, np.int32):
        assert len(np.unique(_hash_rows(_as_words(rows.astype(kind))))) == len(rows)


def test_a_ranker_keeps_no_copy_of_the_gallery() -> None:
    gallery = np.random.default_rng(8).standard_normal((40_000, 256), dtype=np.float32)  # 41 MB
    tracemalloc.start()
    try:
        ranker = embedding_ranker(gallery[:2], gallery)
        kept, most = tracemalloc.get_traced_memory()
        ranker(slice(0, 2))
        assert tracemalloc.get_traced_memory()[1] < gallery.nbytes
    finally:
        tracemalloc.stop()
    assert kept < 1e6
    assert most < gallery.nbytes


def test_bad_embeddings() -> None:
    good = np.ones((4, 3), np.float32)
    broken = good.copy()
    broken[2, 1] = np.inf
    with pytest.raises(UserError, match=r"'gallery' embeddings must be finite\. Row 2 .* 1 of 4"):
        embedding_ranker(good, broken)
    with pytest.raises(UserError, match="'query' embeddings must be finite"):
        embedding_ranker(broken * np.nan, good)
    with pytest.raises(UserError, match=r"one dimension D\. Got 3 and 2"):
        embedding_ranker(good, good[:, :2])
    with pytest.raises(UserError, match=r"Got shape \(4,\)"):
        embedding_ranker(good, good[:, 0])
    with pytest.raises(UserError, match="neither of them 0"):
        embedding_ranker(good[:0], good)


def test_random_ranker_does_not_depend_on_blocks() -> None:
    for gallery in (1, 6, 8):
        whole = random_ranker(20, gallery, seed=3)(slice(0, 20))
        parts = [random_ranker(20, gallery, seed=3)(slice(i, min(i + 7, 20))) for i in range(0, 20, 7)]
        assert np.array_equal(np.concatenate(parts), whole)
        assert len(np.unique(whole)) == whole.size
        assert not np.array_equal(random_ranker(20, gallery, seed=4)(slice(0, 20)), whole)


def test_random_ranker_is_uniform() -> None:
    first = random_ranker(6000, 6)(slice(0, 6000)).argmin(axis=1)
    assert stats.chisquare(np.bincount(first, minlength=6)).pvalue > 0.001


def test_importing_is_light() -> None:
    code = "import sys, cml.retrieval; sys.exit(any(name in sys.modules for name in ('torch', 'numba', 'sklearn')))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=240).returncode == 0
