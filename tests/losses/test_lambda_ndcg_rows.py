"""The compiled loop of LambdaNDCG against every pair in float64, where blocks and halves of a ranking meet."""

from __future__ import annotations

import numpy as np
import pytest

from cml.array_types import Float64, Floating
from cml.losses.lambda_ndcg_rows import sum_lambda_ndcg
from cml.losses.row_order import sort_rows


def by_loop(squared: Floating, labels: Floating, gains: Floating, temperature: float) -> tuple[Float64, Floating]:
    """Values and slopes of rows whose columns are all used."""
    values, slopes = np.empty(len(squared)), np.zeros_like(squared)
    (_, by_distance), (_, by_label) = sort_rows(squared), sort_rows(labels)
    used = np.full(len(squared), squared.shape[1])
    sum_lambda_ndcg(squared, by_distance, labels, by_label, gains, used, temperature, values, slopes)
    return values, slopes


def every_pair(squared: Floating, gains: Floating, temperature: float) -> tuple[float, Float64]:
    """The value of one row and its slopes, pair by pair."""
    order = squared.argsort(kind="stable")
    x, g = squared[order].astype(float) / (-2 * temperature), gains[order].astype(float)
    discounts = 1 / np.log2(np.arange(len(x)) + 2)
    ideal = np.sort(g)[::-1] @ discounts
    apart = np.subtract.outer(x, x)
    weights = np.subtract.outer(g, g).clip(min=0) * abs(np.subtract.outer(discounts, discounts)) / ideal
    with np.errstate(over="ignore"):
        pulls = weights * -1 / (1 + np.exp(apart))
    slopes = np.empty(len(x))
    slopes[order] = (pulls.sum(axis=1) - pulls.sum(axis=0)) / (-2 * temperature)
    return float((weights * np.logaddexp(0, -apart)).sum()), slopes


@pytest.mark.parametrize("columns", [1, 2, 63, 64, 65, 129, 600])
@pytest.mark.parametrize("temperature", [0.001, 0.02, 0.1, 5.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_equals_every_pair(columns: int, temperature: float, dtype: type[np.floating]) -> None:
    generator = np.random.default_rng(columns)
    squared = 4 * generator.random((4, columns)).astype(dtype)
    labels = generator.random((4, columns)).astype(dtype)
    squared[1] = (8 * squared[1]).round() / 8  # ties
    labels[1] = (8 * labels[1]).round() / 8
    squared[2] = 2 * labels[2] + dtype(1e-3) * squared[2]  # as after training
    squared[3] = np.linspace(0, 4, columns)  # neighbours far below the top, whose discounts hardly differ
    gains = np.exp(-3 * labels)
    values, slopes = by_loop(squared, labels, gains, temperature)
    for row in range(4):
        value, slope = every_pair(squared[row], gains[row], temperature)
        # float32 rounds a score, in units of the temperature, to 6e-8 of its distance from the middle of a block
        rounding = 3e-7 + 1e-7 / temperature if dtype == np.float32 else 1e-11
        assert values[row] == pytest.approx(value, rel=rounding, abs=1e-10)
        assert np.linalg.norm(slopes[row] - slope) <= rounding * np.linalg.norm(slope) + 1e-10
        assert abs(slopes[row] - slope).max() <= rounding * abs(slope).max() + 1e-10


def test_precise_where_it_matters() -> None:
    squared = np.sort(np.random.default_rng(0).normal(1, 0.1, (1, 1000)).astype(np.float32))
    gains = np.random.default_rng(1).random((1, 1000)).astype(np.float32)
    _, slopes = by_loop(squared, -gains + 1, gains, 0.1)
    _, expected = every_pair(squared[0], gains[0], 0.1)
    np.testing.assert_allclose(slopes[0], expected, rtol=1e-5, atol=1e-7 * abs(expected).max())
