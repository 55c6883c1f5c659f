"""``cml prepare grades --source FOLDER --out DIR``: queries, documents and judged pairs, checked and split by query."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, show
from cml.console.messages import say
from cml.errors import DataError, UserError
from cml.graded.grades import Grades, Unjudged
from cml.graded.search_folder import SearchFolder, read_settings
from cml.storage.regular_file import digest_file


@dataclass(frozen=True)
class PrepareGrades:
    """Check queries, documents and judged pairs, and split the queries."""

    out: Path
    """Folder to create, which mteb and BEIR read too."""
    source: Path | None = None
    """Folder with queries.jsonl, corpus.jsonl or documents.jsonl, and qrels: a folder of qrels/train.tsv and
    qrels/test.tsv, or one file qrels.tsv. A line of the first two is an object with _id and text, or _id and image (a
    file below the folder), or _id alone beside queries.npy or corpus.npy with a vector for each line."""
    queries: Path | None = None
    """File of queries, if it is not in --source."""
    documents: Path | None = None
    """File of documents, if it is not in --source."""
    qrels: Path | None = None
    """File of judged pairs, if it is not in --source: query, iteration, document and grade a line, as TREC has it, or
    without the iteration."""
    unjudged: Unjudged = "incomparable"
    """What a pair without a grade means in training: incomparable, unknown, or zero, a grade of 0, as where most
    documents are irrelevant to a query."""
    negative: Literal["refuse", "zero"] = "refuse"
    """Whether grades below 0, such as the -2 of spam in files of TREC, are an error or count as 0."""
    test_fraction: float = 0.25
    """Share of the queries that are held out, where the judged pairs are not split into train and test."""
    seed: int = 0
    """Seed of that split."""
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Graded search: queries, documents and judged pairs (qrels) of TREC, BEIR or mteb."""
    options = parse(PrepareGrades, arguments, prog="cml prepare grades")
    folder = prepare_grades(options)
    counts = {split: len(folder.grades(split)) for split in folder.splits}
    queries, documents = len(folder.queries.names), len(folder.documents.names)
    result = {"folder": str(folder.folder), "queries": queries, "documents": documents, "grades": counts}
    pairs = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    out = shlex.quote(str(options.out))
    show(
        result,
        f"{options.out}: {queries:,} queries ({folder.queries.kind}), {documents:,} documents "
        f"({folder.documents.kind}), grades: {pairs}",
        f"next: cml train grades --data {out} --out {shlex.quote(str(Path('runs') / options.out.name))}",
        as_json=options.json,
    )


def prepare_grades(options: PrepareGrades) -> SearchFolder:
    """Write the folder; do nothing if it is there already, made of the same files and settings."""
    given = {"query": options.queries, "document": options.documents, "qrels": options.qrels}
    files = {what: path for what, path in given.items() if path is not None}
    if options.source is None and len(files) < len(given):
        raise UserError("Give --source, a folder with all files, or --queries, --documents and --qrels.")
    if not 0 < options.test_fraction < 1:
        raise UserError(f"--test-fraction should be above 0 and below 1. Got {options.test_fraction} instead.")
    missing = next((path for path in files.values() if not path.is_file()), None)
    if missing is not None:
        raise DataError(f"{missing} is missing, or no file.")
    source = SearchFolder(
        Path() if options.source is None else options.source,
        unjudged=options.unjudged,
        negative=options.negative,
        files=files,
    )
    settings = (options.unjudged, options.negative, options.test_fraction, options.seed)
    digests = [digest_file(path) for path in source.files]
    about = {"made_with": {"settings": list(settings), "files": digests}}
    if options.out.is_dir() and any(options.out.iterdir()):
        if read_settings(options.out).get("made_with") == about["made_with"]:
            say(f"{options.out} is already prepared; nothing to do.")
            return SearchFolder(options.out)
        raise UserError(f"{options.out} is not empty. Choose another folder or delete this one.")
    if {"train", "test"} <= {*source.splits}:
        grades = {split: source.grades(split) for split in source.splits}
    else:
        (only,) = source.splits[:1]
        grades = split_queries(source.grades(only), options.test_fraction, options.seed)
    return SearchFolder.write(options.out, source.queries, source.documents, grades, about=about)


def split_queries(grades: Grades, test_fraction: float, seed: int) -> dict[str, Grades]:
    """Hold out a share of the queries, with their grades."""
    count = len(grades.queries)
    held_out = round(test_fraction * count)
    if not 0 < held_out < count:
        raise UserError(
            f"{count} queries leave none to {'test' if held_out == 0 else 'train'} on with --test-fraction "
            f"{test_fraction}: judge documents for more queries."
        )
    is_test = np.zeros(count, bool)
    is_test[np.random.default_rng(seed).permutation(count)[:held_out]] = True
    return {name: _select(grades, is_test == (name == "test"), name) for name in ("train", "test")}


def _select(grades: Grades, chosen: np.ndarray, name: str) -> Grades:
    """Take the grades of some queries."""
    pairs = np.flatnonzero(chosen[grades.rows])
    try:
        return Grades(
            [grades.queries[row] for row in grades.rows[pairs].tolist()],
            [grades.documents[column] for column in grades.columns[pairs].tolist()],
            grades.gains[pairs],
            queries=[query for query, is_in in zip(grades.queries, chosen, strict=True) if is_in],
            documents=grades.documents,
            unjudged=grades.unjudged,
        )
    except UserError as error:
        raise UserError(f"Of the {name} queries: {error} Or choose another --seed.") from None
