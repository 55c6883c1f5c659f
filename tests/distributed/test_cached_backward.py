"""The public gradient cache in loops as users write them: autocast, gradient scaler, wrong arguments."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from cml.distributed import cached_backward
from cml.errors import UserError
from cml.losses import LogRatioLoss, ProxyAnchorLoss

INPUTS = torch.randn(22, 6, generator=torch.Generator().manual_seed(0))
LABELS = torch.rand(22, 1, generator=torch.Generator().manual_seed(1))


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))


def log_ratio() -> Callable[[Tensor], Tensor]:
    loss = LogRatioLoss().fit("euclidean", LABELS)
    return lambda embeddings: loss(embeddings, torch.cdist(LABELS, LABELS))


def gradients(*modules: nn.Module) -> Tensor:
    found = [parameter.grad for module in modules for parameter in module.parameters()]
    assert all(gradient is not None for gradient in found)
    return torch.cat([gradient.flatten() for gradient in found if gradient is not None])


def relative(found: Tensor, true: Tensor) -> float:
    return float((found - true).norm() / true.norm())


def test_it_stands_for_the_backward_pass_and_adds_to_gradients() -> None:
    direct, cached, loss_of = network(), network(), log_ratio()
    for _ in range(2):  # gradients add up
        loss_of(direct(INPUTS)).backward()
        value, embeddings = cached_backward(cached, loss_of, INPUTS, micro_batch=6)
    assert relative(gradients(cached), gradients(direct)) < 1e-6
    assert value.item() == pytest.approx(loss_of(direct(INPUTS)).item(), rel=1e-6)
    torch.testing.assert_close(embeddings, direct(INPUTS).detach())


@pytest.mark.parametrize("micro_batch", [6, 22])
def test_an_autocast_around_all_loses_no_gradient(micro_batch: int) -> None:
    direct, cached, loss_of = network(), network(), log_ratio()
    with torch.autocast("cpu", torch.bfloat16):
        value = loss_of(direct(INPUTS))
        found, embeddings = cached_backward(cached, loss_of, INPUTS, micro_batch=micro_batch)
    value.backward()
    assert embeddings.dtype == torch.float32
    assert found.item() == pytest.approx(value.item(), rel=1e-2)
    assert relative(gradients(cached), gradients(direct)) < 0.02


def test_a_gradient_scaler_scales_the_network_and_the_proxies_alike() -> None:
    classes = torch.arange(22) % 3
    found = []
    for scale in (1.0, 1024.0):
        embedding, loss = network(), ProxyAnchorLoss()
        loss.prepare(classes, dimension=4)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale)
        optimizer = torch.optim.SGD([*embedding.parameters(), *loss.parameters()], lr=0.0)
        cached_backward(
            embedding,
            lambda embeddings, loss=loss: loss(embeddings, classes),  # type: ignore[misc]
            INPUTS,
            micro_batch=6,
            backward=lambda value, scaler=scaler: scaler.scale(value).backward(),  # type: ignore[misc]
        )
        before = gradients(embedding, loss)
        scaler.unscale_(optimizer)
        assert relative(before, scale * gradients(embedding, loss)) < 1e-6
        found.append(gradients(embedding, loss))
    assert relative(found[1], found[0]) < 1e-6


def test_dropout_is_that_of_the_parts_in_one_graph() -> None:
    loss_of = log_ratio()
    held, cached = (nn.Sequential(*network(), nn.Dropout(0.3)) for _ in range(2))
    torch.manual_seed(5)
    loss_of(torch.cat([held(piece) for piece in INPUTS.tensor_split(4)])).backward()
    torch.manual_seed(5)
    cached_backward(cached, loss_of, INPUTS, micro_batch=6)
    assert relative(gradients(cached), gradients(held)) < 1e-6


@pytest.mark.parametrize("size", [0, -1, 2.0, None, True])
def test_a_micro_batch_is_a_whole_number(size: object) -> None:
    with pytest.raises(UserError, match=f"'micro_batch' must be a whole number of at least 1. Got {size}"):
        cached_backward(network(), torch.sum, INPUTS, micro_batch=size)  # type: ignore[arg-type]


@pytest.mark.parametrize("inputs", [[1.0], {"x": INPUTS}, torch.tensor(1.0)])
def test_inputs_are_a_tensor(inputs: object) -> None:
    with pytest.raises(UserError, match=r"'inputs' must be a tensor \(B, \.\.\.\)"):
        cached_backward(network(), torch.sum, inputs, micro_batch=2)  # type: ignore[arg-type]


def test_a_loss_of_something_else_is_refused() -> None:
    free = torch.ones(3, requires_grad=True)
    with pytest.raises(UserError, match="The loss does not depend on the embeddings"):
        cached_backward(network(), lambda _: free.sum(), INPUTS, micro_batch=6)
