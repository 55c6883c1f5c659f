"""The map of shifted digits: its graph and its measures beside slow ones, and the whole on a few digits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from cml.cli import main
from cml.errors import UserError
from cml.option_types import check_options
from cml.papers.drlim import LEARNED, LINEAR, SHIFTS, DrlimOptions, _Run, link_neighbors, reproduce_drlim, shift_digits


def test_links_are_those_of_a_slow_graph() -> None:
    pixels = np.random.default_rng(0).normal(size=(40, 6))
    links = link_neighbors(pixels, 5)
    for one in range(40):
        for other in range(40):
            is_linked = False
            for first, second in ((one, other), (other, one)):
                nearer = [
                    item
                    for item in range(40)
                    if item != first
                    and np.sum((pixels[first] - pixels[item]) ** 2) < np.sum((pixels[first] - pixels[second]) ** 2)
                ]
                is_linked |= second != first and len(nearer) < 5
            assert links[one, other] == is_linked


def test_digits_are_shifted_by_whole_pixels() -> None:
    digits = np.random.default_rng(0).uniform(1, 16, (3, 8, 8))
    shifted = shift_digits(digits, SHIFTS)
    assert shifted.shape == (3, 5, 12, 12)
    for column, shift in enumerate(SHIFTS):
        for row in range(12):
            for place in range(12):
                inside = 2 <= row < 10 and 0 <= place - 2 - shift < 8
                wanted = digits[1, row - 2, place - 2 - shift] if inside else 0
                assert shifted[1, column, row, place] == wanted


def test_measures_are_those_of_slow_loops() -> None:
    rng = np.random.default_rng(1)
    pixels, copies = rng.normal(size=(12, 4)), len(SHIFTS)
    points = rng.normal(size=(12 * copies, 2))
    digits = np.repeat(rng.choice([4, 9], 12), copies)
    measured = _Run({"map": points}, digits, np.tile(SHIFTS, 12), pixels).measure("map")
    agree, linked, near_pairs, all_pairs = [], [], [], []
    for one in range(len(points)):
        owner = one // copies
        others = [item for item in range(len(points)) if item // copies != owner]
        nearest = sorted(others, key=lambda item: np.linalg.norm(points[one] - points[item]))[:5]
        friends = sorted({*range(12)} - {owner}, key=lambda item: np.linalg.norm(pixels[owner] - pixels[item]))[:5]
        agree += [digits[item] == digits[one] for item in nearest]
        linked += [item // copies in friends for item in nearest]
        for item in range(len(points)):
            if item != one:
                distance = np.linalg.norm(points[one] - points[item])
                all_pairs.append(distance)
                near_pairs += [distance] if item // copies == owner else []
    assert measured["same digit"] == pytest.approx(np.mean(agree))
    assert measured["graph"] == pytest.approx(np.mean(linked))
    assert measured["shift"] == pytest.approx(np.mean(near_pairs) / np.mean(all_pairs))


@pytest.mark.slow  # the small command and the graphs are quick
def test_a_learned_map_follows_shifts_less_than_a_linear_one(tmp_path: Path) -> None:
    made = reproduce_drlim(tmp_path, DrlimOptions(steps=60, batch_size=128, seeds=1, items=120))
    figures = {method: {name: one[0] for name, one in row.items()} for method, row in made.figures.items()}
    assert figures[LEARNED]["shift"] < 0.8 * figures[LINEAR]["shift"]
    assert figures[LEARNED]["same digit"] > 0.7
    kept = json.loads((tmp_path / "reproduction.json").read_text("utf-8"))
    assert np.array(kept["maps"][LEARNED]).shape == (48 * 5, 2)
    assert (tmp_path / "map.svg").read_text("utf-8").startswith("<?xml")


def test_the_command_runs_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "drlim", "digits", "--small", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "locally linear embedding" in said
    assert "It has maps and no numbers." in said
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"map.svg", "reproduction.json", "reproduction.md"}
    assert main(["reproduce", "drlim", "letters"]) == 2
    assert "Unknown experiment 'letters'. Known: digits." in capsys.readouterr().err
    assert main([*words[:3], "--seeds", "0"]) == 2
    assert "'seeds' must be at least 1" in capsys.readouterr().err


def test_too_few_digits_are_refused() -> None:
    with pytest.raises(UserError, match="'items' must be at least 40"):
        check_options(DrlimOptions(items=10))
