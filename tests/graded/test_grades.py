"""Grades from arrays, sparse matrices, triples, frames and files; what is wrong with them is named."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch

import cml
from cml import UserError
from cml.errors import DataError
from cml.graded.distance import GradedDistance
from cml.graded.grades import Grades


def content(grades: Grades) -> list[tuple[str, str, float]]:
    """The judged pairs by their names."""
    return [
        (grades.queries[row], grades.documents[column], gain)
        for row, column, gain in zip(grades.rows.tolist(), grades.columns.tolist(), grades.gains.tolist(), strict=True)
    ]


def test_all_sources_give_the_same_grades(tmp_path: Path) -> None:
    matrix = np.array([[2.0, np.nan, 0.0], [np.nan, 1.5, np.nan]])
    names = {"queries": ["a", "b"], "documents": ["x", "y", "z"]}
    wanted = [("a", "x", 2.0), ("a", "z", 0.0), ("b", "y", 1.5)]
    sparse = scipy.sparse.coo_array(([0.0, 2.0, 1.5], ([0, 0, 1], [2, 0, 1])), shape=(2, 3))
    frame = pd.DataFrame({"query": ["b", "a", "a"], "document": ["y", "z", "x"], "grade": [1.5, 0.0, 2.0]})
    beir = tmp_path / "test.tsv"
    beir.write_text("query-id\tcorpus-id\tscore\nb\ty\t1.5\na\tz\t0\na\tx\t2\n")
    sources = [
        Grades.from_matrix(matrix, **names),
        Grades.from_matrix(matrix.tolist(), **names),
        Grades.from_matrix(torch.tensor(matrix), **names),
        Grades.from_matrix(sparse, **names),
        Grades(["a", "b", "a"], ["x", "y", "z"], [2, 1.5, 0], **names),
        Grades.from_frame(frame, **names),
        Grades.from_frame(frame.rename(columns={"grade": "score"}), grade="score", **names),
        Grades.read(beir, **names),
    ]
    sources[0].write(tmp_path / "qrels.txt")
    sources.append(Grades.read(tmp_path / "qrels.txt", **names))
    for grades in sources:
        assert content(grades) == wanted
        assert grades.distances.tolist() == [0.0, 2.0, 0.5]
    assert content(Grades.from_matrix(matrix))[0] == ("0", "0", 2.0)


def test_distances_follow_the_rule() -> None:
    assert Grades([0, 0], [0, 1], [1, 3]).distance_unjudged == np.inf
    zero = Grades([0, 0], [0, 1], [1, 3], unjudged="zero")
    assert (zero.distances.tolist(), zero.distance_unjudged) == ([2.0, 0.0], 3.0)
    own = Grades([0, 0], [0, 1], [-1, 3], unjudged="zero", distance=lambda gains: np.exp2(-gains))
    assert (own.distances.tolist(), own.distance_unjudged) == ([2.0, 0.125], 1.0)


def test_the_label_distance_has_a_direction() -> None:
    grades = Grades([0, 1], [1, 0], [2, 1], documents=3)
    distance = GradedDistance(grades)
    labels = distance.encode(range(5))
    block = distance.pairwise(labels, labels)
    wanted = np.full((5, 5), np.inf)
    np.fill_diagonal(wanted, 0)
    wanted[0, 3], wanted[1, 2] = 0, 1
    np.testing.assert_array_equal(block, wanted)
    zero = GradedDistance(Grades([0, 1], [1, 0], [2, 1], documents=3, unjudged="zero"))
    wanted[:2, 2:][np.isinf(wanted[:2, 2:])] = 2
    np.testing.assert_array_equal(zero.pairwise(labels, labels), wanted)
    with pytest.raises(UserError, match=r"number of a query or document, from 0 to 4. Got 5"):
        distance.encode([5])


def test_equal_judgements_of_a_pair_are_one() -> None:
    assert len(Grades(["a", "a", "a"], ["x", "x", "y"], [1, 1, 2])) == 2


@pytest.mark.parametrize(
    ("pairs", "options", "message"),
    [
        ([("a", "x", float("nan"))], {}, "Pair 0: a grade should be a finite number of at least 0. Got nan"),
        ([("a", "x", "good")], {}, "Got 'good' instead; mend or delete it"),
        ([("a", "x", 1), ("a", "y", -2)], {}, "Pair 1: .* Got -2 instead; give distance="),
        ([("a", "x", 1), ("a", "x", 2)], {}, "Pair 0 gives query and document 'a' and 'x' the grade 1, but Pair 1"),
        ([("a", "x", 2), ("a", "y", 2)], {}, "All 2 grades are 2, so no document is better .*: unjudged='zero'"),
        ([("a", "w", 1)], {"documents": ["x"]}, "Pair 0: the document 'w' is unknown: it is not among the 1 document"),
        ([(0, 7, 1)], {"documents": 5}, "the document 7 should be a number from 0 to 4"),
        ([("a", "x", 1)], {"queries": ["a", "a"]}, "'queries' names 'a' twice"),
        ([("a", "x", 1)], {"unjudged": "skip"}, "'unjudged' should be incomparable or zero. Got 'skip'"),
        ([], {}, "There are no grades"),
        ([("a", "x", 1), ("a", "y", 2)], {"distance": lambda gains: gains[:1]}, r"a number for each grade, \(2,\)"),
        ([("a", "x", 1), ("a", "y", 2)], {"distance": lambda gains: -gains}, "Got -1 for the grade 1"),
    ],
)
def test_wrong_grades_are_named(pairs: list[Any], options: dict[str, Any], message: str) -> None:
    columns = list(zip(*pairs, strict=True)) if pairs else [(), (), ()]
    with pytest.raises(UserError, match=message):
        Grades(*columns, **options)


def test_wrong_shapes_and_columns_are_named() -> None:
    with pytest.raises(UserError, match=r"one length. Got 1, 2 and 1"):
        Grades(["a"], ["x", "y"], [1])
    with pytest.raises(UserError, match=r"no column 'grade'. .*It has: query, document, grades"):
        Grades.from_frame({"query": [], "document": [], "grades": []})
    with pytest.raises(UserError, match=r"should be \(Q, D\) numbers"):
        Grades.from_matrix(np.arange(3))
    with pytest.raises(UserError, match=r"has 2 queries. Got 1 names"):
        Grades.from_matrix(np.eye(2), queries=["a"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q 0 d 1\nq 0\n", ":2: a line of a qrels file should hold .* Got 2 columns"),
        ("q 0 d 1\nq 0 e good\n", ":2: the grade should be a number. Got 'good'"),
        ("q 0 d 1\nq 0 e nan\n", "qrels.txt:2: a grade should be a finite number"),
        ("q 0 d 1\nq 0 d 2\n", "qrels.txt:1 gives query and document 'q' and 'd' the grade 1, but .*qrels.txt:2"),
        ("", "holds no judged pair"),
        ("q 0 d 1\nq 0 e 1\n", "qrels.txt: All 2 grades are 1, so no document is better"),
        ("\xff\xfe 0 d 1\n", ":1: the line is no text in UTF-8"),
    ],
)
def test_damaged_qrels_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "qrels.txt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        Grades.read(path)
    with pytest.raises(DataError, match=r"is missing"):
        Grades.read(tmp_path / "none.txt")


def test_inputs_are_found_by_name() -> None:
    grades = cml.Grades(["b", "a"], ["y", "x"], [1, 2])
    aligned = grades.align(pd.Series([10, 20], index=["a", "b"]), {"x": 1, "w": 2, "y": 3})
    assert content(aligned.grades) == [("a", "x", 2.0), ("b", "y", 1.0)]
    assert aligned.grades.columns.tolist() == [0, 2]
    assert aligned.documents == [1, 2, 3]
    assert aligned.grades.distances.tolist() == [0.0, 1.0]


def test_inputs_that_do_not_fit_are_named() -> None:
    grades = Grades(["b", "a"], ["y", "x"], [1, 2])
    with pytest.raises(UserError, match=r"The document 'y' has a grade and no input, as 1 of 2 have none"):
        grades.align({"a": 1, "b": 2}, {"x": 1})
    with pytest.raises(UserError, match=r"name queries such as 'b', but the inputs have no names: give a mapping"):
        grades.align([1, 2], {"x": 1, "y": 2})
    with pytest.raises(UserError, match=r"The grades are of 2 documents. Got 3 inputs"):
        Grades([0, 0], [0, 1], [1, 2]).align([1], [1, 2, 3])
    with pytest.raises(UserError, match=r"Query 1 .'b'. has no judged document, as 1 of 2"):
        Grades(["a", "a"], ["x", "y"], [1, 2], queries=["a", "b"]).check_queries()


def test_exponential_gains_let_the_best_grades_count_most() -> None:
    names = ["q"] * 3, ["a", "b", "c"]
    grades = cml.Grades(*names, [3, 1, 0], distance="exponential")
    assert grades.distances.tolist() == [0, 6, 7]
    assert cml.Grades(*names, [3, 1, 0], distance="exponential", unjudged="zero").distance_unjudged == 7
    with pytest.raises(UserError, match=r"takes grades up to 20"):
        cml.Grades(*names, [30, 1, 0], distance="exponential")
    with pytest.raises(UserError, match=r"at least 0. Got -1"):
        cml.Grades(*names, [3, -1, 0], distance="exponential")


def test_grades_are_cut_to_relevant_or_not() -> None:
    grades = cml.Grades(["q", "q", "r", "r"], ["a", "b", "a", "c"], [3, 1, 1, 0])
    cut = grades.at_least(2)
    assert (list(cut.queries), list(cut.documents)) == (["q", "r"], ["a", "b", "c"])
    assert cut.gains.tolist() == [1, 0, 0, 0]  # a query without a relevant document is judged all the same
    assert cut.distances.tolist() == [0, 1, 1, 1]
    assert repr(cut) == "Grades(4 pairs of 2 queries and 3 documents)"
    with pytest.raises(UserError, match=r"No grade is at least 4: the largest is 3"):
        grades.at_least(4)
