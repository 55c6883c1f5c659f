"""Labelled items: parts of them keep everything that belongs to an item, and nothing is copied that need not be."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cml import distances
from cml.data.vectors import Vectors
from cml.items import LabelledItems
from cml.items.labelled_items import DistanceDemand, store_costly_distances
from cml.training.config import TrainConfig
from cml.training.stages import HoldOut

COUNT = 30
LABELS = np.arange(COUNT, dtype=float) ** 1.5


def make_items(**fields: Any) -> LabelledItems:  # noqa: ANN401 - of LabelledItems
    distance = distances.get("euclidean")
    rows = np.arange(COUNT, dtype=np.float32)[:, None]
    return LabelledItems(Vectors(rows), distance.encode(LABELS), distance, **fields)


def whole_items() -> LabelledItems:
    """Items whose every field tells which item it is of."""
    numbers = np.arange(COUNT)
    items = make_items(groups=numbers // 3, weights=numbers + 1.0, given_labels=LABELS.tolist())
    mirrored = items.distance.encode(-LABELS)
    return replace(items, mirrored_labels=mirrored, given_ids=[f"item {number}" for number in numbers])


def check(items: LabelledItems, numbers: list[int]) -> None:
    """Check that each field of some items is that of the items with these numbers."""
    rows = np.arange(len(items))
    assert len(items) == len(numbers)
    assert items.positions(rows).tolist() == numbers
    assert items.inputs.read(rows).ravel().tolist() == numbers
    assert items.ids == [f"item {number}" for number in numbers]
    assert items.read_given_labels(rows) == LABELS[numbers].tolist()
    assert items.groups is not None
    assert items.groups.tolist() == [number // 3 for number in numbers]
    assert items.weights is not None
    assert items.weights.tolist() == [number + 1 for number in numbers]
    assert items.mirrored_labels is not None
    for labels, sign in ((items.labels, 1), (items.mirrored_labels, -1)):
        alone = items.distance.encode(sign * LABELS[numbers])
        assert labels.fingerprint() == alone.fingerprint()


@given(st.lists(st.integers(0, COUNT - 1), min_size=1), st.data())
def test_a_part_of_a_part_keeps_everything(numbers: list[int], data: st.DataObject) -> None:
    part = whole_items().subset(np.array(numbers))
    check(part, numbers)
    start = data.draw(st.integers(0, len(numbers) - 1))
    check(part.subset(slice(start, None)), numbers[start:])


def test_a_slice_of_a_memory_map_copies_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    np.save(path, np.zeros((COUNT, 4), np.float16))
    mapped = np.load(path, mmap_mode="r")
    items = replace(make_items(), inputs=Vectors(mapped))
    part = items.subset(slice(3, 20)).subset(slice(2, 9))
    assert isinstance(part.inputs, Vectors)
    assert np.shares_memory(part.inputs.rows, mapped)
    assert part.origin == range(5, 12)
    assert np.shares_memory(next(iter(part.labels.arrays.values())), next(iter(items.labels.arrays.values())))


@pytest.mark.parametrize("rule", [lambda items: slice(24, 30), lambda items: np.array([28, 1, 7])])
def test_a_split_leaves_no_item_out(rule: Callable[[LabelledItems], Any]) -> None:
    rest, held_out = whole_items().split(rule)
    numbers = set(range(COUNT)[rule(rest)] if isinstance(rule(rest), slice) else rule(rest).tolist())
    check(held_out, sorted(numbers))
    check(rest, sorted(set(range(COUNT)) - numbers))


def test_whole_groups_are_held_out_and_nothing_without_validation() -> None:
    items = whole_items()
    config = TrainConfig(evaluate_every=1, validation_fraction=0.3)
    rest, held_out = items.split(HoldOut(config))
    assert held_out.groups is not None
    assert rest.groups is not None
    assert not {*held_out.groups.tolist()} & {*rest.groups.tolist()}
    check(held_out, list(range(21, 30)))
    everything, nothing = items.split(HoldOut(TrainConfig()))
    check(everything, list(range(COUNT)))
    assert len(nothing) == 0


def test_blocks_are_those_of_the_label_distance() -> None:
    items = whole_items().subset(np.array([4, 9, 2, 20]))
    apart = np.abs(np.subtract.outer(LABELS[[4, 9, 2, 20]], LABELS[[4, 9, 2, 20]]))
    np.testing.assert_allclose(items.block(slice(0, 2), np.array([3, 1])), apart[:2, [3, 1]], rtol=1e-6)


def test_costly_label_distances_of_few_items_become_a_matrix() -> None:
    asked = 0

    def far(a: float, b: float) -> float:
        nonlocal asked
        asked += 1
        return abs(a - b) * sum(1e-9 for _ in range(20_000)) / 2e-5

    distance = distances.as_label_distance(far)
    encoded = distance.encode([*LABELS[:20], *-LABELS[:20], *LABELS[20:]])
    rows = Vectors(np.arange(20, dtype=np.float32)[:, None])
    items = LabelledItems(rows, encoded[:20], distance, mirrored_labels=encoded[20:40])
    validation = LabelledItems(rows.subset(slice(0, 10)), encoded[40:], distance)
    wanted = items.block(slice(0, 20), slice(0, 20)), validation.block(slice(0, 10), slice(0, 10))
    stored, held_out = store_costly_distances(items, validation, DistanceDemand(1000, 50), quiet=True)
    assert stored.distance.name == "precomputed"
    asked = 0
    assert held_out is not None
    assert stored.mirrored_labels is not None
    np.testing.assert_array_equal(stored.block(slice(0, 20), slice(0, 20)), wanted[0])
    np.testing.assert_array_equal(held_out.block(slice(0, 10), slice(0, 10)), wanted[1])
    crossed = stored.distance.pairwise(stored.labels[3:4], stored.mirrored_labels[3:4])
    np.testing.assert_allclose(crossed, [[2 * LABELS[3]]], rtol=1e-5)
    assert asked == 0
    few = store_costly_distances(items, validation, DistanceDemand(1, 5), quiet=True)
    assert few == (items, validation)  # the matrix would cost more
