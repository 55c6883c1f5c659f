"""The count of wrong labels: 0 for correct ones, and an interval that holds the number of planted errors."""

from __future__ import annotations

import numpy as np
import pytest

from cml.array_types import Float64, Int64
from cml.checks.audit import Audit
from cml.checks.wrong_labels import KINDS, WrongLabels, average_neighbors, count_wrong

COUNT, WRONG = 300, 15


def spread_around(prediction: Float64, kind: str, rng: np.random.Generator) -> Float64:
    """Correct labels."""
    noise = {
        "normal": rng.normal(size=COUNT),
        "heavy": rng.standard_t(3, COUNT),
        "doubly exponential": rng.laplace(size=COUNT),
        "unequal": rng.normal(size=COUNT) * np.exp(prediction),
        "few values": np.round(rng.normal(size=COUNT)),
    }[kind]
    return prediction + 0.1 * noise


def count(labels: Float64, prediction: Float64) -> WrongLabels:
    """Count with predictions that know no label, whose nearest are the similar items."""
    similar: Int64 = np.argsort(np.abs(prediction[:, None] - prediction), axis=1)[:, 1:21]
    return count_wrong(labels[:, None], {"known": prediction[:, None], "none": np.zeros((COUNT, 1))}, similar)


@pytest.mark.parametrize("kind", ["normal", "heavy", "doubly exponential", "unequal", "few values"])
def test_of_correct_labels_none_is_said_to_be_wrong(kind: str) -> None:
    claimed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        prediction = rng.normal(size=COUNT)
        found = count(spread_around(prediction, kind, rng), prediction)
        assert 0 <= found.low <= found.estimate <= found.high <= COUNT
        claimed += found.low > 0
    assert claimed <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_holds_planted_errors(kind: str) -> None:
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        prediction = rng.normal(2, 1, size=COUNT)
        labels = spread_around(prediction, "normal", rng)
        wrong = rng.choice(COUNT, WRONG, replace=False)
        labels[wrong] = {
            "exchanged": np.roll(labels[wrong], 1),
            "noise": labels[wrong] + rng.normal(size=WRONG),
            "constant": np.full(WRONG, np.median(labels)),
            "halved": labels[wrong] / 2,
            "mirrored": 2 * labels.mean() - labels[wrong],
        }[kind]
        found.append(count(labels, prediction))
    assert sum(one.low <= WRONG <= one.high for one in found) >= 9
    assert sum(one.low > 0 for one in found) >= 6  # they are plain
    assert WRONG / 2 < np.mean([one.estimate for one in found]) < 2 * WRONG


def test_labels_that_nothing_predicts_may_all_be_wrong() -> None:
    rng = np.random.default_rng(0)
    found = count(rng.normal(size=COUNT), rng.normal(size=COUNT))
    assert found.low == 0
    assert found.high > COUNT / 2


def test_neighbours_predict_by_their_mean_label() -> None:
    rng = np.random.default_rng(0)
    targets, neighbors = rng.normal(size=(9000, 2)), rng.integers(0, 9000, (9000, 20))
    slow = np.array([np.mean([targets[other] for other in row[:10]], axis=0) for row in neighbors.tolist()])
    np.testing.assert_allclose(average_neighbors(targets, neighbors), slow)


def test_the_claim_has_its_condition() -> None:
    scores = np.linspace(0, 1, 200)
    neighbors = np.zeros((200, 10), np.int64)

    def lines(*wrong: float, chance: float = 0.9) -> list[str]:
        return Audit(scores, {}, {}, neighbors, scores, WrongLabels(*wrong), "mm", np.full(200, chance)).lines()

    audited = "audited 200 labels."
    assert lines(24, 10, 60)[0] == f"{audited} About 24 (12.0%) are wrong (interval: 10 to 60). Look at the first 24."
    none = "None is shown to be wrong; up to 60 may be (estimate: 3). Look at the first 10."
    assert lines(3, 0, 60)[0] == f"{audited} {none}"
    assert "scatter" in lines(0, 0, 60)[1]
    assert len(lines(0, 0, 60)) == 2
    assert "the estimate is unreliable" in lines(0, 0, 120)[-1]
    assert "the audit is unreliable" in lines(0, 0, 60, chance=0.5)[-1]
