"""Writing prepared datasets from the items of a source, several at a time, completely or not at all."""

import contextlib
import errno
import itertools
import json
import os
import re
import shutil
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import IO, Any, Self

import numpy as np
from PIL import Image

from cml.array_types import Floating
from cml.console.messages import say
from cml.console.progress_bar import ProgressBar
from cml.data.dataset_info import (
    FILE_COLUMN,
    FIXED_COLUMNS,
    FOLDERS,
    INFO,
    METADATA,
    ORIGINALS,
    ROLES,
    TEXT,
    VECTORS,
    DatasetInfo,
)
from cml.data.digest_file import save_digests
from cml.data.encode_image import Encoded, Picture, encode, image_file_content
from cml.data.item_digests import digest_original
from cml.data.label_form import LabelForm, plain
from cml.data.prepared import PreparedDataset
from cml.data.vector_files import VectorFile, number_fault
from cml.errors import DataError, UserError, escape_moves
from cml.processes.cores import CORES
from cml.storage.atomic import check_vacant
from cml.storage.json_file import FORMAT, read_json, write_json
from cml.storage.partial_dataset import PartialDataset, partial_folder
from cml.storage.saved_options import as_json, difference

_BATCH = 512  # items without images that are written at once
_NAMED = 10  # bad items that are printed, and listed in dataset.json; all are counted


@dataclass(slots=True)
class Item:
    """One item to write.

    If the image or the label is a function, it runs on a thread, but not if an earlier process finished the item. A
    DataError that it raises makes the item a bad one.

    Attributes:
        item_id: Any printable text, unique in the dataset. The file is named after it: characters other than letters,
            digits and ._- become _, and a name that is taken gets a number.
        role: "train", "query" or "gallery".
        image: A JPEG or PNG file, or its content, is kept byte for byte; other files and pixels are encoded. In a
            dataset of vectors it is a picture to show, or None.
        label: A number, a text, nested lists or an array of numbers, a list of texts; the same form for every item. If
            the label column ends with _file_name: an image, which is written as a PNG.
        quality: The quality of encoded JPEGs, 1 to 95; None for a lossless PNG.
        extra: Further columns, which every item must have, each of one type.
        where: The origin of the item, for errors.
        vector: The item itself, (F,) float16 or float32, if ``details.inputs`` of the dataset says that items are
            vectors.

    Example:
        >>> Item("42", "train", "photos/42.jpg", [24.0, 3.5], extra={"subject": "anna"}).quality
        92
    """

    item_id: str
    role: str
    image: Picture | None
    label: Any
    quality: int | None = 92
    extra: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    vector: Floating | None = None


_Encoding = tuple[Item | DataError, Future[tuple[Encoded, object]] | None]  # None where nothing is to encode


class BadItems(DataError):
    """Several bad items with the same fault."""

    def __init__(self, message: str, count: int) -> None:
        super().__init__(message)
        self.count = count


class PreparedWriter:
    """Builds a prepared dataset in a partial folder and renames it when the ``with`` block ends without an error."""

    def __init__(
        self,
        folder: Path,
        # the description of the dataset, whose counts are filled in. With ``made_with``, finished items survive an
        # error or a kill, and the next writer for the same folder and the same ``made_with`` reuses them
        info: DatasetInfo,
        *,
        mends: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder, self.info, self._mends = folder, info, mends
        self._counts: Counter[str] = Counter()
        self._ids: set[str] = set()
        self._names: dict[str, set[str]] = {name: set() for name in FOLDERS.values()}
        self._form = LabelForm()
        self._inputs, self._may_miss_numbers = info.inputs, info.may_miss_numbers
        self._extra: dict[str, type] | None = None
        self._originals: list[int] = []
        self.skipped: list[str] = []
        self.skipped_count = 0
        self.faults = 0
        self._partial = PartialDataset(folder, info.made_with)
        self._context = self._build()

    def __enter__(self) -> Self:
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> bool | None:  # noqa: ANN401
        return self._context.__exit__(*error)

    @contextlib.contextmanager
    def _build(self) -> Iterator[None]:
        try:
            with self._partial, contextlib.ExitStack() as files:
                self._metadata: dict[str, IO[str]] = {}
                self._vectors: dict[str, VectorFile] = {}
                for name in self._names:
                    (self._partial.data / name).mkdir(parents=True, exist_ok=True)
                    if self._inputs.kind == "vectors":
                        file = VectorFile(self._partial.data / name / VECTORS, self._inputs)
                        self._vectors[name] = files.enter_context(file)
                    path = self._partial.data / name / METADATA
                    self._metadata[name] = files.enter_context(path.open("w", encoding="utf-8", newline="\n"))
                yield
                files.close()
                self._finish()
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt(*error.args, *self._hints()) from None
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                kept = " ".join(self._hints()) or "nothing was kept"
                raise UserError(
                    f"The disk is full: {self.folder} could not be written; {kept}. "
                    "Free some space or choose another folder."
                ) from error
            raise

    def _finish(self) -> None:
        if missing := [role for role in self.info.roles if not self._counts[role]]:
            skipped = f" {self.skipped_count} bad items were skipped." if self.skipped else ""
            others = ", ".join(f"{self._counts[role]} {role}" for role in self.info.roles if self._counts[role])
            mend = self._mends.get(missing[0], "Change the split")
            raise UserError(
                f"{self.folder} would have no {missing[0]} items; a dataset needs items of every role: "
                f"{', '.join(self.info.roles)}. Got {others or 'no items'} instead.{skipped} {mend}, or give more data."
            )
        details = dict(self.info.details)
        # a name of a file or column may hold what moves a terminal, which no dataset may
        named = ("name", "label_unit", "frame", "source", "licence")
        texts = {name: escape_moves(getattr(self.info, name)) for name in named}
        if self.skipped:
            details["skipped"] = {"count": self.skipped_count, "first": self.skipped}
        counts = {role: self._counts[role] for role in ROLES}
        write_json(
            self._partial.data / INFO,
            {"format": FORMAT, **vars(self.info), **texts, "details": details, "counts": counts},
        )
        written = {f"{name}/{METADATA}" for name in self._names} | {f"{name}/{VECTORS}" for name in self._vectors}
        save_digests(self._partial.data / ORIGINALS, np.array(self._originals, np.uint64))
        self._partial.publish({INFO, *written} | ({ORIGINALS} if self._originals else set()))

    def _hints(self) -> list[str]:
        count = self._partial.kept
        return [f"{count} finished items are kept and the same command continues from there"] if count else []

    def skip(self, name: str, message: str, count: int) -> None:
        """Count bad items, and print their fault if it is one of the first."""
        self.skipped_count += count
        self.faults += 1
        if len(self.skipped) < _NAMED:
            self.skipped.append(name)
            say(f"skipped: {message}")

    def encode_item(self, item: Item) -> tuple[Encoded, object]:
        """Encode an item and its label for ``add``, or read what an earlier process left; several threads may call it.

        The label is encoded if it is an image.
        """
        assert item.image is not None
        files, label = (self._partial.finished_files(item.item_id) or {}).items(), item.label
        done = [Encoded(content, PurePosixPath(path).suffix) for path, content in files]
        if self.info.label_column.endswith(FILE_COLUMN):
            encoded, label = done if len(done) == 2 else self._encode_both(item, item.image)
        else:
            encoded = done[0] if len(done) == 1 else encode(item.image, item.quality)
        if item.role == "train":
            encoded = encoded._replace(original=digest_original(item.image, encoded.content))
        return encoded, label

    def _encode_both(self, item: Item, image: Picture) -> tuple[Encoded, Encoded]:
        return encode(image, item.quality), self._mask(item.label, item.item_id)

    def _mask(self, label: object, item_id: str) -> Encoded:
        if callable(label):
            label = label()
        if isinstance(label, Encoded):
            return label
        if not isinstance(label, Image.Image):
            column = self.info.label_column
            raise UserError(f"The {column} of item {item_id!r} should be an image. Got {type(label)} instead.")
        return Encoded(image_file_content(label, "PNG"), ".png")

    def add(self, items: Sequence[Item]) -> None:
        """Write items without images, all of them or, after an error, none; or one with its image."""
        self._check(items)
        labels = [self._check_label(item) for item in items]
        self._check_extras(items)
        rows = {
            below: self._stack_vectors([item for item in items if FOLDERS[item.role] == below])
            for below in self._vectors
        }
        lines: dict[str, list[str]] = {below: [] for below in self._metadata}
        column = self.info.label_column
        for item, label in zip(items, labels, strict=True):
            below, files = FOLDERS[item.role], dict[str, bytes]()
            fixed = {"item_id": item.item_id, "role": item.role}
            if item.image is not None:
                encoded = encode(item.image, item.quality)
                name = self._free_name(item.item_id, encoded.suffix, below)
                files[f"images/{name}{encoded.suffix}"] = encoded.content
                if encoded.original:
                    self._originals.append(encoded.original)
                (self._partial.data / below / "images").mkdir(exist_ok=True)
                fixed = {"file_name": next(iter(files)), **fixed}
                if isinstance(label, Encoded):
                    kind = column.removesuffix(FILE_COLUMN)
                    files[f"{kind}/{name}{label.suffix}"] = label.content
                    (self._partial.data / below / kind).mkdir(exist_ok=True)
                    label = f"{kind}/{name}{label.suffix}"
            lines[below].append(_ENCODER.encode({**fixed, column: label, **item.extra}))
            if files:
                self._partial.add(item.item_id, {f"{below}/{path}": content for path, content in files.items()})
        for below, written in lines.items():
            if below in rows:
                self._vectors[below].write(rows[below])
            self._metadata[below].writelines(f"{line}\n" for line in written)
        self._ids.update(item.item_id for item in items)
        self._counts.update(item.role for item in items)

    def _check(self, items: Sequence[Item]) -> None:
        """Check roles and ids, and that each item has what the dataset is of."""
        kind, seen, roles = self._inputs.kind, set[str](), self.info.roles
        for item in items:
            name = item.item_id
            if item.role not in roles:
                raise UserError(f"A role is one of {', '.join(roles)}. Got {item.role!r} instead.")
            if not name or not name.isprintable() or name in self._ids or name in seen:
                raise UserError(f"An item_id should be printable text that no other item has. Got {name!r} instead.")
            seen.add(name)
            if (item.vector is None) == (kind == "vectors"):
                got = "no vector" if item.vector is None else "a vector"
                rule = f"The items of this dataset are {kind}, by details.inputs"
                raise UserError(f"{rule}. The item {name!r} has {got}.")
            if kind == "texts" and not str(item.extra.get(TEXT, "")).strip():
                raise UserError(f"The items of this dataset are texts. The item {name!r} has none in {TEXT!r}.")
            if kind == "images" and item.image is None:
                raise UserError(f"The item {name!r} has no image.")

    def _stack_vectors(self, items: Sequence[Item]) -> Floating:  # (B, F), of items of one folder
        rows = [item.vector for item in items if item.vector is not None]
        if not rows:
            return np.empty((0, *self._inputs.shape), np.float32)
        try:
            self._vectors[FOLDERS[items[0].role]].check(rows)
        except DataError as error:
            raise DataError(f"Item {items[0].item_id!r}: {error}.") from None
        stacked = np.stack(rows)
        fault = number_fault(stacked, self._inputs, may_miss_numbers=self._may_miss_numbers)
        if fault is not None:
            raise DataError(f"Item {items[fault[0]].item_id!r}: {fault[1]}.")
        return stacked

    def _check_label(self, item: Item) -> object:
        """The label of an item as it is written; that of a file encoded."""
        if self.info.label_column.endswith(FILE_COLUMN) and item.image is not None:
            return self._mask(item.label, item.item_id)
        label = plain(item.label)
        if (fault := self._form.fault(label)) is not None:
            raise DataError(f"The {self.info.label_column} of item {item.item_id!r} {fault}.")
        return label

    def _free_name(self, item_id: str, suffix: str, folder: str) -> str:
        # Hugging Face datasets skips names that start with a dot, and some file systems ignore case
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", item_id.removesuffix(suffix)).lstrip("._-")[:100] or "item"
        taken, free = self._names[folder], name
        numbers = itertools.count(len(taken) + 1)
        while free.lower() in taken:
            free = f"{name}-{next(numbers)}"
        taken.add(free.lower())
        return free

    def _check_extras(self, items: Sequence[Item]) -> None:
        for item in items:
            types = {column: type(value) for column, value in item.extra.items()}
            if types == self._extra:
                continue
            if taken := types.keys() & {*FIXED_COLUMNS, self.info.label_column}:
                raise UserError(f"An extra column cannot be named {taken.pop()!r}; that name is reserved.")
            if self._extra is not None:
                raise UserError(f"Every item needs the same extra columns: {self._extra}. Got {types} instead.")
            self._extra = types


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def write_dataset(
    folder: Path,
    info: DatasetInfo,
    items: Iterable[Item | DataError],
    *,
    total: int | None = None,
    threads: int | None = None,
    # whether bad items are left out, the first ones printed, and counted under ``details.skipped`` of dataset.json;
    # without it, the first is an error
    skip_bad: bool = False,
    within: Iterable[Path] = (),  # the folders of the input, to which names of skipped files are relative
    # what to change if there are no items of a role, by role, as of ``PreparedWriter``
    mends: Mapping[str, str] = MappingProxyType({}),
) -> PreparedDataset:
    """Write a complete dataset with ``PreparedWriter``, and show a progress bar."""
    if isinstance(items, Sequence):
        total = len(items)
        if not skip_bad and (bad := next((item for item in items if isinstance(item, DataError)), None)) is not None:
            raise bad_item_error(str(bad))
    folders = sorted({f"{path}{os.sep}" for path in within if path != Path()}, key=len, reverse=True)
    threads = threads or min(CORES, 32)
    with (
        PreparedWriter(folder, info, mends=mends) as writer,
        ThreadPoolExecutor(threads) as pool,
        contextlib.ExitStack() as ending,
        ProgressBar(total=total, desc=f"prepare {info.name}", unit=info.inputs.kind.removesuffix("s")) as bar,
    ):
        ending.callback(pool.shutdown, cancel_futures=True)  # after an error

        def add(batch: Sequence[_Encoding]) -> None:
            try:
                writer.add([_finish(item, encoding) for item, encoding in batch])
            except UserError as error:
                if len(batch) > 1:
                    for one in batch:
                        add([one])
                    return
                item = batch[0][0]
                message = f"{item.where}: {error}" if isinstance(item, Item) and item.where else str(error)
                if not isinstance(error, DataError):
                    raise type(error)(message) from None
                if not skip_bad:
                    raise bad_item_error(message) from None
                name = item.item_id if isinstance(item, Item) else _relative(str(item), folders)
                writer.skip(name, message, item.count if isinstance(item, BadItems) else 1)

        encoded = _encode_in_order(pool, writer, items, ahead=16 * threads)
        for is_ready, run in itertools.groupby(encoded, lambda one: one[1] is None):
            while batch := list(itertools.islice(run, _BATCH if is_ready else 1)):
                add(batch)
                bar.update(len(batch))
    if writer.faults > len(writer.skipped):
        say(f"skipped {writer.skipped_count} bad items; the first {len(writer.skipped)} are listed above.")
    return PreparedDataset.open(folder)


def find_prepared(
    folder: Path, made_with: Mapping[str, Any]
) -> PreparedDataset | None:  # the dataset; None if the folder is free
    """Find a dataset that was prepared before."""
    if not (folder / INFO).is_file():
        check_vacant(folder)
        return None
    info, wanted = read_json(folder / INFO, "what the dataset is"), as_json(made_with)
    there = info.get("made_with") if isinstance(info, dict) else None
    if there != wanted:
        raise UserError(
            f"{folder} already holds a dataset of different settings ({difference(there, wanted)}). "
            "Choose another folder or delete this one."
        )
    dataset = PreparedDataset.open(folder)
    shutil.rmtree(partial_folder(folder), ignore_errors=True)  # of a process that was killed just after its last step
    skipped = dataset.info.details.get("skipped")
    also = f" ({skipped['count']} bad items were skipped then)" if isinstance(skipped, dict) else ""
    say(f"{folder} is already prepared{also}; nothing to do.")
    return dataset


def _encode_in_order(
    pool: ThreadPoolExecutor, writer: PreparedWriter, items: Iterable[Item | DataError], ahead: int
) -> Iterator[_Encoding]:
    waiting: deque[_Encoding] = deque()
    for item in items:
        encoding: Future[tuple[Encoded, object]] | None = None
        if isinstance(item, DataError):
            encoding = Future()
            encoding.set_exception(item)
        elif item.image is not None:
            encoding = pool.submit(writer.encode_item, item)
        elif not waiting:
            yield item, None
            continue
        waiting.append((item, encoding))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def _finish(item: Item | DataError, encoding: Future[tuple[Encoded, object]] | None) -> Item:
    if encoding is not None:
        image, label = encoding.result()  # raises for errors
        assert isinstance(item, Item)
        return replace(item, image=image, label=label)
    assert isinstance(item, Item)
    return item


def _relative(text: str, folders: Sequence[str]) -> str:
    for folder in folders:
        text = re.sub(rf"(?<![\w./-]){re.escape(folder)}", "", text)
    return text


SKIP_HINT = "(With --skip-bad such items are left out and counted.)"


def bad_item_error(problem: str) -> DataError:
    """Make the error of a bad item, with a hint that bad items can be skipped."""
    return DataError(f"{problem} {SKIP_HINT}")
