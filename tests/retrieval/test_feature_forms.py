"""The forms of features that need no training."""

import numpy as np

from cml.data.vectors import ComputedRows
from cml.retrieval.feature_forms import NormalizedRows, StandardizedRows, normalize_rows


def test_rows_are_divided_by_their_norms_and_zeros_stay() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]], np.float32)
    np.testing.assert_allclose(normalize_rows(rows), [[0.6, 0.8], [0, 0], [0, -1]], rtol=1e-6)


def test_rows_that_are_computed_are_normalised_as_they_are_read() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    read: list[object] = []

    def compute(part: slice | np.ndarray) -> np.ndarray:
        read.append(part)
        return rows[part]

    computed = NormalizedRows(ComputedRows(rows.shape, compute))
    assert read == []
    np.testing.assert_array_equal(computed[2:5], normalize_rows(rows)[2:5])
    np.testing.assert_array_equal(computed[np.array([7, 1])], normalize_rows(rows)[[7, 1]])
    np.testing.assert_array_equal(np.asarray(NormalizedRows(rows)), normalize_rows(rows))


def test_rows_are_standardised_as_they_are_read() -> None:
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    mean, std = rows.mean(axis=0), rows.std(axis=0)
    np.testing.assert_array_equal(StandardizedRows(rows, mean, std)[np.array([7, 1])], (rows[[7, 1]] - mean) / std)
