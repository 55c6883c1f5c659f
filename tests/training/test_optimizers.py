"""The optimisers that an option names take the steps of their formulas, with their settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch

from cml.training import optimizers

RATE, DECAY = 0.1, 0.05
GRADIENTS = [0.5, -1.5, 0.25, 2.0]
Steps = Callable[[float], Iterator[float]]  # from a weight to the weight after each step


def sgd(momentum: float) -> Steps:
    def steps(weight: float) -> Iterator[float]:
        velocity = 0.0
        for gradient in GRADIENTS:
            velocity = momentum * velocity + gradient + DECAY * weight
            weight -= RATE * velocity
            yield weight

    return steps


def adam(beta1: float, beta2: float, epsilon: float, *, apart: bool) -> Steps:
    def steps(weight: float) -> Iterator[float]:
        mean = square = 0.0
        for count, slope in enumerate(GRADIENTS, 1):
            gradient = slope if apart else slope + DECAY * weight
            weight -= RATE * DECAY * weight if apart else 0
            mean = beta1 * mean + (1 - beta1) * gradient
            square = beta2 * square + (1 - beta2) * gradient**2
            weight -= RATE * mean / (1 - beta1**count) / (math.sqrt(square / (1 - beta2**count)) + epsilon)
            yield weight

    return steps


def rmsprop(decay: float, momentum: float, epsilon: float) -> Steps:
    def steps(weight: float) -> Iterator[float]:
        square = velocity = 0.0
        for slope in GRADIENTS:
            gradient = slope + DECAY * weight
            square = decay * square + (1 - decay) * gradient**2
            velocity = momentum * velocity + gradient / (math.sqrt(square) + epsilon)
            weight -= RATE * velocity
            yield weight

    return steps


CASES = {
    "sgd": sgd(0.9),
    "sgd(momentum=0)": sgd(0.0),
    "adamw": adam(0.9, 0.999, 1e-8, apart=True),
    "adamw(beta1=0.5, beta2=0.9, epsilon=0.3)": adam(0.5, 0.9, 0.3, apart=True),
    "adam": adam(0.9, 0.999, 1e-8, apart=False),
    "adam(beta1=0.5, beta2=0.9, epsilon=0.3)": adam(0.5, 0.9, 0.3, apart=False),
    "rmsprop": rmsprop(0.99, 0.0, 1e-8),
    "rmsprop(decay=0.9, momentum=0.8, epsilon=1)": rmsprop(0.9, 0.8, 1.0),
}


@pytest.mark.parametrize("choice", CASES)
def test_an_optimiser_takes_the_steps_of_its_formula(choice: str) -> None:
    weight = torch.nn.Parameter(torch.tensor(0.7, dtype=torch.float64))
    named = optimizers.get(choice)
    made = named.build([{"params": [weight]}], RATE, DECAY)
    for gradient, expected in zip(GRADIENTS, CASES[choice](0.7), strict=True):
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        made.step()
        assert weight.item() == pytest.approx(expected, rel=1e-12)
    assert all(entry.keys() == named.state for entry in made.state_dict()["state"].values())


def test_every_optimiser_has_a_formula() -> None:
    assert {choice.partition("(")[0] for choice in CASES} == {*optimizers.registry.names()}
