"""Writing the files and metadata lines of a prepared dataset, which becomes visible only when it is complete.

Items that a killed process finished are reused (partial_dataset.py).
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import IO, Any

import numpy as np
from PIL import Image

from cml.data.dataset_info import FILE_COLUMN, FIXED_COLUMNS, FOLDERS, INFO, METADATA, ROLES, DatasetInfo
from cml.data.image_files import Encoded, Picture, encode, saved
from cml.data.label_form import LabelForm
from cml.errors import DataError, UserError
from cml.storage.atomic import write_json
from cml.storage.partial_dataset import PartialDataset

_NAMED = 10  # bad items that dataset.json lists; it counts all


class PreparedWriter:
    """Builds a prepared dataset in a partial folder and renames it when the ``with`` block ends without an error.

    Args:
        folder: The dataset's folder; absent or empty.
        info: The content of dataset.json; the counts are filled in. With ``made_with``, finished items survive an error
            or a kill, and the next writer for the same folder and the same ``made_with`` reuses them.

    Raises:
        UserError: ``folder`` is taken, another process writes it, the disk is full, or at the end a role has no items.

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
        self._skipped: list[str] = []
        self._partial = PartialDataset(folder, info.made_with)
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
            with self._partial, contextlib.ExitStack() as files:
                self._metadata: dict[str, IO[str]] = {}
                for name in self._names:
                    (self._partial.data / name / "images").mkdir(parents=True, exist_ok=True)
                    path = self._partial.data / name / METADATA
                    self._metadata[name] = files.enter_context(path.open("w", encoding="utf-8", newline="\n"))
                yield
                files.close()
                self._finish()
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(*error.args, *self._kept()) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                kept = " ".join(self._kept()) or "nothing was kept"
                raise UserError(
                    f"The disk is full: {self.folder} could not be written; {kept}. "
                    "Free some space or choose another folder."
                ) from error
            raise

    def _finish(self) -> None:
        missing = [role for role in self.info.roles if not self._counts[role]]
        if missing:
            skipped = f" {len(self._skipped)} bad items were skipped." if self._skipped else ""
            raise UserError(
                f"{self.folder} would have no {missing[0]} items; a dataset needs items of every role: "
                f"{', '.join(self.info.roles)}.{skipped} Change the split, or give more data."
            )
        details = dict(self.info.details)
        if self._skipped:
            details["skipped"] = {"count": len(self._skipped), "first": self._skipped[:_NAMED]}
        counts = {role: self._counts[role] for role in ROLES}
        write_json(self._partial.data / INFO, {**vars(self.info), "details": details, "counts": counts})
        self._partial.publish({INFO, *(f"{name}/{METADATA}" for name in self._names)})

    def _kept(self) -> list[str]:
        count = self._partial.kept
        return [f"{count} finished items are kept and the same command continues from there"] if count else []

    def encoded(
        self, item_id: str, image: Picture, label: object, quality: int | None = 92
    ) -> tuple[Encoded, object | Encoded]:
        """The files of an item in memory, for ``add``: encoded, or as an earlier process left them.

        This takes most of the time; several threads may call it in any order.

        Returns:
            The image, and the label: encoded if it is an image, else unchanged.

        Raises:
            DataError: the image or the label's image cannot be decoded.
            UserError: the label should be an image, but is not.
        """
        done = [
            Encoded(content, PurePosixPath(path).suffix)
            for path, content in (self._partial.finished(item_id) or {}).items()
        ]
        if self.info.label_column.endswith(FILE_COLUMN):
            return (done[0], done[1]) if len(done) == 2 else (encode(image, quality), self._mask(label, item_id))
        return (done[0] if len(done) == 1 else encode(image, quality)), label

    def skip(self, name: str) -> None:
        """Count a bad item; dataset.json lists the first ones under ``details.skipped``."""
        self._skipped.append(name)

    @property
    def skipped(self) -> int:
        """How many items were skipped."""
        return len(self._skipped)

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
            item_id: Any printable text, unique in the dataset. The file is named after it: characters other than
                letters, digits and ``._-`` become ``_``, and a name that is taken gets a number.
            role: "train", "query" or "gallery".
            image: A JPEG or PNG file (or its content) is decoded once as a check and kept byte for byte; other files
                and pixels are encoded.
            label: A number, a text, nested lists or an array of numbers, a list of texts; the same form for every
                item. If the label column ends with ``_file_name``: an image, or a function that makes one, which is
                written as a PNG.
            quality: JPEG quality of encoded images; None writes a lossless PNG.
            extra: Further columns; the same ones, of the same types, for every item.

        Raises:
            DataError: the image cannot be decoded, or the label is not finite or has another form than the first.
            UserError: the id is taken, or the role or the extra columns are wrong.
        """
        if role not in self.info.roles:
            raise UserError(f"A role is one of {', '.join(self.info.roles)}. Got {role!r} instead.")
        if not item_id or not item_id.isprintable() or item_id in self._ids:
            raise UserError(f"An item_id should be printable text that no other item has. Got {item_id!r} instead.")
        encoded = encode(image, quality)
        column, below = self.info.label_column, FOLDERS[role]
        name = self._free_name(item_id, encoded.suffix, below)
        files = {f"images/{name}{encoded.suffix}": encoded.content}
        if column.endswith(FILE_COLUMN):
            kind = column.removesuffix(FILE_COLUMN)
            mask = self._mask(label, item_id)
            label = f"{kind}/{name}{mask.suffix}"
            files[label] = mask.content
            (self._partial.data / below / kind).mkdir(exist_ok=True)
        else:
            label = _plain(label)
            if (fault := self._form.fault(label)) is not None:
                raise DataError(f"The {column} of item {item_id!r} {fault}.")
        fixed = {"file_name": next(iter(files)), "item_id": item_id, "role": role}
        entry = {**fixed, column: label, **self._checked(extra or {})}
        line = json.dumps(entry, ensure_ascii=False, allow_nan=False)
        self._partial.add(item_id, {f"{below}/{path}": content for path, content in files.items()})
        self._metadata[below].write(line + "\n")
        self._ids.add(item_id)
        self._counts[role] += 1

    def _free_name(self, item_id: str, suffix: str, folder: str) -> str:
        # Hugging Face datasets skips names that start with a dot, and some file systems ignore case
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", item_id.removesuffix(suffix)).lstrip("._-")[:100] or "item"
        taken, free = self._names[folder], name
        number = len(taken)
        while free.lower() in taken:
            number += 1
            free = f"{name}-{number}"
        taken.add(free.lower())
        return free

    def _mask(self, label: object, item_id: str) -> Encoded:
        if callable(label):
            label = label()
        if isinstance(label, Encoded):
            return label
        if not isinstance(label, Image.Image):
            column = self.info.label_column
            raise UserError(f"The {column} of item {item_id!r} should be an image. Got {type(label)} instead.")
        return Encoded(saved(label, "PNG"), ".png")

    def _checked(self, extra: Mapping[str, Any]) -> dict[str, Any]:
        types = {column: type(value) for column, value in extra.items()}
        taken = types.keys() & {*FIXED_COLUMNS, self.info.label_column}
        if taken:
            raise UserError(f"An extra column cannot be named {taken.pop()!r}; that name is reserved.")
        if self._extra is None:
            self._extra = types
        if types != self._extra:
            raise UserError(f"Every item needs the same extra columns: {self._extra}. Got {types} instead.")
        return dict(extra)


def _plain(label: object) -> object:
    """The label as JSON writes it: every number is a float, so that a column has one type."""
    if isinstance(label, np.ndarray | np.generic):
        label = label.tolist()
    if isinstance(label, tuple | list):
        return [_plain(part) for part in label]
    if type(label) is not int:
        return label
    return float(label) if abs(label) < 1e300 else math.inf  # not allowed in a label
