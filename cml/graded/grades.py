"""Graded judgements of documents for queries: from arrays, sparse matrices, triples, frames and qrels files.

A grade is a gain: the larger, the better. Losses take label distances, so a stated rule turns one into the other.
Memory is O(judged pairs).
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from cml.array_types import Bools, Float32, Float64, Int64
from cml.data.dataset_items import column_names, has_columns
from cml.data.image_sources import as_array, as_list
from cml.distances.labels import short
from cml.errors import DataError, UserError, did_you_mean
from cml.graded.grade_files import explain_swapped, read_qrels, write_qrels
from cml.graded.named_side import Side, count_of

Unjudged = Literal["incomparable", "zero"]
Rule = Callable[[Float64], Any] | Literal["exponential"]
_LARGEST = float(np.finfo(np.float32).max)
MOST_DOUBLED = 20  # the largest grade whose power of 2 float32 tells from that of the next smaller one


class Grades:
    """Grades of some documents for some queries: ``cml.fit((queries, documents), Grades(...))``.

    Queries and documents have names, or numbers from 0. Few of all pairs need a grade. A grade is a gain: a number, of
    which the largest is the best. Learning needs label distances; that of a pair is the largest gain less its own,
    unless ``distance`` says otherwise.

    Args:
        query: (P,) the query of each judged pair: names, or numbers from 0.
        document: (P,) the document of each pair, likewise.
        grade: (P,) finite numbers, of which the largest stands for the best document; at least 0 unless ``distance`` is
            given. Two pairs of one query and one document must have the same grade.
        queries: The names of the Q queries in the order of the inputs; or Q, for pairs that name them by their numbers;
            None for the names in order of their first pair, or for Q as large as the largest number needs.
        documents: The same for the D documents.
        unjudged: What a pair without a grade means: "incomparable", unknown, so that no loss compares it; or "zero", a
            grade of 0, as where most documents of a collection are irrelevant.
        distance: A function from gains (P,) to label distances (P,) of at least 0, the better the smaller; None for the
            largest gain less each, and "exponential" for the same of 2^gain, so that the best grades count most.
        places: What each pair is called in messages, such as "qrels.txt:7"; None for its number.

    Attributes:
        queries: The Q names, or numbers as text.
        documents: The D names.
        rows: (P,) the query of each judged pair, by its position; pairs are sorted by query, then by document.
        columns: (P,) its document.
        gains: (P,) its grade.
        distances: (P,) its label distance.
        unjudged: As given.
        distance_unjudged: The label distance of a pair without a grade; infinite where they are incomparable.

    Raises:
        UserError: The columns are of different lengths; a query or document is unknown; a grade is no finite number,
            negative without a rule, or another one than before of the same pair; all label distances are alike.

    Example:
        >>> grades = Grades(["q1", "q1", "q2"], ["d1", "d2", "d2"], [3, 0, 1])
        >>> grades
        Grades(3 pairs of 2 queries and 2 documents)
        >>> grades.distances.tolist()
        [0.0, 3.0, 2.0]
    """

    def __init__(
        self,
        query: Any,  # noqa: ANN401 - a sequence, checked here, as are the others
        document: Any,  # noqa: ANN401
        grade: Any,  # noqa: ANN401
        *,
        queries: Sequence[Any] | int | None = None,
        documents: Sequence[Any] | int | None = None,
        unjudged: Unjudged = "incomparable",
        distance: Rule | None = None,
        places: Sequence[str] | None = None,
    ) -> None:
        if unjudged not in ("incomparable", "zero"):
            raise UserError(f"'unjudged' should be incomparable or zero. Got {unjudged!r} instead.")
        names = [as_list(column) for column in (query, document)]
        given = as_list(grade)
        if not len(names[0]) == len(names[1]) == len(given):
            raise UserError(
                "'query', 'document' and 'grade' should have one length. "
                f"Got {len(names[0])}, {len(names[1])} and {len(given)} instead."
            )
        if not len(given):
            raise UserError("There are no grades: give at least one judged pair of a query and a document.")
        self._places = places
        sides = Side.of(names[0], queries, "query"), Side.of(names[1], documents, "document")
        rows, columns = (side.positions(column, self._place) for side, column in zip(sides, names, strict=True))
        gains = self._read_gains(given, has_rule=callable(distance))
        self._sides = sides
        self.unjudged: Unjudged = unjudged
        self._rule = distance
        self._set_pairs(rows, columns, gains)
        self.distances, self.distance_unjudged = _apply_rule(self.gains, unjudged, distance)

    @classmethod
    def from_matrix(
        cls,
        matrix: Any,  # noqa: ANN401 - checked here
        *,
        queries: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        unjudged: Unjudged = "incomparable",
        distance: Rule | None = None,
    ) -> Grades:
        """Take the grades of a matrix.

        Args:
            matrix: (Q, D) an array or a tensor, where NaN stands for no grade; or a sparse matrix of SciPy, of which
                the stored entries are grades, zeros that are stored too.
            queries: The names of its rows; None for their numbers.
            documents: The names of its columns.
            unjudged: As of ``Grades``.
            distance: As of ``Grades``.

        Returns:
            The grades.

        Raises:
            UserError: It is no matrix of numbers, has another number of names, or as of ``Grades``.

        Example:
            >>> import numpy as np
            >>> Grades.from_matrix(np.array([[2, 0, np.nan], [np.nan, 1, 2]]))
            Grades(4 pairs of 2 queries and 3 documents)
        """
        shape = tuple(getattr(matrix, "shape", ()))
        if hasattr(matrix, "tocoo"):
            entries = matrix.tocoo()
            rows, columns, gains = entries.row, entries.col, entries.data
        else:
            array = np.array(matrix) if isinstance(matrix, list | tuple) else as_array(matrix)
            if array is None or array.ndim != 2 or array.dtype.kind not in "fiub":
                raise UserError(f"A matrix of grades should be (Q, D) numbers. Got {short(matrix)} instead.")
            shape = array.shape
            rows, columns = np.nonzero(~np.isnan(array.astype(np.float64)))
            gains = array[rows, columns]
        names: list[Sequence[Any]] = []
        for given, count, what in zip((queries, documents), shape, ("queries", "documents"), strict=True):
            if given is not None and len(given) != count:
                raise UserError(f"The matrix of grades has {count} {what}. Got {len(given)} names of them instead.")
            names.append(range(count) if given is None else list(given))
        return cls(
            [names[0][row] for row in rows.tolist()],
            [names[1][column] for column in columns.tolist()],
            gains,
            queries=shape[0] if queries is None else queries,
            documents=shape[1] if documents is None else documents,
            unjudged=unjudged,
            distance=distance,
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,  # noqa: ANN401 - a data frame of any library, or a mapping of columns
        *,
        query: str = "query",
        document: str = "document",
        grade: str = "grade",
        queries: Sequence[Any] | int | None = None,
        documents: Sequence[Any] | int | None = None,
        unjudged: Unjudged = "incomparable",
        distance: Rule | None = None,
    ) -> Grades:
        """Take the grades of a table with a row for each judged pair.

        Args:
            frame: A data frame, or a mapping of columns.
            query: Name of the column of queries.
            document: Name of the column of documents.
            grade: Name of the column of grades.
            queries: As of ``Grades``.
            documents: As of ``Grades``.
            unjudged: As of ``Grades``.
            distance: As of ``Grades``.

        Returns:
            The grades.

        Raises:
            UserError: A column is missing, or as of ``Grades``.

        Example:
            >>> Grades.from_frame({"query": ["a", "b"], "document": ["x", "x"], "grade": [1, 2]})
            Grades(2 pairs of 2 queries and 1 document)
        """
        known = column_names(frame) if has_columns(frame) else list(getattr(frame, "keys", list)())
        for name in (query, document, grade):
            if name not in known:
                raise UserError(
                    f"The table of grades has no column {name!r}.{did_you_mean(name, known)} It has: "
                    f"{', '.join(map(str, known)) or 'none'}. Name its columns by query=, document= and grade=."
                )
        columns = [as_list(frame[name]) for name in (query, document, grade)]
        return cls(*columns, queries=queries, documents=documents, unjudged=unjudged, distance=distance)

    @classmethod
    def read(
        cls,
        path: Path | str,
        *,
        queries: Sequence[Any] | None = None,
        documents: Sequence[Any] | None = None,
        unjudged: Unjudged = "incomparable",
        distance: Rule | None = None,
    ) -> Grades:
        r"""Read a qrels file.

        Args:
            path: Lines of query, iteration, document and grade, as TREC has them, or of query, document and grade, as
                BEIR has them. A first line of column names, such as "corpus-id query-id score", sets another order.
                Columns are separated by spaces or tabs.
            queries: As of ``Grades``; names are texts. With these and ``documents``, swapped columns are detected.
            documents: As of ``Grades``.
            unjudged: As of ``Grades``.
            distance: As of ``Grades``.

        Returns:
            The grades.

        Raises:
            DataError: The file is missing or no qrels file, or as of ``Grades``; names file and line.

        Example:
            >>> import pathlib, tempfile
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "qrels.txt"
            >>> _ = path.write_text("q1 0 d1 2\nq1 0 d2 0\n")
            >>> Grades.read(path)
            Grades(2 pairs of 1 query and 2 documents)
        """
        pairs = read_qrels(Path(path))
        if queries is not None and documents is not None:
            swapped = explain_swapped(pairs, {*map(str, queries)}, {*map(str, documents)})
            if swapped:
                raise DataError(swapped)
        try:
            return cls(
                pairs.query,
                pairs.document,
                pairs.grade,
                queries=queries,
                documents=documents,
                unjudged=unjudged,
                distance=distance,
                places=pairs.places,
            )
        except DataError:
            raise
        except UserError as error:
            where = "" if str(error).startswith(str(path)) else f"{path}: "
            raise DataError(f"{where}{error}") from None

    def write(self, path: Path | str) -> None:
        """Write a qrels file as TREC has it, which ``read`` and other tools read.

        Args:
            path: The file.

        Raises:
            UserError: A name holds white space, which separates the columns.
        """
        write_qrels(
            Path(path),
            [self.queries[row] for row in self.rows.tolist()],
            [self.documents[column] for column in self.columns.tolist()],
            self.gains,
        )

    def __len__(self) -> int:
        """P, the number of judged pairs."""
        return len(self.gains)

    def __repr__(self) -> str:
        sides = count_of(len(self.queries), "query"), count_of(len(self.documents), "document")
        return f"Grades({count_of(len(self), 'pair')} of {' and '.join(sides)})"

    @property
    def queries(self) -> Sequence[str]:
        """The names of the queries."""
        return self._sides[0].names

    @property
    def documents(self) -> Sequence[str]:
        """The names of the documents."""
        return self._sides[1].names

    def align(self, queries: Any, documents: Any) -> AlignedGrades:  # noqa: ANN401 - inputs, as ``cml.fit`` takes them
        """Put inputs beside the grades: by name where both have names, else by their order.

        Args:
            queries: The inputs of the queries: a mapping from name to input, a Series whose index holds the names, or
                inputs without names, one for each query in order.
            documents: Those of the documents. Where they have names, there may be more of them than were judged.

        Returns:
            The inputs without their names, and the grades by their positions.

        Raises:
            UserError: A judged query or document has no input, a query has no grade, or inputs without names are more
                or fewer than the grades have, or the order of names is not known.

        Example:
            >>> grades = Grades(["q1", "q1"], ["d1", "d2"], [1, 0])
            >>> aligned = grades.align({"q1": "red shoes"}, {"d0": "a hat", "d2": "a shoe", "d1": "a red shoe"})
            >>> aligned.grades.columns.tolist()
            [1, 2]
        """
        sides = [side.align(inputs) for side, inputs in zip(self._sides, (queries, documents), strict=True)]
        aligned = object.__new__(Grades)
        vars(aligned).update(vars(self), _sides=tuple(part.side for part in sides))
        aligned._set_pairs(sides[0].places[self.rows], sides[1].places[self.columns], self.gains)
        aligned.distances = _apply_rule(aligned.gains, self.unjudged, self._rule)[0]
        return AlignedGrades(sides[0].inputs, sides[1].inputs, aligned)

    def stack(self, others: Grades) -> Grades:
        """Add the grades of other queries for the same documents.

        Args:
            others: Their grades, over as many documents in the same order.

        Returns:
            The grades of both, whose queries are these and then the others; ``unjudged`` and ``distance`` stay.

        Raises:
            UserError: The documents are not as many.

        Example:
            >>> Grades([0, 0], [0, 1], [1, 0]).stack(Grades([0], [1], [2], documents=2))
            Grades(3 pairs of 2 queries and 2 documents)
        """
        if len(others.documents) != len(self.documents):
            raise UserError(
                f"Both must be over the same documents. Got {len(self.documents):,} and {len(others.documents):,}."
            )
        pairs = (
            np.concatenate([self.rows, others.rows + len(self.queries)]),
            np.concatenate([self.columns, others.columns]),
            np.concatenate([self.gains, others.gains]),
        )
        count = len(self.queries) + len(others.queries)
        return Grades(*pairs, queries=count, documents=len(self.documents), unjudged=self.unjudged, distance=self._rule)

    def check_queries(self) -> None:
        """Refuse queries that nothing can be learned from.

        Raises:
            UserError: A query has no judged document.
        """
        judged = np.bincount(self.rows, minlength=len(self.queries))
        if not judged.all():
            first = int(np.argmin(judged))
            raise UserError(
                f"Query {first} ({short(self.queries[first])}) has no judged document, as {int((judged == 0).sum()):,} "
                f"of {len(self.queries):,} have none. Leave these out of the queries, or judge documents for them."
            )

    def at_least(self, least: float) -> Grades:
        """Binarise the grades: relevant or not.

        Args:
            least: The least grade of a relevant document.

        Returns:
            Grades of the same pairs: 1 for relevant documents, and 0 for others.

        Raises:
            UserError: No grade is as large, or all are.

        Example:
            >>> Grades(["a", "a", "b"], ["x", "y", "x"], [3, 1, 0]).at_least(2)
            Grades(3 pairs of 2 queries and 2 documents)
        """
        relevant = self.gains >= least
        if not relevant.any():
            raise UserError(f"No grade is at least {least:g}: the largest is {self.gains.max():g}. Give a smaller one.")
        binary = copy.copy(self)
        binary.gains, binary._rule = relevant.astype(np.float64), None
        binary.distances, binary.distance_unjudged = _apply_rule(binary.gains, self.unjudged, None)
        return binary

    def look_up(self, rows: Int64, columns: Int64) -> tuple[Float64, Bools]:
        """Look up the grades of pairs.

        Args:
            rows: Positions of queries, of any shape that broadcasts with ``columns``.
            columns: Positions of documents; -1 for none.

        Returns:
            The grades, 0 where a pair has none, and whether it has one.
        """
        count = len(self.documents)
        wanted = rows * count + columns
        places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        known = (self._keys[places] == wanted) & (columns >= 0)
        return np.where(known, self.gains[places], 0.0), known

    @functools.cached_property
    def _keys(self) -> Int64:
        return self.rows * len(self.documents) + self.columns

    def _place(self, pair: int) -> str:
        return f"Pair {pair}" if self._places is None else self._places[pair]

    def _read_gains(self, given: Sequence[Any], *, has_rule: bool) -> Float64:
        """Check the grades (P,)."""
        gains = np.empty(len(given), np.float64)
        rule = "a finite number" if has_rule else "a finite number of at least 0"
        for pair, grade in enumerate(given):
            try:
                gains[pair] = float(grade)
            except (TypeError, ValueError):
                gains[pair] = np.nan
        wrong = ~(np.abs(gains) <= _LARGEST)  # NaN too
        wrong |= np.zeros(len(gains), bool) if has_rule else gains < 0
        if wrong.any():
            pair = int(np.argmax(wrong))
            mend = "mend or delete it"
            if gains[pair] < 0:
                mend = "give distance=..., a function from grades to label distances, or raise all grades"
            raise UserError(f"{self._place(pair)}: a grade should be {rule}. Got {short(given[pair])} instead; {mend}.")
        return gains

    def _set_pairs(self, rows: Int64, columns: Int64, gains: Float64) -> None:
        """Sort the pairs, and leave out those that are there again."""
        self.__dict__.pop("_keys", None)
        keys = rows * len(self.documents) + columns
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        begins = np.flatnonzero(np.diff(keys, prepend=-1))
        least, most = np.minimum.reduceat(gains[order], begins), np.maximum.reduceat(gains[order], begins)
        if (least != most).any():
            group = int(np.argmax(least != most))
            stop = begins[group + 1] if group + 1 < len(begins) else len(keys)
            pairs = np.sort(order[begins[group] : stop])
            other = next(pair for pair in pairs.tolist() if gains[pair] != gains[pairs[0]])
            first = int(pairs[0])
            names = f"{short(self.queries[rows[first]])} and {short(self.documents[columns[first]])}"
            raise UserError(
                f"{self._place(first)} gives query and document {names} the grade {gains[first]:g}, but "
                f"{self._place(other)} gives {gains[other]:g}: correct one of them, or give their mean."
            )
        kept = order[begins]
        self.rows, self.columns, self.gains = rows[kept], columns[kept], gains[kept]


class AlignedGrades(NamedTuple):
    """Inputs beside grades by their positions, as ``Grades.align`` puts them."""

    queries: Any  # the Q inputs, without names
    documents: Any  # the D inputs
    grades: Grades  # the grades, whose names are those of the inputs, or positions as text


def _apply_rule(
    gains: Float64, unjudged: Unjudged, rule: Rule | None
) -> tuple[Float32, float]:  # (P,) label distances, and that of a pair without a grade
    """Turn gains into label distances."""
    asked = np.append(gains, 0.0) if unjudged == "zero" else gains
    if rule is None:
        values = asked.max() - asked
    elif not callable(rule):
        if rule != "exponential" or asked.max() > MOST_DOUBLED:
            most = f"'exponential' takes grades up to {MOST_DOUBLED}" if rule == "exponential" else "Give a function"
            raise UserError(f"'distance' should be a function or 'exponential'. {most}. Got {short(rule)} instead.")
        values = np.exp2(asked.max()) - np.exp2(asked)
    else:
        values = np.asarray(rule(asked), np.float64)
        if values.shape != asked.shape:
            raise UserError(
                f"'distance' should give a number for each grade, {asked.shape}. Got {values.shape} instead."
            )
        wrong = ~((values >= 0) & (values <= _LARGEST))
        if wrong.any():
            at = int(np.argmax(wrong))
            raise UserError(
                f"'distance' should give finite numbers of at least 0, the smaller the better. Got {values[at]:g} for "
                f"the grade {asked[at]:g} instead."
            )
    if len(values) > 1 and (values == values[0]).all():
        mend = "unjudged='zero' ranks them before pairs without a grade" if unjudged != "zero" else "grade more pairs"
        raise UserError(
            f"All {len(gains):,} grades are {gains[0]:g}, so no document is better than another one: {mend}."
        )
    distances = values.astype(np.float32)
    return distances[: len(gains)], float(distances[-1]) if unjudged == "zero" else np.inf
