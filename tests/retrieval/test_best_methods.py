"""The methods that are not significantly worse than the best, and comparisons that allow for their number."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import dunnett, norm
from scipy.stats import t as student

from cml.array_types import Float64
from cml.retrieval.best_methods import MethodScores, find_best
from cml.retrieval.mean_interval import estimate_means


def draw(methods: int, seeds: int, queries: int, spread: float = 0.3) -> list[Float64]:
    """Equal methods on the same queries, whose seeds differ by ``spread``."""
    rng = np.random.default_rng((methods, seeds, queries))
    shared = rng.normal(size=queries)
    return [shared + rng.normal(size=(seeds, queries)) + spread * rng.normal(size=(seeds, 1)) for _ in range(methods)]


def test_the_best_are_those_that_none_is_clearly_ahead_of() -> None:
    equal = draw(3, 3, 200, spread=0)
    assert find_best([equal[0] - 5, *equal[:2], equal[2] - 5]) == [1, 2]
    assert find_best([equal[0], equal[0] + 1e-9]) == [1]  # ahead in every query and seed
    assert find_best([equal[0], equal[0]]) == [0, 1]
    assert find_best(equal[:1]) == [0]


def test_two_methods_of_one_seed_are_compared_by_students_test() -> None:
    ours, theirs = draw(2, 1, 30)
    gain = (ours - theirs)[0]
    bound = student.ppf(0.95, 29) * gain.std(ddof=1) / math.sqrt(30)
    for shift in (-0.01, 0.01):  # just below and above what tells them apart
        moved = ours - gain.mean() + bound + shift
        assert find_best([moved, theirs]) == ([0] if shift > 0 else [0, 1])


@pytest.mark.parametrize("two_sided", [False, True])
def test_the_quantile_of_many_comparisons_is_dunnetts(two_sided: bool) -> None:
    methods = [np.random.default_rng(number).normal(size=(1, 20_000)) for number in range(6)]
    probability = MethodScores.of_queries(methods).simultaneous_probability(0, two_sided=two_sided)
    # the largest of 5 normal errors that all share the reference's: correlated by .5
    errors = np.random.default_rng(0).normal(size=(200_000, 6))
    differences = (errors[:, 1:] - errors[:, :1]) / math.sqrt(2)
    quantile = np.quantile((np.abs(differences) if two_sided else differences).max(axis=1), 0.95)
    assert norm.ppf(probability) == pytest.approx(quantile, abs=0.05)
    seed = "rng" if "rng" in inspect.signature(dunnett).parameters else "random_state"  # before SciPy 1.15
    drawn: dict[str, Any] = {seed: np.random.default_rng(0)}
    ends = dunnett(*(method[0] for method in methods[1:]), control=methods[0][0], **drawn)
    if two_sided:
        ours = MethodScores.of_queries(methods).compare_with(0).intervals(2 * probability - 1)
        np.testing.assert_allclose(ours[:, 1], ends.confidence_interval().high, atol=0.002)
    assert MethodScores.of_queries(methods[:2]).simultaneous_probability(0, two_sided=two_sided) == (
        0.975 if two_sided else 0.95
    )


def test_the_variance_of_few_seeds_is_at_least_the_pooled_one() -> None:
    methods = draw(6, 3, 50)
    estimate = MethodScores.of_queries(methods).compare_with(2)
    others = [0, 1, 3, 4, 5]
    own = estimate_means(np.stack([methods[other] - methods[2] for other in others], axis=2))
    np.testing.assert_allclose(estimate.mean, own.mean)
    # slow: what is left of the seeds' means without the effects of method and seed, corrected for queries
    means = np.array([method.mean(axis=1) for method in methods])  # (K, S)
    left = means - means.mean(axis=0) - means.mean(axis=1, keepdims=True) + means.mean()
    values = np.stack(methods)  # (K, S, Q)
    apart = values - values.mean(axis=0)
    remainder = apart - apart.mean(axis=1, keepdims=True) - apart.mean(axis=2, keepdims=True)
    remainder += apart.mean(axis=(1, 2), keepdims=True)
    pooled = 2 / 3 * ((left**2).sum() / 10 - (remainder**2).sum() / (10 * 49) / 50)
    np.testing.assert_allclose(estimate.seed_variance, np.maximum(own.seed_variance, pooled))
    np.testing.assert_array_equal(estimate.seed_freedom, np.where(own.seed_variance >= pooled, 2, 10))
    assert (estimate.seed_freedom == 10).any()


def test_a_method_without_seeds_adds_none_of_their_variance() -> None:
    ours, theirs, fixed = draw(2, 3, 50) + draw(1, 1, 50)
    with_fixed = MethodScores.of_queries([ours, theirs, fixed]).compare_with(2)
    both = MethodScores.of_queries([ours, theirs, fixed]).compare_with(0)
    assert with_fixed.seed_variance[0] == pytest.approx(
        max(both.seed_variance[0] / 2, estimate_means((ours - fixed)[:, :, None]).seed_variance[0])
    )
    alone = MethodScores.of_queries([fixed, fixed + np.arange(50)]).compare_with(0)
    assert alone.seed_variance[0] == 0


def test_a_query_that_one_method_lacks_is_left_out() -> None:
    methods = draw(3, 3, 40)
    part = [np.delete(method, 7, axis=1) for method in methods]
    methods[1][0, 7] = np.nan
    np.testing.assert_allclose(
        MethodScores.of_queries(methods).compare_with(0).error, MethodScores.of_queries(part).compare_with(0).error
    )
    assert find_best(methods) == find_best(part)
    methods[1][:] = np.nan  # nothing can be compared
    assert find_best(methods) == [0, 1, 2]


def test_the_truly_best_is_found_19_times_in_20() -> None:
    hits = [find_best(list(np.random.default_rng(trial).normal(size=(8, 2, 40)))) for trial in range(60)]
    share = sum(map(len, hits)) / (60 * 8)  # any of the equal methods may be the best one
    assert 0.92 <= share <= 0.99
