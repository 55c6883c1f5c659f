from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import cml.distances
from cml.array_types import Float32
from cml.distances import LabelDistance, Labels, Neighbors, blas_threads
from cml.distances.euclidean import Euclidean
from cml.distances.labels import LabelError
from cml.distances.nearest import nearest_columns
from cml.errors import UserError


@dataclass(frozen=True)
class Case:
    """A provider with sample labels; the label ``bad`` in their fourth place is refused with the message ``error``."""

    name: str
    labels: list[Any]
    bad: Any
    error: str
    settings: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)  # settings that change the distance

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.settings.values()))})"


def _cases() -> Iterator[Case]:
    rng = np.random.default_rng(7)
    numbers = [*rng.normal(size=11).tolist(), 2.5, 2.5]
    vectors = [*rng.normal(size=(11, 4)).tolist(), [1, 2, 3, 4], [1, 2, 3, 4]]
    poses = np.concatenate([rng.uniform(0, 200, (13, 6, 2)), rng.random((13, 6, 1)) < 0.8], axis=2)
    poses[-1] = poses[0]
    whole = poses.copy()
    whole[:, :, 2] = 1
    maps = [*rng.integers(0, 5, (12, 4, 5)), np.full((4, 5), 2)]
    tags = [[f"tag {n}" for n in np.flatnonzero(row)] for row in rng.random((12, 6)) < 0.4] + [[]]
    yield Case("euclidean", numbers, "blue", r"Label 3 should be a number or a list of numbers\. Got 'blue'")
    yield Case("euclidean", vectors, [1, 2], r"Label 3 has 2 numbers, the first has 4\.", other={"squared": True})
    yield Case("keypoints", poses.tolist(), [[1, 2, 1]] * 5, "Label 3 has 5 joints, the first has 6")
    for normalization in ("torso", "torso_centered"):
        chosen = {"normalization": normalization, "torso": ((0, 1), (2, 5)), "min_shared": 2}
        yield Case("keypoints", whole.tolist(), [1, 2, 3], "3 should be a list of joints", chosen, {"squared": False})
    chosen = {"normalization": "centered", "min_shared": 2}
    yield Case("keypoints", poses.tolist(), [[np.nan, 1, 1]] * 6, "Label 3 has the visible joint 0 at", chosen)
    for matching in ("fixed", "hungarian"):
        yield Case("layout", maps, [[0, 0]], "Label 3 has only ignored", {"matching": matching}, {"ignore": 4})
    spoken = [[" ".join(rng.choice(list("abcdef"), n)) for n in rng.integers(1, 6, 1 + i % 3)] for i in range(12)]
    spoken.append(spoken[0])
    known = {"vectors": "words.npy", "stop_words": "none"}
    yield Case(
        "captions", spoken, "a dog", "Label 3 should be a list of one or more captions", known, {"normalize": False}
    )
    yield Case("captions", spoken, ["a", "dog"], "Label 3 caption 1, 'dog', has no word", {**known, "backend": "pot"})
    yield Case(
        "classes", [["wren", "gull", "owl"][n % 3] for n in range(13)], 3.0, r"Label 3 is 3\.0, the first is a text"
    )
    yield Case("sentences", spoken, ["a", 2], "Label 3 should be a text or a list of texts", other={"reduce": "mean"})
    yield Case("classes", [7, 7.0, *range(11)], 2.5, r"Label 3 should be a class: a text or a whole number\. Got 2\.5")
    yield Case("circular", numbers, "north", "Label 3 should be a number or a list of numbers. Got 'north'")
    yield Case("circular", vectors, [1, 2], "Label 3 has 2 numbers", {"period": 24, "reduce": "max"})
    turns = Rotation.random(13, rng=rng)
    yield Case("rotation", turns.as_quat().tolist(), [0, 0, 0, 0], "Label 3 is a quaternion of length 0")
    euler = {"form": "euler", "symmetry": "C2"}
    yield Case("rotation", turns.as_euler("ZYX", degrees=True).tolist(), [1, 2], "Label 3 has 2 numbers", euler)
    places = rng.uniform(-80, 80, (13, 3)).tolist()
    yield Case("haversine", [place[:2] for place in places], [100, 0], "Label 3 has the latitude 100")
    yield Case("place", places, [100, 0, 0], "Label 3 has the latitude 100", {"metres": 5e6})
    yield Case("procrustes", whole.tolist(), [[0, 0, 1]], "Label 3 has 1 joint, the first has")
    yield Case("oks", whole.tolist(), [[0, 0, 1]], "Label 3 has 1 joint, the first has", {"sigmas": [0.1] * 6})
    boxes = [[["ab"[n % 2], 0, 0, 1 + n, 2], ["a", 2, n, 4, n + 1]][: 1 + n % 2] for n in range(13)]
    yield Case("boxes", boxes, [["a", 1, 1, 0, 0]], "Label 3 has the box")
    yield Case("cosine", vectors, [0, 0, 0, 0], "Label 3 is a vector of zeros")
    yield Case("direction", vectors, [0, 0, 0, 0], "Label 3 is a vector of zeros")
    shares = rng.integers(0, 9, (13, 5)).tolist()
    yield Case("emd", shares, [1, 2, -1, 0, 0], "Label 3 has a share below 0", {}, {"positions": [0, 1, 2, 4, 8]})
    yield Case("jaccard", tags, "tag 1", "Label 3 should be a set of names or a vector of 0 and 1. Got 'tag 1'")
    yield Case("jaccard", (rng.random((13, 8)) < 0.5).astype(int).tolist(), [0, 1], "Label 3 has 2 zeros and ones")
    yield Case("hamming", rng.integers(0, 3, (13, 5)).tolist(), [1, 1], r"Label 3 has 2 values, the first has 5\.")
    yield Case("hamming", [[str(n % 3), n < 5] for n in range(13)], ["a", None], "Label 3 holds None, which is neither")
    yield Case("precomputed", list(range(13)), 13, r"3 should be a row number from 0 to 12", {"path": "matrix.npy"})
    yield Case("precomputed", list(range(13)), "3", r"3 should be a row number", {"path": "lists", "unit": "px"})
    yield Case("precomputed", list(range(13)), -1, r"3 should be a row number from 0 to 12", {"path": "triples.npz"})
    tracks = [rng.normal(size=(n, 2)).tolist() for n in rng.integers(3, 7, 12)]
    tracks.append(tracks[0])
    yield Case("dtw", tracks, [], "Label 3 should be a sequence of numbers", {}, {"band": 5})
    yield Case("frechet", tracks, [[1.0]], "Label 3 has 1 numbers a step, the first has 2", {"band": 4}, {"band": 6})
    words = ["".join(rng.choice(list("abc"), n)) for n in rng.integers(0, 6, 12)]
    yield Case("edit", [*words, words[0]], 3, "Label 3 should be a text, or a list", {}, {"substitute": 1.5})
    sets = [rng.normal(size=n).tolist() for n in rng.integers(1, 5, 13)]
    yield Case("sets", sets, [1.0, "a"], "Label 3 member 1 should be a number", {"base": "euclidean"})
    pairs = [[pose] * (1 + n % 2) for n, pose in enumerate(whole.tolist())]
    yield Case("sets", pairs, [], "Label 3 should be a list of one or more keypoints labels", {"base": "keypoints"})
    parts = {"age": "euclidean", "tags": "jaccard"}
    people = [{"age": age, "tags": tag} for age, tag in zip(numbers, tags, strict=True)]
    wrong = {"age": [], "tags": ["tag 1"]}
    weights = {"weights": {"age": 1, "tags": 2.5}}
    yield Case(
        "combined", people, wrong, "Label 3 part 'age' has 0 numbers, the first has 1", {"parts": parts}, weights
    )
    yield Case("combined", people, {"age": 3}, "Label 3 should be a dict of age, tags", {"parts": parts, **weights})
    judged = [
        [str(n), *(f"{m} {abs(n - m) / 4} {1 + n % 2}" for m in range(13) if (n + m) % 3 == 1)] for n in range(13)
    ]
    yield Case("judged-pairs", judged, ["3", "4 near"], "Label 3 should be a list of texts such as", {}, {"unit": "h"})
    yield Case("test-hours", [n / 2 for n in range(13)], float("nan"), "Label 3 is nan")


@cml.distances.register("test-hours", unit="h", metric=True, symmetric=True)
def hours(a: float, b: float) -> float:
    return min(abs(a - b), 24 - abs(a - b))


CASES = list(_cases())
every_case = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.fixture
def distance(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabelDistance:
    rng = np.random.default_rng(3)
    matrix = rng.uniform(1, 2, (13, 13)).astype(np.float32) * (1 - np.eye(13, dtype=np.float32))
    np.save(tmp_path / "matrix.npy", np.maximum(matrix, matrix.T))
    (tmp_path / "lists").mkdir()
    np.save(tmp_path / "lists" / "ids.npy", np.argsort(matrix, axis=1)[:, 1:5].astype(np.int32))
    np.save(tmp_path / "lists" / "distances.npy", np.sort(matrix, axis=1)[:, 1:5])
    i, j = np.triu_indices(13, 1)
    np.savez(tmp_path / "triples.npz", i=i[::2], j=j[::2], distance=matrix[i, j][::2])
    np.save(tmp_path / "words.npy", rng.normal(size=(6, 4)))
    (tmp_path / "words.txt").write_text("\n".join("abcdef"))
    monkeypatch.chdir(tmp_path)
    return cml.distances.get(case.name, **case.settings)


def test_every_registered_distance_has_a_case() -> None:
    # of a new interpreter: other tests register distances of their own in this one
    command = "import cml.distances; print(*cml.distances.names(), sep='\\n')"
    built_in = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, timeout=240)
    others = {"judged-triplets"}  # which has no distances, see test_judged_labels.py
    assert {case.name for case in CASES} - {"test-hours"} | others == set(built_in.stdout.split())


@every_case
def test_shape_type_sign_zero_and_symmetry(case: Case, distance: LabelDistance) -> None:
    labels = distance.encode(case.labels)
    assert len(labels) == len(case.labels)
    block = distance.pairwise(labels[:5], labels)
    assert block.shape == (5, len(labels))
    whole = distance.pairwise(labels, labels)
    assert whole.dtype == np.float32
    assert not np.isnan(whole).any()
    assert (whole >= 0).all()
    assert (whole.diagonal() == 0).all()
    assert np.count_nonzero(np.isfinite(whole) & (whole > 0)) > len(labels)
    if distance.is_symmetric:
        np.testing.assert_array_equal(whole, whole.T)
    assert distance.pairwise(labels[:0], labels).shape == (0, len(labels))
    assert distance.pairwise(labels, labels[:0]).shape == (len(labels), 0)
    assert distance.unit


@every_case
def test_blocks_equal_the_whole_to_the_last_bit(case: Case, distance: LabelDistance) -> None:
    labels = distance.encode(case.labels)
    whole = distance.pairwise(labels, labels)
    rows = np.array([4, 0, 11, 4])
    for a, b in ((slice(0, 1), slice(3, 4)), (slice(2, 9), slice(0, 5)), (rows, rows[:3])):
        np.testing.assert_array_equal(distance.pairwise(labels[a], labels[b]), whole[a][:, b])


@every_case
def test_two_encodings_of_a_label_agree(case: Case, distance: LabelDistance) -> None:
    distance = distance.fit(case.labels)
    whole = distance.encode(case.labels)
    part = distance.encode(case.labels[4:9])
    np.testing.assert_array_equal(distance.pairwise(part, whole), distance.pairwise(whole, whole)[4:9])
    assert whole[4:9].fingerprint() == distance.encode(case.labels)[4:9].fingerprint()
    assert whole.fingerprint() != part.fingerprint()


@every_case
def test_triangle_inequality_where_claimed(case: Case, distance: LabelDistance) -> None:
    labels = distance.encode(case.labels)
    if distance.is_metric:
        d = distance.pairwise(labels, labels).astype(np.float64)
        assert (d[:, None, :] <= d[:, :, None] + d[None, :, :] + 1e-6).all()


@every_case
def test_settings_rebuild_the_distance_and_fingerprint_follows_them(case: Case, distance: LabelDistance) -> None:
    again = cml.distances.get(case.name, **distance.settings())
    assert again.fingerprint() == distance.fingerprint()
    labels = distance.encode(case.labels)
    np.testing.assert_array_equal(distance.pairwise(labels, labels), again.pairwise(labels, labels))
    if case.other:
        assert cml.distances.get(case.name, **{**case.settings, **case.other}).fingerprint() != distance.fingerprint()


@every_case
def test_bad_label_is_named_by_its_position(case: Case, distance: LabelDistance) -> None:
    labels = case.labels.copy()
    labels[3] = case.bad
    with pytest.raises(LabelError, match=case.error) as caught:
        distance.encode(labels)
    assert caught.value.position == 3
    with pytest.raises(UserError, match="no labels"):
        distance.encode([])


def _neighbors_by_sorting(whole: Float32, k: int) -> Neighbors:
    ids, distances = [], []
    for i, row in enumerate(whole.tolist()):
        others = sorted((d, j) for j, d in enumerate(row) if j != i and d < float("inf"))[:k]
        others += [(float("inf"), -1)] * (k - len(others))
        ids.append([j for _, j in others])
        distances.append([d for d, _ in others])
    return Neighbors(np.array(ids, np.int32), np.array(distances, np.float32))


@every_case
@pytest.mark.parametrize(("block_bytes", "threads"), [(1, 1), (200, 3), (1 << 20, 2)])
def test_neighbors_equal_brute_force(case: Case, distance: LabelDistance, block_bytes: int, threads: int) -> None:
    labels = distance.encode(case.labels)
    done: list[int] = []
    found = distance.neighbors(labels, 5, block_bytes=block_bytes, threads=threads, progress=done.append)
    expected = _neighbors_by_sorting(distance.pairwise(labels, labels), 5)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)
    assert found.ids.dtype == np.int32
    assert found.distances.dtype == np.float32
    assert sum(done) == len(labels)


@dataclass(frozen=True)
class Matrix(LabelDistance):
    """Distances read off a matrix: labels are row numbers."""

    matrix: Any
    name = "matrix"
    unit = "none"

    def encode(self, labels: Sequence[Any]) -> Labels:
        return Labels({"rows": np.asarray(labels)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        block: Float32 = self.matrix[a.arrays["rows"][:, None], b.arrays["rows"]].copy()
        return block


@settings(deadline=None, max_examples=50)
@given(st.data(), st.integers(2, 12), st.integers(1, 3), st.integers(1, 400))
def test_neighbors_with_ties_and_excluded_pairs(data: st.DataObject, n: int, threads: int, block_bytes: int) -> None:
    values = st.sampled_from([0.0, 0.5, 1.0, 2.0, float("inf")])
    cells = data.draw(st.lists(values, min_size=n * n, max_size=n * n))
    matrix = np.array(cells, np.float32).reshape(n, n)
    k = data.draw(st.integers(1, n - 1))
    distance = Matrix(matrix)
    found = distance.neighbors(distance.encode(range(n)), k, threads=threads, block_bytes=block_bytes)
    expected = _neighbors_by_sorting(matrix, k)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)


def test_nearest_columns_refuses_nan() -> None:
    with pytest.raises(UserError, match="NaN"):
        nearest_columns(np.array([[1, np.nan, 2]], np.float32), 3)


@pytest.mark.parametrize("k", [0, 13, 100])
def test_neighbors_refuses_k(k: int) -> None:
    ages = cml.distances.get("euclidean")
    with pytest.raises(UserError, match=f"below the number of items, 13. Got k={k}"):
        ages.neighbors(ages.encode(range(13)), k)


def test_registry_errors() -> None:
    with pytest.raises(UserError, match=r"Unknown label distance 'keypoint'\. Did you mean 'keypoints'"):
        cml.distances.get("keypoint")
    with pytest.raises(UserError, match=r"'euclidean' has no setting 'square'\. It has: squared"):
        cml.distances.get("euclidean", square=True)


def test_fingerprint_follows_the_values_of_an_array_setting() -> None:
    zeros = Matrix(np.zeros((1, 1)))
    assert zeros.fingerprint() == Matrix(np.zeros((1, 1))).fingerprint()
    assert zeros.fingerprint() != Matrix(np.ones((1, 1))).fingerprint()
    assert zeros.fingerprint() != Matrix(np.zeros((1, 1), np.float32)).fingerprint()


def test_blas_limit_is_taken_back_by_the_last_block() -> None:
    def threads() -> list[int]:
        return [library["num_threads"] for library in blas_threads._controller().info()]

    before = threads()
    assert before
    with blas_threads.one_blas_thread():
        with blas_threads.one_blas_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == before


@dataclass(frozen=True)
class _Cubed(LabelDistance):
    name: ClassVar[str] = "cubed"
    unit: ClassVar[str] = "units^3"

    def encode(self, labels: Sequence[Any]) -> Labels:
        return Labels({"numbers": np.asarray(labels, np.float64)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        block: Float32 = (np.abs(a.arrays["numbers"][:, None] - b.arrays["numbers"]) ** 3).astype(np.float32)
        return block


def test_a_distance_that_leaves_float32_is_named_and_not_taken_for_no_comparison() -> None:
    labels = _Cubed().encode([0.0, 1.0, 1e13])
    with pytest.raises(UserError, match=r"'cubed' gave a number above 3\.4e\+38, the largest of float32"):
        _Cubed().pairwise(labels, labels)
    assert _Cubed().pairwise(labels[:2], labels[:2]).tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    "labels", [[0.0, 1e-25, 1.0], [[0.0, 0.0], [1e-25, 0.0], [1.0, 0.0]]], ids=["numbers", "vectors"]
)
def test_squares_that_vanish_are_named(labels: list[Any]) -> None:
    distance = Euclidean(squared=True)
    encoded = distance.encode(labels)
    with pytest.raises(UserError, match="differ by less than 1e-19, whose square float32 cannot hold"):
        distance.pairwise(encoded[:2], encoded[:2])
    assert distance.pairwise(encoded[::2], encoded[::2]).tolist() == [[0, 1], [1, 0]]
    assert Euclidean().pairwise(encoded[:1], encoded[1:2]).item() == pytest.approx(1e-25)


def test_encoded_labels_are_chosen_by_lists_arrays_and_tensors_of_any_length() -> None:
    labels = cml.distances.get("euclidean").encode([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for rows in ([2], [2, 0], []):
        for chosen in (rows, np.array(rows, np.int64), torch.tensor(rows, dtype=torch.int64)):
            assert len(labels[chosen]) == len(rows)
            assert labels[chosen].fingerprint() == labels[np.array(rows, np.int64)].fingerprint()
    assert labels[torch.tensor([False, True, False])].fingerprint() == labels[1:2].fingerprint()
