"""The samplers over judged pairs and triplets: every judgement comes once an epoch, and batches are full of them."""

from __future__ import annotations

import numpy as np
import pytest

from cml import PairJudgements, TripletJudgements, sampling
from cml.errors import UserError

RNG = np.random.default_rng(0)
FIRST, SECOND = np.triu_indices(300, 1)
CHOSEN = RNG.choice(len(FIRST), 450, replace=False)  # of 44,850 pairs
TABLE = np.column_stack([FIRST[CHOSEN], SECOND[CHOSEN], RNG.random(450)])
JUDGED = PairJudgements(TABLE, 300)
TRIPLETS = TripletJudgements(np.array([RNG.choice(60, 3, replace=False) for _ in range(200)]), 60)


def test_every_pair_comes_once_an_epoch() -> None:
    sampler = sampling.PairsSampler(batch_size=60)
    batches = sampler.batches("judged-pairs", list(JUDGED))
    assert len(batches) == 15
    known = set(zip(JUDGED.first.tolist(), JUDGED.second.tolist(), strict=True))
    for _ in range(2):
        met = set()
        for items in batches:
            assert len(items) == len(set(items)) <= 60
            within = {(i, j) for i in items for j in items if (i, j) in known}
            assert len(within) >= 30 - 1
            met |= within
        assert met == known


def test_a_weight_is_a_frequency() -> None:
    pairs = np.column_stack([np.arange(0, 40, 2), np.arange(1, 40, 2), np.ones(20), [5] * 5 + [1] * 15])
    batches = sampling.PairsSampler(batch_size=4).batches("judged-pairs", list(PairJudgements(pairs, 40)))
    counts = np.zeros(40)
    for _ in range(60):
        for items in batches:
            counts[items] += 1
    assert counts[:10].mean() / counts[10:].mean() == pytest.approx(5, rel=0.15)


def test_linked_batches_hold_more_pairs_than_random_ones() -> None:
    known = np.zeros((300, 300), bool)
    known[JUDGED.first, JUDGED.second] = True
    counts = {}
    for name in ("linked", "random"):
        batches = sampling.get(name, batch_size=32).batches("judged-pairs", list(JUDGED))
        found = [known[np.ix_(items, items)].sum() for items in batches]
        assert all(len(set(items)) == 32 for items in batches)
        counts[name] = np.mean(found)
    assert counts["linked"] > 29  # nearly every item brings a pair
    assert counts["linked"] > 4 * counts["random"]


def test_every_triplet_comes_once_an_epoch() -> None:
    batches = sampling.TripletsSampler(batch_size=30).batches("judged-triplets", list(TRIPLETS))
    assert len(batches) == -(-len(TRIPLETS.triplets) // 10)
    met = set()
    for items in batches:
        assert len(items) <= 30
        met |= {t for t in map(tuple, TRIPLETS.triplets.tolist()) if set(t) <= set(items)}
    assert len(met) == len(TRIPLETS.triplets)


@pytest.mark.parametrize("name", ["pairs", "linked", "triplets"])
def test_batches_depend_on_seed_and_step_alone(name: str) -> None:
    labels = list(TRIPLETS if name == "triplets" else JUDGED)
    distance = "judged-triplets" if name == "triplets" else "judged-pairs"
    first, again, other = (
        [list(items) for items in sampling.get(name, batch_size=12).batches(distance, labels, seed=seed)]
        for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("name", "distance", "labels", "said"),
    [
        ("pairs", "euclidean", list(range(9)), "draw from judged pairs, but 'euclidean' gives the distance"),
        ("linked", "judged-pairs", [["0", "7 1"], ["1"]], "No pair of the 2 training items was judged"),
        ("triplets", "judged-pairs", list(JUDGED), "take judged triplets. Got labels of 'judged-pairs' instead"),
        ("triplets", "judged-triplets", [["0", "1 2"], ["1"]], "No triplet is of three of the 2 training items"),
    ],
)
def test_labels_that_do_not_fit(name: str, distance: str, labels: list[object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        sampling.get(name).batches(distance, labels)


def test_too_few_items_and_too_small_batches() -> None:
    with pytest.raises(UserError, match=r"A triplet takes 3 items\. Got 2 training items instead"):
        sampling.TripletsSampler().check_count(2)
    with pytest.raises(UserError, match=r"A pair takes 2 items\. Got 1 training items instead"):
        sampling.PairsSampler().check_count(1)
    with pytest.raises(UserError, match=r"The 'batch_size' of triplets must be at least 3\. Got 2 instead"):
        sampling.TripletsSampler(batch_size=2)
