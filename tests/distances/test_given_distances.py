"""Label distances that are given in Python: a function of two labels, a matrix; and what a digest of content sees."""

from __future__ import annotations

import datetime
import functools
import gc
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
import torch

import cml.distances
from cml.array_types import Float32
from cml.distances import LabelDistance, Labels, as_label_distance
from cml.distances.combined import Combined
from cml.distances.content_hash import content_digest
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.stored_matrix import replace_costly_distance
from cml.distances.sets import Sets
from cml.errors import UserError
from cml.registry import Choice

FACTOR = 1.0


def hours(a: float, b: float) -> float:
    return min(abs(a - b), 24 - abs(a - b))


def whole(distance: LabelDistance, labels: Any) -> Float32:  # noqa: ANN401
    packed = distance.encode(labels)
    return distance.pairwise(packed, packed)


def test_a_text_a_distance_and_a_class() -> None:
    distance = as_label_distance("euclidean(squared=true)")
    assert distance.settings() == {"squared": True}
    assert as_label_distance(distance) is distance
    with pytest.raises(UserError, match="is the class Euclidean; give one made of it"):
        as_label_distance(type(distance))


def test_a_function_gets_the_labels_as_they_were_given() -> None:
    noon = datetime.datetime(2020, 1, 1, 12)
    days = [noon, noon + datetime.timedelta(hours=3), noon + datetime.timedelta(hours=1)]
    seconds = as_label_distance(lambda a, b: abs((a - b).total_seconds()), unit="s")
    assert whole(seconds, days)[0].tolist() == [0, 10800, 3600]
    assert seconds.unit == "s"
    tensors = [torch.tensor([0.0, 1.0]), torch.tensor([3.0, 1.0])]
    assert whole(as_label_distance(lambda a, b: (a - b).norm()), tensors)[0, 1] == 3
    assert (
        whole(as_label_distance(functools.partial(max_gap, scale=2.0)), np.array([[1.0, 2.0], [4.0, 2.5]]))[0, 1] == 6
    )


def max_gap(a: Any, b: Any, scale: float) -> np.float32:  # noqa: ANN401
    return np.float32(scale * np.abs(a - b).max())


def test_a_function_is_asked_once_for_each_pair() -> None:
    asked: list[tuple[int, int]] = []

    def gap(a: int, b: int) -> int:
        asked.append((a, b))
        return abs(a - b)

    distance = as_label_distance(gap, symmetric=True)
    labels = distance.encode([5, 1, 9, 5, 1, 3])
    expected = np.abs(np.subtract.outer([5, 1, 9, 5, 1, 3], [5, 1, 9, 5, 1, 3])).astype(np.float32)
    more = distance.encode([3, 7])
    asked.clear()
    np.testing.assert_array_equal(distance.pairwise(labels[:2], labels[2:]), expected[:2, 2:])
    np.testing.assert_array_equal(distance.pairwise(labels, labels), expected)
    np.testing.assert_array_equal(distance.neighbors(labels, 2).ids[0], [3, 5])
    distance.pairwise(more, labels)
    assert len({frozenset(pair) for pair in asked}) == len(asked) == 10 + 4  # 4 different labels, then another


def test_with_too_many_labels_values_are_not_kept_and_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal(size=(30, 2)).tolist()

    def rough(a: list[float], b: list[float]) -> float:  # its two ways differ by rounding
        return sum(x * x + y - y for x, y in zip(np.subtract(a, b), a, strict=True))

    kept = whole(as_label_distance(rough, symmetric=True), labels)
    np.testing.assert_array_equal(kept, kept.T)
    monkeypatch.setattr("cml.distances.pair_function.MOST_KEPT", 20)
    np.testing.assert_array_equal(whole(as_label_distance(rough, symmetric=True), labels), kept)


def test_symmetry_is_found_out_and_said() -> None:
    labels = [n / 2 for n in range(40)]
    assert not as_label_distance(hours).is_symmetric
    assert as_label_distance(hours).fit(labels).is_symmetric
    assert not as_label_distance(lambda a, b: max(a - b, 0.0)).fit(labels).is_symmetric
    assert not as_label_distance(hours, symmetric=False).fit(labels).is_symmetric
    fitted = as_label_distance(hours, unit="h").fit(labels)
    settings = fitted.settings()
    digest = settings.pop("digest")
    assert settings == {"name": "hours", "unit": "h", "metric": False, "symmetric": True}
    assert len(digest) == 32
    written = str(Choice(fitted.name, fitted.settings()))
    with pytest.raises(
        UserError,
        match=r"the function 'hours', which was given in Python; give it again where the model is opened, as in cml",
    ):
        as_label_distance(written)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a, b: float("nan") if a != b else 0, "gave nan for 3 and 4; it should give a number >= 0, or infinity"),
        (lambda a, b: -abs(a - b), r"gave -1\.0 for 3 and 4; it should give a number"),
        (lambda a, b: None if a != b else 0, "gave None for 3 and 4"),
        (lambda a, b: "1" if a != b else 0, "gave '1' for 3 and 4"),
        (lambda a, b: torch.zeros(2) if a != b else 0, r"gave Tensor of shape \(2,\) for 3 and 4"),
        (lambda a, b: np.zeros((1, 2)) if a != b else 0, r"gave ndarray of shape \(1, 2\) for 3 and 4"),
        (lambda a, b: 1e300 * abs(a - b), r"gave 1e\+300 for 3 and 4"),
        (lambda a, b: abs(a - b) / (a - b + (a == b)), r"gave -1\.0 for 3 and 4"),
        (lambda a: 0, r"failed for 3 and 3 \(TypeError: .*takes 1 positional argument but 2 were given\); it should"),
        (lambda a, b: [0][b - a], r"failed for 3 and 4 \(IndexError: list index out of range\)"),
        (lambda a, b: float(a == b), "gave 1 for 3 and itself; it should give 0 there. Is it a similarity"),
    ],
)
def test_what_a_function_should_not_give(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(UserError, match=f"The label distance 'lambda' {message}"):
        whole(as_label_distance(function), [3, 4])


def test_a_long_label_is_shortened_in_the_message() -> None:
    with pytest.raises(UserError, match=r"for \[0, 0, .*\.\.\. and \[1, 1") as error:
        whole(as_label_distance(lambda a, b: None if a != b else 0), [[0] * 99, [1] * 99])
    assert len(str(error.value)) < 300


def test_a_function_travels_without_its_values() -> None:
    distance = as_label_distance(hours, unit="h", symmetric=True)
    distance.pairwise(*[distance.encode(list(range(24)))] * 2)
    again = pickle.loads(pickle.dumps(distance))
    assert (again.unit, again.is_symmetric, again.fingerprint()) == ("h", True, distance.fingerprint())


@pytest.mark.parametrize("kind", [np.array, torch.tensor, list])
def test_a_matrix(kind: Callable[[Any], Any]) -> None:
    matrix = [[0, 1, 3], [1, 0, float("inf")], [3, float("inf"), 0]]
    distance = as_label_distance(kind(matrix), unit="m")
    rows = distance.encode(range(3))
    np.testing.assert_array_equal(distance.pairwise(rows[1:], rows), np.array(matrix, np.float32)[1:])
    assert (distance.unit, distance.is_symmetric, distance.is_metric) == ("m", True, False)
    assert not as_label_distance(kind([[0.0, 1], [2, 0]]), symmetric=False).is_symmetric
    assert as_label_distance(np.array([[0, 4], [4, 0]], np.int64)).is_symmetric
    again = pickle.loads(pickle.dumps(distance))
    assert again == distance
    assert again.fingerprint() == distance.fingerprint()
    assert distance != as_label_distance(kind([[0.0, 1], [1, 0]]), unit="m")
    with pytest.raises(UserError, match=r"a matrix of shape \[3, 3\], which was given in Python; give it again there"):
        as_label_distance(str(Choice(distance.name, distance.settings())))
    with pytest.raises(UserError, match=r"should be a row number from 0 to 2 of the matrix of label distances"):
        distance.encode([3])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.zeros((2, 3)), r"or a square matrix \(N, N\) of numbers\. Got float64 of shape \(2, 3\) instead"),
        (np.zeros(4), r"Got float64 of shape \(4,\)"),
        ([[0, 1], [1]], "Got object of shape|Got \\[\\[0, 1\\], \\[1\\]\\]"),
        (np.array([["a"]]), "Got <U1 of shape"),
        (3, r"Got int64 of shape \(\)"),
        ([], r"Got \[\] instead"),
        (np.array([[0, np.nan], [1, 0]]), "has nan at row 0, column 1; it should be a number >= 0, or infinity"),
        (np.array([[0, 1], [-2, 0]]), "has -2 at row 1, column 0"),
        (np.array([[0, 1e300], [1, 0]]), r"has 1e\+300 at row 0, column 1"),
        (
            np.ones((2, 2)),
            "has 1 at row 0, column 0; an item's distance from itself should be 0. Is this a matrix of s",
        ),
    ],
)
def test_what_a_matrix_should_not_be(matrix: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match=message):
        as_label_distance(matrix)


class Scale:
    factor = 2.0

    def __call__(self, a: float, b: float) -> float:
        return self.factor * abs(a - b)


def scaled(a: float, b: float) -> float:
    return FACTOR * hours(a, b)


def maker(offset: float) -> Callable[[float, float], float]:
    return lambda a, b: abs(a - b) + offset * (a != b)


def test_a_digest_sees_code_constants_closures_and_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert content_digest(scaled) == content_digest(scaled)
    assert content_digest(scaled).complete
    assert content_digest(maker(1)) == content_digest(maker(1))
    assert content_digest(maker(1)) != content_digest(maker(2))
    assert content_digest(lambda a, b: abs(a - b)) != content_digest(lambda a, b: abs(a - 2 * b))
    before = content_digest(scaled), content_digest(Scale())
    monkeypatch.setitem(globals(), "FACTOR", 2.0)
    assert content_digest(scaled) != before[0]
    monkeypatch.undo()
    monkeypatch.setitem(globals(), "hours", lambda a, b: abs(a - b))
    assert content_digest(scaled) != before[0]
    monkeypatch.setattr(Scale, "factor", 3.0)
    assert content_digest(Scale()) != before[1]
    assert content_digest(functools.cache(lambda a, b: a - b)) != content_digest(functools.cache(lambda a, b: b - a))
    assert content_digest(numba.njit(lambda a, b: a - b)) != content_digest(numba.njit(lambda a, b: b - a))
    assert content_digest(functools.cache(hours)).complete
    handle = open(__file__)  # noqa: SIM115 - nothing is known of what an open file gives
    with handle:
        assert not content_digest(functools.partial(max_gap, scale=handle)).complete  # type: ignore[arg-type]


def test_a_digest_tells_labels_apart() -> None:
    one = {"a": [1, 2.0, None], "b": {"x", "y"}}
    assert content_digest(one) == content_digest({"b": {"y", "x"}, "a": [1, 2.0, None]})
    different = [1, 1.0, True, "1", b"1", (1,), [1], {1: 1}, np.int64(1), np.array([1]), np.array([1.0]), torch.ones(1)]
    assert len({content_digest(value).digest for value in different}) == len(different)
    assert content_digest(["a", "b"]) != content_digest(["ab", ""])


@pytest.fixture
def own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cml.distances.registry, "_entries", dict(cml.distances.registry._entries))


@pytest.mark.usefixtures("own_names")
def test_a_registered_function_is_stored_only_if_all_of_it_is_known() -> None:
    cml.distances.register("own-hours")(hours)
    assert as_label_distance("own-hours").is_stored
    assert as_label_distance("own-hours").settings() == {}
    with open(__file__) as handle:
        cml.distances.register("from-a-file")(lambda a, b: abs(a - b) * bool(handle))
        assert not as_label_distance("from-a-file").is_stored
    assert not as_label_distance(hours).is_stored


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def slow(asked: list[tuple[float, float]], seconds: float = 0.0) -> Callable[[float, float], float]:
    def gap(a: float, b: float) -> float:
        asked.append((a, b))
        time.sleep(seconds)
        return abs(a - b)

    return gap


def test_a_function_goes_through_a_matrix_in_memory(cache: Path) -> None:
    asked: list[tuple[float, float]] = []
    labels = np.random.default_rng(0).normal(size=40).tolist()
    distance = as_label_distance(slow(asked), unit="K", symmetric=True)
    encoded = distance.encode(labels)
    stored, rows = replace_costly_distance(distance, encoded, blocks=100, rows=10)
    assert len(asked) == 1 + 40 * 41 / 2
    assert (stored.unit, stored.is_symmetric) == ("K", True)
    items = np.random.default_rng(1).permutation(40)[:12]
    np.testing.assert_array_equal(stored.pairwise(rows[items], rows), distance.pairwise(encoded[items], encoded))
    assert len(asked) == 1 + 40 * 41 / 2
    assert not cache.exists()
    # 1,440 pairs, the matrix has 1,600
    assert replace_costly_distance(distance, encoded, blocks=10, rows=12)[0] is distance
    assert replace_costly_distance(distance, encoded, blocks=10, rows=12, all_pairs=True)[0] is not distance


@pytest.mark.usefixtures("own_names")
def test_a_registered_function_is_kept_until_its_code_changes(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cml.distances.pair_function._SAVE_SECONDS", 0.0)
    monkeypatch.setattr("cml.distances.pair_function._SAVE_SHARE", 0)
    calls = np.zeros(1, int)
    labels = np.random.default_rng(0).normal(size=30).tolist()

    def calls_for(power: float, labels: list[float]) -> int:
        def bent(a: float, b: float) -> float:
            np.add(calls, 1, out=calls)
            return float(abs(a - b) ** power)

        cml.distances.registry._entries.pop("bent", None)
        cml.distances.register("bent", symmetric=True)(bent)
        calls[...] = 0
        distance = as_label_distance("bent")
        stored, rows = replace_costly_distance(distance, distance.encode(labels), blocks=100, rows=10)
        expected = np.abs(np.subtract.outer(labels, labels)) ** power
        np.testing.assert_allclose(stored.pairwise(rows, rows), expected, rtol=1e-6)
        return int(calls[0]) - 1  # the check of encode

    every = 30 * 31 // 2
    assert calls_for(1.0, labels) == every
    assert calls_for(1.0, labels) == 0
    assert calls_for(1.0, [*labels[5:], 7.0]) == 26  # the new one
    assert calls_for(2.0, labels) == every
    (path,) = [path for path in cache.rglob("*.npz") if np.load(path)["digests"].size == 31]
    path.write_bytes(path.read_bytes()[:-50])
    gc.collect()  # what this process knows goes with the last distance of that function
    assert calls_for(1.0, labels) == every


def test_slow_work_is_forecast_and_shows_a_bar(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cml.distances.jobs.stored_matrix.SAID_FROM", 0.1)
    distance = as_label_distance(slow([], 0.0005), symmetric=True)
    labels = distance.encode(list(range(30)))
    options = JobOptions(bar_after=0.0)
    replace_costly_distance(distance, labels, blocks=100, rows=10, options=options)
    told = capfd.readouterr().err
    assert "The label distance 'gap' of 30 items, computed once: 465 pairs at " in told
    assert "label distances: 100%" in told
    distance = as_label_distance(slow([], 0.0005), symmetric=True)
    replace_costly_distance(distance, labels, blocks=100, rows=10, quiet=True)
    assert capfd.readouterr().err == ""


class Slow(LabelDistance):
    name = "slow"
    unit = "s"
    seconds = 1e-3

    def encode(self, labels: Any) -> Labels:  # noqa: ANN401
        return Labels({"values": np.array(labels, float)})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        time.sleep(self.seconds * len(a) * len(b))
        return np.abs(np.subtract.outer(a.arrays["values"], b.arrays["values"])).astype(np.float32)

    def settings(self) -> dict[str, Any]:
        return {}


def test_a_slow_class_of_ones_own_is_found_by_measuring(cache: Path) -> None:
    for distance, is_slow in ((Slow(), True), (as_label_distance("euclidean"), False)):
        stored, _ = replace_costly_distance(distance, distance.encode(list(range(20))), blocks=100, rows=10)
        assert (stored is not distance) == is_slow
    quick = Slow()
    quick.seconds = 0
    assert replace_costly_distance(quick, quick.encode(list(range(20))), blocks=100, rows=10)[0] is quick
    assert len(list(cache.rglob("matrix.npy"))) == 1
    assert as_label_distance("sets(base=euclidean)").is_costly is False
    assert Sets(as_label_distance(hours)).is_costly
    assert not Sets(as_label_distance(hours)).is_stored
    assert Combined({"a": "euclidean", "b": Slow()}).is_costly is None
