"""Intervals end where the range of their metric does, and cover as often as before."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cml import distances
from cml.retrieval import EvaluateOptions, embedding_ranker, evaluate
from cml.retrieval.comparison import Comparison, compared_columns, interval_text, over_seeds
from cml.retrieval.mean_interval import mean_intervals
from cml.retrieval.metrics import BUILT_IN, MetricInfo, describe, family
from cml.retrieval.results import Evaluation

RANGES = {
    "label_distance": (0, math.inf), "worst_decile": (0, math.inf), "score": (-math.inf, 1), "ndcg": (0, 1),
    "hit": (0, 1), "recall": (0, 1), "map_at_r": (0, 1), "r_precision": (0, 1), "h_ap": (0, 1),
    "kendall_tau": (-1, 1), "spearman_rho": (-1, 1), "pair_spearman": (-1, 1), "triplet_agreement": (0, 1),
    "repeated_spearman": (-1, 1), "repeated_agreement": (0, 1),
}  # fmt: skip
NUMBERS = st.floats(-3, 3)


def _evaluate(queries: int, seed: int, *, classes: bool = False) -> Evaluation:
    """Rankings of 60 items: nearly the oracle's, the reverse of it, and a random one."""
    generator = np.random.default_rng(seed)
    ours, theirs = (np.round(generator.exponential(size=(count, 1)), 1) for count in (queries, 60))
    if classes:
        ours, theirs = np.ceil(ours), np.ceil(theirs)
    distance = distances.get("classes" if classes else "euclidean")
    labels = [distance.encode(part[:, 0].astype(int) if classes else part) for part in (ours, theirs)]
    noise = generator.normal(size=(queries, 1))
    rankers = {
        "near": embedding_ranker(ours + 0.2 * noise, theirs),
        "reverse": lambda rows: -np.abs(ours[rows] - theirs.T),
        "random": embedding_ranker(noise, generator.normal(size=(60, 1))),
    }
    options = EvaluateOptions(recall_ks=(1, 2, 4) if classes else (), hit_ks=(1, 5))
    return evaluate(rankers, distance, *labels, options)


def test_every_metric_states_its_range() -> None:
    assert RANGES.keys() == set(BUILT_IN)
    for name, (lowest, highest) in RANGES.items():
        assert (describe(name).lowest, describe(name).highest) == (lowest, highest)
    assert (MetricInfo().lowest, MetricInfo().highest) == (-math.inf, math.inf)


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_intervals_of_few_queries_are_cut_to_the_range_and_no_more(seed: int, classes: bool) -> None:
    names = set()
    for queries in (3, 6, 100):
        for row in _evaluate(queries, seed, classes=classes).rows.values():
            for name, result in row.items():
                lowest, highest = RANGES[family(name)]
                names.add(family(name))
                assert lowest - 1e-9 <= result.mean <= highest + 1e-9
                if family(name) != "score":  # a ratio of means: one query alone has no range
                    assert np.nanmin(result.per_query) >= lowest - 1e-9
                    assert np.nanmax(result.per_query) <= highest + 1e-9
                    uncut = mean_intervals(result.per_query[:, None])[0]
                    given = result.given_gallery or (result.low, result.high)
                    assert list(given) == pytest.approx(np.clip(uncut, lowest, highest), abs=1e-9, nan_ok=True)
                if not math.isnan(result.low):
                    assert lowest - 1e-9 <= result.low <= result.mean + 1e-9
                    assert result.mean - 1e-9 <= result.high <= highest + 1e-9
    judged = {"pair_spearman", "triplet_agreement", "repeated_spearman", "repeated_agreement"}
    assert names == RANGES.keys() - judged - ({"worst_decile"} if classes else {"recall", "map_at_r", "r_precision"})


def test_the_intervals_of_few_queries_would_leave_the_range() -> None:
    """So that the test above can fail."""
    uncut = [mean_intervals(row["kendall_tau"].per_query[:, None])[0] for row in _evaluate(3, 0).rows.values()]
    assert any(low < -1 or high > 1 for low, high in uncut)


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_a_cut_interval_covers_every_possible_value_that_it_covered(
    first: float, second: float, mean: float, below: float, above: float, truth: float
) -> None:
    info = MetricInfo(lowest=min(first, second), highest=max(first, second))
    low, high = mean - abs(below), mean + abs(above)
    ends = info.clip_intervals(mean, (low, high)).tolist()
    assert ends[0] <= mean <= ends[1]
    if info.lowest <= mean <= info.highest:
        assert ends == [max(low, info.lowest), min(high, info.highest)]
    if info.lowest <= truth <= info.highest:
        assert (low <= truth <= high) == (ends[0] <= truth <= ends[1])


def test_a_mean_out_of_the_range_keeps_its_interval() -> None:
    info = MetricInfo(lowest=0, highest=1)
    means = [1.2, -0.2, 1 + 1e-12]  # the last by rounding
    ends = info.clip_intervals(means, [[-0.1, 1.3], [-0.3, 1.3], [0.9, 1.1]])
    assert ends.tolist() == [[0, 1.3], [-0.3, 1], [0.9, 1 + 1e-12]]
    assert np.isnan(info.clip_intervals(0.5, (math.nan, math.nan))).all()


def test_seeds_of_a_comparison_are_cut_too_and_the_text_keeps_the_longer_side() -> None:
    values, info = [0.95, 0.97], describe("hit@10")
    mean, low, high = over_seeds(values)
    assert high > 1
    assert over_seeds(values, info) == (mean, low, 1.0)
    assert interval_text((mean, low, high)) == interval_text((mean, low, 1.0), info) == "0.960 ± 0.127"
    assert interval_text((mean, 0.9, 0.98), info) == "0.960 ± 0.040"  # half of the width
    assert interval_text((1 - 1e-16, 1, 1), info) == "1.000"  # no interval, but rounding


def test_ends_of_a_saved_evaluation_are_read_as_they_were_written() -> None:
    saved: dict[str, Any] = _evaluate(3, 0).to_json()
    tau = saved["rows"]["near"]["kendall_tau"]
    result = Evaluation.from_json(saved).rows["near"]["kendall_tau"]
    assert (result.low, result.high) == (tau["low"], tau["high"])
    for name in ("low", "high", "mean"):
        tau[name] = None
    assert math.isnan(Evaluation.from_json(saved).rows["near"]["kendall_tau"].low)


def test_a_comparison_of_saved_evaluations_has_the_columns_of_new_ones() -> None:
    runs = [_evaluate(5, seed) for seed in range(2)]
    again = [Evaluation.from_json(run.to_json()) for run in runs]
    columns = [compared_columns([*evaluation.rows["near"].values()]) for evaluation in (runs[0], again[0])]
    assert columns[0] == columns[1]
    assert "kendall_tau" not in columns[1]
    tables = [Comparison({"ours": each}, each[0], "near", 1, {}).table() for each in (runs, again)]
    assert tables[0] == tables[1]
    for mean, low, high in Comparison({"ours": runs}, runs[0], "near", 1, {}).rows()["ours"].values():
        assert low <= mean <= high
    for name, (_, low, high) in Comparison({"ours": runs}, runs[0], "near", 1, {}).rows()["ours"].items():
        assert RANGES[family(name)][0] <= low
        assert high <= RANGES[family(name)][1]
