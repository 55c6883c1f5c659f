"""Writing prepared datasets from the items of a source, completely or not at all.

Several items are written at a time; a bad one is an error or is counted.
"""

import contextlib
import os
import re
import shutil
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cml.data.dataset_files import PreparedWriter
from cml.data.dataset_info import INFO, DatasetInfo
from cml.data.image_files import Encoded, Picture
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError
from cml.processes.bar import Bar
from cml.storage.atomic import check_vacant, read_json
from cml.storage.made_with import as_json, difference
from cml.storage.partial_dataset import partial_folder

__all__ = ["Item", "PreparedWriter", "already_prepared", "write_dataset"]

_SHOWN = 10  # bad items that are printed; all are counted


@dataclass(frozen=True)
class Item:
    """One item to write: the arguments of ``PreparedWriter.add``, and its origin ``where``, for errors.

    If the image or the label is a function, it runs on a thread, but not if an earlier process finished the item. A
    DataError that it raises makes the item a bad one.
    """

    item_id: str
    role: str
    image: Picture
    label: Any
    quality: int | None = 92
    extra: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""


def write_dataset(
    folder: Path,
    info: DatasetInfo,
    items: Iterable[Item | DataError],
    *,
    total: int | None = None,
    threads: int | None = None,
    skip_bad: bool = False,
    within: Iterable[Path] = (),
) -> PreparedDataset:
    """Write a complete dataset, with a progress bar on stderr; images are made on several threads.

    A process that dies leaves a partial folder beside ``folder``, and another call with the same ``info.made_with``
    reuses the items that were finished. The dataset is the same, byte for byte.

    Args:
        folder: The dataset's folder; absent or empty.
        info: The content of dataset.json; the counts are filled in.
        items: Read one by one; only a few images are in memory at a time. A DataError stands for an item with a bad
            annotation. A sequence is searched for these before the first image is made.
        total: Their number, for the progress bar.
        threads: Images decoded, cropped and encoded at a time; by default one per CPU.
        skip_bad: Leave bad items out, print the first ones and count them under ``details.skipped`` of dataset.json.
            Otherwise the first one is an error.
        within: Folders of the input, to which the file names of bad items in dataset.json are relative.

    Raises:
        UserError: as ``PreparedWriter``.
        DataError: a bad item, unless they are skipped.
    """
    if isinstance(items, Sequence):
        total = len(items)
        if not skip_bad and (bad := next((item for item in items if isinstance(item, DataError)), None)) is not None:
            raise unskipped(str(bad))
    folders = sorted({f"{path}{os.sep}" for path in within if path != Path()}, key=len, reverse=True)
    threads = threads or min(os.cpu_count() or 1, 32)
    with (
        PreparedWriter(folder, info) as writer,
        _pool(threads) as pool,
        Bar(total=total, desc=f"prepare {info.name}", unit="image") as bar,
    ):
        for item, made in _made_in_order(pool, writer, items, ahead=16 * threads):
            try:
                image, label = made.result()
                assert isinstance(item, Item)  # result() has raised for the others
                writer.add(item_id=item.item_id, role=item.role, image=image, label=label, extra=item.extra)
            except UserError as error:
                located = f"{item.where}: {error}" if isinstance(item, Item) and item.where else str(error)
                if not isinstance(error, DataError):
                    raise type(error)(located) from None
                if not skip_bad:
                    raise unskipped(located) from None
                writer.skip(item.item_id if isinstance(item, Item) else _relative(str(item), folders))
                if writer.skipped <= _SHOWN:
                    bar.write(f"skipped: {located}", file=sys.stderr)
            bar.update()
    if writer.skipped > _SHOWN:
        print(f"skipped {writer.skipped} bad items; the first {_SHOWN} are listed above.", file=sys.stderr)
    return PreparedDataset.open(folder)


def already_prepared(folder: Path, made_with: Mapping[str, Any]) -> PreparedDataset | None:
    """The dataset in ``folder``, made from the same source with the same settings; None if the folder is free.

    Raises:
        UserError: something else is there; it is never replaced.
        DataError: the dataset is there, but damaged.
    """
    if not (folder / INFO).is_file():
        check_vacant(folder)
        return None
    there = read_json(folder / INFO, "what the dataset is")
    there = there.get("made_with") if isinstance(there, dict) else None
    wanted = as_json(made_with)
    if there != wanted:
        raise UserError(
            f"{folder} already holds a dataset of different settings ({difference(there, wanted)}). "
            "Choose another folder or delete this one."
        )
    dataset = PreparedDataset.open(folder)
    shutil.rmtree(partial_folder(folder), ignore_errors=True)  # of a process that was killed just after its last step
    skipped = dataset.info.details.get("skipped")
    also = f" ({skipped['count']} bad items were skipped then)" if isinstance(skipped, dict) else ""
    print(f"{folder} is already prepared{also}; nothing to do.", file=sys.stderr)
    return dataset


@contextlib.contextmanager
def _pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # after an error


def _made_in_order(
    pool: ThreadPoolExecutor, writer: PreparedWriter, items: Iterable[Item | DataError], ahead: int
) -> Iterator[tuple[Item | DataError, Future[tuple[Encoded, object]]]]:
    waiting: deque[tuple[Item | DataError, Future[tuple[Encoded, object]]]] = deque()
    for item in items:
        if isinstance(item, Item):
            made = pool.submit(writer.encoded, item.item_id, item.image, item.label, item.quality)
        else:
            made = Future()
            made.set_exception(item)
        waiting.append((item, made))
        if len(waiting) > ahead:
            yield waiting.popleft()
    yield from waiting


def _relative(text: str, folders: Sequence[str]) -> str:
    for folder in folders:
        text = re.sub(rf"(?<![\w./-]){re.escape(folder)}", "", text)
    return text


def unskipped(problem: str) -> DataError:
    """The error of a bad item, with a hint that bad items can be skipped."""
    return DataError(f"{problem} (With --skip-bad such items are left out and counted.)")
