"""Gradients of the first step of a training: rounding changes them little, unlike the weights after a step of Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import cml


def first_gradients(fit: Callable[..., cml.Model], **options: Any) -> list[Tensor]:  # noqa: ANN401
    """Train for one step with an optimiser that records gradients and changes nothing."""
    gradients: list[Tensor] = []

    class Recorder(torch.optim.SGD):
        def step(self, closure: object = None) -> None:  # type: ignore[override]
            parameters = [parameter for group in self.param_groups for parameter in group["params"]]
            gradients.extend(parameter.grad.clone() for parameter in parameters if parameter.grad is not None)

    fit(steps=1, optimizer=lambda groups: Recorder(groups, 0.1), quiet=True, **options)
    return gradients


def assert_same_direction(one: list[Tensor], other: list[Tensor], bar: float = 1e-4) -> None:
    """Two lists of gradients differ by at most a share of their length, part by part."""
    assert len(one) == len(other) > 0
    whole = torch.cat([part.flatten() for part in other]).norm()
    for first, second in zip(one, other, strict=True):
        assert (first - second).norm() <= bar * max(second.norm(), 0.01 * whole)
    assert whole > 0
