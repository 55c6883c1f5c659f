"""The dense and the binary triplet loss against plain loops, and the binary rules."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import slow_losses
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cml import losses
from cml.errors import UserError
from cml.losses.binary_rules import BinaryPairs, nearest, threshold
from cml.losses.binary_triplet import BinaryTripletLoss
from cml.losses.closed_form import RowTerms, slopes_by_autograd
from cml.losses.dense_triplet import DenseTripletLoss, hinges_by_counting, ordered_hinges

some_left_out = pytest.mark.filterwarnings("ignore:Some anchors have no positive:RuntimeWarning")
TYPES = [(torch.float32, 1e-6), (torch.float64, 1e-12)]


def batch(anchors: int, items: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Embeddings and symmetric label distances of random items."""
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(items, 4, generator=generator).to(dtype)
    values = torch.randn(items, 2, generator=generator).double()
    label_distances = (values[:anchors, None] - values).square().sum(dim=2).to(dtype)
    return embeddings.requires_grad_(), label_distances


def dense_triplet_loss(embeddings: Tensor, label_distances: Tensor, **chosen: Any) -> Tensor:  # noqa: ANN401
    value: Tensor = DenseTripletLoss(**chosen)(embeddings, label_distances)
    return value


def binary_triplet_loss(embeddings: Tensor, *pairs: Tensor, **chosen: Any) -> Tensor:  # noqa: ANN401
    return BinaryTripletLoss(**chosen).mean_of_pairs(embeddings, BinaryPairs(*pairs)).loss


def both_ways(squared: Tensor, order: Tensor, margin: float) -> tuple[RowTerms, RowTerms]:
    """The terms by counting, and pair by pair, three anchors at a time."""

    def values(squared: Tensor, order: Tensor, used: Tensor) -> tuple[Tensor, Tensor]:
        return ordered_hinges(squared, order, used, margin)

    slow = slopes_by_autograd(values, squared, order, order.isfinite(), number_bytes=20 << 20)
    return hinges_by_counting(squared, order, order.isfinite(), margin), slow


def value_and_gradient(loss: Tensor, embeddings: Tensor) -> tuple[float, Tensor]:
    (gradient,) = torch.autograd.grad(loss, embeddings)
    return loss.item(), gradient.double()


def assert_same(loss: Tensor, embeddings: Tensor, slow: Tensor, exact: Tensor, bar: float) -> None:
    value, gradient = value_and_gradient(loss, embeddings)
    true, true_gradient = value_and_gradient(slow, exact)
    assert value == pytest.approx(true, rel=bar)
    assert float((gradient - true_gradient).norm() / true_gradient.norm()) < bar


@some_left_out
@pytest.mark.parametrize(("dtype", "bar"), TYPES)
@pytest.mark.parametrize("chosen", [{}, {"margin": 2.0, "normalize": False}], ids=str)
@pytest.mark.parametrize("anchors", [9, 1])
def test_binary_equals_enumerated_triplets(
    anchors: int, dtype: torch.dtype, bar: float, chosen: dict[str, Any]
) -> None:
    embeddings, _ = batch(anchors, 9, dtype=dtype)
    draw = torch.rand(anchors, 9, generator=torch.Generator().manual_seed(2))
    positives, negatives = draw < 0.3, draw > 0.5
    loss = binary_triplet_loss(embeddings, positives, negatives, **chosen)
    exact = embeddings.detach().double().requires_grad_()
    assert_same(loss, embeddings, slow_losses.binary_triplet(exact, positives, negatives, **chosen), exact, bar)


@given(
    distance=st.lists(st.integers(0, 6), min_size=20, max_size=20),
    order=st.lists(st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf]), min_size=20, max_size=20),
    margin=st.integers(0, 3),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
@settings(deadline=None, max_examples=50)
def test_counting_equals_pair_by_pair(distance: list[int], order: list[float], margin: int, dtype: torch.dtype) -> None:
    squared = torch.tensor(distance, dtype=dtype).view(2, 10) / 4  # ties, also of distance and distance + margin
    places = torch.tensor(order, dtype=dtype).view(2, 10)
    fast, slow = both_ways(squared, places, margin / 4)
    assert torch.equal(fast.values, slow.values)
    assert torch.equal(fast.counts, slow.counts)
    assert torch.equal(fast.slopes, slow.slopes)


@pytest.mark.parametrize("columns", [63, 64, 65, 300])
def test_counting_over_several_buckets(columns: int) -> None:
    generator = torch.Generator().manual_seed(columns)
    squared = torch.rand(7, columns, generator=generator, dtype=torch.float64)
    places = (torch.rand(7, columns, generator=generator, dtype=torch.float64) * 50).round()
    fast, slow = both_ways(squared, places, 0.1)
    torch.testing.assert_close(fast.values, slow.values, rtol=1e-12, atol=0)
    assert torch.equal(fast.counts, slow.counts)
    assert torch.equal(fast.slopes, slow.slopes)


@some_left_out
def test_binary_is_dense_for_label_distances_of_two_values() -> None:
    embeddings, label_distances = batch(10, 10)
    positives, negatives = threshold(label_distances, 1.0)
    two = torch.where(label_distances <= 1.0, 0.5, 1.5).double().fill_diagonal_(0)
    loss = binary_triplet_loss(embeddings, positives, negatives)
    assert_same(loss, embeddings, dense_triplet_loss(embeddings, two, margin=0.2), embeddings, 1e-12)


def test_threshold() -> None:
    label_distances = torch.tensor([[0.0, 1.0, 2.0, math.inf], [1.0, 0.0, 1.5, 0.5]])
    positives, negatives = threshold(label_distances, 1.0)
    assert positives.tolist() == [[False, True, False, False], [True, False, False, True]]
    assert negatives.tolist() == [[False, False, True, False], [False, False, True, False]]


def test_nearest_takes_all_that_tie_with_the_last() -> None:
    label_distances = torch.tensor([[0.0, 3.0, 1.0, 1.0, 2.0, math.inf], [5.0, 0.0, 2.0, 2.0, 1.0, 9.0]])
    positives, negatives = nearest(label_distances, 1)
    assert positives.int().tolist() == [[0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 0]]
    assert negatives.int().tolist() == [[0, 1, 0, 0, 1, 0], [1, 0, 1, 1, 0, 1]]
    assert not nearest(label_distances, 5).negatives[0].any()  # only 4 are comparable


def test_nearest_in_the_batch_finds_the_authors_sets() -> None:
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(1000, generator=generator, dtype=torch.float64)
    to_first = (values - values[0]).abs().argsort()[1:]
    five = to_first[:30][torch.randperm(30, generator=generator)[:5]]
    others = to_first[30:][torch.randperm(969, generator=generator)[:144]]
    items = torch.cat([torch.tensor([0]), five, others])
    positives, negatives = nearest((values[items] - values[0]).abs()[None], 5)
    assert positives[0].nonzero().flatten().tolist() == [1, 2, 3, 4, 5]
    assert int(positives.sum() * negatives.sum()) == 720


@some_left_out
def test_binary_module_follows_its_rule() -> None:
    embeddings, label_distances = batch(10, 10)
    by_nearest = losses.get("binary-triplet", rule="nearest", k=3)
    expected = binary_triplet_loss(embeddings, *nearest(label_distances, 3))
    assert by_nearest(embeddings, label_distances).item() == expected.item()
    by_quantile = losses.get("binary-triplet", rule="threshold", quantile=0.3, margin=0.1, normalize=False)
    sample = label_distances[~torch.eye(10, dtype=torch.bool)]
    with pytest.warns(RuntimeWarning, match=r"BinaryTripletLoss was not fitted, so it took 'distance' from"):
        losses.get("binary-triplet", rule="threshold", quantile=0.3)(embeddings, label_distances)
    by_quantile.fit(torch.cat([sample, torch.tensor([torch.inf])]))
    distance = float(np.quantile(sample.numpy(), 0.3))
    assert by_quantile.constants() == {"distance": distance}
    file = io.BytesIO()
    torch.save(by_quantile.state_dict(), file)
    file.seek(0)
    loaded = BinaryTripletLoss(rule="threshold", quantile=0.3, margin=0.1, normalize=False)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    by_distance = BinaryTripletLoss(rule="threshold", distance=distance, margin=0.1, normalize=False)
    assert loaded(embeddings, label_distances).item() == by_distance(embeddings, label_distances).item()
    assert by_distance.constants() == {}
    assert "distance=" in repr(by_distance)
    assert "margin=0.03" in repr(losses.get("dense-triplet"))


def test_anchors_without_positive_or_negative_are_left_out_counted_and_said() -> None:
    embeddings, label_distances = batch(4, 6)
    label_distances[0] = 0.1  # positives alone
    label_distances[1] = 9  # negatives alone
    label_distances[2:, :3], label_distances[2:, 3:] = 0.1, 9
    label_distances.fill_diagonal_(0)
    module = BinaryTripletLoss(rule="threshold", distance=1.0)
    with pytest.warns(RuntimeWarning, match="Some anchors have no positive or no negative"):
        value = module(embeddings, label_distances)
    positives, negatives = threshold(label_distances, 1.0)
    assert value.item() == pytest.approx(slow_losses.binary_triplet(embeddings, positives, negatives).item(), rel=1e-12)
    assert module.skipped_anchors == 2
    with pytest.warns(RuntimeWarning, match="No anchor of the batch has both"):
        loss = module(embeddings, torch.full_like(label_distances, 9).fill_diagonal_(0))
    assert_no_gradient(loss, embeddings)
    assert module.skipped_anchors == 6


def test_dense_without_a_pair_is_zero_with_a_warning() -> None:
    embeddings, label_distances = batch(2, 2)
    for labels in (label_distances, 1 - torch.eye(2)):
        with pytest.warns(RuntimeWarning, match="No anchor of the batch has two items of different"):
            loss = dense_triplet_loss(embeddings, labels)
        assert_no_gradient(loss, embeddings)
    module = DenseTripletLoss()
    with pytest.warns(RuntimeWarning, match="No anchor"):
        module(embeddings, label_distances)
    assert module.skipped_anchors == 2


def assert_no_gradient(loss: Tensor, embeddings: Tensor) -> None:
    (gradient,) = torch.autograd.grad(loss, embeddings)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros_like(embeddings))


def test_not_a_number_is_not_hidden() -> None:
    embeddings, label_distances = batch(5, 5)
    broken = embeddings.detach().clone()
    broken[2, 1] = torch.nan
    assert dense_triplet_loss(broken, label_distances).isnan()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"rule": "closest"}, "'rule' must be one of threshold, nearest, graph. Got 'closest'"),
        ({"rule": "nearest", "k": 0}, "whole number of at least 1. Got 0"),
        ({"rule": "nearest", "k": 2.5}, "whole number of at least 1. Got 2.5"),
        ({"rule": "nearest", "distance": 1.0}, "'nearest' has no distance"),
        ({"rule": "threshold"}, "either a distance or a quantile"),
        ({"rule": "threshold", "distance": 1.0, "quantile": 0.1}, "either a distance or a quantile"),
        ({"rule": "threshold", "distance": 1.0, "k": 3}, "no k"),
        ({"rule": "threshold", "distance": -1.0}, "'distance' must be a finite number at least 0. Got -1.0"),
        ({"rule": "threshold", "quantile": 1.0}, "'quantile' must be a finite number at least 0 and below 1"),
        ({"rule": "nearest", "margin": -0.1}, "'margin' must be a finite number at least 0. Got -0.1"),
    ],
    ids=str,
)
def test_settings_out_of_range(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BinaryTripletLoss(**chosen)


def test_wrong_arguments() -> None:
    embeddings, label_distances = batch(4, 4)
    with pytest.raises(UserError, match="'margin'"):
        DenseTripletLoss(margin=-1)
    with pytest.raises(UserError, match="one column per embedding"):
        dense_triplet_loss(embeddings[:3], label_distances)
    with pytest.raises(UserError, match=r"at most the batch's 4. Got 5"):
        BinaryTripletLoss(k=5)(embeddings, label_distances)
    with pytest.raises(UserError, match="no finite one"):
        BinaryTripletLoss(rule="threshold", quantile=0.1).fit(torch.tensor([torch.inf]))
