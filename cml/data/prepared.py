"""Prepared datasets: the one folder format that cml trains on and evaluates on (docs/reference/formats.md), checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self

from cml.data.dataset_info import FOLDERS, ROLES, DatasetInfo
from cml.data.metadata import read_metadata
from cml.errors import DataError, UserError

__all__ = ["ROLES", "DatasetInfo", "PreparedDataset", "Split", "open_dataset"]


@dataclass(frozen=True)
class Split:
    """The items of one role, in the order of the metadata.

    Attributes:
        role: "train", "query" or "gallery".
        item_ids: The N unique ids.
        paths: The N image files.
        labels: The N labels as in the JSON (integers in lists with floats may become floats), or the paths of masks if
            the label column names files. ``np.asarray(labels)`` is fast if they are numbers.
    """

    role: str
    item_ids: Sequence[str]
    paths: Sequence[Path]
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.item_ids)


@dataclass(frozen=True)
class PreparedDataset:
    """A prepared dataset whose metadata has been read and checked. Made by ``open``.

    Attributes:
        folder: The folder of the dataset.
        info: The content of dataset.json.
        fingerprint: The SHA-256 over dataset.json and both metadata.jsonl; pixels are not part of it.
        digests: The SHA-256 of each metadata.jsonl, by its path in the dataset.
    """

    folder: Path
    info: DatasetInfo
    fingerprint: str
    digests: Mapping[str, str]
    _splits: Mapping[str, Split] = field(repr=False)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Read and check all metadata; images must exist but are not decoded.

        Args:
            folder: The folder of the dataset.

        Returns:
            The dataset.

        Raises:
            DataError: the first fault, with file and line.
        """

        def fail(problem: str) -> NoReturn:
            raise DataError(problem)

        folder = Path(folder)
        info, metadata = read_metadata(folder, fail)
        assert info is not None  # fail would have raised
        items = dict(zip(dict.fromkeys(FOLDERS.values()), metadata.items, strict=True))
        splits = {role: Split(role, *items[FOLDERS[role]].of_role(number)) for number, role in enumerate(ROLES)}
        return cls(folder, info, metadata.fingerprint, metadata.digests, splits)

    @property
    def made_of(self) -> dict[str, Any]:
        """What the fingerprint depends on: the content of dataset.json, and the digests of the other files."""
        counts = {f"{role} items": count for role, count in self.info.counts.items()}
        own = {name: value for name, value in vars(self.info).items() if isinstance(value, str)}
        return {"details": self.info.details, "made_with": self.info.made_with, **own, **counts, **self.digests}

    def split(self, role: str) -> Split:
        """Select the items of one role.

        Args:
            role: "train", "query" or "gallery"; where the queries are also the gallery, it holds the queries.

        Returns:
            The items.

        Raises:
            UserError: there is no such role.
        """
        if role not in self._splits:
            raise UserError(f"A role is one of {', '.join(ROLES)}. Got {role!r} instead.")
        return self._splits["query" if role == "gallery" and self.info.queries_are_gallery else role]


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
