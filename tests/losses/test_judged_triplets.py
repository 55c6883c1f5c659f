"""The loss over judged triplets: its formula, its flip rate, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
import slow_losses
import torch

from cml import losses
from cml.errors import UserError
from cml.losses import LogisticTripletLoss

TRIPLETS = torch.tensor([[0, 1, 2, 1], [3, 5, 4, 2], [8, 6, 7, 1], [0, 4, 1, 3]])


def points(items: int = 9) -> torch.Tensor:
    return torch.randn(items, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def logistic_triplet_loss(
    embeddings: torch.Tensor, triplets: torch.Tensor, *, normalize: bool = False, **given: float
) -> torch.Tensor:
    """The loss as if it had learned a scale and a flip rate."""

    learned = {
        name: property(lambda _, value=value: torch.tensor(value, dtype=torch.float64)) for name, value in given.items()
    }
    value: torch.Tensor = type("Learned", (LogisticTripletLoss,), learned)(normalize)(embeddings, triplets)
    return value


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize(("scale", "flip_rate"), [(1.0, 0.0), (0.7, 0.2), (3.0, 0.5)])
def test_equals_plain_loops(scale: float, flip_rate: float, normalize: bool) -> None:
    embeddings = points().requires_grad_()
    value = logistic_triplet_loss(embeddings, TRIPLETS, scale=scale, flip_rate=flip_rate, normalize=normalize)
    true = slow_losses.logistic_triplet(embeddings, TRIPLETS, scale, flip_rate, normalize)
    assert value.item() == pytest.approx(true.item(), rel=1e-12)
    ours, exact = (torch.autograd.grad(each, embeddings, retain_graph=True)[0] for each in (value, true))
    torch.testing.assert_close(ours, exact, rtol=1e-9, atol=1e-12)
    options = {"scale": scale, "flip_rate": flip_rate}
    assert torch.autograd.gradcheck(lambda f: logistic_triplet_loss(f, TRIPLETS, **options), embeddings)


def test_a_triplet_without_a_count_counts_once_and_a_wrong_one_is_bounded() -> None:
    once = TRIPLETS.clone()
    once[:, 3] = 1
    sure = {"scale": 1, "flip_rate": 0}
    without = logistic_triplet_loss(points(), once[:, :3], **sure)
    assert without.item() == logistic_triplet_loss(points(), once, **sure).item()
    line = torch.tensor([[0.0], [1e-3], [1e3]])
    wrong = torch.tensor([[0, 2, 1]])
    assert logistic_triplet_loss(line, wrong, **sure).item() > 10
    bounded = logistic_triplet_loss(line, wrong, scale=1, flip_rate=0.1)
    assert bounded.item() == pytest.approx(-np.log(0.1), rel=1e-3)


@pytest.mark.timeout(120)
def test_the_flip_rate_of_planted_flips_is_learned() -> None:
    rng = np.random.default_rng(0)
    places = rng.normal(size=(60, 2))
    drawn = np.array([rng.choice(60, 3, replace=False) for _ in range(4000)])
    anchor, one, other = drawn.T
    apart = np.linalg.norm(places[anchor] - places[one], axis=1) > np.linalg.norm(
        places[anchor] - places[other], axis=1
    )
    swapped = apart ^ (rng.random(4000) < 0.2)
    triplets = torch.tensor(np.stack([anchor, np.where(swapped, other, one), np.where(swapped, one, other)], axis=1))
    loss = LogisticTripletLoss()
    before = loss.flip_rate.item()
    head = torch.tensor(places + 0.3 * rng.normal(size=places.shape), dtype=torch.float32).requires_grad_()
    optimizer = torch.optim.Adam([head, *loss.parameters()], 0.02)
    for _ in range(300):
        optimizer.zero_grad()
        loss(head, triplets).backward()
        optimizer.step()
    assert before == pytest.approx(0.06, abs=0.01)
    assert loss.flip_rate.item() == pytest.approx(0.2, abs=0.04)


def test_a_batch_without_triplets_is_0_with_a_warning() -> None:
    embeddings = points().requires_grad_()
    loss = LogisticTripletLoss()
    with pytest.warns(RuntimeWarning, match="a judged triplet within the batch"):
        value = loss(embeddings, TRIPLETS[:0])
    value.backward()
    assert value.item() == 0
    assert embeddings.grad is not None
    assert bool((embeddings.grad == 0).all())
    assert loss.skipped_anchors == 9


@pytest.mark.parametrize(
    ("triplets", "said"),
    [
        (TRIPLETS.float(), r"The 'triplets' must be whole numbers \(T, 3\).* Got shape \(4, 4\), torch.float32"),
        (TRIPLETS[:, :2], r"Got shape \(4, 2\), torch.int64 instead"),
        (TRIPLETS + 5, "The 'triplets' must name rows of the 9 embeddings. Got 5 to 13 instead."),
    ],
)
def test_refuses_other_triplets(triplets: torch.Tensor, said: str) -> None:
    with pytest.raises(UserError, match=said):
        LogisticTripletLoss()(points(), triplets)


def test_refuses_a_training_set_without_triplets() -> None:
    with pytest.raises(UserError, match=r"needs triplets of three training items\. Got none"):
        losses.get("logistic-triplet").prepare(TRIPLETS[:0], dimension=4)
