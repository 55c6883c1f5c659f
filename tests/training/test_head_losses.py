"""Losses of many heads, evaluated together, are those of each head alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from cml import losses
from cml.comparing.bench.methods import METHODS
from cml.comparing.search_space import with_settings
from cml.distances.precomputed import Precomputed
from cml.losses.loss import Loss
from cml.training.config import TrainConfig
from cml.training.head_losses import HeadLosses, stack_heads, stack_key

ITEMS = 40
ALONE = ("dense-triplet", "binary-threshold", "binary-nearest", "lambda-ndcg", "regression")


def label_distances(*, ties: bool) -> np.ndarray:
    points = np.random.default_rng(0).normal(size=(ITEMS, 2))
    points = np.round(points) if ties else points
    return np.linalg.norm(points[:, None] - points, axis=2).astype(np.float32)


def fitted(name: str, *, ties: bool) -> Sequence[Loss]:
    """The losses of the first trials of a method of the benchmark."""
    method, distance = METHODS[name], Precomputed(label_distances(ties=ties), symmetric=True)
    texts = [with_settings(TrainConfig(loss=method.loss), method.settings(number, "A")).loss for number in range(8)]
    made = [losses.get(text) for text in texts]
    for loss in made:
        if loss.labels == "label distances":
            loss.fit(distance, range(ITEMS))
    return made


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_stacked_losses_have_the_values_and_slopes_of_each(name: str, ties: bool) -> None:
    every = fitted(name, ties=ties)
    key = stack_key(every[0])
    if key is None:
        assert name in ALONE
        return
    alike = [loss for loss in every if stack_key(loss) == key]
    block = torch.from_numpy(label_distances(ties=ties)[:12, :12])
    torch.manual_seed(0)
    points = torch.randn(len(alike), 12, 4).requires_grad_()
    values = stack_heads(alike)(points, block)
    (slopes,) = torch.autograd.grad(values.sum(), points)
    together = HeadLosses(alike).slopes(points.detach().clone(), block, None)
    torch.testing.assert_close(together, slopes, rtol=1e-5, atol=1e-6)
    for head, loss in enumerate(alike):
        own = points[head].detach().clone().requires_grad_()
        value = loss(own, block)
        (wanted,) = torch.autograd.grad(value, own)
        torch.testing.assert_close(values[head], value, rtol=2e-6, atol=1e-7)
        torch.testing.assert_close(slopes[head], wanted, rtol=1e-5, atol=1e-6)


def test_a_head_that_fails_leaves_the_others() -> None:
    heads = HeadLosses([*fitted("log-ratio", ties=False)[:1], "The labels are no vectors."])
    points = torch.randn(2, 12, 4)
    points[1] = torch.nan
    slopes = heads.slopes(points, torch.from_numpy(label_distances(ties=False)[:12, :12]), None)
    assert heads.failed == ["", "The labels are no vectors."]
    assert slopes[0].abs().sum() > 0
    assert not slopes[1].any()
