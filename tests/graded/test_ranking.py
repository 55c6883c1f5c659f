"""Rankings and their measures equal trec_eval's and scikit-learn's; run files are read and written."""

from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cml import UserError
from cml.errors import DataError
from cml.graded.grades import Grades
from cml.graded.ranking import Ranking

THEIRS = {
    "ndcg@10": "nDCG@10",
    "ndcg@3": "nDCG@3",
    "ndcg": "nDCG",
    "precision@5": "P@5",
    "precision(grade=2)@5": "P(rel=2)@5",
    "recall@7": "R@7",
    "recall(grade=3)@7": "R(rel=3)@7",
    "map": "AP",
    "map(grade=2)": "AP(rel=2)",
    "map@6": "AP@6",
    "mrr": "RR",
    "mrr(grade=3)": "RR(rel=3)",
    "bpref": "Bpref",
    "bpref(grade=2)": "Bpref(rel=2)",
}


def draw(seed: int, queries: int = 20, documents: int = 30) -> tuple[Grades, Ranking]:
    """Random grades and scores with ties, documents that were not judged, and some that were not found."""
    rng = np.random.default_rng(seed)
    names = [f"q{number}" for number in range(queries)], [f"d{number}" for number in range(documents)]
    judged = rng.random((queries, documents)) < rng.choice([0.1, 0.4, 0.9])
    judged[rng.integers(queries), :2] = True
    rows, columns = np.nonzero(judged)
    gains = rng.integers(0, 4, len(rows))
    gains[:2] = 0, 3
    grades = Grades(
        [names[0][row] for row in rows], [names[1][column] for column in columns], gains, documents=names[1]
    )
    size = int(rng.integers(1, documents))
    found = np.stack([rng.permutation(documents)[:size] for _ in range(queries)])
    found[rng.random(found.shape) < 0.1] = -1
    found[:, 0] = rng.integers(documents, size=queries) if size == 1 else found[:, 0]
    scores = rng.integers(0, 6, found.shape) / 4
    return grades, Ranking(found, scores, *names)


def as_trec(grades: Grades, ranking: Ranking) -> tuple[list, list]:
    """Both as the records of ir-measures."""
    qrels = [
        ir_measures.Qrel(grades.queries[row], grades.documents[column], int(gain))
        for row, column, gain in zip(grades.rows, grades.columns, grades.gains, strict=True)
    ]
    run = [
        ir_measures.ScoredDoc(query, ranking.document_names[document], float(score))
        for query, found, scores in zip(ranking.query_names, ranking.documents, ranking.scores, strict=True)
        for document, score in zip(found, scores, strict=True)
        if document >= 0
    ]
    return qrels, run


def compare_with_trec_eval(seed: int, **sizes: int) -> None:
    """Compare all measures of all queries."""
    grades, ranking = draw(seed, **sizes)
    evaluation = ranking.evaluate(grades, list(THEIRS))
    measures = {ir_measures.parse_measure(text): name for name, text in THEIRS.items()}
    known = set()
    for metric in ir_measures.iter_calc(list(measures), *as_trec(grades, ranking)):
        ours = evaluation.values[
            evaluation.queries.index(metric.query_id), evaluation.measures.index(measures[metric.measure])
        ]
        assert ours == pytest.approx(metric.value, abs=1e-12), (seed, metric)
        known.add(metric.query_id)
    assert known


@pytest.mark.parametrize("seed", range(8))
def test_measures_equal_those_of_trec_eval(seed: int) -> None:
    compare_with_trec_eval(seed)


@pytest.mark.slow
def test_measures_equal_those_of_trec_eval_on_a_thousand_rankings() -> None:
    for seed in range(1000):
        compare_with_trec_eval(seed, queries=4)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_ndcg_equals_that_of_scikit_learn(seed: int) -> None:
    from sklearn.metrics import ndcg_score

    rng = np.random.default_rng(seed)
    gains, scores = rng.integers(0, 5, (3, 12)).astype(float), rng.permutation(36).reshape(3, 12)
    gains[:, 0] = 0, 4, 1
    ranking = Ranking(np.tile(np.arange(12), (3, 1)), scores, list("abc"), [f"{number:02d}" for number in range(12)])
    grades = Grades.from_matrix(gains, queries=list("abc"), documents=ranking.document_names)
    evaluation = ranking.evaluate(grades, ["ndcg@5", "ndcg(gains=exponential)@5"])
    wanted = [[ndcg_score([worth[row]], [scores[row]], k=5) for worth in (gains, 2**gains - 1)] for row in range(3)]
    np.testing.assert_allclose(evaluation.values, wanted, atol=1e-12)


def test_a_query_that_was_not_ranked_counts_as_nothing_found() -> None:
    grades = Grades(["a", "b"], ["x", "y"], [1, 2])
    evaluation = Ranking([[0]], [[1.0]], ["a"], ["x"]).evaluate(grades, ["ndcg@10"])
    assert evaluation.means == {"ndcg@10": 0.5}


def test_intervals_are_those_of_the_queries() -> None:
    grades, ranking = draw(3, queries=60)
    evaluation = ranking.evaluate(grades, ["ndcg@10"])
    low, high = evaluation.intervals["ndcg@10"]
    assert low < evaluation.means["ndcg@10"] < high
    assert "ndcg@10" in str(evaluation)
    assert evaluation.compare(evaluation).intervals["ndcg@10"] == (0.0, 0.0)
    with pytest.raises(UserError, match=r"same measures of the same queries"):
        evaluation.compare(ranking.evaluate(grades, ["mrr"]))


def test_a_run_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    grades, ranking = draw(5)
    ranking.write(tmp_path / "run.txt")
    again = Ranking.read(tmp_path / "run.txt")
    np.testing.assert_array_equal(ranking.evaluate(grades).values, again.evaluate(grades).values)
    grades.write(tmp_path / "qrels.txt")
    theirs = ir_measures.read_trec_qrels(str(tmp_path / "qrels.txt"))
    assert sorted(map(tuple, theirs)) == sorted((*qrel[:3], "0") for qrel in map(tuple, as_trec(grades, ranking)[0]))
    run = ir_measures.read_trec_run(str(tmp_path / "run.txt"))
    assert len(list(run)) == int((ranking.documents >= 0).sum())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 0.5\n", ":1: a line of a run file should hold .* Got 5 columns"),
        ("q Q0 d 1 0.5 t\nq Q0 e 2 nan t\n", ":2: the score should be a finite number. Got 'nan'"),
        ("q Q0 d 1 0.5 t\nq Q0 d 2 0.4 t\n", ":2: the document 'd' is there twice for the query 'q'"),
        ("\n", "holds no ranked document"),
        ("q Q0 \xff 1 0.5 t\n", ":1: the line is no text in UTF-8"),
    ],
)
def test_damaged_run_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.txt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        Ranking.read(path)


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("ndgc@10", "no measure 'ndgc'. Did you mean 'ndcg'"),
        ("precision", "needs a number of documents, as in precision@10"),
        ("ndcg@0", "needs a number of documents"),
        ("map(gains=linear)", "'map' has no setting 'gains'"),
        ("map(grade=-1)", "least 'grade' of a relevant document must be at least 0"),
    ],
)
def test_wrong_measures_are_named(measure: str, message: str) -> None:
    grades, ranking = draw(1)
    with pytest.raises(UserError, match=message):
        ranking.evaluate(grades, [measure])


def test_wrong_rankings_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"both .Q, K."):
        Ranking([0], [1.0], ["a"], ["x"])
    with pytest.raises(UserError, match=r"There are 2 queries. Got the documents of 1"):
        Ranking([[0]], [[1.0]], ["a", "b"], ["x"])
    with pytest.raises(UserError, match=r"-1 for none, or 0 to 0"):
        Ranking([[1]], [[1.0]], ["a"], ["x"])
    with pytest.raises(UserError, match=r"finite"):
        Ranking([[0]], [[np.nan]], ["a"], ["x"])
    with pytest.raises(UserError, match=r"names must have none. Got 'a b'"):
        Ranking([[0]], [[1.0]], ["a b"], ["x"]).write(tmp_path / "run.txt")
    with pytest.raises(UserError, match=r"No query of the ranking has a grade: .*'a', the grades such as 'q'"):
        Ranking([[0]], [[1.0]], ["a"], ["x"]).evaluate(Grades(["q", "q"], ["x", "y"], [1, 2]))
