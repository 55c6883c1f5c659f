"""``Gallery``: the answers of ``nearest_embeddings``, after any appended and removed rows, by one query or many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cml.errors import UserError
from cml.retrieval.coded_rows import CodedRows
from cml.retrieval.gallery import Gallery
from cml.retrieval.search import nearest_embeddings


def check(gallery: Gallery, query: np.ndarray, k: int, among: np.ndarray | None = None) -> None:
    """Compare with ``nearest_embeddings`` among the rows that may be found, and with sums in float64."""
    chosen = gallery.is_live if among is None else gallery.is_live & among
    rows, places = gallery.embeddings[chosen], np.flatnonzero(chosen)
    distances, positions = gallery.search(query, k, among)
    wanted, _ = nearest_embeddings(query, rows, k)
    np.testing.assert_array_equal(distances, wanted)
    squared = np.square(rows.astype(np.float64) - query[:, None]).sum(axis=-1)
    exact = np.take_along_axis(squared, np.searchsorted(places, positions), axis=1)
    np.testing.assert_allclose(exact, np.sort(squared, axis=1)[:, :k], rtol=1e-12)
    for row, found in zip(exact, positions, strict=True):
        assert len(set(found.tolist())) == k
        assert all(a < b for a, b, near in zip(found, found[1:], row[1:] == row[:-1], strict=False) if near)


@given(
    seed=st.integers(0, 10**6),
    items=st.integers(1, 3000),
    dimension=st.integers(1, 40),
    levels=st.sampled_from([2, 4, 1024]),  # few levels, exact in float64: many ties
    scale=st.sampled_from([2.0**-30, 1.0, 2.0**20]),
    shift=st.sampled_from([0.0, 1.0, 64.0]),
    queries=st.sampled_from([1, 3, 30]),
)
@settings(deadline=None, max_examples=60)
def test_answers_are_those_of_nearest_embeddings_bit_for_bit(
    seed: int, items: int, dimension: int, levels: int, scale: float, shift: float, queries: int
) -> None:
    rng = np.random.default_rng(seed)
    rows = ((rng.integers(0, levels, (items, dimension)) / levels + shift) * scale).astype(np.float32)
    query = rows[rng.integers(0, items, queries)] + np.float32(rng.choice([0, scale / 4]))
    k = int(rng.integers(1, min(items, 60) + 1))
    cut = int(rng.integers(0, items + 1))
    gallery = Gallery(rows[:cut], room=int(rng.integers(0, 2 * items)))
    while cut < items:
        more = int(rng.integers(1, items + 1))
        gallery.append(rows[cut : cut + more])
        cut += more
    check(gallery, query, k)
    gone = np.flatnonzero(rng.random(items) < 0.3)
    if items - len(gone) >= k:
        gallery.remove(gone)
        gallery.remove(gone[:3])
        assert len(gallery) == items - len(gone)
        check(gallery, query, k)
        among = rng.random(items) < 0.7
        among[np.flatnonzero(gallery.is_live)[:k]] = True
        check(gallery, query, k, among)


@pytest.mark.parametrize("scale", [1e-19, 1.0, 1e14])
def test_rows_that_float32_scores_cannot_tell_apart(scale: float) -> None:
    rng = np.random.default_rng(2)
    near = 1 + rng.integers(-3, 4, (900, 24)) * np.float32(2**-22)
    rows = (np.concatenate([near, -near[:300]]) * np.float32(scale)).astype(np.float32)
    check(Gallery(rows), rows[:5].copy(), 20)


def test_one_long_row_hides_no_neighbour() -> None:
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(500, 16)).astype(np.float32)
    rows[123] *= 1e10
    for k in (1, 20, 499):
        check(Gallery(rows), rows[120:126].copy(), k)


def test_products_that_float32_cannot_hold() -> None:
    rows = np.random.default_rng(4).normal(0, 3e-23, (2000, 24)).astype(np.float32)
    check(Gallery(rows), rows[:8].copy(), 20)


def test_what_cannot_be_searched_is_one_line() -> None:
    rows = np.eye(4, dtype=np.float32)
    gallery = Gallery(rows)
    for query, k, words in (
        (rows[:, :3], 1, "one D"),
        (rows, 5, "at most the number of gallery items, 4. Got k=5"),
        (rows, 0, "k must be at least 1"),
        (rows * np.nan, 1, "query embeddings must be finite"),
        (rows * 1e20, 1, "too large"),
    ):
        with pytest.raises(UserError, match=words):
            gallery.search(query.astype(np.float32), k)
    for bad, words in (
        (np.where(rows > 0, np.inf, 0), "must be finite"),
        (rows * 1e20, "too large"),
        (rows[0], r"embeddings \(N, D\)"),
    ):
        with np.errstate(invalid="ignore"), pytest.raises(UserError, match=words):
            Gallery(bad.astype(np.float32))
    gallery.remove(np.array([0, 1]))
    with pytest.raises(UserError, match="number of gallery items, 2"):
        gallery.search(rows, 3)


def test_rows_appended_after_a_removal_are_found_whatever_new_memory_held(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    held = Gallery(rows[:2])
    new = np.zeros  # as numpy.empty may give it: full of NaN where it holds floats
    monkeypatch.setattr("numpy.empty", lambda n, kind=float: new(n, kind) + (np.nan if kind == np.float32 else 0))
    held.remove(np.array([0]))
    held.append(rows[2:])
    assert held.is_live.tolist() == [False, *[True] * 11]
    _, positions = held.search(rows[5:6], 11)
    assert positions[0, 0] == 5
    assert sorted(positions[0]) == [*range(1, 12)]


@given(
    seed=st.integers(0, 10**6),
    items=st.integers(1, 600),
    dimension=st.sampled_from([1, 2, 7, 40, 300]),
    scale=st.sampled_from([1e-25, 1e-3, 1.0, 1e12]),
    shape=st.sampled_from(["even", "heavy", "one column", "codes", "alike"]),
    removed=st.sampled_from([0.0, 0.5, 0.99]),
)
@settings(deadline=None, max_examples=80)
def test_codes_leave_out_none_of_the_nearest(
    seed: int, items: int, dimension: int, scale: float, shape: str, removed: float
) -> None:
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(items, dimension))
    if shape == "heavy":
        drawn = drawn**5
    elif shape == "one column":
        drawn[:, 0] *= 1e4
    elif shape == "codes":
        drawn = np.round(60 * drawn)
    elif shape == "alike":
        drawn = 1 + 1e-6 * drawn
    rows = (drawn * scale).astype(np.float32)
    centre = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    query = (rows[rng.integers(items)] * np.float32(rng.choice([1, 1.1, -1]))).astype(np.float32)
    norms = np.square(rows.astype(np.float64) - centre).sum(axis=1).astype(np.float32)
    norms[rng.random(items) < removed] = np.inf
    norms[0] = np.square(rows[0].astype(np.float64) - centre).sum()
    k = int(rng.integers(1, np.isfinite(norms).sum() + 1))
    coded = CodedRows(2 * items, dimension)
    coded.extend(rows[: items // 2], centre)
    coded.extend(rows, centre)
    near = coded.find_near(query - centre, norms, k)
    assert (np.diff(near) > 0).all()
    assert np.isfinite(norms[near]).all()
    exact = np.square(rows.astype(np.float64) - query).sum(axis=1)
    exact[~np.isfinite(norms)] = np.inf
    assert set(np.flatnonzero(exact <= np.sort(exact)[k - 1])) <= set(near.tolist())


def test_codes_leave_few_rows() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(20_000, 32)).astype(np.float32)
    coded = CodedRows(len(rows), 32)
    coded.extend(rows, np.zeros(32, np.float32))
    norms, queries = np.square(rows).sum(axis=1), rng.normal(size=(20, 32)).astype(np.float32)
    assert np.mean([len(coded.find_near(query, norms, 10)) for query in queries]) < 20
