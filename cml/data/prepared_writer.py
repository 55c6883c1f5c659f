"""Writing prepared datasets: the whole of one or nothing, and nothing at all when it is there already.

A source of data_prep says what its items are; here they become files, several at a time, and bad ones are an error or
are counted. Not for: the files themselves (dataset_files.py), cropping and resizing (each source does its own).
"""

from __future__ import annotations

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
from cml.data.image_files import Encoded, Picture
from cml.data.metadata import INFO
from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.errors import DataError, UserError
from cml.processes.bar import Bar
from cml.storage.atomic import check_vacant, read_json
from cml.storage.made_with import as_json, difference
from cml.storage.partial_dataset import partial_folder

__all__ = ["Item", "PreparedWriter", "already_prepared", "write_dataset"]

_SHOWN = 10  # bad items that are printed; all are counted


@dataclass(frozen=True)
class Item:
    """One item to write: the arguments of ``PreparedWriter.add`` and where it comes from, for error messages.

    Where image or label is a function, it runs on a thread when the item's turn comes, and not at all if an earlier
    process has finished the item. A DataError that it raises makes the item a bad one.
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
    """Write a dataset whole, with a progress bar on stderr; images are made on several threads.

    A process that dies leaves a partial folder beside ``folder``; called again with the same ``info.made_with``, this
    function uses what was finished there. The dataset is the same, byte for byte.

    Args:
        folder: Where it shall lie; absent or empty.
        info: What dataset.json shall say; the counts are filled in.
        items: Taken one after the other; only a few images are in memory at a time. A DataError among them stands for
            an item whose annotation is bad. A list is looked through for these before the first image is made.
        total: How many there are, for the progress bar.
        threads: Images decoded, cropped and encoded at a time; as many as there are processors by default.
        skip_bad: Leave bad items out, print the first ones and count them under ``details.skipped`` of dataset.json.
            Otherwise the first one is the error.
        within: Folders of the input: dataset.json names files in them relative to them, wherever they lie.

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
                assert isinstance(item, Item)  # the others have raised
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
        print(f"skipped {writer.skipped} bad items, of which {_SHOWN} are named above.", file=sys.stderr)
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
    wanted = as_json(made_with)
    if there != wanted:
        raise UserError(
            f"{folder} already holds a dataset that was made otherwise ({difference(there, wanted)}). "
            "Choose another folder or delete this one."
        )
    dataset = PreparedDataset.open(folder)
    shutil.rmtree(partial_folder(folder), ignore_errors=True)  # of a process killed just after its last step
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
        pool.shutdown(cancel_futures=True)  # after an error nobody wants what is still waiting


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
    """The error of a bad item, which says that such items may be skipped."""
    return DataError(f"{problem} (With --skip-bad such items are left out and counted.)")
