"""Prepared datasets: the one folder format that cml trains on and evaluates on (docs/reference/formats.md), checked."""

import functools
import reprlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, Self, cast

import numpy as np

from cml.array_types import Float32, Int64, UInt64
from cml.data.columns import Items
from cml.data.dataset_info import (
    FILE_COLUMN,
    FIXED_COLUMNS,
    FOLDERS,
    METADATA,
    ORIGINALS,
    ROLES,
    TEXT,
    DatasetInfo,
    parse_object,
)
from cml.data.digest_file import load_digests
from cml.data.metadata import read_metadata
from cml.data.texts import Texts
from cml.data.vectors import Vectors
from cml.errors import DataError, UserError, did_you_mean
from cml.storage.regular_file import open_regular

__all__ = ["ROLES", "DatasetInfo", "PreparedDataset", "Split", "open_dataset"]


_NO_ORIGINALS = "Prepare the dataset again, or delete the file: then only the stored images are recognised later."
_SAMPLE = 4096  # vectors whose mean and deviation drawings are scaled by


@dataclass(frozen=True)
class Split:
    """The items of one role, in the order of the metadata."""

    role: str  # "train", "query" or "gallery"
    item_ids: Sequence[str]  # the N unique ids
    # the N image files; of items that are vectors, pictures to show, None where there is none
    pictures: Sequence[Path | None]
    # the N labels as in the JSON (integers in lists with floats may become floats), or the paths of masks if the label
    # column names files. ``np.asarray(labels)`` is fast if they are numbers
    labels: Sequence[Any]
    vectors: Vectors | None = None  # the N vectors, if the items are vectors
    texts: Texts | None = None  # the N texts, if the items are texts
    # (N,) the lines of metadata.jsonl, from 0; test items share one file
    places: Int64 | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.item_ids)

    @property
    def inputs(self) -> Sequence[Path] | Vectors | Texts:
        """What a model embeds: the N image files, vectors or texts."""
        if self.vectors is not None:
            return self.vectors
        return self.paths if self.texts is None else self.texts

    @property
    def paths(self) -> Sequence[Path]:
        """The N image files."""
        if self.vectors is not None:
            raise UserError(f"This needs images, but the items of the dataset are vectors of {self.vectors.form}.")
        if self.texts is not None:
            raise UserError("This needs images, but the items of the dataset are texts.")
        return cast("Sequence[Path]", self.pictures)


@dataclass(frozen=True)
class PreparedDataset:
    """A prepared dataset whose metadata has been read and checked. Made by ``open``."""

    folder: Path  # the folder of the dataset
    info: DatasetInfo  # the content of dataset.json
    # the SHA-256 over dataset.json, both metadata.jsonl and the files of vectors; pixels are not part of it
    fingerprint: str
    digests: Mapping[str, str]  # the SHA-256 of each metadata.jsonl and file of vectors, by its path in the dataset
    _splits: Mapping[str, Split] = field(repr=False)
    _made_of: Mapping[str, Any] | None = field(default=None, repr=False)
    # (M,) digests of the image files that stored training images were made from, where these differ
    originals: UInt64 = field(default_factory=lambda: np.empty(0, np.uint64), repr=False, compare=False)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Read and check all metadata and vectors; images must exist but are not decoded."""

        def fail(problem: str) -> NoReturn:
            raise DataError(problem)

        folder = Path(folder)
        info, metadata = read_metadata(folder, fail)
        assert info is not None  # fail would have raised
        items = dict(zip(dict.fromkeys(FOLDERS.values()), metadata.items, strict=True))
        splits = {role: _split(role, number, items[FOLDERS[role]], info) for number, role in enumerate(ROLES)}
        opened = cls(folder, info, metadata.fingerprint, metadata.digests, splits)
        opened = replace(opened, originals=load_digests(folder / ORIGINALS, _NO_ORIGINALS))
        return opened._with_texts() if info.inputs.kind == "texts" else opened

    @property
    def made_of(self) -> dict[str, Any]:
        """What the fingerprint depends on: the content of dataset.json, and the digests of the other files."""
        if self._made_of is not None:
            return dict(self._made_of)
        counts = {f"{role} items": count for role, count in self.info.counts.items()}
        own = {name: value for name, value in vars(self.info).items() if isinstance(value, str)}
        return {"details": self.info.details, "made_with": self.info.made_with, **own, **counts, **self.digests}

    def with_vectors(
        self,
        vectors: Mapping[str, Vectors],
        about: Mapping[str, str],  # what ``made_of`` says of the vectors
    ) -> Self:
        """Put vectors in place of the items; their labels, ids and pictures stay, and so does the fingerprint."""
        size = next(iter(vectors.values())).form.shape[0]
        details = {**self.info.details, "inputs": {"kind": "vectors", "size": size}}
        splits = {role: replace(split, vectors=vectors.get(role)) for role, split in self._splits.items()}
        info = replace(self.info, details=details)
        return replace(self, info=info, _splits=splits, _made_of={**self.made_of, **about})

    def _with_texts(self) -> Self:
        """Read the items from metadata.jsonl, where they are texts."""
        splits = {}
        for role, split in self._splits.items():
            read = [_as_item(entry.get(TEXT), where) for where, entry in self._read_entries(role)] if len(split) else []
            splits[role] = replace(split, texts=Texts(read, fields=(TEXT,)))
        return replace(self, _splits=splits)

    def read_texts(self, role: str, column: str) -> list[str]:
        """Read a text of each item from metadata.jsonl."""
        return [_as_text(entry.get(column), where, column, entry) for where, entry in self._read_entries(role)]

    def read_groups(self, role: str, column: str) -> list[str]:
        """Read the name of each item's group from metadata.jsonl."""
        return [_as_group(entry.get(column), where, column, entry) for where, entry in self._read_entries(role)]

    def read_further(self, role: str) -> Iterator[dict[str, Any]]:
        """Read the columns of each item in metadata.jsonl that say neither what the item is nor its label.

        Returns the columns of an item as in the JSON, without those that name files, in the order of the split.
        """
        left_out = {*FIXED_COLUMNS, self.info.label_column}
        for _, entry in self._read_entries(role):
            yield {
                name: value for name, value in entry.items() if name not in left_out and not name.endswith(FILE_COLUMN)
            }

    def _read_entries(self, role: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The lines of metadata.jsonl with items of a role, each with its place."""
        role = "query" if role == "gallery" and self.info.queries_are_gallery else role
        path = self.folder / FOLDERS[role] / METADATA
        with open_regular(path) as file:
            for number, line in enumerate(file, 1):
                entry = parse_object(line)
                if entry["role"] == role:
                    yield f"{path}:{number}", entry

    @functools.cached_property
    def sample_standardization(self) -> tuple[Float32, Float32]:
        """Mean and standard deviation (F,) of each number of a sample of the training vectors, for drawings."""
        vectors = self.split("train").vectors
        if vectors is None:
            raise UserError(f"{self.folder} holds images, not vectors.")
        rows = vectors.read(np.unique(np.linspace(0, len(vectors) - 1, _SAMPLE).astype(np.int64)))
        with warnings.catch_warnings(action="ignore"):  # of a column without numbers
            mean, std = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
        return np.nan_to_num(mean), np.where(std > 0, std, 1).astype(np.float32)

    @property
    def places_of_test_items(self) -> tuple[Int64, Int64] | None:
        """The places (Q,) of the queries and (G,) of the gallery in their file; None where these are the queries."""
        query, gallery = self.split("query").places, self.split("gallery").places
        return None if self.info.queries_are_gallery or query is None or gallery is None else (query, gallery)

    def split(self, role: str) -> Split:
        """Select the items of one role."""
        if role not in self._splits:
            raise UserError(f"A role is one of {', '.join(ROLES)}. Got {role!r} instead.")
        return self._splits["query" if role == "gallery" and self.info.queries_are_gallery else role]


def _as_item(value: Any, where: str) -> str:  # noqa: ANN401 - any JSON
    """An item that is a text."""
    if isinstance(value, str) and value.strip():
        return value
    raise DataError(f"{where}: {TEXT} should be a text that is not empty. Got {reprlib.repr(value)} instead.")


def _as_text(value: Any, where: str, column: str, entry: Mapping[str, Any]) -> str:  # noqa: ANN401 - any JSON
    lines = value if isinstance(value, list) else [value]
    if lines and all(isinstance(line, str) for line in lines):
        return "\n".join(lines)
    got = reprlib.repr(value) if column in entry else f"only the columns {', '.join(sorted(entry))}"
    raise UserError(f"{where}: {column} should be a text. Got {got} instead.")


def _as_group(value: Any, where: str, column: str, entry: Mapping[str, Any]) -> str:  # noqa: ANN401 - any JSON
    if column not in entry:
        meant = did_you_mean(column, entry)
        there = ", ".join(sorted(entry))
        raise UserError(f"{where}: there is no column {column!r} of groups.{meant} There are only {there}.")
    if value == "" or not isinstance(value, str | int | float):
        raise UserError(f"{where}: {column} should name the item's group. Got {reprlib.repr(value)} instead.")
    return str(value)


def _split(role: str, number: int, items: Items, info: DatasetInfo) -> Split:
    ids, pictures, labels, rows = items.of_role(number)
    if items.vectors is None:
        return Split(role, ids, pictures, labels, places=rows)
    is_whole = len(rows) == len(items.ids)
    vectors = Vectors(
        items.vectors, columns=info.inputs.columns, items=None if is_whole else rows, names=np.asarray(items.ids)
    )
    return Split(role, ids, pictures, labels, vectors, places=rows)


def open_dataset(folder: Path | str) -> PreparedDataset:
    """Open a prepared dataset: its metadata is read and checked, and its images must exist.

    Args:
        folder: The folder that ``cml.prepare`` made.

    Returns:
        The dataset.

    Raises:
        DataError: the first fault, with file and line.

    Example:
        >>> dataset = cml.open_dataset("data/mine")
        >>> dataset.info.task, len(dataset.split("query"))
        ('value', 12)
    """
    return PreparedDataset.open(folder)
