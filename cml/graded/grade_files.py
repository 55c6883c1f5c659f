"""Files of graded search as TREC and BEIR have them: qrels (judged pairs) and runs (ranked documents)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cml.array_types import Float64
from cml.distances.labels import short
from cml.errors import DataError, UserError
from cml.option_types import reads_as_number
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import open_regular

_QUERY_NAMES = ("query-id", "qid", "query", "topic")
_DOCUMENT_NAMES = ("corpus-id", "document-id", "doc-id", "docid", "docno", "pid", "document", "doc", "corpus")
_GRADE_NAMES = ("score", "grade", "gain", "relevance", "rel", "label")
_ORDER = "query, document and grade (or query, iteration, document and grade)"


class JudgedPairs(NamedTuple):
    """The lines of a qrels file."""

    query: list[str]
    document: list[str]
    grade: list[float]
    places: list[str]  # file and line of each


def read_qrels(path: Path) -> JudgedPairs:
    """Read a qrels file of three or four columns."""
    pairs, order = JudgedPairs([], [], [], []), None
    for number, columns in _read_lines(path):
        if not pairs.query and order is None and (order := _read_header(columns)) is not None:
            continue
        if order is not None and len(columns) == len(order):
            columns = [columns[place] for place in order]
        if len(columns) not in (3, 4):
            raise DataError(
                f"{path}:{number}: a line of a qrels file should hold a query, an iteration, a document and a grade, "
                f"or the same without the iteration. Got {len(columns)} columns instead."
            )
        if not reads_as_number(columns[-1]):
            raise DataError(f"{path}:{number}: the grade should be a number. Got {short(columns[-1])} instead.")
        pairs.query.append(columns[0])
        pairs.document.append(columns[-2])
        pairs.grade.append(float(columns[-1]))
        pairs.places.append(f"{path}:{number}")
    if not pairs.query:
        raise DataError(f"{path} holds no judged pair.")
    return pairs


def _read_header(columns: Sequence[str]) -> list[int] | None:
    """The places of query, iteration if there is one, document and grade by the names of columns; None if no names."""
    names = [name.lower().replace("_", "-") for name in columns]
    kinds = (_QUERY_NAMES, _DOCUMENT_NAMES, _GRADE_NAMES)
    query, document, grade = (next((at for at, name in enumerate(names) if name in kind), None) for kind in kinds)
    if any(map(reads_as_number, columns)) or (query is None and (document is None or grade is None)):
        return None
    if query is None or document is None or grade is None:  # names of one's own, in the usual order
        return [*range(len(columns))] if query == 0 else None
    others = [at for at in range(len(columns)) if at not in (query, document, grade)]
    return [query, *others, document, grade]


def explain_swapped(pairs: JudgedPairs, queries: Collection[str], documents: Collection[str]) -> str:
    """Say that the columns of queries and documents are swapped; "" if they are not."""
    swapped = sum(a in documents and b in queries for a, b in zip(pairs.query, pairs.document, strict=True))
    in_order = sum(a in queries and b in documents for a, b in zip(pairs.query, pairs.document, strict=True))
    if swapped <= in_order:
        return ""
    return (
        f"{pairs.places[0]}: the column of queries holds documents ({short(pairs.query[0])}), and that of documents "
        f"queries ({short(pairs.document[0])}): the order is {_ORDER}. Swap the columns, or name them in a first line, "
        "such as 'corpus-id query-id score'."
    )


class RankedDocuments(NamedTuple):
    """The lines of a run file, whose rank column is not read: scores decide, as in trec_eval."""

    query: list[str]
    document: list[str]
    score: list[float]


def read_run(path: Path) -> RankedDocuments:
    """Read a run file of six columns."""
    run, seen = RankedDocuments([], [], []), set()
    for number, columns in _read_lines(path):
        if len(columns) != 6:
            raise DataError(
                f"{path}:{number}: a line of a run file should hold a query, Q0, a document, a rank, a score and a "
                f"name. Got {len(columns)} columns instead."
            )
        query, _, document, _, score, _ = columns
        if not (reads_as_number(score) and math.isfinite(float(score))):
            raise DataError(f"{path}:{number}: the score should be a finite number. Got {short(score)} instead.")
        if (query, document) in seen:
            raise DataError(
                f"{path}:{number}: the document {short(document)} is there twice for the query {short(query)}: delete "
                "one of both lines."
            )
        seen.add((query, document))
        run.query.append(query)
        run.document.append(document)
        run.score.append(float(score))
    if not run.query:
        raise DataError(f"{path} holds no ranked document.")
    return run


def write_qrels(path: Path, queries: Sequence[str], documents: Sequence[str], grades: Float64) -> None:
    """Write a qrels file of four columns."""
    _check_words([*queries, *documents], path)
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for query, document, grade in zip(queries, documents, grades.tolist(), strict=True):
            file.write(f"{query} 0 {document} {int(grade) if grade.is_integer() else repr(grade)}\n")


def write_run(path: Path, rows: Iterator[tuple[str, str, int, float]], names: Sequence[str], tag: str) -> None:
    """Write a run file from query, document, rank and score."""
    _check_words([*names, tag], path)
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        for query, document, rank, score in rows:
            file.write(f"{query} Q0 {document} {rank} {score!r} {tag}\n")


def _read_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The lines of a file that are not empty: their numbers from 1, and their columns."""
    try:
        with open_regular(path) as file:
            for number, line in enumerate(file, 1):
                try:
                    columns = line.decode("utf-8-sig" if number == 1 else "utf-8").split()
                except UnicodeDecodeError:
                    raise DataError(f"{path}:{number}: the line is no text in UTF-8.") from None
                if columns:
                    yield number, columns
    except FileNotFoundError:
        raise DataError(f"{path} is missing.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}.") from None


def _check_words(names: Sequence[str], path: Path) -> None:
    """Refuse names that a file of columns cannot hold."""
    for name in names:
        if not name or len(name.split()) != 1:
            raise UserError(
                f"{path} separates its columns by white space, so that names must have none. Got {short(name)} instead."
            )
