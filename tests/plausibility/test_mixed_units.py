"""Labels in two units, such as percentages among fractions."""

from collections.abc import Callable

import numpy as np
import pytest

from cml.plausibility.label_rules import find_in_labels

RNG = np.random.default_rng(0)
Draw = Callable[[int], np.ndarray]


def rules_of(values: np.ndarray) -> list[str]:
    return [finding.rule for finding in find_in_labels(values.tolist())]


@pytest.mark.parametrize("factor", [100, 1000])
@pytest.mark.parametrize(
    "draw",
    [
        lambda count: RNG.choice([0, 1 / 3, 2 / 3, 1], count).round(4),
        lambda count: RNG.uniform(0.3, 1, count).round(3),
        lambda count: RNG.normal(1.7, 0.1, count).round(2),
    ],
    ids=["four fractions", "fractions", "heights"],
)
def test_a_part_in_another_unit_is_found(draw: Draw, factor: int) -> None:
    found = 0
    for share in (0.5, 0.3, 0.1) * 10:
        values = draw(400)
        is_other = RNG.random(400) < share
        found += "mixed-units" in rules_of(np.where(is_other, values * factor, values))
        assert "mixed-units" not in rules_of(values)
        assert "mixed-units" not in rules_of(values * factor)
    assert found >= 26  # the two parts are compared at a level of 5 %


@pytest.mark.parametrize(
    "draw",
    [
        lambda count: RNG.lognormal(0, 3, count),
        lambda count: 10 ** RNG.uniform(-2, 2, count),
        lambda count: RNG.pareto(0.5, count),
        lambda count: RNG.choice([0.01, 0.1, 1, 10, 100, 1000], count),
        lambda count: RNG.choice([0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100], count),
        lambda count: RNG.choice([1, 100], count),
        lambda count: np.where(RNG.random(count) < 0.5, RNG.normal(1, 0.1, count), RNG.normal(30, 3, count)),
        lambda count: RNG.lognormal(RNG.normal(0, 3, 4)[RNG.integers(0, 4, count)], 0.3),
        lambda count: -np.where(RNG.random(count) < 0.5, 1, 100) * RNG.uniform(0.3, 1, count),
    ],
    ids=["heavy tail", "powers", "pareto", "tenfold doses", "doses", "two classes", "thirty", "clusters", "negative"],
)
def test_other_spreads_are_left_alone(draw: Draw) -> None:
    assert sum("mixed-units" in rules_of(draw(count)) for count in (40, 100, 400) * 20) <= 2


def test_the_message_names_both_parts() -> None:
    values = np.tile([0.25, 0.5, 0.75, 1], 20)
    values[::5] *= 100
    (finding,) = (one for one in find_in_labels(values.tolist()) if one.rule == "mixed-units")
    assert str(finding) == (
        "mixed-units: 16 of 80 numbers in 'label' lie from 25 to 100, and all others are at most 1. Divided by 100, "
        "they are spread like the others, so that two units seem to be mixed (item 0: 25, item 5: 50, item 10: 75, "
        "...). Write all of them in one unit."
    )
