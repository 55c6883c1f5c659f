"""A folder of graded search: queries, documents and judged pairs in the files of BEIR and mteb.

``queries.jsonl`` and ``corpus.jsonl`` (or ``documents.jsonl``) have one object a line, with ``_id`` and a text, in
``text`` and perhaps ``title``, or the file of an image below the folder, in ``image``. Where they have only ids,
``queries.npy`` and ``corpus.npy`` hold a vector for each line. ``qrels/train.tsv`` and ``qrels/test.tsv`` hold query,
document and grade. mteb reads whole grades alone from there, so that others are in ``gains/`` too, which comes first.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from cml.array_types import Floating, Int64
from cml.distances.labels import short
from cml.errors import DataError, UserError
from cml.graded.grade_files import JudgedPairs, explain_swapped, read_qrels
from cml.graded.grades import Grades, Rule, Unjudged
from cml.storage.atomic import atomic_folder
from cml.storage.json_file import parse_json, read_json, with_format, write_json
from cml.storage.regular_file import map_array, open_regular
from cml.storage.safe_paths import file_inside

SideKind = Literal["texts", "images", "vectors"]
SETTINGS = "search.json"
_STEMS = {"query": ("queries",), "document": ("corpus", "documents")}  # without their endings
_QRELS = (".tsv", ".txt", ".qrels")
WHOLE = "all"  # the name of a split where a folder has one file of judged pairs
_SHOWN = 300  # characters of a text


@dataclass(frozen=True)
class SearchSide:
    """The N queries or documents of a folder."""

    names: Sequence[str]
    kind: SideKind
    inputs: Sequence[Any] | Floating  # N texts or paths of images, or vectors (N, F)
    titles: Sequence[str] = ()  # of texts, that stand before them; none where no line has one
    file: Path = Path()

    def by_name(self, chosen: Int64 | slice = slice(None)) -> dict[str, Any]:
        """Some items, from name to input."""
        rows = range(len(self.names))[chosen] if isinstance(chosen, slice) else chosen.tolist()
        inputs = np.asarray(self.inputs) if isinstance(self.inputs, np.ndarray) else self.inputs  # plain rows of a map
        return {self.names[row]: inputs[row] for row in rows}

    def describe(self, row: int) -> str:
        """An item in a few words."""
        if self.kind == "vectors":
            return ""
        return str(self.inputs[row])[:_SHOWN] if self.kind == "texts" else Path(self.inputs[row]).name


class SearchSplit(NamedTuple):
    """The queries of a split with all documents, as ``cml.fit((queries, documents), grades)`` takes them."""

    queries: Mapping[str, Any]  # name to input, of the queries that have a grade
    documents: Mapping[str, Any]
    grades: Grades


class SearchFolder:
    """Queries, documents and grades in a folder, in the files of BEIR and mteb.

    ``cml prepare grades`` makes one of other files, and the commands take it. ``docs/tutorials/graded_search.md``
    describes the files.

    Args:
        folder: The folder.
        unjudged: What a pair without a grade means, see ``cml.Grades``; None for what the folder says, or else
            "incomparable".
        negative: Whether grades below 0, such as the -2 of spam in files of TREC, are an error ("refuse") or count as 0
            ("zero").
        files: Files that are elsewhere, by "query", "document" and "qrels".

    Attributes:
        folder: As given.
        splits: The names of the splits: "train", "dev", "test"; or "all" where there is one file of grades.
        unjudged: What a pair without a grade means.

    Raises:
        DataError: A file is missing or cannot be read; names the file and the line.

    Example:
        >>> import tempfile
        >>> grades = cml.Grades(["q1", "q1"], ["d1", "d2"], [2, 0])
        >>> texts = {"q1": "red shoes"}, {"d1": "a red shoe", "d2": "a hat"}
        >>> folder = cml.SearchFolder.write(tempfile.mkdtemp() + "/shop", *texts, {"test": grades})
        >>> queries, documents, grades = folder.split("test")
        >>> documents["d2"], grades.gains.tolist()
        ('a hat', [2.0, 0.0])
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        unjudged: Unjudged | None = None,
        negative: Literal["refuse", "zero"] = "refuse",
        files: Mapping[str, Path] = MappingProxyType({}),
    ) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise DataError(f"{self.folder} is not a folder: give one with queries.jsonl, corpus.jsonl and qrels.")
        settings = read_settings(self.folder)
        self.unjudged: Unjudged = settings.get("unjudged", "incomparable") if unjudged is None else unjudged
        self._negative = negative
        self.queries, self.documents = (
            read_side(files.get(what) or _find_side(self.folder, what), what) for what in _STEMS
        )
        self._pairs = {WHOLE: files["qrels"]} if "qrels" in files else _find_pairs(self.folder)
        self.splits = tuple(self._pairs)

    def __repr__(self) -> str:
        sizes = f"{len(self.queries.names):,} queries, {len(self.documents.names):,} documents"
        return f"SearchFolder({str(self.folder)!r}, {sizes}, {', '.join(self.splits)})"

    @property
    def files(self) -> list[Path]:
        """All files but those of images."""
        sides = self.queries, self.documents
        vectors = [side.file.with_suffix(".npy") for side in sides if side.kind == "vectors"]
        return [*(side.file for side in sides), *vectors, *self._pairs.values()]

    def grades(self, split: str, distance: Rule | None = None) -> Grades:
        """Read the grades of a split.

        Args:
            split: Its name, one of ``splits``.
            distance: The rule from grades to label distances, as of ``cml.Grades``.

        Returns:
            The grades, of the queries that have one and of all documents.

        Raises:
            UserError: There is no such split.
            DataError: A line is no judged pair, names a query or document that is not there, or as of ``cml.Grades``.
        """
        if split not in self._pairs:
            there = ", ".join(self.splits)
            raise UserError(f"{self.folder} has no split {short(split)}: it has {there}. Give one of them, or add it.")
        pairs = read_qrels(self._pairs[split])
        swapped = explain_swapped(pairs, {*self.queries.names}, {*self.documents.names})
        if swapped:
            raise DataError(swapped)
        for side, names in ((self.queries, pairs.query), (self.documents, pairs.document)):
            _check_known(side, names, pairs)
        gains = np.array(pairs.grade)
        if (gains < 0).any() and self._negative == "refuse":
            pair = int(np.argmax(gains < 0))
            raise DataError(
                f"{pairs.places[pair]}: a grade should be at least 0. Got {gains[pair]:g} instead; prepare the folder "
                "with '--negative zero' to take it as 0, or raise all grades."
            )
        gains = np.maximum(gains, 0)
        if self.unjudged == "incomparable" and (gains == gains[0]).all():  # not so of NaN
            raise DataError(
                f"{self._pairs[split]}: all {len(gains):,} grades are {gains[0]:g}, so no document is better than "
                "another one. Prepare the folder with '--unjudged zero', which ranks them before pairs without a "
                "grade, or grade more pairs."
            )
        judged = set(pairs.query)
        try:
            return Grades(
                pairs.query,
                pairs.document,
                gains,
                queries=[name for name in self.queries.names if name in judged],
                documents=self.documents.names,
                unjudged=self.unjudged,
                distance=distance,
                places=pairs.places,
            )
        except UserError as error:
            raise DataError(str(error)) from None

    def split(self, split: str, distance: Rule | None = None) -> SearchSplit:
        """Read the queries of a split, all documents, and their grades.

        Args:
            split: Its name, one of ``splits``.
            distance: The rule from grades to label distances, as of ``cml.Grades``.

        Returns:
            Queries and documents by their names, and the grades, as ``cml.fit((queries, documents), grades)`` takes
            them.

        Raises:
            UserError: As of ``grades``.
            DataError: Likewise.
        """
        grades = self.grades(split, distance)
        rows = {name: row for row, name in enumerate(self.queries.names)}
        chosen = np.array([rows[name] for name in grades.queries])
        return SearchSplit(self.queries.by_name(chosen), self.documents.by_name(), grades)

    @classmethod
    def write(
        cls,
        folder: Path | str,
        queries: Mapping[str, Any] | SearchSide,
        documents: Mapping[str, Any] | SearchSide,
        grades: Mapping[str, Grades],
        *,
        about: Mapping[str, Any] | None = None,
    ) -> SearchFolder:
        """Write a folder that BEIR and mteb read, and ``datasets.load_dataset`` too.

        Args:
            folder: The folder to create.
            queries: The queries by their names: texts, paths of images, which are copied, or vectors.
            documents: The documents, likewise.
            grades: The grades of each split: "train", "test", ...
            about: What ``search.json`` notes of the origin.

        Returns:
            The folder, opened.

        Raises:
            UserError: The folder is taken, a name has white space, inputs are of several kinds, or splits differ in
                what a pair without a grade means.
        """
        path, sides = Path(folder), {"query": _as_side(queries, "query"), "document": _as_side(documents, "document")}
        unjudged = {each.unjudged for each in grades.values()}
        if len(unjudged) != 1:
            raise UserError("Give the grades of at least one split, all with one meaning of pairs without a grade.")
        with atomic_folder(path) as temporary:
            for what, side in sides.items():
                _write_side(temporary, _STEMS[what][0], side)
            is_whole = all((each.gains % 1 == 0).all() for each in grades.values())
            for split, each in grades.items():
                _write_pairs(temporary / "qrels" / f"{split}.tsv", each, "score", np.floor(each.gains + 0.5))
                if not is_whole:
                    _write_pairs(temporary / "gains" / f"{split}.tsv", each, "gain", each.gains)
            (temporary / "README.md").write_text(_card(list(grades), has_gains=not is_whole), encoding="utf-8")
            counts = {split: len(each) for split, each in grades.items()}
            settings = {"unjudged": next(iter(unjudged)), "counts": counts, **(about or {})}
            write_json(temporary / SETTINGS, with_format(settings))
        return cls(path)


def read_settings(folder: Path) -> dict[str, Any]:
    """The content of search.json; nothing of a folder that cml did not write."""
    path = folder / SETTINGS
    if not path.exists():
        return {}
    value = read_json(path, "what a folder of graded search is")
    if not isinstance(value, dict) or value.get("unjudged", "zero") not in get_args(Unjudged):
        raise DataError(f"{path}: 'unjudged' should be incomparable or zero. Correct it, or prepare the folder again.")
    return value


def _find_side(folder: Path, what: str) -> Path:
    """Find the file of the queries or documents."""
    names = [f"{stem}.jsonl" for stem in _STEMS[what]]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        raise DataError(f"{folder} has no {' or '.join(names)}, which should hold an object with _id and text a line.")
    return found


def read_side(file: Path, what: str) -> SearchSide:
    """Read queries or documents, and the vectors beside them."""
    names: list[str] = []
    titles: list[str] = []
    inputs: list[Any] = []
    kinds: dict[SideKind, str] = {}  # kind to the place where it came first
    seen: dict[str, str] = {}
    for where, entry in _read_lines(file):
        name = _read_name(entry, where)
        if name in seen:
            raise DataError(f"{where}: the id {short(name)} is that of {seen[name]} too: give each {what} its own.")
        seen[name] = where
        kind, value = _read_input(entry, where, file.parent)
        kinds.setdefault(kind, where)
        if len(kinds) > 1:
            first, second = kinds.items()
            raise DataError(f"{second[1]} holds {second[0]}, but {first[1]} {first[0]}: all should be of one kind.")
        names.append(name)
        titles.append(str(entry.get("title") or ""))
        inputs.append(value)
    if not names:
        raise DataError(f"{file} is empty: it should hold an object with _id and text a line.")
    kind = next(iter(kinds))
    if kind == "vectors":
        return SearchSide(names, "vectors", _read_vectors(file, len(names)), file=file)
    if kind == "images":
        return SearchSide(names, "images", inputs, file=file)
    texts = [f"{title} {text}".strip() for title, text in zip(titles, inputs, strict=True)]
    empty = next((row for row, text in enumerate(texts) if not text), None)
    if empty is not None:
        raise DataError(f"{seen[names[empty]]}: the text is empty: add it, or delete the line and its grades.")
    return SearchSide(names, "texts", texts, titles if any(titles) else (), file)


def _read_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with open_regular(file) as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                where = f"{file}:{number}"
                try:
                    value = parse_json(line.removeprefix(b"\xef\xbb\xbf"))
                except ValueError as error:
                    raise DataError(f"{where}: the line {error}; it should be an object in JSON.") from None
                if not isinstance(value, dict):
                    raise DataError(f"{where}: the line should be an object with _id and text. Got {short(value)}.")
                yield where, value
    except FileNotFoundError:
        raise DataError(f"{file} is missing.") from None
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from None


def _read_name(entry: Mapping[str, Any], where: str) -> str:
    name = entry.get("_id", entry.get("id"))
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise DataError(f"{where}: '_id' should be a text. Got {short(name)} instead; add it.")
    text = str(name)
    if len(text.split()) != 1 or not text.isprintable():
        raise DataError(f"{where}: '_id' should have no white space, which separates columns. Got {short(text)}.")
    return text


def _read_input(entry: Mapping[str, Any], where: str, folder: Path) -> tuple[SideKind, Any]:
    image = entry.get("image", entry.get("file_name"))
    if image is not None:
        return "images", file_inside(folder, image, where)
    text = entry.get("text")
    if text is None and not entry.get("title"):
        return "vectors", None
    if not isinstance(text, str | None) or not isinstance(entry.get("title", ""), str | None):
        raise DataError(f"{where}: 'text' and 'title' should be texts. Got {short(text)} instead.")
    return "texts", text or ""


def _read_vectors(file: Path, count: int) -> Floating:
    path = file.with_suffix(".npy")
    if not path.is_file():
        raise DataError(
            f"{file}:1 has neither 'text' nor 'image', and {path} with a vector for each line is missing: add one of "
            "these."
        )
    try:
        vectors = map_array(path)
    except (ValueError, OSError) as error:
        raise DataError(f"{path} should hold vectors (N, F): {error}.") from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or len(vectors) != count:
        got = f"{vectors.dtype} {vectors.shape}"
        raise DataError(f"{path} should hold a vector of floats for each of {count:,} lines. Got {got} instead.")
    return vectors


def _find_pairs(folder: Path) -> dict[str, Path]:
    """The files of judged pairs by their splits, those in ``gains`` first."""
    found: dict[str, Path] = {}
    for name in ("qrels", "gains"):
        for path in sorted((folder / name).glob("*")) if (folder / name).is_dir() else ():
            if path.suffix in _QRELS and path.is_file():
                found[path.stem] = path
    if not found:
        one = next((path for ending in ("", *_QRELS) if (path := folder / f"qrels{ending}").is_file()), None)
        found = {} if one is None else {WHOLE: one}
    if not found:
        raise DataError(
            f"{folder} has no judged pairs: add qrels/train.tsv and qrels/test.tsv, or one qrels.tsv, with query, "
            "document and grade a line."
        )
    order = {name: number for number, name in enumerate(("train", "dev", "validation", "test"))}
    return dict(sorted(found.items(), key=lambda item: (order.get(item[0], 9), item[0])))


def _check_known(side: SearchSide, names: Sequence[str], pairs: JudgedPairs) -> None:
    known = set(side.names)
    unknown = next((pair for pair, name in enumerate(names) if name not in known), None)
    if unknown is not None:
        what = "query" if names is pairs.query else "document"
        raise DataError(
            f"{pairs.places[unknown]}: the {what} {short(names[unknown])} is unknown: it is not among the "
            f"{len(known):,} of {side.file}. Correct the id, add the line there, or delete this one."
        )


def _as_side(given: Mapping[str, Any] | SearchSide, what: str) -> SearchSide:
    """Take queries or documents that are given in Python."""
    if isinstance(given, SearchSide):
        return given
    names, values = [str(name) for name in given], list(given.values())
    if not names:
        raise UserError(f"There is no {what}: give a mapping from name to input.")
    if all(isinstance(value, str) for value in values):
        return SearchSide(names, "texts", values)
    if all(isinstance(value, Path) for value in values):
        return SearchSide(names, "images", values)
    try:
        vectors = np.stack([np.asarray(value, np.float32) for value in values])
    except (TypeError, ValueError):
        vectors = np.empty(0, np.float32)
    if vectors.ndim != 2:
        raise UserError(f"Each {what} should be a text, a Path of an image, or a vector, all of one kind.")
    return SearchSide(names, "vectors", vectors)


def _write_side(folder: Path, stem: str, side: SearchSide) -> None:
    with (folder / f"{stem}.jsonl").open("w", encoding="utf-8", newline="\n") as file:
        for row, name in enumerate(side.names):
            if len(name.split()) != 1:
                raise UserError(f"A name should have no white space, which separates columns. Got {short(name)}.")
            entry: dict[str, Any] = {"_id": name}
            if side.kind == "texts":
                title = side.titles[row] if side.titles else ""
                entry |= {"title": title} if side.titles else {}
                entry["text"] = side.inputs[row][len(title) :].strip()
            elif side.kind == "images":
                source = Path(side.inputs[row])
                entry["image"] = f"{stem}/{row:06d}{source.suffix.lower()}"
                (folder / stem).mkdir(exist_ok=True)
                with open_regular(source) as content, (folder / entry["image"]).open("wb") as copy:
                    shutil.copyfileobj(content, copy)
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    if side.kind == "vectors":
        np.save(folder / f"{stem}.npy", np.asarray(side.inputs, np.float32))


def _write_pairs(path: Path, grades: Grades, column: str, gains: Floating) -> None:
    """Write judged pairs as BEIR has them, and as lines of JSON: ``datasets`` reads one format in a folder."""
    path.parent.mkdir(exist_ok=True)
    options: dict[str, Any] = {"mode": "w", "encoding": "utf-8", "newline": "\n"}
    with path.open(**options) as table, path.with_suffix(".jsonl").open(**options) as lines:
        table.write(f"query-id\tcorpus-id\t{column}\n")
        for row, document, gain in zip(grades.rows.tolist(), grades.columns.tolist(), gains.tolist(), strict=True):
            query, found = grades.queries[row], grades.documents[document]
            table.write(f"{query}\t{found}\t{gain:.17g}\n")
            value = int(gain) if column == "score" else gain
            entry = {"query-id": query, "corpus-id": found, column: value}
            lines.write(json.dumps(entry, ensure_ascii=False) + "\n")


def _card(splits: Sequence[str], *, has_gains: bool) -> str:
    """The README.md by which ``datasets.load_dataset`` finds the parts under the names that mteb asks for."""
    parts = {"corpus": {"corpus": "corpus.jsonl"}, "queries": {"queries": "queries.jsonl"}}
    parts["default"] = {split: f"qrels/{split}.jsonl" for split in splits}
    if has_gains:
        parts["gains"] = {split: f"gains/{split}.jsonl" for split in splits}
    lines = ["---", "configs:"]
    for name, files in parts.items():
        lines += [f"- config_name: {name}", "  data_files:"]
        for split, path in files.items():
            lines += [f"  - split: {split}", f"    path: {path}"]
    return "\n".join([*lines, "---", "", "Queries, documents and grades, written by cml.", ""])
