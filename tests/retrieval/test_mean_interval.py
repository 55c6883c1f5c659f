"""Intervals of means over seeds and queries: their formula, their edges and how they are used."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from slow_intervals import mean_interval

from cml import distances
from cml.retrieval import EvaluateOptions, evaluate, random_ranker
from cml.retrieval.comparison import interval_text
from cml.retrieval.mean_interval import estimate_means, linearize_ratio, mean_intervals, ratio_intervals


@pytest.mark.parametrize("seeds", [1, 2, 3, 5])
@pytest.mark.parametrize("queries", [2, 3, 20, 150])
def test_intervals_equal_the_slow_formula(seeds: int, queries: int) -> None:
    rng = np.random.default_rng(seeds * queries)
    shape = (seeds, queries, 4)
    values = rng.lognormal(size=shape) * [1, -1, 1, 1]
    values[:, :, 2] = rng.normal(size=shape[:2]) + rng.normal(size=(seeds, 1))  # seeds differ
    values[:, :, 3] = rng.random(shape[:2]) < 0.3
    for level in (0.5, 0.95, 0.999):
        slow = [mean_interval(values[:, :, column].tolist(), level) for column in range(4)]
        np.testing.assert_allclose(estimate_means(values).intervals(level), slow, rtol=1e-6, atol=1e-9)
    if seeds == 1:
        np.testing.assert_array_equal(mean_intervals(values[0]), mean_intervals(values))


def test_symmetric_values_of_one_seed_have_students_interval() -> None:
    values = np.array([1.0, 2, 3, 4, 5])
    half = student.ppf(0.975, 4) * values.std(ddof=1) / math.sqrt(5)
    np.testing.assert_allclose(mean_intervals(values[:, None]), [[3 - half, 3 + half]])
    # of one query, the seeds alone
    np.testing.assert_allclose(mean_intervals(values[:, None, None]), [[3 - half, 3 + half]])


def test_the_longer_side_is_that_of_the_long_tail() -> None:
    values = np.random.default_rng(0).exponential(size=30)
    low, high = mean_intervals(values[:, None])[0]
    half = student.ppf(0.975, 29) * values.std(ddof=1) / math.sqrt(30)
    assert high - values.mean() > 1.2 * half
    assert values.mean() - low == pytest.approx(half)  # never shorter than Student's
    np.testing.assert_allclose(mean_intervals(-values[:, None]), [[-high, -low]])


def test_edges() -> None:
    assert np.isnan(mean_intervals(np.array([[3.0]]))).all()
    assert np.isnan(mean_intervals(np.full((4, 1), np.nan))).all()
    assert np.isnan(mean_intervals(np.empty((0, 1)))).all()
    assert mean_intervals(np.empty((5, 0))).shape == (0, 2)
    for shape in ((2, 1), (50, 1), (3, 50, 1), (3, 1, 1)):
        np.testing.assert_array_equal(mean_intervals(np.full(shape, 0.1)), [[0.1, 0.1]])
    low, high = mean_intervals(np.array([[0.0], [1.0]]))[0]  # 12.706 standard errors of one degree of freedom
    assert (low, high) == pytest.approx((0.5 - 6.353, 0.5 + 6.353), abs=1e-3)


def test_a_missing_value_is_left_out_of_its_column() -> None:
    rng = np.random.default_rng(3)
    values = rng.lognormal(size=(20, 2))
    values[[3, 7], 0] = np.nan
    np.testing.assert_allclose(mean_intervals(values)[0], mean_intervals(np.delete(values, [3, 7], axis=0))[0])
    several = rng.lognormal(size=(3, 20, 2))
    several[:, [3, 7], 0] = np.nan  # of all seeds
    np.testing.assert_allclose(mean_intervals(several)[0], mean_intervals(np.delete(several, [3, 7], axis=1))[0])
    several[0, 5, 0] = np.nan  # of one seed: near the interval without that query
    near = mean_intervals(np.delete(several, [3, 5, 7], axis=1))[0]
    np.testing.assert_allclose(mean_intervals(several)[0], near, atol=0.3 * np.diff(near)[0])
    several[1:] = np.nan  # one seed is left
    np.testing.assert_allclose(mean_intervals(several), mean_intervals(several[0]))


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=12), st.floats(0.1, 10), st.floats(-100, 100))
def test_intervals_move_and_grow_with_their_values(values: list[float], factor: float, shift: float) -> None:
    column = np.array(values)[:, None]
    low, high = mean_intervals(column)[0]
    assert np.isfinite([low, high]).all()
    assert low <= column.mean() + 1e-9
    assert high >= column.mean() - 1e-9
    scale = max(1.0, np.abs(column).max())
    moved = mean_intervals(factor * column + shift)[0]
    np.testing.assert_allclose(moved, [factor * low + shift, factor * high + shift], atol=1e-6 * scale * factor)
    wide = estimate_means(column[None]).intervals(0.99)[0]
    assert wide[0] <= low
    assert wide[1] >= high


def test_a_ratio_has_the_interval_of_its_linear_form() -> None:
    rng = np.random.default_rng(1)
    above, below = rng.normal(1, 1, (4, 50)), 2 + rng.random(50)
    ratio = above.mean() / below.mean()
    slow = [
        [ratio + (value - ratio * under) / below.mean() for value, under in zip(row, below, strict=True)]
        for row in above
    ]
    np.testing.assert_allclose(ratio_intervals(above[:, :, None], below[:, None])[0], mean_interval(slow), rtol=1e-6)
    assert np.isnan(ratio_intervals(above[0][:, None], 0 * below[:, None])).all()
    above[:, 3] = np.nan
    linear = linearize_ratio(above[:, :, None], below[:, None])
    assert np.isnan(linear[:, 3]).all()
    assert np.nanmean(linear) == pytest.approx(np.nanmean(above) / np.delete(below, 3).mean())


def test_a_ratio_that_is_the_same_in_every_query_has_no_error() -> None:
    below = np.random.default_rng(0).random((40, 1))
    assert ratio_intervals(below, below).tolist() == [[1, 1]]
    assert ratio_intervals(0 * below, below).tolist() == [[0, 0]]


def test_the_score_of_the_oracle_is_1_exactly() -> None:
    distance = distances.get("euclidean")
    labels = distance.encode(np.random.default_rng(0).lognormal(size=60))
    options = EvaluateOptions(distance_ks=(5,), ndcg_ks=(), hit_ks=())
    rows = evaluate({"random": random_ranker(20, 40)}, distance, labels[:20], labels[20:], options).rows
    oracle = rows["oracle"]["score@5"]
    assert (oracle.low, oracle.high) == (1, 1)
    assert oracle.mean == pytest.approx(1, abs=1e-12)
    random = rows["random"]["score@5"]
    assert random.low < random.mean < random.high


def test_one_query_has_no_interval() -> None:
    distance = distances.get("euclidean")
    labels = distance.encode(np.arange(40.0))
    found = evaluate({"random": random_ranker(1, 39)}, distance, labels[:1], labels[1:])
    metric = found.rows["random"]["label_distance@1"]
    assert math.isfinite(metric.mean)
    assert math.isnan(metric.low)
    assert "[" not in found.table(["label_distance@1"]).splitlines()[1]
    assert interval_text((2.0, metric.low, metric.high)) == "2.00"
