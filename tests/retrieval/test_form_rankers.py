"""Rankers by the forms of the same vectors, which share matrix products."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cml.array_types import Float32, Float64
from cml.data.vectors import ComputedRows
from cml.errors import UserError
from cml.retrieval.embedding_ranker import SquaredDistances, embedding_ranker
from cml.retrieval.feature_forms import VECTOR_ROWS, NormalizedRows, StandardizedRows, embedding_rankers

QUERIES = 30


def draw_rows(offset: float = 0.5) -> Float32:
    rng = np.random.default_rng(0)
    rows = rng.normal(offset, 1, (QUERIES + 200, 24)) * rng.uniform(0.1, 5, 24)
    rows[-10:] = rows[QUERIES : QUERIES + 10]  # equal items
    rows[-20:-10] = 2 * rows[QUERIES : QUERIES + 10]  # of the same direction
    return rows.astype(np.float32)


def make_forms(rows: Float32) -> dict[str, tuple[Float32 | ComputedRows, Float32 | ComputedRows]]:
    mean, std = rows.mean(axis=0), rows.std(axis=0)

    def compute(some: Float32) -> tuple[Float32 | ComputedRows, ...]:
        return some, NormalizedRows(some), StandardizedRows(some, mean, std)

    return dict(zip(VECTOR_ROWS, zip(compute(rows[:QUERIES]), compute(rows[QUERIES:]), strict=True), strict=True))


def compute_directly(rows: Float32) -> dict[str, Float64]:
    """Squared distances (Q, G) of each form in float64, from differences."""
    exact = rows.astype(np.float64)
    std = rows.std(axis=0).astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    forms = exact, exact / np.where(lengths == 0, 1, lengths), exact / std
    return {
        name: np.square(form[:QUERIES, None] - form[QUERIES:]).sum(axis=2)
        for name, form in zip(VECTOR_ROWS, forms, strict=True)
    }


@pytest.mark.parametrize("offset", [0.0, 0.5, 1000.0])
def test_forms_have_their_squared_distances(offset: float) -> None:
    rows = draw_rows(offset)
    rankers = embedding_rankers(make_forms(rows))
    assert tuple(rankers) == VECTOR_ROWS
    for name, direct in compute_directly(rows).items():
        for block in (slice(0, 30), slice(0, 7), slice(7, 8)):
            np.testing.assert_allclose(rankers[name](block), direct[block], rtol=1e-9, atol=1e-13, err_msg=name)


def test_equal_items_tie_in_each_form_and_items_of_one_direction_when_normalised() -> None:
    for name, ranker in embedding_rankers(make_forms(draw_rows())).items():
        scores = ranker(slice(0, QUERIES))
        assert (scores[:, -10:] == scores[:, :10]).all(), name
        assert (scores[:, -20:-10] == scores[:, :10]).all() == (name == VECTOR_ROWS[1])


@pytest.mark.parametrize("factor", [0.0, 1e-4, 1e5])
def test_rows_of_very_different_lengths_are_normalised_first(factor: float) -> None:
    rows = draw_rows()
    rows[5] *= np.float32(factor)
    rows[60] *= np.float32(factor)
    forms = make_forms(rows)
    rankers = embedding_rankers(forms)
    scores = rankers[VECTOR_ROWS[1]](slice(0, QUERIES))
    np.testing.assert_array_equal(scores, embedding_ranker(*forms[VECTOR_ROWS[1]])(slice(0, QUERIES)))
    np.testing.assert_allclose(scores, compute_directly(rows)[VECTOR_ROWS[1]], atol=1e-5)


def test_forms_share_one_product_in_each_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[slice] = []
    compute = SquaredDistances.compute

    def count(self: SquaredDistances, rows: slice) -> Float64:
        computed.append(rows)
        return compute(self, rows)

    monkeypatch.setattr(SquaredDistances, "compute", count)
    rows = draw_rows()
    forms = make_forms(rows)
    rankers = embedding_rankers({"embedding": (rows[:QUERIES, :3], rows[QUERIES:, :3]), **forms})
    blocks = [slice(start, start + 5) for start in range(0, QUERIES, 5)]
    with ThreadPoolExecutor(2) as pool:
        whole = list(pool.map(lambda block: [ranker(block).copy() for ranker in rankers.values()], blocks))
    assert len(computed) == 2 * len(blocks)
    for place, name in enumerate(rankers):
        alone = embedding_rankers({name: forms[name]})[name] if name in forms else rankers[name]
        joined = np.concatenate([scores[place] for scores in whole])
        np.testing.assert_allclose(joined, alone(slice(0, QUERIES)), rtol=1e-4, atol=1e-6, err_msg=name)


def test_bad_forms_are_refused() -> None:
    rows = draw_rows()
    rows[QUERIES + 3, 2] = np.nan
    with pytest.raises(UserError, match=r"'gallery' embeddings must be finite\. Row 3 "):
        embedding_rankers(make_forms(rows))
