"""Prepared datasets: the one folder format that cml trains on and evaluates on (docs/reference/formats.md), checked."""

import functools
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self

from PIL import Image

from cml.data.dataset_info import FOLDERS, INFO, METADATA, ROLES, DatasetInfo
from cml.data.images import read_image
from cml.data.masks import mask_problem
from cml.data.metadata import read_metadata
from cml.errors import DataError, UserError, did_you_mean

_AT_ONCE = 4096  # images that wait to be decoded by check_dataset

__all__ = ["ROLES", "DatasetInfo", "PreparedDataset", "Split", "check_dataset", "open_dataset"]


@dataclass(frozen=True)
class Split:
    """The items of one role, in the order of the metadata."""

    role: str  # "train", "query" or "gallery"
    item_ids: Sequence[str]  # N unique ids
    paths: Sequence[Path]  # N image files
    # N as in the JSON (integers in lists with floats may become floats), or the paths of masks if the label column
    # names files; np.asarray(labels) is fast if they are numbers
    labels: Sequence[Any]

    def __len__(self) -> int:
        return len(self.item_ids)


@dataclass(frozen=True)
class PreparedDataset:
    """A prepared dataset whose metadata has been read and checked. Made by ``open``."""

    folder: Path
    info: DatasetInfo
    fingerprint: str  # sha256 over dataset.json and both metadata.jsonl; pixels are not part of it
    digests: Mapping[str, str]  # sha256 of each metadata.jsonl, by its path in the dataset
    _splits: Mapping[str, Split] = field(repr=False)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Read and check all metadata; images must exist but are not decoded. A DataError tells the first fault."""

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
        """The items of one role: train, query or gallery, which are the queries if these are also the gallery."""
        if role not in self._splits:
            raise UserError(f"A role is one of {', '.join(ROLES)}. Got {role!r} instead.")
        return self._splits["query" if role == "gallery" and self.info.queries_are_gallery else role]


def open_dataset(folder: Path | str) -> PreparedDataset:
    """Open a prepared dataset: its metadata is read and checked, and its images must exist.

    Args:
        folder: The folder that ``cml.prepare`` made.

    Raises:
        DataError: the first fault, with file and line.

    Example:
        >>> dataset = cml.open_dataset("data/mine")
        >>> dataset.info.task, len(dataset.split("query"))
        ('value', 12)
    """
    return PreparedDataset.open(folder)


def check_dataset(
    folder: Path, *, tasks: Collection[str] = (), threads: int = 2, progress: Callable[[int], object] | None = None
) -> list[str]:
    """Find all faults of a prepared dataset, one sentence each, "FILE:LINE: what, rule, value"; images are decoded."""
    problems: list[str] = []
    info, metadata = read_metadata(folder, problems.append)
    if info is None:
        return problems
    if tasks and info.task not in tasks:
        known = f"{did_you_mean(info.task, tasks)} Known: {', '.join(tasks)}. A plugin's needs --plugin FILE_OR_MODULE"
        problems.append(f"{folder / INFO}: there is no task {info.task!r}.{known}.")
    masks = {
        (label, path or label): where
        for items in metadata.items
        if isinstance(items.labels, list)
        for path, label, where in items.rows(METADATA)
        if isinstance(label, Path)
    }
    labels = {mask for mask, _ in masks}
    listed: set[str] = set()

    def checks() -> Iterator[tuple[str, Callable[[], str | None]]]:
        rows = ((path, where) for items in metadata.items for path, _, where in items.rows(METADATA) if path)
        for path, where in itertools.chain(rows, metadata.others):
            if str(path) not in listed and path not in labels:
                listed.add(str(path))
                yield where, functools.partial(_image_fault, path)
        for mask, where in masks.items():
            yield where, functools.partial(mask_problem, *mask, info.details)

    waiting = checks()
    with ThreadPoolExecutor(threads) as pool:  # Pillow decodes outside the interpreter lock
        while some := list(itertools.islice(waiting, _AT_ONCE)):
            for (where, _), fault in zip(some, pool.map(lambda one: one[1](), some), strict=True):
                if fault is not None:
                    problems.append(f"{where}: {fault}")
                if progress is not None:
                    progress(1)
    suffixes = Image.registered_extensions()
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and str(path) not in listed and path not in labels:
            problems.append(f"{path}: no {METADATA} lists this image; list it or delete it.")
    return problems


def _image_fault(path: Path) -> str | None:
    try:
        read_image(path)
    except DataError as error:
        return str(error)
    return None
