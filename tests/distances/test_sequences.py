"""Distances of sequences equal plain loops; nearest lists by lower bounds equal those of all pairs."""

import importlib
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from cml import UserError, distances
from cml.distances import LabelError

Array = NDArray[np.float64]


def slow_alignment(apart: Array, band: int, open_ends: int = 0, *, is_sum: bool) -> float:
    """The table of the distances (S, T) of steps, cell by cell."""
    s, t = apart.shape
    table = np.full((s + 1, t + 1), np.inf)
    table[0, : open_ends + 1] = table[: open_ends + 1, 0] = 0
    for i, j in itertools.product(range(s), range(t)):
        if not band or abs(i - j) <= band:
            step = float(apart[i, j]) ** 2
            best = min(table[i, j], table[i, j + 1], table[i + 1, j])
            table[i + 1, j + 1] = best + step if is_sum else max(best, step)
    return float(np.sqrt(min(table[s, t - open_ends :].min(), table[s - open_ends :, t].min())))


def compare_steps(a: Array, b: Array) -> Array:
    """The distances (S, T) of vectors (S, F) and (T, F)."""
    apart: Array = np.linalg.norm(a[:, None] - b, axis=2)
    return apart


def slow_edit(a: Any, b: Any, insert: float, delete: float, substitute: float) -> float:  # noqa: ANN401
    """The table, cell by cell."""
    table = np.add.outer(np.arange(len(a) + 1.0) * delete, np.arange(len(b) + 1) * insert)
    for i, j in itertools.product(range(len(a)), range(len(b))):
        change = 0 if a[i] == b[j] else substitute
        table[i + 1, j + 1] = min(table[i, j] + change, table[i, j + 1] + delete, table[i + 1, j] + insert)
    return float(table[-1, -1])


def draw_tracks(seed: int, count: int = 14, width: int = 2) -> list[Array]:
    """Random walks of 5 to 9 steps."""
    rng = np.random.default_rng(seed)
    return [rng.integers(-2, 3, (int(rng.integers(5, 10)), width)).cumsum(axis=0) / 2.0 for _ in range(count)]


@pytest.mark.parametrize("name", ["dtw", "frechet"])
@pytest.mark.parametrize(("band", "open_ends"), [(0, 0), (4, 0), (6, 0), (0, 1), (0, 4), (3, 2)])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_alignments_equal_plain_loops(name: str, band: int, open_ends: int, seed: int) -> None:
    tracks = draw_tracks(seed)
    distance = distances.get(f"{name}(band={band}, open_ends={open_ends})")
    labels = distance.encode(tracks)
    wanted = [
        [slow_alignment(compare_steps(a, b), band, open_ends, is_sum=name == "dtw") for b in tracks] for a in tracks
    ]
    block = distance.pairwise(labels, labels)
    np.testing.assert_allclose(block, wanted, rtol=1e-6)
    np.testing.assert_array_equal(distance.pairwise(labels[:5], labels), block[:5])
    # few values, so that many are equal: ties go to the lower position in both
    from cml.distances.label_distance import LabelDistance

    k = 4
    found = distance.neighbors(labels, k)
    plain = LabelDistance.searcher(distance, labels, k)(0, len(tracks))
    np.testing.assert_array_equal(found.distances, plain.distances)
    np.testing.assert_array_equal(found.ids, plain.ids)


@pytest.mark.parametrize("name", ["dtw(band=9)", "dtw(band=5, open_ends=4)", "frechet(band=9)", "dtw"])
def test_lists_that_bounds_shorten_equal_those_of_all_pairs(name: str) -> None:
    rng = np.random.default_rng(0)
    kinds = [rng.normal(size=(40, 3)).cumsum(axis=0) for _ in range(4)]  # far apart, so that most are left out
    tracks = [kinds[n % 4][: 40 - n % 5] + rng.normal(0, 0.05, (40 - n % 5, 3)) for n in range(48)]
    distance = distances.get(name)
    labels = distance.encode(tracks)
    block = distance.pairwise(labels, labels)
    np.fill_diagonal(block, np.inf)
    found = distance.neighbors(labels, 6)
    np.testing.assert_array_equal(found.distances, np.sort(block, axis=1)[:, :6])
    np.testing.assert_array_equal(np.take_along_axis(block, found.ids, axis=1), found.distances)


@pytest.mark.parametrize("name", ["dtw", "frechet"])
@pytest.mark.parametrize(
    ("base", "width"), [("circular", 1), ("circular(period=24)", 2), ("rotation(form=euler)", 3), ("hamming", 2)]
)
def test_steps_of_other_distances_equal_plain_loops(name: str, base: str, width: int) -> None:
    tracks = [50 * track for track in draw_tracks(5, width=width)]
    steps = distances.get(base)
    apart = [[steps.pairwise(steps.encode(a), steps.encode(b)) for b in tracks] for a in tracks]
    distance = distances.get(name, base=base, open_ends=2)
    labels = distance.encode(tracks)
    block = distance.pairwise(labels, labels)
    wanted = [[slow_alignment(pair, 0, 2, is_sum=name == "dtw") for pair in row] for row in apart]
    np.testing.assert_allclose(block, wanted, rtol=1e-6)
    np.testing.assert_array_equal(distance.pairwise(labels[4:6], labels), block[4:6])
    np.fill_diagonal(block, np.inf)
    np.testing.assert_array_equal(distance.neighbors(labels, 3).distances, np.sort(block, axis=1)[:, :3])
    assert distance.unit == steps.unit
    assert distances.get(str(distances.get(name, base=base).settings()["base"])) == steps


def test_a_step_that_cannot_be_read_is_named() -> None:
    distance = distances.get("dtw(base=haversine)")
    with pytest.raises(LabelError, match="Label 1 step 2 has the latitude 100"):
        distance.encode([[[1, 2]], [[3, 4], [5, 6], [100, 0]]])
    with pytest.raises(LabelError, match=r"Label 0 should be a sequence of one or more haversine labels. Got 'abc'"):
        distance.encode(["abc"])


def test_a_base_that_reads_files_is_not_self_contained() -> None:
    assert distances.Dtw.is_self_contained({"base": "circular(period=24)", "band": 3})
    assert not distances.Dtw.is_self_contained({"base": "precomputed(path='/etc/passwd')"})


@settings(max_examples=25, deadline=None)
@given(
    words=st.lists(st.text("abc", max_size=7), min_size=2, max_size=5),
    weights=st.sampled_from([(1, 1, 1), (1, 2, 0.5)]),
)
def test_edit_equals_a_plain_loop(words: list[str], weights: tuple[float, float, float]) -> None:
    distance = distances.get("edit", **dict(zip(("insert", "delete", "substitute"), weights, strict=True)))
    labels = distance.encode(words)
    wanted = [[slow_edit(a, b, *weights) for b in words] for a in words]
    np.testing.assert_allclose(distance.pairwise(labels, labels), wanted, rtol=1e-6)
    as_lists = distance.encode([list(word) for word in words])
    np.testing.assert_array_equal(distance.pairwise(labels, as_lists), distance.pairwise(labels, labels))


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_edits_of_long_texts_equal_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = [0, 63, 64, 65, 130]
    texts = ["".join(rng.choice(list("abc"), length)) for length in lengths]
    texts.append(texts[-1][:70] + texts[-1][72:])  # near another
    lists = [[int(token) for token in rng.integers(-(2**61), 2**61, 5).repeat(20)], [-1], []]
    for items in (texts, lists):
        labels = (distance := distances.get("edit")).encode(items)
        wanted = [[slow_edit(a, b, 1, 1, 1) for b in items] for a in items]
        np.testing.assert_array_equal(distance.pairwise(labels, labels), wanted)
        np.testing.assert_array_equal(distance.pairwise(labels[1:3], labels), wanted[1:3])


def test_edit_takes_tokens_of_any_kind() -> None:
    distance = distances.get("edit")
    words = distance.encode([["turn", "left"], ["turn", "right"], []])
    assert distance.pairwise(words, words)[0].tolist() == [0, 1, 2]
    numbers = distance.encode([np.array([3, 5]), torch.tensor([3]), [7]])
    assert distance.pairwise(numbers, numbers)[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        ("dtw", [[1.0], []], r"should be a sequence of numbers .*T at least 1. Got \[\]"),
        ("dtw", [[1.0], "abc"], "should be a sequence of numbers .* Got 'abc'"),
        ("dtw", [[1.0], [[1.0, 2.0]]], "has 2 numbers a step, the first has 1"),
        ("frechet", [[1.0], [1.0, float("nan")]], "holds nan at step 1 where a finite number should be"),
        ("edit", ["ab", 3], "should be a text, or a list of texts or of whole numbers. Got 3"),
        ("edit", ["ab", [1.5]], "Got .1.5. instead"),
    ],
)
def test_wrong_sequences_are_named(name: str, labels: list[Any], message: str) -> None:
    with pytest.raises(LabelError, match=message) as error:
        distances.get(name).encode(labels)
    assert error.value.position == 1


def test_wrong_settings_are_named() -> None:
    distance = distances.get("dtw(band=2)")
    three, six = [1.0] * 3, [1.0] * 6
    with pytest.raises(
        LabelError, match=r"has 6 steps and label 0 has 3: the band of 2 .* 'band' to at least 3"
    ) as error:
        distance.encode([three, three, six])
    assert error.value.position == 2
    with pytest.raises(UserError, match=r"band of 2 steps is narrower than .* 3 to 6: set 'band' to at least 3"):
        distance.pairwise(distance.encode([three]), distance.encode([six]))
    with pytest.raises(UserError, match=r"'band' should be a number of steps, at least 0. Got -1"):
        distances.get("dtw(band=-1)")
    wide = distances.get("frechet(open_ends=3, base=circular)")
    with pytest.raises(LabelError, match=r"has 3 steps, all of which open ends of 3 .* to at most 2") as error:
        wide.encode([six, three])
    assert error.value.position == 1
    with pytest.raises(UserError, match=r"cost 'delete' should be above 0 and finite. Got 0"):
        distances.get("edit(delete=0)")
    with pytest.raises(UserError, match=r"The sequences of the two sides have 1 and 2 numbers a step"):
        distance.pairwise(distance.encode([three]), distance.encode([[[1.0, 2.0]] * 3]))


@pytest.mark.parametrize(
    ("name", "their"), [("dtw", "dtaidistance.dtw_ndim"), ("edit", "rapidfuzz.distance.Levenshtein")]
)
def test_values_equal_those_of_other_libraries(name: str, their: str) -> None:
    module = importlib.import_module(their)
    rng = np.random.default_rng(0)
    items: list[Any] = draw_tracks(3)
    if name == "edit":
        items = ["".join(rng.choice(list("abcd"), rng.integers(0, 9))) for _ in range(12)]
    distance = distances.get(name)
    labels = distance.encode(items)
    wanted = [[module.distance(a, b) for b in items] for a in items]
    np.testing.assert_allclose(distance.pairwise(labels, labels), wanted, rtol=1e-6)
    if name == "dtw":
        wanted = [[module.distance(a, b, psi=2) for b in items] for a in items]
        np.testing.assert_allclose(distances.get("dtw(open_ends=2)").pairwise(labels, labels), wanted, rtol=1e-6)
