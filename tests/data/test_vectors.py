"""Vectors: reading, standardisation against NumPy in float64, and what is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from cml.data import vectors as vectors_module
from cml.data.vectors import Vectors
from cml.errors import UserError

ROWS = np.random.default_rng(0).normal(3, [1, 100, 1e-3, 0], (50, 4))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_standardization_is_that_of_numpy(dtype: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors_module, "_CHUNK", chunk)
    rows = ROWS.astype(dtype)
    standardization = Vectors(rows).standardization()
    exact = rows.astype(np.float64)
    np.testing.assert_allclose(standardization.mean, exact.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(standardization.std[:2], exact.std(axis=0)[:2], rtol=1e-4)
    assert standardization.constant == [3]
    assert standardization.std[3] == 1


def test_missing_numbers_are_left_out_of_the_standardization() -> None:
    rows = ROWS.copy()
    rows[::3, 1] = np.nan
    standardization = Vectors(rows, missing="mean").standardization()
    np.testing.assert_allclose(standardization.mean, np.nanmean(rows, axis=0), rtol=1e-6)
    np.testing.assert_allclose(standardization.std[1], np.nanstd(rows[:, 1]), rtol=1e-6)


def test_parts_of_parts_read_the_same_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", ROWS)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    for rows in (ROWS, mapped):
        part = Vectors(rows).subset(slice(10, 40)).subset(np.array([3, 1, 7])).subset(slice(1, 3))
        assert len(part) == 2
        np.testing.assert_array_equal(part.read(np.array([1, 0])), ROWS[[17, 11]].astype(np.float32))


@pytest.mark.parametrize(
    ("place", "value", "missing", "message"),
    [
        ((7, 2), np.nan, "refuse", r"row 7, column 2 \('c'\) of the vectors is nan: fill it"),
        ((7, 2), np.inf, "mean", r"row 7, column 2 \('c'\) of the vectors is inf, which is not a finite float32"),
        (
            (49, 0),
            1e300,
            "refuse",
            r"row 49, column 0 \('a'\) of the vectors is 1e\+300, which is not a finite float32",
        ),
    ],
)
def test_numbers_that_are_not_finite_are_named(place: Any, value: float, missing: Any, message: str) -> None:  # noqa: ANN401
    rows = ROWS.copy()
    rows[place] = value
    names = np.array([f"id-{row}" for row in range(50)])
    vectors = Vectors(rows, columns=("a", "b", "c", "d"), missing=missing)
    for part in (vectors, vectors.subset(slice(1, 50)).subset(slice(0, 49))):
        with pytest.raises(UserError, match=message.split(",")[0].replace(str(place[0]), r"\d+")):
            part.standardization()
    with pytest.raises(UserError, match=message):
        vectors.standardization()
    with pytest.raises(UserError, match=rf"row \d+ \(id id-{place[0]}\)"):
        Vectors(rows, missing=missing, names=names).subset(slice(5, 50)).standardization()


def test_a_column_without_a_number_is_refused() -> None:
    rows = ROWS.copy()
    rows[:, 1] = np.nan
    with pytest.raises(UserError, match="All numbers of column 1 are missing: leave the column out"):
        Vectors(rows, missing="mean").standardization()


@pytest.mark.parametrize("rows", [ROWS[:, 0], ROWS.astype(int), np.empty((3, 0)), ROWS.astype(object), ROWS[None]])
def test_other_arrays_are_refused(rows: Any) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match=r"Vectors must be an array \(N, F\) of floats. Got"):
        Vectors(rows)


def test_names_follow_the_index_of_a_frame() -> None:
    frame = pandas.DataFrame(ROWS, columns=list("abcd"), index=[f"p{row}" for row in range(50)])
    vectors = Vectors(frame.to_numpy(), names=np.asarray(frame.index))
    broken = frame.copy()
    broken.iloc[4, 0] = np.nan
    with pytest.raises(UserError, match=r"row 4 \(id p4\)"):
        Vectors(broken.to_numpy(), names=np.asarray(broken.index)).standardization()
    assert len(vectors.standardization().mean) == 4


def test_columns_that_do_not_vary_beside_the_others_are_constant() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(0, 0.05, (200, 40))
    features[:, 3] = 1e-33 * rng.normal(size=200)
    features[:, 4] *= 1e-7
    assert Vectors(features.astype(np.float32)).standardization().constant == [3]


@pytest.mark.parametrize("scales", [(1e12, 0.1), (1e7, 1e3, 1, 1e-4), (*[1e12] * 11, 0.01)])
def test_columns_in_any_units_are_kept(scales: tuple[float, ...]) -> None:
    table = np.random.default_rng(0).normal(0, scales, (200, len(scales)))
    assert Vectors(table).standardization().constant == []
