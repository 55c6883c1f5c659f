"""Judged pairs and triplets as tables: their labels, repeated and contradicting rows, raters, and bad input."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from cml import PairJudgements, TripletJudgements, UserError
from cml.data.judgement_questions import estimate_triplet_ceiling
from cml.errors import DataError

NAMES = ["a", "b", "c", "d"]


def test_pairs_are_joined_by_their_weighted_mean() -> None:
    frame = pd.DataFrame(
        {"item": ["a", "b", "c"], "other": ["b", "a", "a"], "distance": [1.0, 4.0, 0.5], "weight": [2.0, 1.0, 1.0]}
    )
    judged = PairJudgements(frame, NAMES)
    assert len(judged) == 4
    assert judged[0:3] == [["0", "1 2 3 1 4", "2 0.5"], ["1", "0 2 3"], ["2", "0 0.5"]]
    assert judged.remarks[0] == "1 of 4 items have no judgement and are left out: d"


def test_the_largest_similarity_is_the_distance_0() -> None:
    judged = PairJudgements({"item": [0, 1], "other": [1, 2], "similarity": [5.0, -1.0]})
    assert judged.distances.tolist() == [0, 6]
    assert PairJudgements(np.array([[0, 1, 0.5], [1, 2, 3]]))[2] == ["2", "1 3"]


def test_triplets_are_counted() -> None:
    rows = {"anchor": list("aab"), "nearer": list("bba"), "farther": list("ccd"), "count": [1, 2, 1]}
    judged = TripletJudgements(rows, NAMES)
    assert list(judged) == [["0", "1 2 3"], ["1", "0 3"], ["2"], ["3"]]
    assert judged.remarks == []
    assert TripletJudgements(np.array([[0, 1, 2]]), items=3)[0] == ["0", "1 2"]


PAIR_FAULTS = [
    ({"item": ["x"], "other": ["b"], "distance": [1]}, "Row 0 of the judged pairs names the item 'x', which is none"),
    ({"item": ["a"], "other": ["a"], "distance": [1]}, "Row 0 of the judged pairs pairs 'a' with itself; delete it."),
    ({"item": ["a"], "other": ["b"], "distance": [-1]}, "has the distance -1, which should be a number of at least 0"),
    ({"item": ["a"], "other": ["b"], "distance": ["near"]}, "has the distance 'near', which should be a number"),
    ({"item": ["a"], "other": ["b"], "distance": [float("nan")]}, "has the distance nan, which should be"),
    ({"item": ["a"], "other": ["b"], "distance": [1], "weight": [0]}, "has the weight 0, which should be a number"),
    ({"item": ["a"], "other": ["b"]}, "The judged pairs have no column 'distance'. There are: item, other"),
    ({"item": ["a"], "other": ["b"], "distance": [1], "similarity": [1]}, "a distance or a similarity. Got both"),
    ({"item": ["a"], "other": ["b"]}, "should be item, other, and distance or similarity"),
    ({"item": ["a"], "other": ["b", "c"], "distance": [1]}, "columns of one length. Got item 1, other 2, distance 1"),
    ({"item": [], "other": [], "distance": []}, "The judged pairs have no rows"),
    ({"item": [1], "other": [2], "distance": [1]}, "such as 'a'"),
    ("pairs.csv", "Got the path 'pairs.csv': read the file first"),
    (np.zeros((2, 2)), r"an array \(J, 3\): item, other, distance. Got ndarray of shape \(2, 2\)"),
]
TRIPLET_FAULTS = [
    ({"anchor": ["a"], "nearer": ["b"], "farther": ["x"]}, "names the farther 'x', which is none of the 4 items"),
    ({"anchor": ["a"], "nearer": ["b"], "farther": ["b"]}, r"names one item twice \(a, b, b\)"),
    ({"anchor": ["a"], "nearer": ["a"], "farther": ["b"]}, r"names one item twice \(a, a, b\)"),
    ({"anchor": ["a"], "nearer": ["b"], "farther": ["c"], "count": [1.5]}, "has the count 1.5, which should be"),
]


@pytest.mark.parametrize(("rows", "said"), PAIR_FAULTS)
def test_bad_pairs(rows: object, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        PairJudgements(rows, NAMES)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("rows", "said"), TRIPLET_FAULTS)
def test_bad_triplets(rows: object, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        TripletJudgements(rows, NAMES)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (3, r"names the other 3, which is none of the 3 items, whose numbers are 0 to 2"),
        (["1", "2", "3"], "such as '1': the items are named by texts, the rows by numbers; convert one of them"),
    ],
)
def test_an_unknown_item_is_explained(items: object, said: str) -> None:
    with pytest.raises(DataError, match=said):
        PairJudgements(np.array([[1, 2, 0.5], [2, 3, 1]]), items)


def test_records_are_rows() -> None:
    records = [{"item": "a", "other": "b", "distance": 1}, {"item": "a", "other": "c", "distance": 3, "rater": "ann"}]
    judged = PairJudgements(records, NAMES)
    assert judged.distances.tolist() == [1, 3]
    assert PairJudgements([{"item": 0, "other": 1, "similarity": 2}]).distances.tolist() == [0]
    assert len(TripletJudgements([{"anchor": "a", "nearer": "b", "farther": "c"}], NAMES).triplets) == 1


def test_columns_that_are_not_read_are_named() -> None:
    rows = {"item": ["a", "b"], "other": ["b", "c"], "distance": [1, 2], "weights": [1, 2], "date": [3, 4]}
    said = "columns that are not read: weights, date; those that are read: item, other, distance, weight, rater"
    assert PairJudgements(rows, NAMES).remarks[0] == said


@pytest.mark.parametrize("missing", [None, float("nan"), "", " "])
def test_judgements_without_a_rater_are_of_no_rater(missing: object) -> None:
    pairs = list(itertools.combinations("abcd", 2))
    rows = [
        {"item": one, "other": other, "distance": float(number), "rater": rater}
        for number, (one, other) in enumerate(pairs)
        for rater in ("ann", "ben", missing)
    ]
    assert sorted(PairJudgements(pd.DataFrame(rows), NAMES).raters) == ["ann", "ben"]
    triplets = [{"anchor": "a", "nearer": "b", "farther": "c", "rater": rater} for rater in ("ann", "ben", missing)]
    assert TripletJudgements(pd.DataFrame(triplets), NAMES).raters == {"ann": 1, "ben": 1}


def test_white_space_around_names_is_left_out() -> None:
    assert PairJudgements([("a", " b", 1), ("b ", "c", 2)], NAMES).questions.tolist() == [[0, 1], [1, 2]]


def test_names_need_the_items() -> None:
    with pytest.raises(UserError, match=r"which is none of the 0 items. Give 'items', the names of all items in order"):
        TripletJudgements({"anchor": ["a"], "nearer": ["b"], "farther": ["c"]})


def test_the_place_of_a_row_keeps_its_case() -> None:
    with pytest.raises(
        DataError, match=r"^pairs\.csv:2 names the item 'x', which is none of the 4 items, such as 'a'\.$"
    ):
        PairJudgements({"item": ["x"], "other": ["b"], "distance": [1]}, NAMES, places=["pairs.csv:2"])


def test_bad_rows_may_be_left_out() -> None:
    faults: list[DataError] = []
    rows = {"item": ["a", "x", "c"], "other": ["b", "b", "c"], "distance": [1, 1, 1]}
    judged = PairJudgements(rows, NAMES, places=["p.csv:2", "p.csv:3", "p.csv:4"], faults=faults)
    assert judged.first.tolist() == [0]
    assert [str(fault).partition(" ")[0] for fault in faults] == ["p.csv:3:", "p.csv:4:"]
    with pytest.raises(UserError, match="No judged pair is left"):
        PairJudgements({"item": ["x"], "other": ["b"], "distance": [1]}, NAMES, faults=[])
    with pytest.raises(UserError, match=r"'items' should name each item once\. Got 'a' twice"):
        PairJudgements(rows, ["a", "b", "a"])


def repeated_pairs(noise: float, items: int = 40, times: int = 2) -> PairJudgements:
    """All pairs of items on a line, each judged several times with noise, by a rater each time."""
    rng = np.random.default_rng(0)
    places = rng.normal(size=items)
    first, second = np.triu_indices(items, 1)
    truth = np.tile(np.abs(places[first] - places[second]), times)
    rows = {
        "item": np.tile(first, times),
        "other": np.tile(second, times),
        "distance": np.abs(truth + noise * rng.normal(size=len(truth))),
        "rater": np.repeat([f"rater {n}" for n in range(times)], len(first)),
    }
    return PairJudgements(rows, items)


def test_the_ceiling_of_pairs_is_the_correlation_with_the_truth() -> None:
    assert repeated_pairs(0).ceiling == pytest.approx(1)
    assert repeated_pairs(0).remarks == []
    rng = np.random.default_rng(0)
    places = rng.normal(size=40)
    judged = repeated_pairs(0.5)
    truth = np.abs(places[judged.first] - places[judged.second])
    from scipy.stats import spearmanr

    assert judged.ceiling == pytest.approx(spearmanr(judged.distances, truth)[0], abs=0.05)
    assert set(judged.raters) == {"rater 0", "rater 1"}
    assert judged.raters["rater 0"] == pytest.approx(judged.raters["rater 1"])
    assert any("further apart than the standard deviation" in remark for remark in repeated_pairs(3).remarks)


@pytest.mark.parametrize("flips", [0.0, 0.1, 0.3])
def test_the_ceiling_of_triplets_is_the_share_that_is_not_flipped(flips: float) -> None:
    rng = np.random.default_rng(1)
    questions = np.array([rng.choice(30, 3, replace=False) for _ in range(1500)])
    questions[:, 1:].sort(axis=1)  # one right answer to a question that is drawn twice
    asked = np.repeat(questions, 3, axis=0)
    flipped = rng.random(len(asked)) < flips
    asked[flipped] = asked[flipped][:, [0, 2, 1]]
    judged = TripletJudgements(
        dict(zip(("anchor", "nearer", "farther"), asked.T, strict=True)) | {"rater": np.tile(["x", "y", "z"], 1500)}, 30
    )
    assert judged.ceiling == pytest.approx(1 - flips, abs=0.02)
    assert judged.raters["x"] == pytest.approx(judged.raters["y"], abs=0.05)
    assert any("contradict the majority" in remark for remark in judged.remarks) == (flips > 0.25)


def questions_of(judged: PairJudgements | TripletJudgements) -> set[tuple[int, ...]]:
    return {tuple(question) for question in judged.questions.tolist()}


def test_held_out_triplets_share_no_question_and_lose_no_judgement() -> None:
    rng = np.random.default_rng(3)
    asked = np.array([rng.choice(12, 3, replace=False) for _ in range(400)])  # of 660 questions, many several times
    columns = dict(zip(("anchor", "nearer", "farther"), asked.T, strict=True))
    for raters in ({}, {"rater": np.tile(["x", "y"], 200)}):
        judged = TripletJudgements({**columns, **raters}, 12)
        train, test = judged.hold_out(0.25, seed=5)
        assert len(test.questions) == round(0.25 * len(judged.questions))
        assert questions_of(train).isdisjoint(questions_of(test))
        assert questions_of(train) | questions_of(test) == questions_of(judged)
        assert train.counts.sum() + test.counts.sum() == 400
        assert len(train) == len(test) == len(judged) == 12
        assert set(train.raters) == set(judged.raters)
        # the table of one side alone gives the same labels
        own = [row for row in asked.tolist() if (row[0], *sorted(row[1:])) in questions_of(test)]
        assert list(TripletJudgements(np.array(own), 12)) == list(test)
    assert list(judged.hold_out(0.25, seed=6)[1]) != list(test)


def test_held_out_pairs_take_both_orders_and_keep_the_scale_of_similarities() -> None:
    first, second = np.triu_indices(10, 1)
    rows = {
        "item": np.concatenate([first, second]),
        "other": np.concatenate([second, first]),
        "similarity": np.arange(90.0),
        "weight": np.tile([1.0, 2.0], 45),
        "rater": np.repeat(["x", "y"], 45),
    }
    judged = PairJudgements(rows, 10)
    train, test = judged.hold_out()
    assert questions_of(train).isdisjoint(questions_of(test))
    assert len(train.first) + len(test.first) == 45
    known = {tuple(pair): far for pair, far in zip(judged.questions.tolist(), judged.distances, strict=True)}
    for side in (train, test):
        assert [known[tuple(pair)] for pair in side.questions.tolist()] == pytest.approx(side.distances.tolist())
        assert side.weights.sum() == pytest.approx(3 * len(side.first))
        assert set(side.raters) == {"x", "y"}


def test_bad_shares_of_held_out_judgements_are_one_line() -> None:
    judged = PairJudgements({"item": [0] * 30, "other": range(1, 31), "distance": range(30)})
    for fraction in (0, 1, -0.5, float("nan")):
        with pytest.raises(UserError, match=r"^'test_fraction' should be above 0 and below 1\. Got"):
            judged.hold_out(fraction)
    with pytest.raises(
        UserError, match=r"^A test_fraction of 0\.01 of 30 pairs leaves none on the test side\. Raise it"
    ):
        judged.hold_out(0.01)
    with pytest.raises(UserError, match=r"of 30 pairs leaves none on the training side\. Lower it\.$"):
        judged.hold_out(0.99)
    few = TripletJudgements({"anchor": [0] * 19, "nearer": [1] * 19, "farther": range(2, 21)})
    with pytest.raises(UserError, match=r"^To hold out judgements takes at least 20 different triplets\. Got 19"):
        few.hold_out()


def test_the_ceiling_of_triplets_is_that_of_counting_pairs_of_judgements() -> None:
    rng = np.random.default_rng(7)
    votes, anchors = rng.integers(0, 4, (200, 2)), rng.integers(0, 15, 200)
    shares = []
    for anchor in range(15):
        weighed = total = 0.0
        for first, second in votes[anchors == anchor].tolist():
            answers = [0] * first + [1] * second
            if len(answers) < 2:
                continue
            pairs = list(itertools.combinations(answers, 2))
            weighed += len(answers) * sum(one == other for one, other in pairs) / len(pairs)
            total += len(answers)
        if total:
            shares.append(weighed / total)
    agreement = sum(shares) / len(shares)  # (1 - e)^2 + e^2
    expected = max(1 - e for e in np.roots([2, -2, 1 - agreement]).real)
    assert estimate_triplet_ceiling(votes.astype(float), anchors) == pytest.approx(expected)
    assert estimate_triplet_ceiling(votes[:5].astype(float), anchors[:5]) is None
