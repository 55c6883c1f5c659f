"""Prepared datasets: the one folder format that cml trains on and evaluates on, read and checked.

A prepared dataset is a folder that Hugging Face ``load_dataset("imagefolder", data_dir=..)`` reads as it is::

    dataset.json             what the dataset is: DatasetInfo
    train/metadata.jsonl     one line an item: file_name, item_id, role, the label column
    train/images/..          where file_name points to, relative to its metadata.jsonl
    test/metadata.jsonl      the same for the roles query and gallery
    test/images/..

A label column that ends with ``_file_name`` names a mask an item, an image of ids (masks.py). Opening checks all
metadata (metadata.py) before anything is trusted; ``check_dataset`` decodes the pixels too. Not for: writing
(prepared_writer.py), what a label means (the label distances check that), loading images (images.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from PIL import Image

from cml.data.images import read_image
from cml.data.masks import mask_problem
from cml.data.metadata import METADATA, ROLES, DatasetInfo, read_metadata
from cml.errors import DataError, UserError

__all__ = ["ROLES", "DatasetInfo", "PreparedDataset", "Split", "check_dataset"]


@dataclass(frozen=True)
class Split:
    """The items of one role, in the order of the metadata.

    Attributes:
        role: "train", "query" or "gallery".
        item_ids: N unique ids.
        paths: N image files.
        labels: N labels as the JSON holds them; where the label column names files (masks), their paths.
    """

    role: str
    item_ids: tuple[str, ...]
    paths: tuple[Path, ...]
    labels: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.item_ids)


@dataclass(frozen=True)
class PreparedDataset:
    """A prepared dataset whose metadata has been read and found sound. Made by ``open``.

    Attributes:
        folder: Where it lies.
        info: What dataset.json says.
        fingerprint: sha256 over dataset.json and both metadata.jsonl; pixels are not part of it.
    """

    folder: Path
    info: DatasetInfo
    fingerprint: str
    _splits: Mapping[str, Split] = field(repr=False)

    @classmethod
    def open(cls, folder: Path | str) -> PreparedDataset:
        """Read and check all metadata; images are looked for but not decoded.

        Raises:
            DataError: the first thing found wrong, with file and line.
        """

        def fail(problem: str) -> NoReturn:
            raise DataError(problem)

        folder = Path(folder)
        info, items, fingerprint = read_metadata(folder, fail)
        assert info is not None  # fail would have raised
        splits = {}
        for role in ROLES:
            rows = [item for item in items if item.role == role]
            splits[role] = Split(
                role,
                tuple(item.item_id for item in rows),
                tuple(item.files[0] for item in rows),
                tuple(item.label for item in rows),
            )
        return cls(folder, info, fingerprint, splits)

    def split(self, role: str) -> Split:
        """The items of one role: train, query or gallery; the queries again where they are the gallery too."""
        if role not in self._splits:
            raise UserError(f"A role is one of {', '.join(ROLES)}. Got {role!r} instead.")
        return self._splits["query" if role == "gallery" and self.info.queries_are_gallery else role]


def check_dataset(folder: Path, *, threads: int = 2, progress: Callable[[int], object] | None = None) -> list[str]:
    """Look for everything wrong with a prepared dataset; every image is decoded.

    Args:
        folder: The dataset.
        threads: Images decoded at a time.
        progress: Called with 1 after each image.

    Returns:
        One sentence a problem, "FILE:LINE: what, rule, value"; empty if the dataset is sound.
    """
    problems: list[str] = []
    info, items, _ = read_metadata(folder, problems.append)
    if info is None:
        return problems
    masks = {(item.label, item.files[0]): item.where for item in items if isinstance(item.label, Path)}
    labels = {mask for mask, _ in masks}
    listed = {path: item.where for item in items for path in item.files if path not in labels}

    def problem_of_mask(pair: tuple[Path, Path]) -> str | None:
        return mask_problem(*pair, info.details)

    with ThreadPoolExecutor(threads) as pool:  # Pillow decodes outside the interpreter lock
        for where, fault in itertools.chain(
            zip(listed.values(), pool.map(_image_fault, listed), strict=True),
            zip(masks.values(), pool.map(problem_of_mask, masks), strict=True),
        ):
            if fault is not None:
                problems.append(f"{where}: {fault}")
            if progress is not None:
                progress(1)
    suffixes = Image.registered_extensions()
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in suffixes and path not in listed and path not in labels:
            problems.append(f"{path}: no {METADATA} lists this image; list it or delete it.")
    return problems


def _image_fault(path: Path) -> str | None:
    try:
        read_image(path)
    except DataError as error:
        return str(error)
    return None
