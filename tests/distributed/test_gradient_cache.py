"""Gradient-cached batches against the direct way, and against all parts held at once where the two must differ."""

from __future__ import annotations

import doctest
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import cml
from cml import losses
from cml.distributed import gradient_cache
from cml.errors import UserError
from cml.option_types import check_options
from cml.training.config import TrainConfig
from cml.training.optimizer import check_optimizer

CONFIG = TrainConfig(
    backbone="small-cnn", weights="none", image_size=(16, 16), dimension=8, sampler="random(batch_size=16)", steps=4,
    workers=0,
)  # fmt: skip


def bars(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of a bright bar, labelled with its place."""
    places = np.random.default_rng(0).uniform(2, 14, count)
    images = 255 * np.exp(-((np.arange(16)[None, :] - places[:, None]) ** 2) / 4)
    return np.tile(images[:, None, :, None], (1, 16, 1, 3)).astype(np.uint8), places


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def network(*between: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 32), *between, nn.ReLU(), nn.Linear(32, 4))


def batch(items: int = 22) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """Inputs, and the loss of their embeddings."""
    generator = torch.Generator().manual_seed(0)
    inputs, values = torch.randn(items, 6, generator=generator), torch.rand(items, 1, generator=generator)
    label_distances = torch.cdist(values, values)
    loss = losses.get("log-ratio", label_exponent=1.0, floor_quantile=0.0)
    return inputs, lambda embeddings: loss(embeddings, label_distances)


def gradients(model: nn.Module) -> Tensor:
    found = [one.grad for one in model.parameters()]
    assert all(one is not None for one in found)
    return torch.cat([one.flatten() for one in found if one is not None])


def relative(found: Tensor, true: Tensor) -> float:
    return float((found - true).norm() / true.norm())


def parts_held_at_once(
    model: nn.Module, inputs: Tensor, loss: Callable[[Tensor], Tensor], parts: int
) -> tuple[Tensor, Tensor]:
    """What the gradient cache should give: every part goes through once, and all graphs are kept."""
    embeddings = torch.cat([model(piece) for piece in inputs.tensor_split(parts)])
    value = loss(embeddings)
    value.backward()
    return value.detach(), embeddings.detach()


@pytest.mark.parametrize("fixed", [False, True], ids=["no batch norm", "fixed batch norm"])
@pytest.mark.parametrize(("dtype", "bar"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("micro_batch", [1, 4, 21])
def test_gradients_are_those_of_the_direct_way(micro_batch: int, dtype: torch.dtype, bar: float, fixed: bool) -> None:
    inputs, loss = batch()
    inputs = inputs.to(dtype)
    cached, direct = (network(*([nn.BatchNorm1d(32).eval()] if fixed else [])).to(dtype) for _ in range(2))
    value, embeddings = gradient_cache.backward(cached, loss, inputs, micro_batch=micro_batch)
    true, true_embeddings = gradient_cache.backward(direct, loss, inputs)
    assert value.item() == pytest.approx(true.item(), rel=bar)
    torch.testing.assert_close(embeddings, true_embeddings)
    assert relative(gradients(cached), gradients(direct)) < bar
    assert not value.requires_grad
    assert not embeddings.requires_grad


@pytest.mark.parametrize("micro_batch", [None, 22, 100])
def test_one_micro_batch_is_the_direct_way_bit_for_bit(micro_batch: int | None) -> None:
    inputs, loss = batch()
    cached, direct = network(nn.BatchNorm1d(32), nn.Dropout(0.5)), network(nn.BatchNorm1d(32), nn.Dropout(0.5))
    torch.manual_seed(5)
    value, embeddings = gradient_cache.backward(cached, loss, inputs, micro_batch=micro_batch)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    true_embeddings = direct(inputs)
    true = loss(true_embeddings)
    true.backward()
    assert value.item() == true.item()
    assert torch.equal(embeddings, true_embeddings)
    assert torch.equal(gradients(cached), gradients(direct))
    assert same(cached.state_dict(), direct.state_dict())
    assert torch.equal(after, torch.get_rng_state())


def test_dropout_draws_the_same_in_both_passes_and_batch_norm_moves_once() -> None:
    inputs, loss = batch()
    cached, held = network(nn.BatchNorm1d(32), nn.Dropout(0.5)), network(nn.BatchNorm1d(32), nn.Dropout(0.5))
    torch.manual_seed(5)
    value, embeddings = gradient_cache.backward(cached, loss, inputs, micro_batch=6)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    true, true_embeddings = parts_held_at_once(held, inputs, loss, 4)
    assert value.item() == true.item()
    assert torch.equal(embeddings, true_embeddings)
    assert relative(gradients(cached), gradients(held)) < 1e-6
    assert same(cached.state_dict(), held.state_dict())  # running statistics, and how many batches they have seen
    assert cached[1].num_batches_tracked == 4  # type: ignore[index]
    assert torch.equal(after, torch.get_rng_state())


def test_the_network_never_holds_a_graph_of_more_than_a_micro_batch() -> None:
    inputs, loss = batch()
    model = network()
    seen: list[tuple[int, bool]] = []
    model.register_forward_pre_hook(lambda _, given: seen.append((len(given[0]), torch.is_grad_enabled())))
    gradient_cache.backward(model, loss, inputs, micro_batch=5)
    sizes = [5, 5, 4, 4, 4]  # 22 items in as few parts as go, as equal as they go
    assert seen == [(size, False) for size in sizes] + [(size, True) for size in sizes]


def test_under_autocast_as_direct() -> None:
    inputs, loss = batch()
    cached, direct = network(), network()

    def cast() -> torch.autocast:
        return torch.autocast("cpu", torch.bfloat16)

    value, embeddings = gradient_cache.backward(cached, loss, inputs, micro_batch=6, cast=cast)
    true, _ = gradient_cache.backward(direct, loss, inputs, cast=cast)
    assert embeddings.dtype == torch.float32
    assert value.item() == pytest.approx(true.item(), rel=1e-2)
    assert relative(gradients(cached), gradients(direct)) < 0.02


def test_parameters_of_the_loss_learn_too() -> None:
    inputs, _ = batch()
    cached, direct = network(), network()
    proxies = [nn.Parameter(torch.ones(3, 4)) for _ in range(2)]
    gradient_cache.backward(cached, lambda f: (f @ proxies[0].T).logsumexp(1).sum(), inputs, micro_batch=6)
    gradient_cache.backward(direct, lambda f: (f @ proxies[1].T).logsumexp(1).sum(), inputs)
    assert proxies[0].grad is not None
    assert proxies[1].grad is not None
    torch.testing.assert_close(proxies[0].grad, proxies[1].grad)
    torch.testing.assert_close(gradients(cached), gradients(direct))


def test_the_check_for_forgotten_parameters_ends_at_the_embeddings() -> None:
    model, forgotten = network(), nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    embeddings = torch.randn(5, 4, requires_grad=True)
    check_optimizer(optimizer, embeddings.sum(), losses.get("cosent"), embeddings)
    with pytest.raises(UserError, match=r"tensor of shape \(4,\) that no optimiser holds"):
        check_optimizer(optimizer, (embeddings * forgotten).sum(), losses.get("cosent"), embeddings)


@pytest.mark.filterwarnings("ignore:The network has batch normalisation")
def test_runs_with_one_micro_batch_are_bit_for_bit_those_without() -> None:
    images, places = bars()
    config = replace(CONFIG, memory=20)
    plain, one, several = (
        cml.fit(images, places, replace(config, micro_batch=size), quiet=True).network.state_dict()
        for size in (None, 16, 6)
    )
    assert same(plain, one)
    assert not same(plain, several)  # batch normalisation sees fewer images at once


def test_runs_without_batch_statistics_hardly_notice_micro_batches() -> None:
    images, places = bars()
    config = replace(CONFIG, freeze_backbone=True, optimizer="sgd", learning_rate=0.1)
    plain, several, begun = (
        cml.fit(images, places, replace(config, **changed), quiet=True).network.head.weight
        for changed in ({}, {"micro_batch": 5}, {"steps": 1})
    )
    learned = float((plain - begun).detach().abs().max())  # rounding, which differs between processors, grows with it
    torch.testing.assert_close(several, plain, rtol=0, atol=1e-3 * learned)
    assert learned > 0.01


@pytest.mark.parametrize("size", [0, -3])
def test_a_micro_batch_has_an_image(size: int) -> None:
    with pytest.raises(UserError, match=f"'micro_batch' must be 1 or more, or none. Got {size}"):
        check_options(replace(CONFIG, micro_batch=size))


def test_examples() -> None:
    failed, tried = doctest.testmod(gradient_cache)
    assert tried > 0
    assert failed == 0


@pytest.mark.parametrize(
    "exact",
    [{"batch_norm": "fixed"}, {"backbone": "small-cnn(norm=group)"}, {}],
    ids=["fixed", "group norm", "neither"],
)
def test_the_first_update_with_micro_batches_is_the_whole_batchs_where_batch_norm_allows(exact: dict[str, Any]) -> None:
    images, places = bars()
    config = replace(CONFIG, optimizer="sgd", steps=1, **exact)

    def update(micro_batch: int | None) -> Tensor:
        torch.manual_seed(0)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = cml.fit(images, places, replace(config, micro_batch=micro_batch), quiet=True)
        of_statistics = [str(one.message) for one in said if "batch normalisation" in str(one.message)]
        assert len(of_statistics) == (not exact and micro_batch is not None), "one warning, where it is not exact"
        return torch.cat([value.flatten().double() for value in model.network.state_dict().values()])

    start = torch.cat(
        [v.flatten().double() for v in cml.fit(images, places, replace(config, learning_rate=1e-12), quiet=True).network
         .state_dict().values()]
    )  # fmt: skip
    whole, parts = update(None) - start, update(5) - start
    assert whole.norm() > 0
    assert bool((parts - whole).norm() < 1e-3 * whole.norm()) == bool(exact)
