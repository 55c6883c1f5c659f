"""Every loss over label distances on batches of which few pairs are known, as judged pairs and triples give them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import slow_losses
import torch
from torch import Tensor
from torch.nn import functional

from cml import losses
from cml.losses import LabelDistanceLoss

ITEMS, SCALE = 24, 2.0


def judged(anchors: int = ITEMS, *, alone: int = 3) -> tuple[Tensor, Tensor]:
    """Embeddings, and label distances of a sixth of the pairs; the first anchors have none."""
    generator = torch.Generator().manual_seed(4)
    embeddings = torch.randn(ITEMS, 6, generator=generator, dtype=torch.float64).requires_grad_()
    values = torch.randn(ITEMS, generator=generator, dtype=torch.float64)
    known = torch.rand(ITEMS, ITEMS, generator=generator).triu(1) > 5 / 6
    known[:alone] = known[:, :alone] = False
    distances = (values[:, None] - values).abs().masked_fill(~(known | known.T), torch.inf)
    return embeddings, distances.fill_diagonal_(0)[:anchors]


def contrastive(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    """The mean of the positives' distances that are not 0, and that of the negatives' hinges."""
    f = slow_losses.unit(embeddings)
    near, far = [], []
    for a in range(len(label_distances)):
        for i in slow_losses.usable(label_distances, a, None):
            distance = slow_losses.distance(f[a], f[i])
            (near if label_distances[a, i] <= 1 else far).append(distance)
    hinges = [functional.relu(1 - distance) for distance in far]
    terms = [[term for term in kind if term.item() > 0] for kind in (near, hinges)]
    return sum(torch.stack(kind).mean() for kind in terms if kind)  # type: ignore[return-value]


def binary_triplet(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    known = label_distances.isfinite() & ~torch.eye(ITEMS, dtype=torch.bool)[: len(label_distances)]
    near = label_distances <= 1
    return slow_losses.binary_triplet(embeddings, near & known, ~near & known)


def matryoshka(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    parts = [slow_losses.dense_triplet(embeddings[:, :size], label_distances) for size in (2, 6)]
    return torch.stack(parts).mean()


def weighted_sum(embeddings: Tensor, label_distances: Tensor) -> Tensor:
    dense = slow_losses.dense_triplet(embeddings, label_distances)
    return dense + 0.5 * slow_losses.cosent(embeddings, label_distances, scale=2.0)


# each loss over label distances: how it is written, and the same in plain loops
LOSSES: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "log-ratio": (
        "log-ratio(label_exponent=1.5, floor_quantile=0)",
        lambda f, d: slow_losses.log_ratio(f, d, label_exponent=1.5, weights="rank", normalize=True),
    ),
    "pair-log-ratio": (
        "pair-log-ratio(label_exponent=1.5, floor_quantile=0)",
        lambda f, d: slow_losses.pair_log_ratio(f, d, 1.5, 0),
    ),
    "dense-triplet": ("dense-triplet", slow_losses.dense_triplet),
    "binary-triplet": ("binary-triplet(rule=threshold, distance=1)", binary_triplet),
    "binary": ("binary(loss='contrastive(squared=false)', rule=threshold, distance=1)", contrastive),
    "rank-n-contrast": ("rank-n-contrast", slow_losses.rank_n_contrast),
    "rkd-distance": ("rkd-distance", slow_losses.rkd_distance),
    "relaxed-contrastive": (
        "relaxed-contrastive(label_scale=2.0)",
        lambda f, d: slow_losses.relaxed_contrastive(f, d, label_scale=SCALE, sigma=0.5),
    ),
    "graded-contrastive": (
        "graded-contrastive(label_scale=2.0)",
        lambda f, d: slow_losses.graded_contrastive(f, d, label_scale=SCALE),
    ),
    "generalised-contrastive": (
        "generalised-contrastive(label_reach=2.0, weights=inverse)",
        lambda f, d: slow_losses.generalised_contrastive(f, d, None, SCALE, "inverse"),
    ),
    "soft-target": (
        "soft-target(label_scale=2.0, label_temperature=0.5)",
        lambda f, d: slow_losses.soft_target(f, d, label_temperature=0.5 * SCALE),
    ),
    "kernel-supcon": (
        "kernel-supcon(label_scale=2.0, bandwidth=0.5)",
        lambda f, d: slow_losses.kernel_supcon(f, d, bandwidth=0.5 * SCALE),
    ),
    "cosent": ("cosent(scale=2.0)", lambda f, d: slow_losses.cosent(f, d, scale=2.0)),
    "h-ap": ("h-ap(neighbors=2)", lambda f, d: slow_losses.h_ap(f, d, neighbors=2)),
    "lambda-ndcg": ("lambda-ndcg(neighbors=2)", lambda f, d: slow_losses.lambda_ndcg(f, d, neighbors=2)),
    "sum": ("sum(dense-triplet, 0.5*cosent(scale=2.0))", weighted_sum),
    "matryoshka": ("matryoshka(loss=dense-triplet, dimensions=[2, 6, 9])", matryoshka),
}
every_loss = pytest.mark.parametrize("name", LOSSES)
few_pairs = pytest.mark.filterwarnings("ignore:Some anchors have no positive:RuntimeWarning")


def test_no_loss_is_left_out() -> None:
    mine = {name for name in losses._ENTRIES if losses.registry.entry(name).labels == "label distances"}
    assert mine == set(LOSSES)


@few_pairs
@every_loss
@pytest.mark.parametrize("anchors", [ITEMS, 15])
def test_equals_plain_loops_over_the_known_pairs(name: str, anchors: int) -> None:
    embeddings, label_distances = judged(anchors)
    text, slow = LOSSES[name]
    loss = losses.get(text)
    value = loss(embeddings, label_distances)
    (gradient,) = torch.autograd.grad(value, embeddings)
    true = slow(embeddings, label_distances)
    (true_gradient,) = torch.autograd.grad(true, embeddings)
    assert value.item() == pytest.approx(true.item(), rel=1e-9)
    torch.testing.assert_close(gradient, true_gradient, rtol=1e-7, atol=1e-9)
    assert bool((gradient[:3] == 0).all())  # of items without a known pair
    assert bool((gradient[3:] != 0).any())
    assert loss.skipped_anchors >= 3


@few_pairs
@every_loss
def test_items_without_a_known_pair_change_nothing(name: str) -> None:
    embeddings, label_distances = judged()
    loss = losses.get(LOSSES[name][0])
    value = loss(embeddings, label_distances)
    moved = embeddings.detach().clone()
    moved[:3] *= -100
    assert loss(moved, label_distances).item() == pytest.approx(value.item(), rel=1e-9)
    assert loss(embeddings[3:], label_distances[3:, 3:]).item() == pytest.approx(value.item(), rel=1e-9)


@every_loss
@pytest.mark.parametrize("known", [0, 1])
def test_a_batch_without_known_pairs_is_0_with_a_gradient_of_0_and_a_warning(name: str, known: int) -> None:
    embeddings, _ = judged()
    label_distances = torch.full((ITEMS, ITEMS), torch.inf, dtype=torch.float64).fill_diagonal_(0)
    pairwise = ("rkd-distance", "relaxed-contrastive", "graded-contrastive", "soft-target", "kernel-supcon")
    if known and name not in pairwise:  # these have a term for one pair
        label_distances[3, 7] = 2.0
    loss = losses.get(LOSSES[name][0])
    with pytest.warns(RuntimeWarning, match="its loss is 0 and contributes no gradient"):
        value = loss(embeddings, label_distances)
    value.backward()
    assert value.item() == 0
    assert embeddings.grad is not None
    assert bool((embeddings.grad == 0).all())
    assert loss.skipped_anchors == ITEMS


@few_pairs
@every_loss
def test_constants_are_those_of_the_known_pairs(name: str) -> None:
    _, label_distances = judged()
    plain = losses.get(name, **({"loss": "contrastive"} if name == "binary" else {}))
    assert isinstance(plain, LabelDistanceLoss)
    finite = label_distances[label_distances.isfinite() & ~torch.eye(ITEMS, dtype=torch.bool)]
    ours = plain.fit(label_distances).constants()
    assert ours == pytest.approx(plain.fit(finite).constants())
    assert all(map(math.isfinite, ours.values()))
