from __future__ import annotations

import doctest

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from cml import distances, sampling
from cml.errors import UserError
from cml.sampling import sampler as sampler_module
from cml.sampling.sampler import draw_others

ITEMS = 97


def lists(k: int, items: int = ITEMS) -> np.ndarray:
    """Neighbours of numbers on a line: the nearest ids on both sides, ties to the lower."""
    ids = np.arange(items)
    distances = np.abs(ids[:, None] - ids[None, :]).astype(float)
    np.fill_diagonal(distances, np.inf)
    return np.argsort(distances, axis=1, kind="stable")[:, :k].astype(np.int32)


SAMPLERS = {
    "dense": {"batch_size": 20, "nearest": 5},
    "grouped": {"batch_size": 40, "groups": 8, "drawn": 3, "pool": 10},
    "random": {"batch_size": 20},
    "binary": {"batch_size": 20, "positives": 5, "pool": 30},
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_epoch_takes_every_item_as_an_anchor_once(name: str) -> None:
    sampler = sampling.get(name, **SAMPLERS[name])
    nearest = lists(sampler.neighbors)
    counted: list[int] = []
    steps = sampler.steps_per_epoch(ITEMS)
    for step in range(steps):
        batch = sampler.batch(nearest, seed=3, step=step)
        assert len(batch.items) == sampler.batch_size
        assert len(set(batch.items.tolist())) == sampler.batch_size
        assert 1 <= batch.anchors <= sampler.batch_size
        left = ITEMS - len(counted)
        counted += batch.items[: min(sampler.counted_anchors, left)].tolist()
    assert sorted(counted) == list(range(ITEMS))


@pytest.mark.parametrize("name", SAMPLERS)
def test_batch_depends_on_seed_and_step_alone(name: str) -> None:
    sampler = sampling.get(name, **SAMPLERS[name])
    nearest = lists(sampler.neighbors)
    forward = [sampler.batch(nearest, seed=1, step=step).items for step in range(200)]
    for step in (199, 0, 120):
        again = sampling.get(name, **SAMPLERS[name]).batch(nearest, seed=1, step=step)
        np.testing.assert_array_equal(again.items, forward[step])
    assert not np.array_equal(forward[0], sampler.batch(nearest, seed=2, step=0).items)
    epoch = sampler.steps_per_epoch(ITEMS)
    assert not np.array_equal(forward[0], forward[epoch]), "epochs must differ"


def test_dense_list_is_anchor_nearest_then_others() -> None:
    sampler = sampling.get("dense", batch_size=20, nearest=5)
    nearest = lists(5)
    batch = sampler.batch(nearest, seed=0, step=11)
    assert batch.anchors == 1
    np.testing.assert_array_equal(batch.items[1:6], nearest[batch.items[0]])


def test_paper_list_has_the_published_number_of_triplets() -> None:
    # 149 others give 149 * 148 / 2 = 11,026 pairs (i, j) of one anchor, as the authors' code counts
    batch = sampling.get("dense").batch(lists(5, 400), seed=0, step=0)
    others_in_list = len(batch.items) - batch.anchors
    assert others_in_list * (others_in_list - 1) // 2 == 11_026


def test_grouped_neighbours_come_from_the_pool_and_every_item_is_an_anchor() -> None:
    sampler = sampling.get("grouped", batch_size=40, groups=8, drawn=3, pool=10)
    nearest = lists(10)
    batch = sampler.batch(nearest, seed=0, step=2)
    assert batch.anchors == 40
    pool = set(nearest[batch.items[:8]].ravel().tolist())
    neighbours = [item for item in batch.items[8:].tolist() if item in pool]
    assert len(neighbours) >= 12  # 24 drawn, some of them shared by two anchors


def test_binary_negatives_lie_outside_the_pool() -> None:
    sampler = sampling.get("binary", batch_size=20, positives=5, pool=30)
    nearest = lists(30)
    for step in range(ITEMS):
        batch = sampler.batch(nearest, seed=0, step=step)
        pool = set(nearest[batch.items[0]].tolist())
        assert set(batch.items[1:6].tolist()) <= pool
        assert not set(batch.items[6:].tolist()) & pool


def test_items_without_comparable_neighbours_are_filled_up_with_others() -> None:
    nearest = np.full((50, 10), -1, np.int32)
    for name, options in (("dense", {"nearest": 5}), ("grouped", {"groups": 4}), ("binary", {"pool": 10})):
        batch = sampling.get(name, batch_size=20, **options).batch(nearest, seed=0, step=0)
        assert len(set(batch.items.tolist())) == 20
        assert batch.items.min() >= 0


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 60), st.data())
def test_others_are_different_and_not_chosen(items: int, data: st.DataObject) -> None:
    taken = data.draw(st.lists(st.integers(0, items - 1), unique=True, max_size=items - 1))
    count = data.draw(st.integers(0, items - len(taken)))
    drawn = draw_others(np.array(taken, np.int64), count, items, np.random.default_rng(0))
    assert len(drawn) == count
    assert len(set(drawn.tolist()) | set(taken)) == count + len(taken)


def test_others_of_a_large_set_are_drawn_evenly() -> None:
    drawn = np.concatenate([draw_others(np.array([0, 1]), 5, 200, np.random.default_rng(seed)) for seed in range(2000)])
    counts = np.bincount(drawn, minlength=200)
    assert counts[:2].sum() == 0
    assert counts[2:].min() > 20  # mean 50.5, five standard deviations below is 15


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dense", {"batch_size": 1}, "batch_size"),
        ("dense", {"batch_size": 5, "nearest": 5}, "nearest"),
        ("grouped", {"batch_size": 20, "groups": 6}, "groups"),
        ("grouped", {"drawn": 11}, "drawn"),
        ("binary", {"positives": 31}, "positives"),
        ("dense", {"near": 5}, "no setting 'near'"),
        ("desne", {}, "Did you mean 'dense'"),
    ],
)
def test_wrong_settings_are_named(name: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        sampling.get(name, **options)


def test_fewer_items_than_the_batch_is_one_clear_error() -> None:
    with pytest.raises(UserError, match="takes 20 different items, but there are 10"):
        sampling.get("dense", batch_size=20).batch(lists(5, 10), seed=0, step=0)
    with pytest.raises(UserError, match="takes 14 negatives from outside"):
        sampling.get("binary", batch_size=20).batch(lists(30, 40), seed=0, step=0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_batches_of_a_loop_of_ones_own(name: str) -> None:
    sampler = sampling.get(name, **SAMPLERS[name])
    labels = torch.arange(ITEMS)
    batches = sampler.batches("euclidean", labels, seed=3)
    assert len(batches) == sampler.steps_per_epoch(ITEMS)
    assert batches.anchors == (1 if name in ("dense", "binary") else sampler.batch_size)
    epochs = [list(batches), list(batches)]
    for epoch, drawn in enumerate(epochs):
        for step, batch in enumerate(drawn):
            expected = sampler.batch(lists(sampler.neighbors), seed=3, step=epoch * len(batches) + step)
            np.testing.assert_array_equal(batch, expected.items)
    loader = DataLoader(TensorDataset(labels), batch_sampler=sampler.batches("euclidean", labels.tolist(), seed=3))
    for (loaded,), batch in zip(loader, epochs[0], strict=True):
        np.testing.assert_array_equal(loaded, batch)


def own_batches(seed: int = 3, size: int = 12) -> sampling.EpochBatches:
    return sampling.get("grouped", batch_size=size, groups=3).batches("euclidean", torch.arange(ITEMS), seed=seed)


def test_batches_say_what_loaders_ask_for() -> None:
    batches = own_batches()
    assert (batches.batch_size, batches.drop_last) == (12, False)
    first = next(iter(batches))
    assert isinstance(first, list)
    assert all(type(item) is int for item in first)


def test_an_epoch_is_chosen_by_its_number() -> None:
    batches = own_batches()
    epochs = [list(batches) for _ in range(3)]
    for epoch in (2, 0, 1):
        batches.set_epoch(epoch)
        assert list(batches) == epochs[epoch]
    assert list(batches) == epochs[2]
    batches.set_epoch(1)
    next(iter(batches))
    assert list(batches) == epochs[2]  # an iteration that was left early counts
    next(iter(batches))
    batches.set_epoch(1)
    assert list(batches) == epochs[1]
    batches.set_epoch(1, batch=2)
    assert list(batches) == epochs[1][2:]
    assert list(batches) == epochs[2]
    with pytest.raises(UserError, match=r"'epoch' must be a whole number of at least 0\. Got -1"):
        batches.set_epoch(-1)
    with pytest.raises(UserError, match=rf"'batch' must be a whole number in 0\.\.{len(batches)}. Got 99"):
        batches.set_epoch(0, batch=99)


@pytest.mark.parametrize("done", range(12))
def test_batches_continue_where_a_state_was_made(done: int) -> None:
    batches, again = own_batches(), own_batches()
    whole = [batch for _ in range(3) for batch in batches]
    batches.set_epoch(0)
    drawn = iter([])
    for _ in range(done):
        if (batch := next(drawn, None)) is None:  # type: ignore[arg-type]
            drawn = iter(batches)
            batch = next(drawn)
        assert batch is not None
    state = batches.state_dict()
    again.load_state_dict(state)
    assert again.state_dict() == state
    again.set_epoch(done // len(batches))  # as Lightning does before an epoch
    rest = list(again)
    assert rest == whole[done : done + len(rest)]
    assert len(rest) == len(batches) - done % len(batches)
    assert list(again) == whole[done + len(rest) : done + len(rest) + len(batches)] or done >= 2 * len(batches)


def test_a_state_of_other_batches_is_refused() -> None:
    state = own_batches().state_dict()
    with pytest.raises(UserError, match="The state is that of other batches: its 'seed' is 3, not 4"):
        own_batches(seed=4).load_state_dict(state)
    with pytest.raises(UserError, match="its 'batch_size' is 12, not 13"):
        own_batches(size=13).load_state_dict(state)
    for wrong in ({}, {"epoch": 1}, None):
        with pytest.raises(UserError, match="takes the result of their state_dict"):
            own_batches().load_state_dict(wrong)  # type: ignore[arg-type]


def test_batches_of_classes() -> None:
    names = ["cat", "dog", "owl"] * 8
    drawn = list(sampling.get("per-class(batch_size=6, per_class=2)").batches("classes", names))
    assert {len({names[item] for item in batch}) for batch in drawn} == {3}
    with pytest.raises(UserError, match=r"has no classes\. Use label_distance=classes"):
        sampling.get("per-class(batch_size=6)").batches("euclidean", list(range(24)))


def test_what_a_batch_is_drawn_from() -> None:
    labels = distances.get("euclidean").encode(range(50))
    for wrong in (labels, None, [1, 2]):
        for name in ("random", "per-class", "dense"):
            with pytest.raises(UserError, match=r"Got \w+ instead; take sampler.batches\(distance, labels\)"):
                sampling.get(name, batch_size=20).batch(wrong, seed=0, step=0)
    for exchanged in (([1, 2], "euclidean"), ([1, 2], distances.get("euclidean")), ([1, 2],), (labels, lambda a, b: 0)):
        with pytest.raises(UserError, match="batches takes the label distance, then the labels of the training set"):
            sampling.get("random").batches(*exchanged)


def test_examples() -> None:
    assert doctest.testmod(sampler_module).failed == 0
