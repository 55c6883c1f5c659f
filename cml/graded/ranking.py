"""Ranked documents of queries, and how good they are by the grades of the documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float32, Int64
from cml.distances.labels import short
from cml.errors import UserError
from cml.graded.grade_files import read_run, write_run
from cml.graded.grades import Grades
from cml.graded.measures import MEASURES, RankedGrades, measure_queries, parse_measure
from cml.graded.named_side import number_names
from cml.graded.ranking_evaluation import RankingEvaluation
from cml.retrieval.search import nearest_embeddings


class Ranking:
    """The documents that were found for each query, the best first.

    Documents of equal score are in falling order of their names, and scores are rounded to float32, as trec_eval does
    both.

    Args:
        documents: (Q, K) positions of documents among ``document_names``, -1 for none.
        scores: (Q, K) their scores, the larger the better.
        query_names: The names of the Q queries.
        document_names: The names of the D documents.

    Attributes:
        documents: (Q, K) as given, in order of rank.
        scores: (Q, K) float32, falling; that of no document is minus infinity.
        query_names: As given.
        document_names: As given.

    Raises:
        UserError: The arrays have other shapes, a position or score is out of range.

    Example:
        >>> ranking = Ranking([[1, 0]], [[0.2, 0.9]], ["q"], ["a", "b"])
        >>> ranking.documents.tolist()
        [[0, 1]]
        >>> evaluation = ranking.evaluate(Grades(["q", "q"], ["a", "b"], [1, 3]), ["ndcg@10", "mrr"])
        >>> {name: round(value, 3) for name, value in evaluation.means.items()}
        {'ndcg@10': 0.797, 'mrr': 1.0}
    """

    def __init__(
        self,
        documents: Any,  # noqa: ANN401 - an array, checked here
        scores: Any,  # noqa: ANN401
        query_names: Sequence[str],
        document_names: Sequence[str],
    ) -> None:
        places, values = np.asarray(documents), np.asarray(scores, np.float64).astype(np.float32)
        if places.ndim != 2 or places.dtype.kind not in "iu" or places.shape != values.shape:
            raise UserError(
                "A ranking takes positions and scores of documents, both (Q, K). "
                f"Got {places.dtype} {places.shape} and {values.shape} instead."
            )
        if len(places) != len(query_names):
            raise UserError(f"There are {len(query_names)} queries. Got the documents of {len(places)} instead.")
        if places.size and not -1 <= places.min() <= places.max() < len(document_names):
            raise UserError(f"The positions of documents should be -1 for none, or 0 to {len(document_names) - 1}.")
        if not np.isfinite(values[places >= 0]).all():
            raise UserError("The scores of documents should be finite numbers.")
        self.query_names, self.document_names = query_names, document_names
        values = np.where(places >= 0, values, -np.inf).astype(np.float32)
        names = np.array([*document_names], dtype=np.str_)
        ranks = np.empty(len(names) + 1, np.int64)  # of the names, falling; the last is that of no document
        ranks[np.argsort(names, kind="stable")[::-1]] = np.arange(len(names))
        ranks[-1] = len(names)
        order = np.lexsort((ranks[places], -values), axis=1)
        self.documents: Int64 = np.take_along_axis(places, order, 1).astype(np.int64)
        self.scores = np.take_along_axis(values, order, 1)

    @classmethod
    def of_embeddings(
        cls,
        queries: Float32,
        documents: Float32,
        k: int = 1000,
        *,
        query_names: Sequence[str] | None = None,
        document_names: Sequence[str] | None = None,
    ) -> Ranking:
        """Rank documents by the distance of their embeddings, exactly.

        Args:
            queries: (Q, D) embeddings.
            documents: (N, D) embeddings. L2-normalise both to rank by the cosine.
            k: Documents of each query, all of them where there are fewer.
            query_names: The names of the queries; None for their numbers.
            document_names: The names of the documents.

        Returns:
            The ranking, with negative distances as scores.

        Raises:
            UserError: The embeddings do not fit each other, or k is below 1.

        Example:
            >>> import numpy as np
            >>> Ranking.of_embeddings(np.float32([[0.0]]), np.float32([[2.0], [1.0]])).documents.tolist()
            [[1, 0]]
        """
        distances, found = nearest_embeddings(queries, documents, min(k, len(documents)))
        names = [
            number_names(count) if given is None else given
            for count, given in ((len(queries), query_names), (len(documents), document_names))
        ]
        return cls(found, -distances, *names)

    @classmethod
    def read(cls, path: Path | str) -> Ranking:
        """Read a run file of TREC.

        Args:
            path: Lines of query, Q0, document, rank, score and the name of the run. Scores decide on the order.

        Returns:
            The ranking, of the queries and documents in the file.

        Raises:
            DataError: The file is missing, or a line is no such line; names it.
        """
        run = read_run(Path(path))
        queries = {name: number for number, name in enumerate(dict.fromkeys(run.query))}
        documents = {name: number for number, name in enumerate(dict.fromkeys(run.document))}
        rows = np.array([queries[name] for name in run.query])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        places = np.arange(len(rows)) - np.searchsorted(rows, rows)
        found = np.full((len(queries), int(places.max()) + 1), -1)
        scores = np.zeros(found.shape)
        found[rows, places] = np.array([documents[name] for name in run.document])[order]
        scores[rows, places] = np.array(run.score)[order]
        return cls(found, scores, [*queries], [*documents])

    def write(self, path: Path | str, *, tag: str = "cml") -> None:
        """Write a run file of TREC.

        Args:
            path: The file.
            tag: The name of the run.

        Raises:
            UserError: A name holds white space.
        """

        def list_rows() -> Iterator[tuple[str, str, int, float]]:
            for query, found, scores in zip(self.query_names, self.documents, self.scores, strict=True):
                for rank, (document, score) in enumerate(zip(found.tolist(), scores.tolist(), strict=True), 1):
                    if document >= 0:
                        yield query, self.document_names[document], rank, score

        write_run(Path(path), list_rows(), [*self.query_names, *self.document_names], tag)

    def __repr__(self) -> str:
        return f"Ranking({len(self.documents):,} queries, {self.documents.shape[1]:,} documents each)"

    def condense(self, grades: Grades) -> Ranking:
        """Leave out documents without a grade for the query (Sakai, SIGIR 2007).

        ``evaluate`` counts such documents as not relevant, as trec_eval does. Where few documents have a grade,
        condensed rankings compare systems more fairly, above all those that had no part in choosing what was judged.

        Args:
            grades: The grades, whose queries and documents are matched by name.

        Returns:
            The ranking of the documents that have a grade for their query.

        Example:
            >>> ranking = Ranking([[0, 1]], [[0.9, 0.2]], ["q"], ["a", "b"])
            >>> ranking.condense(Grades(["q", "q"], ["b", "c"], [1, 0])).documents.tolist()
            [[1, -1]]
        """
        rows = {name: row for row, name in enumerate(grades.queries)}
        columns = {name: column for column, name in enumerate(grades.documents)}
        own = np.array([rows.get(name, -1) for name in self.query_names])
        places = np.array([*(columns.get(name, -1) for name in self.document_names), -1])
        known = grades.look_up(np.maximum(own, 0)[:, None], places[self.documents])[1] & (own >= 0)[:, None]
        return Ranking(np.where(known, self.documents, -1), self.scores, self.query_names, self.document_names)

    def evaluate(self, grades: Grades, measures: Sequence[str] = MEASURES) -> RankingEvaluation:
        """Measure how good the ranking of each query is.

        Args:
            grades: The grades. Queries are matched by name; every query that has a grade counts, with 0 if the ranking
                lacks it.
            measures: Names such as ``ndcg@10``, ``ndcg(gains=exponential)@10``, ``precision(grade=2)@5``, ``recall``,
                ``map``, ``mrr@10``, ``bpref`` and ``judged@10``, the share of what was found that was judged.

        Returns:
            The values by query, with means and intervals.

        Raises:
            UserError: No query of the ranking has a grade, or a measure is unknown.
        """
        for name in measures:
            parse_measure(name)
        judged = np.unique(grades.rows)
        own = {name: row for row, name in enumerate(self.query_names)}
        rows = np.array([own.get(grades.queries[query], -1) for query in judged.tolist()])
        if (rows < 0).all():
            raise UserError(
                f"No query of the ranking has a grade: it has queries such as {short(self.query_names[0])}, the grades "
                f"such as {short(grades.queries[int(judged[0])])}."
            )
        columns = {name: column for column, name in enumerate(grades.documents)}
        places = np.array([*(columns.get(name, -1) for name in self.document_names), -1])
        found = np.where(rows[:, None] >= 0, self.documents[rows], -1)
        gains, known = grades.look_up(judged[:, None], places[found])
        ranked = RankedGrades(gains, known, found >= 0, np.searchsorted(judged, grades.rows), grades.gains)
        values = np.stack([measure_queries(ranked, name) for name in measures], axis=1)
        return RankingEvaluation(tuple(grades.queries[query] for query in judged.tolist()), tuple(measures), values)
