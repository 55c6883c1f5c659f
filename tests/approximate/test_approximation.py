"""Neighbour lists and an embedding from few calls of a slow label distance."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
import torch

import cml
from cml.approximate import learned_model
from cml.approximate.asked_pairs import (
    ChosenPairs,
    PairKind,
    choose_nearest,
    choose_of_neighbors,
    combine_choices,
    draw_pairs,
    find_share,
    pair_keys,
    pairs_of_keys,
)
from cml.approximate.asking import Answers
from cml.approximate.budget import Budget
from cml.approximate.learned_model import make_model
from cml.approximate.recall import draw_sample, estimate_recall
from cml.approximate.result import Approximation
from cml.approximate.start_vectors import choose_start
from cml.cli import main
from cml.distances import Neighbors, SparseDistances, approximate, as_label_distance, pair_function
from cml.errors import UserError
from cml.losses.pair_log_ratio import PairLogRatioLoss
from cml.training import pair_map
from cml.training.pair_map import WIDTHS, KnownLists, PairMap, _Learning, learn_map, make_perceptron

ITEMS = 120
PAIRS = ITEMS * (ITEMS - 1) // 2
RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=(ITEMS, 3))
VECTORS = np.concatenate([HIDDEN @ RNG.normal(size=(3, 5)), RNG.normal(size=(ITEMS, 5))], axis=1).astype(np.float32)
TRUTH = np.abs(HIDDEN[:, None] - HIDDEN).sum(axis=2)


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Learn maps in a few steps, for tests that do not ask how good they are: nearly all the time goes into these."""
    for name, steps in (("_FEWEST_STEPS", 8), ("_ENOUGH_STEPS", 8), ("_MOST_STEPS", 16)):
        monkeypatch.setattr(pair_map, name, steps)


def logged(
    log: Path, fails_after: int = 10**9, wrong: float | None = None, power: int = 1
) -> Callable[[Any, Any], float]:
    """A distance that notes each call in a file, which is no part of its fingerprint."""
    where, limit = str(log), str(log) + ".limit"
    Path(limit).write_text(str(fails_after))

    def slow(a: tuple[float, ...], b: tuple[float, ...]) -> float:
        with open(where, "a") as file:
            file.write(".")
        if Path(where).stat().st_size > int(Path(limit).read_text()):
            if wrong is None:
                raise RuntimeError("the service does not answer")
            return wrong
        return float(sum(abs(x**power - y**power) for x, y in zip(a, b, strict=True)))

    return slow


def labels() -> list[tuple[float, ...]]:
    return [tuple(row) for row in HIDDEN.tolist()]


def calls_of(log: Path) -> int:
    return log.stat().st_size


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_lists_hold_true_distances_within_the_budget(tmp_path: Path) -> None:
    found = approximate(logged(tmp_path / "log"), labels(), VECTORS, "30%", k=5, out=tmp_path / "out", quiet=True)
    allowed = int(0.3 * PAIRS)
    assert found.spent.calls == allowed
    assert 0.95 * allowed <= calls_of(tmp_path / "log") <= allowed + 1  # and one for a label and itself
    rows = np.arange(ITEMS)[:, None]
    np.testing.assert_allclose(found.neighbors.distances, TRUTH[rows, found.neighbors.ids], rtol=1e-5)
    order = np.argsort(TRUTH + np.diag(np.full(ITEMS, np.inf)), axis=1)[:, :5]
    recall = np.mean([np.isin(order[row], found.neighbors.ids[row]).mean() for row in range(ITEMS)])
    assert recall > 0.85
    assert found.embeddings.shape == VECTORS.shape
    np.testing.assert_allclose(found.model.embed(VECTORS), found.embeddings, rtol=1e-3, atol=1e-4)
    again = Approximation.open(tmp_path / "out")
    np.testing.assert_array_equal(again.neighbors.ids, found.neighbors.ids)
    listed = cml.distances.get("precomputed", path=str(tmp_path / "out"))
    rows_of = listed.encode(range(ITEMS))
    block = listed.pairwise(rows_of[:1], rows_of)
    np.testing.assert_array_equal(block[0, found.neighbors.ids[0]], found.neighbors.distances[0])


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_candidates_are_the_list_then_the_nearest_of_the_embedding() -> None:
    found = approximate(lambda a, b: abs(a - b), HIDDEN[:, 0].tolist(), VECTORS, "20%", k=4, quiet=True)
    candidates = found.candidates(30)
    known = found.known.block(np.arange(ITEMS), np.arange(ITEMS))
    apart = np.linalg.norm(found.embeddings[:, None] - found.embeddings, axis=2)
    for item, row in enumerate(candidates.tolist()):
        listed = found.neighbors.ids[item].tolist()
        unknown = [j for j in np.argsort(apart[item], kind="stable").tolist() if not np.isfinite(known[item, j])]
        wanted = [*listed, *(j for j in unknown if j != item)][:30]
        assert row[:4] == listed
        np.testing.assert_allclose(apart[item, row[4:]], apart[item, wanted[4:]], atol=1e-3)
        assert item not in row
    assert sorted(found.candidates(ITEMS - 1)[0].tolist()) == list(range(1, ITEMS))
    with pytest.raises(UserError, match="k"):
        found.candidates(ITEMS)


@pytest.mark.usefixtures("few_steps")
def test_sequences_bring_vectors_to_start_from(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tracks = [rng.normal(size=(int(rng.integers(6, 12)), 2)).cumsum(axis=0) for _ in range(40)]
    distance = cml.distances.get("dtw")
    found = approximate(distance, tracks, None, "60%", k=3, out=tmp_path / "out", quiet=True)
    own = distance.start_vectors(distance.encode(tracks))
    assert own is not None
    np.testing.assert_allclose(found.model.embed(np.asarray(own, np.float32)), found.embeddings, rtol=1e-3, atol=1e-4)
    slow_copy = np.repeat(tracks[0], 3, axis=0)  # the same way, with stops
    both = distance.start_vectors(distance.encode([tracks[0], slow_copy]))
    assert both is not None
    np.testing.assert_allclose(both[0, 64:], both[1, 64:], atol=1e-5)
    one_place = distance.start_vectors(distance.encode([[[1.0, 2.0]], [[3.0, 3.0]] * 4]))
    assert one_place is not None
    np.testing.assert_array_equal(one_place[1], 3)
    assert set(one_place[0].tolist()) == {1, 2}
    with pytest.raises(UserError, match=r"'edit' has no vectors of its own to start from: give 'vectors'"):
        approximate("edit", ["ab", "cd", "ef", "gh"], None, "50%", k=1, quiet=True)


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_known_distances_train_a_model() -> None:
    found = approximate(lambda a, b: abs(a - b), HIDDEN[:, 0].tolist(), VECTORS, 1500, k=3, quiet=True)
    assert found.folder is None
    model = cml.fit(
        VECTORS, range(ITEMS), label_distance=found.label_distance, steps=3, sampler="pairs(batch_size=32)", quiet=True
    )
    assert model.embed(VECTORS).shape[0] == ITEMS


@pytest.mark.slow
@pytest.mark.parametrize("fails_after", [5, 700])
@pytest.mark.usefixtures("few_steps")
def test_a_function_that_fails_loses_nothing_and_is_resumed_to_the_same_bytes(tmp_path: Path, fails_after: int) -> None:
    whole, log = tmp_path / "whole", tmp_path / "log"
    approximate(logged(log), labels(), VECTORS, "20%", k=5, out=whole, quiet=True)
    total = calls_of(log)
    log.unlink()
    pair_function._in_use.clear()  # the values that this process knows
    slow = logged(log, fails_after)
    out = tmp_path / "out"
    with pytest.raises(UserError, match=r"failed for .* \(RuntimeError: the service does not answer\)"):
        approximate(slow, labels(), VECTORS, "20%", k=5, out=out, threads=1, quiet=True)
    Path(f"{log}.limit").write_text(str(10**9))
    approximate(slow, labels(), VECTORS, "20%", k=5, out=out, quiet=True)
    assert contents(out) == contents(whole)
    if fails_after == 700:  # the rounds before are not asked again
        assert calls_of(log) < total + 0.6 * total


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_a_mended_function_continues_where_it_has_a_version(tmp_path: Path) -> None:
    """The code changes, and so does a value that it refers to, and the answers stay."""
    calls = [0]

    def slow(a: tuple[float, ...], b: tuple[float, ...]) -> float:
        calls[0] += 1
        if calls[0] > 300:
            raise ZeroDivisionError("of two equal tracks")
        return float(sum(abs(x - y) for x, y in zip(a, b, strict=True)))

    def mended(a: tuple[float, ...], b: tuple[float, ...]) -> float:
        calls[0] += 1
        return float(sum(abs(x - y) for x, y in zip(a, b, strict=True)))

    mended.__name__ = "slow"
    out, without = tmp_path / "out", tmp_path / "without"
    distance = as_label_distance(slow, version="1")
    with pytest.raises(UserError, match=r"of two equal tracks.*out keeps the answers so far: the same call continues"):
        approximate(distance, labels(), VECTORS, "20%", k=5, out=out, threads=1, quiet=True)
    before = calls[0] = 0
    distance = as_label_distance(mended, version="1")
    spent = approximate(distance, labels(), VECTORS, "20%", k=5, out=out, quiet=True).spent
    assert calls[0] - before < spent.calls - 100
    calls[0] = 200
    with pytest.raises(UserError, match="of two equal tracks"):
        approximate(slow, labels(), VECTORS, "20%", k=5, out=without, threads=1, quiet=True)
    with pytest.raises(UserError, match=r"the code of the label distance was changed, or a value .* with a 'version'"):
        approximate(mended, labels(), VECTORS, "20%", k=5, out=without, quiet=True)


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_a_data_frame_holds_labels_in_its_rows() -> None:
    frame = pd.DataFrame(HIDDEN[:40], columns=[f"column {number}" for number in range(HIDDEN.shape[1])])
    by_frame = approximate("euclidean", frame, VECTORS[:40], "50%", k=3, quiet=True)
    by_rows = approximate("euclidean", HIDDEN[:40], VECTORS[:40], "50%", k=3, quiet=True)
    np.testing.assert_array_equal(by_frame.neighbors.ids, by_rows.neighbors.ids)


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_a_finished_one_is_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    slow = logged(log)
    first = approximate(slow, labels(), VECTORS, 1000, out=tmp_path / "out", quiet=True)
    count = calls_of(log)
    again = approximate(slow, labels(), VECTORS, 1000, out=tmp_path / "out", quiet=True)
    assert calls_of(log) == count + 1
    np.testing.assert_array_equal(again.neighbors.ids, first.neighbors.ids)
    with pytest.raises(UserError, match="different settings"):
        approximate(slow, labels(), VECTORS, 1001, out=tmp_path / "out", quiet=True)


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_a_budget_of_all_pairs_is_exact(tmp_path: Path) -> None:
    found = approximate(logged(tmp_path / "log"), labels(), VECTORS, 10**9, k=4, out=tmp_path / "out")
    assert found.spent.calls == PAIRS
    assert found.recall == 1
    order = np.argsort(TRUTH + np.diag(np.full(ITEMS, np.inf)), axis=1)[:, :4]
    np.testing.assert_array_equal(np.sort(found.neighbors.ids, axis=1), np.sort(order, axis=1))
    assert "all pairs were asked for" in found.spent.lines()[1]


def test_a_budget_in_seconds_is_obeyed(tmp_path: Path) -> None:
    def sleep(a: float, b: float) -> float:
        time.sleep(0.004)
        return abs(a - b)

    ratios = []
    for attempt in range(3):  # on a loaded machine a process may stand still for a while
        began = time.monotonic()
        found = approximate(
            sleep, HIDDEN[:, 0].tolist(), VECTORS, "3s", k=3, out=tmp_path / f"out-{attempt}", quiet=True
        )
        ratios.append((time.monotonic() - began) / 3)
        assert found.spent.calls > 30
        if abs(ratios[-1] - 1) <= 0.4:
            break
    assert min(abs(ratio - 1) for ratio in ratios) <= 0.4, ratios


def test_budgets() -> None:
    assert Budget.parse("1%") == Budget(share=0.01)
    assert Budget.parse("0.5 %").calls_of(1000) == 2497
    assert Budget.parse(5000) == Budget.parse("5000") == Budget(calls=5000)
    assert Budget.parse("1.5h").seconds == 5400
    assert Budget.parse("90s").calls_of(10) == 45
    assert Budget.parse("200%").calls_of(10) == 45
    for wrong in ("0", "0%", "0s", 0):
        with pytest.raises(UserError, match="The budget is 0"):
            Budget.parse(wrong)
    assert Budget.parse(0.02) == Budget.parse(np.float64(0.02)) == Budget.parse("2%")
    for wrong in ("1.5", "-3", "many", "3 days", "", True, 2.5, None, -0.02, 2.0, np.nan, np.inf):
        with pytest.raises(UserError, match="budget should be a number of calls"):
            Budget.parse(wrong)


def test_a_float_that_may_be_calls_or_a_share_says_what_to_write() -> None:
    for value, mend in (
        (2.0, r"Got 2\.0 instead: write 2 for calls, '2%' or 0\.02 for a share of all pairs\.$"),
        (2.5, r"Got 2\.5 instead: write '2\.5%' or 0\.025 for a share of all pairs\.$"),
        (5000.0, r"Got 5000\.0 instead: write 5000 for calls\.$"),
        (1.0, r"Got 1\.0 instead: write 1 for calls, '100%' for all pairs\.$"),
        (-0.02, r"Got -0\.02 instead\.$"),
    ):
        with pytest.raises(UserError, match=mend):
            Budget.parse(value)
    with pytest.raises(UserError, match="The budget is 0"):
        Budget.parse(0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("few_steps")
def test_a_budget_too_small_for_the_lists_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    values = HIDDEN[:, 0].tolist()

    def ask(budget: str | float, k: int, *, quiet: bool = False) -> str:
        approximate(lambda a, b: abs(a - b), values, VECTORS, budget, k=k, quiet=quiet)
        return capsys.readouterr().err

    small = ask(299, 5)  # of 120 items
    assert "A budget of 299 calls is too small for 5 neighbours of each of 120 items, which take 300 calls at" in small
    assert small.count("warning: A budget") == 1
    assert "lists will be short" in small
    assert "most lists will be empty" in ask(50, 5)
    assert "too small" not in ask(300, 5)
    assert "A budget of 0.02 of all pairs is too small for 5 neighbours" in ask(0.02, 5)
    assert "too small" not in ask(50, 5, quiet=True)
    with pytest.raises(UserError, match=r"A budget of 0\.01 % of all 7,140 pairs is less than one call of the label"):
        ask("0.01%", 5)


def test_a_budget_of_time_that_is_too_short_for_the_lists_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    def sleep(a: float, b: float) -> float:
        time.sleep(0.02)
        return abs(a - b)

    with contextlib.suppress(UserError):  # on a loaded machine, the time may be over before a pair is compared
        approximate(sleep, HIDDEN[:, 0].tolist(), VECTORS, "1s", k=50)
    said = capsys.readouterr().err
    assert re.search(r"A budget of 1 s, about \d+ calls, is too small for 50 neighbours .* take 3,000 calls at", said)


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "gave nan for"), (-1.0, "gave -1.0 for"), (None, "failed for .*the service does not answer")],
)
@pytest.mark.usefixtures("few_steps")
def test_wrong_values_are_one_line(tmp_path: Path, value: float | None, message: str) -> None:
    slow = logged(tmp_path / "log", 100, value)
    with pytest.raises(UserError, match=message) as caught:
        approximate(slow, labels(), VECTORS, "20%", out=tmp_path / "out", quiet=True)
    assert "\n" not in str(caught.value)


def test_a_distance_that_is_not_symmetric_is_refused_with_both_values(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"not symmetric: it is ([\d.]+) from item (\d+) to (\d+), but ") as caught:
        approximate(lambda a, b: max(0.0, a - b) + abs(a - b), HIDDEN[:, 0].tolist(), VECTORS, "20%", quiet=True)
    first, second = map(float, re.findall(r"(?:is|but) ([\d.]+)", str(caught.value)))
    assert max(first, second) == pytest.approx(2 * min(first, second), rel=1e-4)


def test_a_call_longer_than_the_budget_says_so() -> None:
    def slow(a: float, b: float) -> float:
        if a != b:
            time.sleep(0.5)
        return abs(a - b)

    with pytest.raises(UserError, match=r"budget of 0.2 s is shorter than one call .* took 0\.[5-9]"):
        approximate(slow, HIDDEN[:, 0].tolist(), VECTORS, "0.2s", quiet=True)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (VECTORS[:-1], "120 labels, but 119 vectors"),
        (np.ones((ITEMS, 3)), "All vectors are equal"),
        (np.where(np.arange(ITEMS)[:, None] == 7, np.nan, VECTORS), "hold nan at row 7, column 0"),
        (VECTORS[:, 0], r"should be an array \(N, F\)"),
        (["a"] * ITEMS, r"should be an array \(N, F\)"),
    ],
)
def test_wrong_vectors_are_refused_before_a_call(tmp_path: Path, vectors: Any, message: str) -> None:  # noqa: ANN401 - of wrong kinds
    log = tmp_path / "log"
    with pytest.raises(UserError, match=message):
        approximate(logged(log), labels(), vectors, "20%", quiet=True)
    assert calls_of(log) == 1


@pytest.mark.slow
@pytest.mark.parametrize("items", [2, 3, 5, 12])
@pytest.mark.parametrize("budget", [1, 2, "50%", "90%"])
@pytest.mark.usefixtures("few_steps")
def test_few_items_and_few_calls(items: int, budget: str | int) -> None:
    rows = HIDDEN[:items]
    if items == 2 and isinstance(budget, str):
        with pytest.raises(UserError, match="is less than one call of the label distance"):
            approximate(lambda a, b: abs(a - b), rows[:, 0].tolist(), rows, budget, k=1, quiet=True)
        return
    found = approximate(lambda a, b: abs(a - b), rows[:, 0].tolist(), rows, budget, k=1, quiet=True)
    assert 0 < found.spent.calls <= Budget.parse(budget).calls_of(items)
    assert found.neighbors.ids.shape == (items, 1)


@pytest.mark.usefixtures("few_steps")
def test_constant_distances_and_infinite_ones() -> None:
    equal = approximate(lambda a, b: float(a != b), list(range(40)), VECTORS[:40], "30%", k=2, quiet=True)
    np.testing.assert_array_equal(equal.neighbors.distances, 1)
    with pytest.raises(UserError, match="random pairs are at an infinite label distance"):
        approximate(lambda a, b: 0.0 if a == b else np.inf, list(range(40)), VECTORS[:40], "30%", k=2, quiet=True)


def test_drawn_pairs_are_different_and_complete() -> None:
    for items in (2, 3, 7, 50):
        every = items * (items - 1) // 2
        keys = draw_pairs(items, every, np.random.default_rng(0))
        wanted = {(a, b) for a, b in itertools.combinations(range(items), 2)}
        assert {tuple(pair) for pair in pairs_of_keys(keys, items).tolist()} == wanted
        assert len(keys) == every
    assert len(np.unique(draw_pairs(100_000, 5000, np.random.default_rng(1)))) == 5000


def test_neighbors_of_neighbors_equal_a_slow_loop() -> None:
    rng = np.random.default_rng(5)
    apart = rng.uniform(size=(20, 20)).round(1)
    apart += apart.T
    ids = np.argsort(apart + 9 * np.eye(20), axis=1)[:, :3]
    ids[4, 1:] = -1  # a list that is too short
    distances = np.where(ids < 0, np.inf, np.take_along_axis(apart, ids, axis=1)).astype(np.float32)
    asked = np.sort(draw_pairs(20, 60, rng))
    ways: dict[int, list[float]] = {}
    for start in range(20):
        for middle, near in zip(ids[start].tolist(), distances[start].tolist(), strict=True):
            for end, far in zip(ids[middle].tolist(), distances[middle].tolist(), strict=True) if middle >= 0 else ():
                key = min(start, end) * 20 + max(start, end)
                if end >= 0 and end != start and key not in asked.tolist():
                    ways.setdefault(key, []).append(float(np.float32(near) + np.float32(far)))
    wanted = sorted(ways, key=lambda key: (-len(ways[key]), min(ways[key]), key))
    found = choose_of_neighbors(Neighbors(ids, distances), asked, 400)
    assert len(found) > 10
    assert found.tolist() == wanted
    assert choose_of_neighbors(Neighbors(ids, distances), asked, 5).tolist() == wanted[:5]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_choices_are_combined_as_a_slow_loop_does(share: float) -> None:
    rng = np.random.default_rng(4)
    nearest, of_neighbors = (rng.permutation(60)[:size] for size in (40, 35))
    for count in (10, 40):
        firsts = of_neighbors[:count]
        chosen = combine_choices(nearest[:count], firsts, count, share)
        near = nearest[:count].tolist()
        both = [key for key in firsts.tolist() if key in near]
        of_share = [key for key in firsts.tolist() if key not in both][: int(share * (count - len(both)))]
        others = [key for key in near if key not in both][: count - len(both) - len(of_share)]
        turns: list[tuple[int, PairKind]] = []
        for place in range(count):
            turns += [(key, PairKind.OF_NEIGHBORS) for key in of_share[place : place + 1]]
            turns += [(key, PairKind.NEAREST) for key in others[place : place + 1]]
        wanted = [(key, PairKind.BOTH) for key in both] + turns
        assert list(zip(chosen.keys.tolist(), chosen.kinds.tolist(), strict=True)) == wanted
        assert len(set(chosen.keys.tolist())) == len(chosen.keys)
    nothing = np.empty(0, np.int64)
    assert combine_choices(nearest, nothing, 40, 0.5).keys.tolist() == nearest.tolist()
    assert combine_choices(nothing, nothing, 40, 0.5).keys.tolist() == []


def test_the_share_of_neighbors_of_neighbors_follows_what_they_brought() -> None:
    """Items 0 to 3; the lists hold the pairs 0 1, 0 2, 1 0, 1 3 and 3 1, and item 2 has none."""
    lists = Neighbors(np.array([[1, 2], [0, 3], [-1, -1], [1, -1]], np.int32), np.zeros((4, 2), np.float32))
    keys = pair_keys(np.array([[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]), 4)
    kinds = np.array([PairKind.BOTH, PairKind.OF_NEIGHBORS, PairKind.OF_NEIGHBORS, PairKind.NEAREST, PairKind.NEAREST])
    of_neighbors, nearest = 2 / 4, 2 / 4  # one of two each, with one more success and failure
    assert find_share(ChosenPairs(keys, kinds), lists) == pytest.approx(of_neighbors / (of_neighbors + nearest))
    alone = ChosenPairs(keys[1:3], kinds[1:3])
    assert find_share(alone, lists) == pytest.approx(0.5)
    many = ChosenPairs(np.repeat(keys[[1, 4]], 50), np.repeat(kinds[[1, 4]], 50))
    assert find_share(many, lists) == 0.9
    assert find_share(many._replace(kinds=many.kinds[::-1]), lists) == 0.1


def test_choose_nearest_equals_a_slow_loop() -> None:
    rows = np.random.default_rng(3).normal(size=(30, 4)).astype(np.float32)
    apart = np.linalg.norm(rows[:, None] - rows, axis=2)
    asked = np.sort(draw_pairs(30, 100, np.random.default_rng(0)))
    queues = [
        [j for j in np.argsort(apart[i]).tolist() if j != i and min(i, j) * 30 + max(i, j) not in asked.tolist()]
        for i in range(30)
    ]
    wanted: list[int] = []
    for rank in range(29):
        for i, queue in enumerate(queues):
            if rank < len(queue):
                key = min(i, queue[rank]) * 30 + max(i, queue[rank])
                wanted += [key] if key not in wanted else []
    assert choose_nearest(rows, asked, 120).tolist() == wanted[:120]
    assert pair_keys(np.array([[5, 2], [2, 5]]), 30).tolist() == [65, 65]


def test_a_map_follows_the_labels_and_is_never_worse_than_the_identity() -> None:
    keys = draw_pairs(ITEMS, 2000, np.random.default_rng(0))
    first, second = pairs_of_keys(keys, ITEMS).T
    known = SparseDistances.from_triples(first, second, TRUTH[first, second], items=ITEMS)
    start = choose_start(VECTORS, np.stack([first, second], axis=1), TRUTH[first, second].astype(np.float32))
    learned = learn_map(KnownLists(start.rows, known, start.normalize))

    def recall(rows: np.ndarray) -> float:
        apart = np.linalg.norm(rows[:, None] - rows, axis=2) + np.diag(np.full(ITEMS, np.inf))
        truth = np.argsort(TRUTH + np.diag(np.full(ITEMS, np.inf)), axis=1)[:, :5]
        near = np.argsort(apart, axis=1)[:, :10]
        return float(np.mean([np.isin(truth[row], near[row]).mean() for row in range(ITEMS)]))

    assert recall(start.embed(learned)) > recall(start.embed()) + 0.05
    noise = SparseDistances.from_triples(first, second, np.random.default_rng(1).uniform(1, 2, len(first)), items=ITEMS)
    unlearned = learn_map(KnownLists(start.rows, noise, start.normalize))
    assert unlearned.perceptron is None
    assert abs(unlearned.weight - np.eye(len(unlearned.weight))).max() < 0.2
    linear = PairMap(learned.weight[:, : len(learned.weight)])
    np.testing.assert_allclose(start.join(linear).embed(VECTORS), start.embed(linear), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(PairMap.identity(2).apply(start.rows, normalize=False), start.rows)


def found_in_ten(rows: np.ndarray, truth: np.ndarray) -> float:
    """The share of the true five nearest among the ten nearest rows."""
    alone = np.diag(np.full(len(rows), np.inf))
    near = np.argsort(np.linalg.norm(rows[:, None] - rows, axis=2) + alone, axis=1)[:, :10]
    true = np.argsort(truth + alone, axis=1)[:, :5]
    return float(np.mean([np.isin(*pair).mean() for pair in zip(true, near, strict=True)]))


def known_share(truth: np.ndarray, share: float, rng: np.random.Generator) -> SparseDistances:
    """Some of all distances."""
    items = len(truth)
    first, second = pairs_of_keys(draw_pairs(items, int(share * items * (items - 1) / 2), rng), items).T
    return SparseDistances.from_triples(first, second, truth[first, second], items=items)


@pytest.mark.slow
def test_a_perceptron_follows_a_distance_that_no_linear_map_does() -> None:
    points = np.random.default_rng(0).normal(size=(150, 2)).astype(np.float32)
    truth = np.abs(points[:, None] ** 2 - points**2).sum(axis=2)
    known = known_share(truth, 0.5, np.random.default_rng(0))
    learned = learn_map(KnownLists(points, known, normalize=False))
    assert learned.perceptron is not None
    linear = PairMap(learned.weight[:, :2]).apply(points, normalize=False)
    assert found_in_ten(linear, truth) < 0.5
    assert found_in_ten(learned.apply(points, normalize=False), truth) > 0.8
    few = learn_map(KnownLists(points, known_share(truth, 0.4, np.random.default_rng(0)), normalize=False))
    assert few.perceptron is None


@pytest.mark.slow
@pytest.mark.parametrize("fewest", [0, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_few_items_keep_vectors_that_are_right_already(fewest: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """60 items at 20 % of the calls, of which 6 are held out: not even a perceptron that is tried is chosen."""
    monkeypatch.setattr(pair_map, "_FEWEST_KNOWN", fewest)
    points = np.random.default_rng(seed).normal(size=(60, 4)).astype(np.float32)
    truth = np.linalg.norm(points[:, None] - points, axis=2)
    known = known_share(truth, 0.2, np.random.default_rng(seed))
    learned = learn_map(KnownLists(points, known, normalize=False), seed=seed)
    assert learned.perceptron is None
    assert found_in_ten(learned.apply(points, normalize=False), truth) > 0.98


def test_the_log_ratio_loss_of_random_pairs_is_that_of_their_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs, none drawn twice, beside ``PairLogRatioLoss``; one pair is infinitely far apart, one is equal."""
    rows, truth = VECTORS[:12], TRUTH[:12, :12].copy()
    truth[0, 1] = truth[1, 0] = np.inf
    truth[2, 3] = truth[3, 2] = 0
    first, second = np.triu_indices(12, 1)
    known = SparseDistances.from_triples(first, second, truth[first, second], items=12)
    lists = KnownLists(rows, known, normalize=False)
    work = _Learning(lists, lists.batch(np.arange(3), np.random.default_rng(0)), 1.0, np.random.default_rng(0), np.inf)
    weight, perceptron = torch.randn(10, 10 + WIDTHS[-1]), make_perceptron(10, 0)
    monkeypatch.setattr(work, "_rng", Mock(integers=lambda count, size: np.arange(count)))
    loss = work._log_ratio_loss(weight, perceptron)
    is_used = np.isfinite(truth[first, second]) & (truth[first, second] > 0)
    floor = float(np.quantile(truth[first, second][is_used].astype(np.float32), 0.02))
    embeddings = work._map(torch.from_numpy(rows), weight, perceptron)
    of_matrix = PairLogRatioLoss(label_exponent=2, normalize=False)
    of_matrix.floor = floor
    wanted = of_matrix(embeddings, torch.from_numpy(truth).float())
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_perceptron_is_chosen_by_the_log_ratios_of_each_item_held_out() -> None:
    rows = VECTORS[:40]
    lists = KnownLists(rows, known_share(TRUTH[:40, :40], 0.3, np.random.default_rng(0)), normalize=True)
    checked = lists.batch(np.arange(7), np.random.default_rng(1))
    work = _Learning(lists, checked, 1.0, np.random.default_rng(2), np.inf)
    weight = np.random.default_rng(3).normal(size=(10, 10 + WIDTHS[-1])).astype(np.float32)
    curved, linear = PairMap(weight, make_perceptron(10, 0)), PairMap(weight[:, :10])
    distances = checked[1].numpy().astype(np.float64)
    for learned in (curved, linear):
        mapped = learned.apply(checked[0].numpy(), normalize=True)
        wanted = []
        for number, row in enumerate(distances):
            others = np.flatnonzero(np.isfinite(row) & (np.arange(len(row)) != number))
            squared = np.square(mapped[others] - mapped[number]).sum(axis=1)
            ratios = np.log(squared + 1e-6) - 2 * np.log(row[others].clip(min=work._floor))
            wanted.append(2 * ratios.var(ddof=1))
        np.testing.assert_allclose(work._spreads(learned), wanted, rtol=1e-3)
    gains = work._spreads(linear) - work._spreads(curved)
    assert not work.is_clearly_better(linear, linear)
    assert work.is_clearly_better(curved, linear) == (gains.mean() > 2 * gains.std() / np.sqrt(7))
    assert work.is_clearly_better(linear, curved) == (-gains.mean() > 2 * gains.std() / np.sqrt(7))


@pytest.mark.parametrize("normalize", [False, True])
def test_a_model_with_a_perceptron_embeds_as_its_map_does(normalize: bool, tmp_path: Path) -> None:
    rows = np.concatenate([VECTORS, np.ones((ITEMS, 1), np.float32)], axis=1)  # the last is constant
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = pairs_of_keys(draw_pairs(ITEMS, 900, np.random.default_rng(0)), ITEMS)
    first, second = (units if normalize else (rows - 1) / (rows.std(axis=0) + 1e-6))[pairs.T]
    start = choose_start(rows, pairs, np.linalg.norm(first - second, axis=1))
    assert start.normalize == normalize
    weight = np.random.default_rng(1).normal(size=(11, 11 + WIDTHS[-1])).astype(np.float32) / 9
    learned = PairMap(weight, make_perceptron(11, 0))
    distance = cml.distances.as_label_distance(TRUTH)
    model = make_model(start, learned, distance, distance.encode(range(ITEMS)), 0)
    again = cml.load(model.save(tmp_path / "model"))
    np.testing.assert_allclose(again.embed(rows), start.embed(learned), rtol=1e-3, atol=1e-4)


@pytest.mark.usefixtures("few_steps")
def test_a_perceptron_is_resumed_to_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_map, "_FEWEST_KNOWN", 0)
    monkeypatch.setattr(pair_map, "_CLEAR", -1e9)  # it is chosen
    for module in (pair_map, learned_model):
        monkeypatch.setattr(module, "WIDTHS", (64, 64))
    points, log, out = [tuple(row) for row in HIDDEN[:50, :2].tolist()], tmp_path / "log", tmp_path / "out"
    slow = logged(log, 350, power=2)
    with pytest.raises(UserError, match="does not answer"):
        approximate(slow, points, np.array(points), "40%", k=5, out=out, threads=1, quiet=True)
    Path(f"{log}.limit").write_text(str(10**9))
    resumed = approximate(slow, points, np.array(points), "40%", k=5, out=out, quiet=True)
    assert resumed.model.config.backbone.startswith("mlp(")
    approximate(slow, points, np.array(points), "40%", k=5, out=tmp_path / "whole", quiet=True)
    assert contents(out) == contents(tmp_path / "whole")


@pytest.mark.parametrize("share", [0.4, 0.7, 0.95])
def test_the_estimate_of_recall_is_right_on_average(share: float) -> None:
    """Each pair is known with one probability; the sample is drawn by a rough embedding of the points."""
    items, k, draws = 300, 10, 12
    rng = np.random.default_rng(5)
    points = rng.normal(size=(items, 4))
    truth = np.linalg.norm(points[:, None] - points, axis=2).astype(np.float32)
    order = np.argsort(truth + np.diag(np.full(items, np.inf)), axis=1)
    errors, is_inside = [], []
    for _ in range(draws):
        asked = np.triu(rng.random((items, items)) < share, 1)
        keys = np.sort(pair_keys(np.argwhere(asked), items))
        kept = np.where(asked | asked.T, truth, np.inf)
        ids = np.argsort(kept, axis=1)[:, :k].astype(np.int32)
        lists = Neighbors(ids, np.take_along_axis(kept, ids, axis=1).astype(np.float32))
        rough = (points + 0.3 * rng.normal(size=points.shape)).astype(np.float32)
        sample = draw_sample(rough, keys, 1000, rng)
        estimate = estimate_recall(lists, sample, truth[sample.items, sample.others])
        assert estimate is not None
        recall = np.mean([np.isin(order[row, :k], ids[row]).mean() for row in range(items)])
        errors.append(estimate.value - recall)
        is_inside.append(estimate.low <= recall <= estimate.high)
    assert abs(np.mean(errors)) < 0.05  # more cautious the less complete
    assert sum(is_inside) >= draws - 2


def test_a_sample_has_pairs_that_were_not_asked_for_with_their_probabilities() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 4)).astype(np.float32)
    asked = np.sort(draw_pairs(80, 500, rng))
    counts = np.zeros((80, 80))
    weights = np.zeros((80, 80))
    for _ in range(400):
        sample = draw_sample(rows, asked, 320, rng)
        keys = pair_keys(np.stack([sample.items, sample.others], axis=1), 80)
        assert not np.isin(keys, asked).any()
        assert len(sample.keys(80)) == len(np.unique(keys)) <= 320
        np.add.at(counts, (sample.items, sample.others), 1)
        np.add.at(weights, (sample.items, sample.others), 1 / sample.probabilities)
    assert counts.diagonal().sum() == 0
    # each pair of a sampled item that was not asked for stands for itself, on average
    sampled = weights.sum(axis=1) / weights.sum() * 80
    assert np.corrcoef(sampled, (80 - 1 - np.bincount(np.concatenate(np.divmod(asked, 80)), minlength=80)))[0, 1] > 0.3
    others = 79 * 80 - 2 * len(asked)
    drawn = 400 * (320 // 16)
    assert weights.sum() == pytest.approx(drawn * others / 80, rel=0.05)
    assert not len(draw_sample(rows, asked, 20, rng).items)


def test_a_sample_leaves_out_items_without_all_answers() -> None:
    rng = np.random.default_rng(0)
    sample = draw_sample(rng.normal(size=(50, 3)).astype(np.float32), np.sort(draw_pairs(50, 90, rng)), 160, rng)
    keys = sample.keys(50)
    answers = Answers(keys[:-1], np.sqrt(keys[:-1]).astype(np.float32))
    selected, distances = sample.select(answers, 50)
    assert sample.items[-1] not in selected.items
    assert len(np.unique(selected.items)) in (8, 9)
    wanted = np.sqrt(pair_keys(np.stack([selected.items, selected.others], axis=1), 50)).astype(np.float32)
    np.testing.assert_array_equal(distances, wanted)


@pytest.mark.usefixtures("few_steps")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cml.prepare("series", tmp_path / "data", count=150)
    out = tmp_path / "out"
    main(["distances", str(tmp_path / "data"), "--budget", "30%", "--neighbors", "5", "--out", str(out), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["calls"] <= 0.3 * told["pairs"]
    assert (out / "items.json").exists()
    found = Approximation.open(out)
    assert found.neighbors.ids.shape == (told["items"], 5)
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(told["items"], 3)))
    command = ["distances", str(tmp_path / "data"), "--budget", "2%", "--vectors", str(tmp_path / "rows.npy")]
    main([*command, "--out", str(tmp_path / "other")])
    assert "calls of the label distance" in capsys.readouterr().out
    exact = ["distances", str(tmp_path / "data"), "--neighbors", "3", "--vectors", str(tmp_path / "rows.npy")]
    for wrong, message in (
        ([*command, "--matrix"], "Choose one of"),
        ([*command, "--verify"], "a budget leaves most pairs unknown"),
        ([*command, "--summary"], "Choose one of"),
        (exact, "--vectors goes with --budget"),
    ):
        assert main(wrong) == 2
        assert message in capsys.readouterr().err
