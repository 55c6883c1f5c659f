from __future__ import annotations

import doctest
import itertools
import math
import warnings

import pytest
import pytorch_metric_learning.distances as pml_distances
import pytorch_metric_learning.losses as pml_losses
import pytorch_metric_learning.miners as pml_miners
import slow_class_losses as slow
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import cml.losses.binary
import cml.losses.binary_rules
from cml import losses
from cml.errors import UserError
from cml.losses.binary import mine_pairs, pair_indices, triplet_indices
from cml.losses.binary_rules import BinaryPairs, graph, nearest, threshold
from cml.registry import Choice

some_left_out = pytest.mark.filterwarnings("ignore:Some anchors:RuntimeWarning")
CLASSES = torch.tensor([0, 2, 1, 0, 2, 1, 0, 2, 1, 1])


def points(rows: int = 10, columns: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator).requires_grad_()


def apart(classes: Tensor) -> Tensor:
    """The label distances of classes: 0 and 1."""
    return (classes[:, None] != classes).float()


def by_class(classes: Tensor) -> BinaryPairs:
    return threshold(apart(classes), 0.0)


def line(places: list[float]) -> Tensor:
    values = torch.tensor(places)
    return (values[:, None] - values).abs()


# every loss of cml's that goes with a rule, and others of the library, with what computes the same directly
DIRECT = {
    "contrastive(squared=False)": (pml_losses.ContrastiveLoss(), None),
    "triplet(mining=all, squared=False, margin=0.05)": (pml_losses.TripletMarginLoss(), None),
    "triplet(mining=batch-hard, squared=False)": (
        pml_losses.TripletMarginLoss(0.2),
        pml_miners.BatchHardMiner(distance=pml_distances.LpDistance()),
    ),
    "triplet": (
        pml_losses.TripletMarginLoss(0.2, distance=pml_distances.LpDistance(power=2)),
        pml_miners.TripletMarginMiner(0.2, "semihard", distance=pml_distances.LpDistance(power=2)),
    ),
    "lifted-structure": (pml_losses.LiftedStructureLoss(), None),
    "multi-similarity": (pml_losses.MultiSimilarityLoss(), pml_miners.MultiSimilarityMiner()),
    "TripletMarginLoss(margin=0.3, distance=LpDistance(power=2))": (
        pml_losses.TripletMarginLoss(0.3, distance=pml_distances.LpDistance(power=2)),
        None,
    ),
    "NTXentLoss(temperature=0.2)": (pml_losses.NTXentLoss(0.2), None),
    "CircleLoss": (pml_losses.CircleLoss(), None),
    "SupConLoss": (pml_losses.SupConLoss(), None),
    "MarginLoss(beta=0.9)": (pml_losses.MarginLoss(beta=0.9), None),
}


@pytest.mark.parametrize("name", DIRECT)
def test_on_the_label_distances_of_classes_a_rule_gives_the_loss_on_classes(name: str) -> None:
    """A rule that makes the pairs that two classes make, so that the library's own call is the oracle."""
    inner, miner = DIRECT[name]
    for seed in range(3):
        f = points(seed=seed)
        loss = losses.get("binary", loss=name, rule="threshold", distance=0.5)
        value = loss(f, apart(CLASSES))
        expected = inner(f, CLASSES, None if miner is None else miner(f, CLASSES))
        assert value.item() == pytest.approx(expected.item(), rel=1e-6)
        torch.testing.assert_close(
            torch.autograd.grad(value, f), torch.autograd.grad(expected, f), rtol=1e-4, atol=1e-6
        )


@some_left_out
@pytest.mark.parametrize("rule", ["nearest", "graph", "threshold"])
@pytest.mark.parametrize("name", DIRECT)
@pytest.mark.parametrize("anchors", [1, 6, 10])
def test_on_continuous_labels_it_is_the_library_with_the_rules_indices(rule: str, name: str, anchors: int) -> None:
    f = points()
    labels = line([0.1, 2.0, 0.4, 1.0, 3.1, 0.2, 2.2, 5.0, 0.9, 4.0])[:anchors]
    chosen = {"distance": 1.0} if rule == "threshold" else {"k": 2}
    loss = losses.get("binary", loss=name, rule=rule, **chosen)
    pairs = loss.make_pairs(labels)
    assert pairs.positives.any()
    assert pairs.negatives.any()
    if (miner := DIRECT[name][1]) is None:
        every = itertools.product(range(anchors), range(10), range(10))
        found = [(a, p, n) for a, p, n in every if pairs.positives[a, p] and pairs.negatives[a, n]]
        triplets = tuple(torch.tensor(found).T)
        indices = triplets if "riplet" in name else pair_indices(pairs)
    else:
        indices = mine_pairs(miner, f.detach(), pairs)
    assert loss(f, labels).item() == pytest.approx(DIRECT[name][0](f, indices_tuple=indices).item(), rel=1e-6)


def test_indices_are_the_masks() -> None:
    pairs = nearest(line([0.0, 1.0, 2.5, 4.5]), 1)
    a1, p, a2, n = (column.tolist() for column in pair_indices(pairs))
    assert list(zip(a1, p, strict=True)) == [(0, 1), (1, 0), (2, 1), (3, 2)]
    assert sorted(zip(a2, n, strict=True)) == [(0, 2), (0, 3), (1, 2), (1, 3), (2, 0), (2, 3), (3, 0), (3, 1)]
    triplets = list(zip(*(column.tolist() for column in triplet_indices(pairs)), strict=True))
    assert triplets == [(a, q, m) for a, q in zip(a1, p, strict=True) for b, m in zip(a2, n, strict=True) if a == b]


MINERS = {
    "BatchHardMiner()": pml_miners.BatchHardMiner(),
    "BatchEasyHardMiner(pos_strategy=easy, neg_strategy=semihard)": pml_miners.BatchEasyHardMiner(),
    "MultiSimilarityMiner(epsilon=0.2)": pml_miners.MultiSimilarityMiner(0.2),
    "TripletMarginMiner(margin=0.5, type_of_triplets=all)": pml_miners.TripletMarginMiner(0.5),
    "PairMarginMiner(pos_margin=0.4, neg_margin=1.2)": pml_miners.PairMarginMiner(0.4, 1.2),
    "AngularMiner(angle=30)": pml_miners.AngularMiner(30),
}


@pytest.mark.parametrize("name", MINERS)
def test_a_miner_that_sees_one_anchor_at_a_time_picks_what_it_picks_of_classes(name: str) -> None:
    f = points().detach()
    expected = MINERS[name](f, CLASSES)
    found = mine_pairs(MINERS[name], f, by_class(CLASSES))
    assert len(found) == len(expected)
    for half in [slice(0, 2), slice(2, 4)] if len(expected) == 4 else [slice(0, 3)]:
        picked, wanted = (sorted(zip(*(ids.tolist() for ids in part[half]), strict=True)) for part in (found, expected))
        assert picked == wanted
    loss = losses.get("binary", loss="TripletMarginLoss(margin=0.1)", rule="threshold", distance=0.5, miner=name)
    direct = pml_losses.TripletMarginLoss(0.1)(f, CLASSES, expected)
    assert loss(f, apart(CLASSES)).item() == pytest.approx(direct.item(), rel=1e-6)


values = st.sampled_from([0.0, 0.5, 1.0, 2.0, math.inf])


@settings(deadline=None, max_examples=50)
@given(st.integers(2, 7), st.data())
def test_graph_agrees_with_loops(items: int, data: st.DataObject) -> None:
    anchors = data.draw(st.integers(1, items))
    cells = data.draw(st.lists(values, min_size=anchors * items, max_size=anchors * items))
    block = torch.tensor(cells).reshape(anchors, items)
    if bool((block.masked_fill(torch.eye(anchors, items, dtype=torch.bool), math.inf) == math.inf).all(dim=1).any()):
        return  # a row without anything to compare has no k-th neighbour in the loops
    k = data.draw(st.integers(1, items))
    positives, negatives = slow.pairs_by_graph(block, k)
    found = graph(block, k)
    assert found.positives.tolist() == positives
    assert found.negatives.tolist() == negatives


def test_graph_is_symmetric_and_contains_the_nearest() -> None:
    block = line([0.0, 1.0, 3.0, 3.5, 9.0])
    joined = graph(block, 1).positives
    assert torch.equal(joined, joined.T)
    assert bool((joined >= nearest(block, 1).positives).all())
    assert bool(joined[3, 4])
    assert not bool(nearest(block, 1).positives[3, 4])


@some_left_out
def test_quantile_is_fitted_and_saved() -> None:
    f, labels = points(), line([0.1, 2.0, 0.4, 1.0, 3.1, 0.2, 2.2, 5.0, 0.9, 4.0])
    loss = losses.registry.make("binary(loss=contrastive, rule=threshold, quantile=0.2)")
    with pytest.warns(RuntimeWarning, match=r"BinaryLoss was not fitted, so it took 'distance' from"):
        losses.get("binary", loss="contrastive", rule="threshold", quantile=0.2)(f, labels)
    loss.fit(labels[~torch.eye(10, dtype=torch.bool)])
    fitted = loss.constants()["distance"]
    again = losses.registry.make("binary(loss=contrastive, rule=threshold, quantile=0.2)")
    again.load_state_dict(loss.state_dict())
    exact = losses.get("binary", loss="contrastive", rule="threshold", distance=fitted)
    assert again(f, labels).item() == exact(f, labels).item() == loss(f, labels).item()
    assert repr(exact).startswith("BinaryLoss(\n  loss='contrastive', rule='threshold', distance=")


def test_normalisation_is_the_losses() -> None:
    assert losses.get("binary", loss="multi-similarity").normalize
    assert not losses.get("binary", loss="triplet(normalize=False)").normalize
    text = "binary(loss=ContrastiveLoss(distance=LpDistance(normalize_embeddings=False)))"
    assert not losses.registry.make(text).normalize


def test_raw_float_labels_never_reach_a_class_loss() -> None:
    f, ages = points(), torch.rand(10)
    # what cml must never do: the library takes continuous labels for classes of one item each and returns nothing
    assert pml_losses.TripletMarginLoss()(f, ages).item() == 0
    for name in ("triplet", "multi-similarity", "n-pair", "contrastive"):
        with pytest.raises(UserError, match=r"continuous labels.*binary\(loss=triplet, rule=nearest, k=5\)"):
            losses.get(name)(f, ages)
    loss = losses.get("binary", loss="triplet")
    with pytest.raises(UserError, match="numbers, which look like labels"):
        loss(f, ages)
    with pytest.raises(UserError, match="numbers, which look like labels"):
        loss(f, CLASSES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "binary(loss=TripletMargin)",
            r"has no 'TripletMargin' among its losses; the names read like TripletMarginLoss",
        ),
        ("binary(loss=TripletMarginLoss(margn=1))", r"cannot make TripletMarginLoss\(margn=1\): .*margn"),
        ("binary(loss=contrastive, miner=HardMiner)", "has no 'HardMiner' among its miners"),
        ("binary(loss=os)", "has no 'os' among its losses"),
        ("binary(loss=proxy-anchor)", "'proxy-anchor' cannot be computed from pairs. A rule takes contrastive"),
        ("binary(loss=n-pair)", "'n-pair' cannot be computed from pairs"),
        ("binary(loss=log-ratio)", "'log-ratio' cannot be computed from pairs"),
        ("binary(loss=NPairsLoss)", r"'NPairsLoss' cannot be computed from pairs alone .*labels are required"),
        ("binary(loss=FastAPLoss)", "'FastAPLoss' cannot be computed from pairs alone"),
        ("binary(loss=ArcFaceLoss(num_classes=3, embedding_size=2))", "cannot be computed from pairs alone"),
        ("binary(loss=triplet(mining=hardest))", "'mining' must be one of"),
        ("binary(loss=triplet, rule=closest)", "'rule' must be one of threshold, nearest, graph. Got 'closest'"),
        ("binary(loss=triplet, rule=graph, distance=1)", "The rule 'graph' has no distance"),
        ("binary(loss=triplet, rule=threshold)", "needs either a distance or a quantile"),
        ("binary(loss=triplet, k=0)", "whole number of at least 1. Got 0"),
        ("binary", "needs the setting 'loss'"),
        ("binary(loss=triplet, rules=nearest)", "no setting 'rules'"),
    ],
)
def test_wrong_settings_are_one_clear_error(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        losses.registry.make(text)


def test_anchors_without_a_positive_or_a_negative_are_counted_and_said() -> None:
    f = points(4)
    loss = losses.get("binary", loss="triplet(mining=all)", rule="threshold", distance=1.0)
    with pytest.warns(RuntimeWarning, match="Some anchors have no positive or no negative"):
        loss(f, line([0.0, 0.5, 5.0, 9.0]))
    assert loss.skipped_anchors == 2
    for places in ([0.0, 0.1, 0.2, 0.3], [0.0, 5.0, 10.0, 15.0]):
        with pytest.warns(RuntimeWarning, match="No anchor of the batch has both a positive and a negative"):
            value = loss(f, line(places))
        (gradient,) = torch.autograd.grad(value, f)
        assert value.item() == 0
        assert not gradient.any()
    assert loss.skipped_anchors == 2 + 4 + 4
    with_miner = losses.get("binary", loss="multi-similarity", rule="threshold", distance=1.0)
    with pytest.warns(RuntimeWarning, match="No anchor of the batch"):
        assert with_miner(f, line([0.0, 5.0, 10.0, 15.0])).item() == 0


def test_random_numbers_are_left_alone_by_making_a_loss() -> None:
    before = torch.get_rng_state()
    losses.get("binary", loss="TripletMarginLoss(triplets_per_anchor=2)", miner="DistanceWeightedMiner")
    assert torch.equal(before, torch.get_rng_state())


def test_a_choice_in_a_choice_is_read_back() -> None:
    text = (
        "binary(loss=multi-similarity(beta=40), miner=PairMarginMiner(distance=LpDistance(power=2)), rule=graph, k=3)"
    )
    choice = Choice.parse(text)
    assert choice.settings["loss"] == "multi-similarity(beta=40)"
    assert Choice.parse(str(choice)) == choice
    assert Choice.parse("captions(vectors=glove-6b-50d)").settings == {"vectors": "glove-6b-50d"}
    assert Choice.parse("a(x=1e-5, y='a-b', z=\"c-d(e=1)\")").settings == {"x": 1e-5, "y": "a-b", "z": "c-d(e=1)"}
    for wrong in ("a(b=c(1))", "a(b=c(**d))", "a(b=c.d(e=1))", "a(b=5-3)", "a(b=c(d=1, d=2))"):
        with pytest.raises(UserError):
            Choice.parse(wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert losses.registry.make(text)(points(), line([float(place) for place in range(10)])).isfinite()


@pytest.mark.parametrize("module", [cml.losses.binary, cml.losses.binary_rules])
def test_examples(module: object) -> None:
    failed, tried = doctest.testmod(module)  # type: ignore[arg-type]
    assert tried > 0
    assert failed == 0
