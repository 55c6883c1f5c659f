"""Triplets as people store them: every form gives the same triplets, and what may mean two things is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import cml
from cml import TripletJudgements
from cml.errors import UserError

ITEMS = [f"w{number:02d}" for number in range(20)]


def draw(count: int) -> list[tuple[str, str, str]]:
    """Anchor, nearer and farther item of random questions, of which the last answer differs in both directions."""
    rng = np.random.default_rng(count)
    return [tuple(ITEMS[item] for item in rng.choice(20, 3, replace=False)) for _ in range(count)]


def sort_triplets(rows: list[tuple[str, str, str]]) -> list[list[int]]:
    return TripletJudgements(pd.DataFrame(rows, columns=["anchor", "nearer", "farther"]), ITEMS).triplets.tolist()


def of_two(rows: list[tuple[str, str, str]], cells: tuple[Any, Any], *names: str) -> pd.DataFrame:
    """A table whose response says by one of two cells whether the first or the second option is nearer."""
    table = []
    for number, (anchor, nearer, farther) in enumerate(rows):
        is_first = number % 3 > 0
        table.append([anchor, *((nearer, farther) if is_first else (farther, nearer)), cells[not is_first]])
    return pd.DataFrame(table, columns=list(names))


@pytest.mark.parametrize("count", [12, 100])
@pytest.mark.parametrize(
    ("cells", "names"),
    [
        ((1, -1), ("i", "j", "k", "response")),
        ((1, -1), ("head", "option_a", "option_b", "answer")),
        ((1, 2), ("query", "image_1", "image_2", "choice")),
        (("left", "right"), ("reference_image", "left_image", "right_image", "chosen")),
    ],
)
def test_two_options_and_a_response(count: int, cells: tuple[Any, Any], names: tuple[str, ...]) -> None:
    rows = draw(count)
    judged = TripletJudgements(of_two(rows, cells, *names), ITEMS)
    assert judged.triplets.tolist() == sort_triplets(rows)
    assert names[0] in judged.remarks[0]


@pytest.mark.parametrize("count", [12, 100])
def test_two_options_and_votes(count: int) -> None:
    rows = draw(count)
    frame = of_two(rows, (True, False), "ref_path", "left_path", "right_path", "is_left")
    frame["left_vote"], frame["right_vote"] = frame["is_left"] * 7, (~frame["is_left"]) * 7
    judged = TripletJudgements(frame.drop(columns="is_left"), ITEMS)
    assert judged.triplets.tolist() == sort_triplets(rows)
    assert set(judged.counts.tolist()) <= {7, 14}


@pytest.mark.parametrize("count", [12, 100])
def test_two_options_and_the_name_of_the_nearer(count: int) -> None:
    rows = draw(count)
    frame = of_two(rows, (True, False), "anchor", "a", "b", "winner")
    frame["winner"] = [row[1] for row in rows]
    assert TripletJudgements(frame, ITEMS).triplets.tolist() == sort_triplets(rows)


@pytest.mark.parametrize("count", [12, 100])
@pytest.mark.parametrize("spelled", ["from 1", "from 0", "by name"])
def test_the_odd_one_out_gives_two_triplets(count: int, spelled: str) -> None:
    rows = draw(count)
    table, expected = [], []
    for number, (one, other, odd) in enumerate(rows):
        three = [one, other]
        three.insert(number % 3, odd)
        table.append([*three, {"from 1": number % 3 + 1, "from 0": number % 3, "by name": odd}[spelled]])
        expected += [(one, other, odd), (other, one, odd)]
    judged = TripletJudgements(pd.DataFrame(table, columns=["image1", "image2", "image3", "choice"]), ITEMS)
    assert judged.triplets.tolist() == sort_triplets(expected)
    assert "unlike the two others" in judged.remarks[0]


@pytest.mark.parametrize("count", [12, 100])
def test_positive_and_negative_are_nearer_and_farther(count: int) -> None:
    rows = draw(count)
    judged = TripletJudgements(pd.DataFrame(rows, columns=["anchor", "positive", "negative"]), ITEMS)
    assert judged.triplets.tolist() == sort_triplets(rows)


@pytest.mark.parametrize("count", [12, 100])
def test_what_may_mean_two_things_is_refused(count: int) -> None:
    rows = draw(count)
    with pytest.raises(
        UserError, match="holds 0 and 1, which may mean that j is nearer where it is 1, or where it is 0"
    ):
        TripletJudgements(of_two(rows, (0, 1), "i", "j", "k", "response"), ITEMS)
    with pytest.raises(UserError, match="may say by a number from 1, by a number from 0, or by name"):
        TripletJudgements(of_two(rows, (1, 2), "image1", "image2", "image3", "choice"), ITEMS)
    unknown = pd.DataFrame(rows, columns=["p", "q", "r"])
    with pytest.raises(UserError, match="rename yours only where they mean the same"):
        TripletJudgements(unknown, ITEMS)


@pytest.mark.parametrize("size", [12, 100])
def test_a_matrix_of_distances_is_not_taken_for_labels(size: int) -> None:
    points = np.random.default_rng(size).normal(size=(size, 2))
    matrix = np.linalg.norm(points[:, None] - points[None], axis=2)
    for given in (matrix, matrix.tolist(), pd.DataFrame(matrix)):
        with pytest.raises(UserError, match="give it as label_distance=M, without labels"):
            cml.fit(points, given, steps=1, quiet=True)
    with pytest.raises(UserError, match=r"give it as label_distance=M.max\(\) - M"):
        cml.fit(points, 1 - matrix / matrix.max(), steps=1, quiet=True)
    options: dict[str, Any] = {"steps": 1, "sampler": f"random(batch_size={size})", "quiet": True}
    assert cml.fit(points, matrix, label_distance="euclidean", **options).label_distance.name == "euclidean"
