"""Sparse rows and frames of numbers as vectors."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import cml
from cml.data.sparse_rows import SparseRows

RNG = np.random.default_rng(0)
DENSE = np.where(RNG.random((60, 40)) < 0.1, RNG.normal(size=(60, 40)), 0).astype(np.float32)
LABELS = DENSE[:, :5].sum(axis=1).astype(float)
OPTIONS: dict[str, Any] = {"steps": 3, "sampler": "random(batch_size=12)", "quiet": True, "device": "cpu"}


@pytest.mark.parametrize(
    "make", [scipy.sparse.csr_matrix, scipy.sparse.coo_array, lambda rows: torch.from_numpy(rows).to_sparse()]
)
def test_sparse_rows_train_as_dense_ones(make: Callable[[Any], Any]) -> None:
    sparse = make(DENSE)
    model = cml.fit(sparse, LABELS, **OPTIONS)
    dense = cml.fit(DENSE, LABELS, **OPTIONS)
    np.testing.assert_allclose(model.embed(sparse), dense.embed(DENSE), atol=1e-5)
    np.testing.assert_allclose(model.embed(DENSE[:7]), model.embed(sparse)[:7], atol=1e-5)
    assert "vectors" in model.evaluate(sparse, LABELS).rows


def test_parts_of_sparse_rows() -> None:
    rows = SparseRows(scipy.sparse.csr_matrix(DENSE))
    np.testing.assert_array_equal(rows[np.array([5, 2])], DENSE[[5, 2]])
    np.testing.assert_array_equal(np.asarray(rows[10:20]), DENSE[10:20])
    assert rows[3, 4] == DENSE[3, 4]
    with pytest.raises(cml.UserError, match="real numbers"):
        SparseRows(scipy.sparse.csr_matrix(DENSE.astype(complex)))


def test_a_frame_of_numbers_needs_no_features() -> None:
    frame = pd.DataFrame(DENSE[:, :4], columns=list("abcd"))
    model = cml.fit(frame, LABELS, **OPTIONS)
    assert model.form.columns == ("a", "b", "c", "d")
    np.testing.assert_allclose(model.embed(frame[["d", "c", "b", "a"]]), model.embed(frame), atol=1e-6)  # by name
    labelled = cml.fit(frame.assign(y=LABELS), label="y", **OPTIONS)
    assert labelled.form.columns == ("a", "b", "c", "d")
    with pytest.raises(cml.UserError, match="Name the columns of the data frame"):
        cml.fit(frame.assign(name="x"), LABELS, **OPTIONS)


def test_columns_of_a_frame_may_be_numbered() -> None:
    frame = pd.DataFrame(DENSE[:, :4])
    of_rows, of_frame = cml.fit(DENSE[:, :4], LABELS, **OPTIONS), cml.fit(frame, LABELS, **OPTIONS)
    assert of_frame.form.columns == ("0", "1", "2", "3")
    for model in (of_rows, of_frame):
        np.testing.assert_allclose(model.embed(frame), of_rows.embed(DENSE[:, :4]), atol=1e-5)
        assert "vectors" in model.evaluate(frame, LABELS).rows
    assert cml.fit(frame.assign(y=LABELS).set_axis(range(5), axis=1), label="4", **OPTIONS).form.columns[-1] == "3"
