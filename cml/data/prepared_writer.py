"""Writing prepared datasets: the whole of one or nothing, and nothing at all when it is there already.

A source of data_prep says what its items are; here they become files. Not for: reading and checking (prepared.py),
cropping and resizing (each source does its own).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import re
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from PIL import Image
from tqdm import tqdm

from cml.data.image_files import Encoded, Picture, encode, saved
from cml.data.label_form import LabelForm
from cml.data.metadata import FILE_COLUMN, FIXED_COLUMNS, FOLDERS, INFO, METADATA
from cml.data.prepared import ROLES, DatasetInfo, PreparedDataset
from cml.errors import DataError, UserError
from cml.files import atomic_folder, check_vacant, read_json, write_json


@dataclass(frozen=True)
class Item:
    """One item to write: the arguments of ``PreparedWriter.add`` and where it comes from, for error messages."""

    item_id: str
    role: str
    image: Picture
    label: Any
    quality: int | None = 92
    extra: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


class PreparedWriter:
    """Builds a prepared dataset in a temporary folder and renames it when the ``with`` block ends without an error.

    Args:
        folder: Where the dataset shall lie; absent or empty.
        info: What dataset.json shall say; the counts are filled in.

    Raises:
        UserError: ``folder`` is taken, the disk is full, or at the end a role has no items.

    Example:
        >>> with PreparedWriter(folder, info) as writer:  # doctest: +SKIP
        ...     writer.add(item_id="7", role="train", image=Path("7.jpg"), label=0.25)
    """

    def __init__(self, folder: Path, info: DatasetInfo) -> None:
        self.folder = folder
        self.info = info
        self._counts: Counter[str] = Counter()
        self._ids: set[str] = set()
        self._names: dict[str, set[str]] = {name: set() for name in FOLDERS.values()}
        self._form = LabelForm()
        self._extra: dict[str, type] | None = None
        self._context = self._building()

    def __enter__(self) -> PreparedWriter:
        self._context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._context.__exit__(kind, error, trace)

    @contextlib.contextmanager
    def _building(self) -> Iterator[None]:
        try:
            with atomic_folder(self.folder) as self._temporary, contextlib.ExitStack() as files:
                self._metadata: dict[str, IO[str]] = {}
                for name in self._names:
                    (self._temporary / name / "images").mkdir(parents=True)
                    path = self._temporary / name / METADATA
                    self._metadata[name] = files.enter_context(path.open("w", encoding="utf-8", newline="\n"))
                yield
                files.close()
                missing = [role for role in ROLES if not self._counts[role]]
                if missing:
                    raise UserError(
                        f"{self.folder} would have no {missing[0]} items; a dataset needs items of every role: "
                        f"{', '.join(ROLES)}. Change the shares of the split or give more data."
                    )
                counts = {role: self._counts[role] for role in ROLES}
                write_json(self._temporary / INFO, {**vars(self.info), "counts": counts})
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UserError(
                    f"The disk is full: {self.folder} could not be written and nothing was left there. "
                    "Free some space or choose another folder."
                ) from error
            raise

    def add(
        self,
        *,
        item_id: str,
        role: str,
        image: Picture,
        label: object,
        quality: int | None = 92,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one item.

        Args:
            item_id: Any printable text, unique in the dataset. The file is named after it: all but letters,
                digits and ``._-`` become ``_``, and a name that is taken gets a number.
            role: "train", "query" or "gallery".
            image: A JPEG or PNG file (or its content) is decoded once as a check and kept byte for byte; other files
                and pixels are encoded.
            label: A number, a text, nested lists or an array of numbers, a list of texts; the same form for every
                item. Where the label column ends with ``_file_name``: an image, written as it is to a PNG.
            quality: JPEG quality for what has to be encoded; None writes a lossless PNG.
            extra: Further columns; every item has the same ones, of the same types.

        Raises:
            DataError: the image cannot be decoded, or the label has another form than the first one or is not finite.
            UserError: the id is taken, or the role or the extra columns are wrong.
        """
        if role not in FOLDERS:
            raise UserError(f"A role is one of {', '.join(ROLES)}. Got {role!r} instead.")
        if not item_id or not item_id.isprintable() or item_id in self._ids:
            raise UserError(f"An item_id should be printable text that no other item has. Got {item_id!r} instead.")
        encoded = encode(image, quality)
        folder = self._temporary / FOLDERS[role]
        name = self._free_name(item_id, encoded.suffix, FOLDERS[role])
        file_name = f"images/{name}{encoded.suffix}"
        entry = {
            "file_name": file_name,
            "item_id": item_id,
            "role": role,
            self.info.label_column: self._label(label, folder, name, item_id),
            **self._checked(extra or {}),
        }
        (folder / file_name).write_bytes(encoded.content)
        self._metadata[FOLDERS[role]].write(json.dumps(entry, ensure_ascii=False, allow_nan=False) + "\n")
        self._ids.add(item_id)
        self._counts[role] += 1

    def _free_name(self, item_id: str, suffix: str, folder: str) -> str:
        # Hugging Face datasets passes over names that start with a dot, and some file systems ignore case
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", item_id.removesuffix(suffix)).lstrip("._-")[:100] or "item"
        taken, free = self._names[folder], name
        number = len(taken)
        while free.lower() in taken:
            number += 1
            free = f"{name}-{number}"
        taken.add(free.lower())
        return free

    def _label(self, label: object, folder: Path, name: str, item_id: str) -> object:
        column = self.info.label_column
        if column.endswith(FILE_COLUMN):
            if not isinstance(label, Image.Image):
                raise UserError(f"The {column} of item {item_id!r} should be an image. Got {type(label)} instead.")
            below = column.removesuffix(FILE_COLUMN)
            (folder / below).mkdir(exist_ok=True)
            (folder / below / f"{name}.png").write_bytes(saved(label, "PNG"))
            return f"{below}/{name}.png"
        plain = _plain(label)
        if (fault := self._form.fault(plain)) is not None:
            raise DataError(f"The {column} of item {item_id!r} {fault}.")
        return plain

    def _checked(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        types = {column: type(value) for column, value in extra.items()}
        taken = types.keys() & {*FIXED_COLUMNS, self.info.label_column}
        if taken:
            raise UserError(f"An extra column cannot be named {taken.pop()!r}; that column has a meaning already.")
        if self._extra is None:
            self._extra = types
        if types != self._extra:
            raise UserError(f"Every item needs the same extra columns: {self._extra}. Got {types} instead.")
        return dict(extra)


def write_dataset(
    folder: Path, info: DatasetInfo, items: Iterable[Item], *, total: int | None = None, threads: int = 2
) -> PreparedDataset:
    """Write a dataset whole, with a progress bar on stderr; images are made on ``threads`` threads, in their order.

    Args:
        folder: Where it shall lie; absent or empty.
        info: What dataset.json shall say; the counts are filled in.
        items: Taken one after the other; only a few images are in memory at a time.
        total: How many there are, for the progress bar.
        threads: Images decoded, cropped and encoded at a time.

    Raises:
        UserError: as ``PreparedWriter``.
    """
    with (
        PreparedWriter(folder, info) as writer,
        ThreadPoolExecutor(threads) as pool,
        tqdm(total=total, desc=f"prepare {info.name}", unit="image", disable=None) as bar,
    ):
        for item, encoded in _encoded_in_order(pool, items, ahead=8 * threads):
            try:
                writer.add(
                    item_id=item.item_id,
                    role=item.role,
                    image=encoded.result(),
                    label=item.label,
                    extra=item.extra,
                )
            except UserError as error:
                if not item.where:
                    raise
                raise type(error)(f"{item.where}: {error}") from None
            bar.update()
    return PreparedDataset.open(folder)


def already_prepared(folder: Path, made_with: Mapping[str, Any]) -> PreparedDataset | None:
    """Find out whether ``folder`` holds this very dataset, made from the same source with the same settings.

    Returns:
        The dataset, if it is there; None if the folder is absent or empty.

    Raises:
        UserError: something else is there; it is never replaced.
        DataError: the dataset is there, but was damaged since.
    """
    if not (folder / INFO).is_file():
        check_vacant(folder)
        return None
    there = read_json(folder / INFO, "what the dataset is")
    there = there.get("made_with") if isinstance(there, dict) else None
    wanted = json.loads(json.dumps(dict(made_with)))
    if there != wanted:
        raise UserError(
            f"{folder} already holds a dataset that was made otherwise ({_difference(there, wanted)}). "
            "Choose another folder or delete this one."
        )
    dataset = PreparedDataset.open(folder)
    print(f"{folder} is already prepared; nothing to do.", file=sys.stderr)
    return dataset


def _encoded_in_order(
    pool: ThreadPoolExecutor, items: Iterable[Item], ahead: int
) -> Iterator[tuple[Item, Future[Encoded]]]:
    waiting: deque[tuple[Item, Future[Encoded]]] = deque()
    for item in items:
        waiting.append((item, pool.submit(encode, item.image, item.quality)))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def _plain(label: object) -> object:
    """The label as JSON writes it: every number a float, so that no reader takes one column for two types."""
    if isinstance(label, np.ndarray | np.generic):
        label = label.tolist()
    if isinstance(label, tuple | list):
        return [_plain(part) for part in label]
    if type(label) is not int:
        return label
    return float(label) if abs(label) < 1e300 else math.inf  # which no label may hold


def _difference(there: object, wanted: Mapping[str, Any]) -> str:
    if not isinstance(there, dict) or not there:
        return "its dataset.json does not say how"
    flat = [{**values, **values.get("settings", {})} for values in (there, wanted)]
    for key in flat[1]:
        if key != "settings" and flat[0].get(key) != flat[1][key]:
            return f"{key} {flat[0].get(key)!r}, now {flat[1][key]!r}"
    return "with further settings"
