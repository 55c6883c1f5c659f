from __future__ import annotations

import dataclasses
import doctest
import importlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml.distances
from cml.array_types import Float32
from cml.distances import LabelDistance, Labels, registry
from cml.distances.precomputed import Precomputed
from cml.distances.sets import Sets
from cml.errors import DataError, UserError

MODULES = [
    *("", ".euclidean", ".cosine", ".poses.keypoints", ".layout.distance", ".classes", ".jaccard", ".hamming"),
    *(".precomputed", ".sparse_distances", ".combined", ".sets", ".jobs.run"),
]


def whole(distance: LabelDistance, labels: Any) -> Float32:  # noqa: ANN401
    packed = distance.encode(labels)
    return distance.pairwise(packed, packed)


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_entries", dict(registry._entries))


@pytest.mark.usefixtures("own_names")
@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples(module: str) -> None:
    found = doctest.testmod(importlib.import_module(f"cml.distances{module}"))
    assert found.attempted > 0
    assert found.failed == 0


def test_precomputed_matrix_is_read_in_place(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    matrix = np.abs(rng.normal(size=(9, 9))).astype(np.float16)
    np.fill_diagonal(matrix, 0)
    matrix[2, 5] = np.inf
    np.save(tmp_path / "matrix.npy", matrix)
    np.save(tmp_path / "columns.npy", np.asfortranarray(matrix))
    distance = Precomputed(str(tmp_path / "matrix.npy"), symmetric=False)
    rows, columns = distance.encode([4, 2, 2]), distance.encode([5, np.int64(6), 7])
    np.testing.assert_array_equal(distance.pairwise(rows, columns), matrix[[4, 2, 2], 5:8].astype(np.float32))
    assert isinstance(distance._stored.arrays[0], np.memmap)
    assert len(pickle.dumps(distance)) < 300
    assert pickle.loads(pickle.dumps(distance)) == distance
    assert not distance.is_symmetric
    found = Precomputed(str(tmp_path / "columns.npy"), symmetric=False)
    np.testing.assert_array_equal(found.pairwise(rows, columns), distance.pairwise(rows, columns))


def test_precomputed_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    matrix = np.array([[0, 1], [1, 0]], np.float32)
    for name, factor in (("a", 1), ("b", 1), ("c", 2)):
        np.save(tmp_path / f"{name}.npy", factor * matrix)
    a, b, c = (Precomputed(str(tmp_path / f"{name}.npy")) for name in "abc")
    assert a.fingerprint() == b.fingerprint()
    assert a.fingerprint() != c.fingerprint()
    assert a.fingerprint() != Precomputed(str(tmp_path / "a.npy"), unit="px").fingerprint()
    assert Sets(a).fingerprint() != Sets(c).fingerprint()


def test_precomputed_lists_count_for_both_sides(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.array([[1, 2], [0, -1], [1, -1]], np.int32))
    np.save(tmp_path / "distances.npy", np.array([[2, 3], [1, np.nan], [5, np.inf]], np.float32))
    distance = Precomputed(str(tmp_path))
    np.testing.assert_array_equal(
        whole(distance, [0, 1, 2, 1]), [[0, 1, 3, 1], [1, 0, 5, 0], [3, 5, 0, 5], [1, 0, 5, 0]]
    )
    assert distance.is_symmetric


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "matrix.npy"
    for matrix, message in (
        (np.zeros((3, 4)), r"square matrix of floating-point label distances. Got shape \(3, 4\), float64"),
        (np.zeros((3, 3), int), "floating-point"),
        (
            np.ones((3, 3)),
            "has 1 at row 0, column 0; an item's distance from itself should be 0. Is this a matrix of sim",
        ),
        (np.array([[None]]), "cannot be read as a .npy array of numbers"),
    ):
        np.save(path, matrix, allow_pickle=True)
        with pytest.raises(DataError, match=message):
            Precomputed(str(path))
    np.savez(tmp_path / "archive.npz", np.zeros((2, 2)))
    path.write_bytes(path.read_bytes()[:40])
    for name, message in (
        ("archive.npz", "must hold the arrays i, j"),
        ("matrix.npy", "cannot be read"),
        ("no.npy", "is missing"),
    ):
        with pytest.raises(DataError, match=message):
            Precomputed(str(tmp_path / name))
    for value, message in ((-1, "has -1 at row 0, column 1"), (np.nan, "has nan at row 0, column 1")):
        np.save(path, np.array([[0, value], [1.0, 0]]))
        with pytest.raises(DataError, match=message):
            Precomputed(str(path))


def test_bad_lists(tmp_path: Path) -> None:
    good = np.array([[1], [0]]), np.array([[0.5], [0.5]])
    for ids, distances, message in (
        (np.array([[1.0], [0]]), good[1], "whole numbers"),
        (good[0], good[1].T, "has ids of shape"),
        (np.array([[2], [0]]), good[1], r"names items 0 to 2; it has 2 rows, so they should be -1 \(none\) to 1"),
        (good[0], -good[1], "has -0.5 at row 0, place 0"),
    ):
        np.save(tmp_path / "ids.npy", ids)
        np.save(tmp_path / "distances.npy", distances)
        with pytest.raises(DataError, match=message):
            Precomputed(str(tmp_path))
    (tmp_path / "ids.npy").unlink()
    with pytest.raises(DataError, match=r"ids\.npy is missing"):
        Precomputed(str(tmp_path))


@pytest.mark.usefixtures("own_names")
def test_a_function_of_ones_own() -> None:
    @cml.distances.register("ages")
    def ages(a: float, b: float) -> float:
        return abs(a - b)

    distance = cml.distances.get("ages")
    assert ages(3, 5) == 2
    np.testing.assert_array_equal(whole(distance, [1, 4.5, np.float32(2)]), [[0, 3.5, 1], [3.5, 0, 2.5], [1, 2.5, 0]])
    assert (distance.unit, distance.is_metric, distance.is_symmetric) == ("label units", False, False)
    with pytest.raises(UserError, match=r"'ages' has no setting 'scale'\. It has: none"):
        cml.distances.get("ages", scale=2)
    with pytest.raises(UserError, match="'ages' is already taken"):
        cml.distances.register("ages")(lambda a, b: 0.0)
    assert whole(cml.distances.as_label_distance("sets(base=ages)"), [[1, 2], [5]])[0, 1] == 4 + 3 + 3

    cml.distances.register("ages-2")(lambda a, b: 2 * abs(a - b))
    assert cml.distances.get("ages-2").fingerprint() != distance.fingerprint()


def test_a_version_stands_for_the_code_of_a_function() -> None:
    counts = [0]

    def first(a: float, b: float) -> float:
        counts[0] += 1
        return abs(a - b)

    def mended(a: float, b: float) -> float:
        return abs(b - a) + 0

    titled = dataclasses.replace
    one, other, later = (
        titled(cml.distances.as_label_distance(function, version=version), title="apart")  # type: ignore[type-var]
        for function, version in ((first, "1"), (mended, "1"), (mended, "2"))
    )
    assert one.fingerprint() == other.fingerprint() != later.fingerprint()
    np.testing.assert_array_equal(whole(one, [1, 4.5]), [[0, 3.5], [3.5, 0]])
    calls = counts[0]
    np.testing.assert_array_equal(whole(other, [1, 9]), [[0, 8], [8, 0]])
    assert counts[0] == calls  # missing values are asked of the function that was given


@pytest.mark.usefixtures("own_names")
def test_a_function_that_is_no_distance_is_refused() -> None:
    cml.distances.register("similar")(lambda a, b: float(a == b))
    cml.distances.register("signed")(lambda a, b: a - b)
    with pytest.raises(
        UserError, match=r"'similar' gave 1 for 3 and itself; it should give 0 there. Is it a similarity"
    ):
        cml.distances.get("similar").encode([3, 4])
    with pytest.raises(UserError, match=r"'signed' gave -1\.0 for 3 and 4; it should give a number >= 0"):
        whole(cml.distances.get("signed"), [3, 4])


@pytest.mark.usefixtures("own_names")
def test_a_class_of_ones_own_takes_the_name_it_is_given() -> None:
    @cml.distances.register("parity")
    class Parity(LabelDistance):
        unit = "0 or 1"

        def encode(self, labels: Any) -> Labels:  # noqa: ANN401
            return Labels({"odd": np.array(labels) % 2})

        def pairwise(self, a: Labels, b: Labels) -> Float32:
            block: Float32 = np.not_equal.outer(a.arrays["odd"], b.arrays["odd"]).astype(np.float32)
            return block

    assert whole(cml.distances.get("parity"), [1, 2, 3]).tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
    with pytest.raises(UserError, match="Parity cannot be registered as 'odd'"):
        cml.distances.register("odd")(Parity)
    with pytest.raises(UserError, match="int cannot be registered as 'number'"):
        cml.distances.register("number")(int)
