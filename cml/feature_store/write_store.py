"""Computing the features of items into a store: in chunks, so that a killed call is continued by the same call."""

import contextlib
import functools
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cml.array_types import Float32, Floating
from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.errors import DataError, UserError
from cml.feature_store.manifest import (
    ITEMS,
    MANIFEST,
    ROWS_PER_SHARD,
    FeatureType,
    StoredItem,
    name_network,
    shard_name,
)
from cml.feature_store.networks import FeatureNetwork
from cml.feature_store.store import FeatureStore
from cml.feature_store.stored_items import StoredItems
from cml.processes.ranks import Ranks
from cml.storage.atomic import GrowingFile, delete
from cml.storage.regular_file import digest_file
from cml.storage.resumable_output import ResumableOutput, resumable_output, work_path
from cml.storage.saved_options import Count, record

_RECORD = ("rows", "features", ITEMS)  # rows so far, their width, and bytes of the list


def write_features(
    items: StoredItems,
    network: FeatureNetwork,
    out: Path,
    *,
    dtype: FeatureType = "float32",
    rows_per_shard: int = ROWS_PER_SHARD,
    # the processes that share the work and a disk, all of which call this; None for this one alone
    ranks: Ranks | None = None,
    bar: str = "features",  # title of a progress bar; "" for none
    wait: bool = False,
) -> FeatureStore:
    """Compute the features of items into a store, in memory that does not grow with their number.

    A call that was killed is continued by the same call; a finished store is returned as it is.
    """
    if not len(items):
        raise UserError("There are no items to compute features of.")
    ranks = ranks or Ranks()
    writer = _StoreWriter(items, network, out, np.dtype(dtype), rows_per_shard, ranks, bar)
    if ranks.first:
        writer.write(wait=wait)
    else:
        writer.compute_shares()
    ranks.barrier()
    return FeatureStore.open(out)


@dataclass(frozen=True)
class _StoreWriter:
    """Computes the features of items into a store; its fields are the arguments of ``write_features``."""

    items: StoredItems
    network: FeatureNetwork
    out: Path
    dtype: np.dtype[Any]
    rows_per_shard: int
    ranks: Ranks
    bar: str

    def write(self, *, wait: bool) -> None:
        """Do the work of the process that writes: compute its share, and write what all computed."""
        if (self.out / MANIFEST).exists():
            self._check_finished()
            delete(work_path(self.out))  # left by a process that was killed just after its last step
            self.ranks.broadcast(lambda: len(self.items))
            return
        items, network = self.items, self.network
        made_with: dict[str, object] = {
            "made_by": dict(network.made_by),
            "dtype": self.dtype.name,
            "rows_per_shard": self.rows_per_shard,
            "items_fingerprint": items.fingerprint(),
        }
        about = {"network": name_network(network.made_by), "items": f"{len(items)} items {items.root}".strip()}
        names = [shard_name(number) for number in range(-(-len(items) // self.rows_per_shard))]
        parse = functools.partial(_state, items=len(items))
        with resumable_output(self.out, made_with, (*names, ITEMS), about=about, parse=parse, wait=wait) as output:
            if output.manifest is not None:
                self.ranks.broadcast(lambda: len(items))
                return
            width = self._write_rows(output)
            shards = [
                {
                    "file": name,
                    "rows": min(self.rows_per_shard, len(items) - number * self.rows_per_shard),
                    "sha256": digest_file(output.work / name),
                }
                for number, name in enumerate(names)
            ]
            output.finish(
                {
                    "kind": "features",
                    "root": items.root,
                    "items": len(items),
                    "features": width,
                    **({"text_column": items.column} if items.column else {}),
                    **made_with,
                    "items_sha256": digest_file(output.work / ITEMS),
                    "shards": shards,
                }
            )

    def compute_shares(self) -> None:
        """Do the work of a process that does not write: compute its share of each chunk."""
        start = self.ranks.broadcast(lambda: 0)
        for first, last in self._chunks(start):
            self._compute(first, last)

    def _check_finished(self) -> None:
        """Refuse a finished store of other features."""
        store = FeatureStore.open(self.out)
        store.check_made_by(self.network.made_by)
        if (there := store.manifest["dtype"]) != self.dtype.name:
            raise UserError(f"{self.out} holds features as {there}, not as {self.dtype}. Choose another folder.")
        store.check_items(self.items)

    def _write_rows(self, output: ResumableOutput) -> int:
        """Write rows and items after the last record; returns the width of a row."""
        items = self.items
        done, width, size = _state(output.records[-1], len(items)) if output.records else (0, 0, 0)
        self.ranks.broadcast(lambda: done)
        unit = {"images": "image", "texts": "text"}.get(self.network.made_by["kind"], "item")
        bar = ProgressBar(
            total=len(items), initial=done, desc=self.bar, unit=unit, delay=BAR_DELAY, disable=not self.bar
        )
        with (
            GrowingFile(output.work / ITEMS, size) as listed,
            contextlib.closing(_Shards(output.work, len(items), done, self.dtype, self.rows_per_shard)) as shards,
            bar,
        ):
            for first, last, rows in self._compute_chunks(done):
                lines = [items.item(position) for position in range(first, last)]
                if width and rows.shape[1] != width:
                    raise DataError(
                        f"{self.network.made_by['backbone']!r} gives {rows.shape[1]} numbers for item "
                        f"{lines[0].item_id!r} and gave {width} before: all items need features of one length."
                    )
                width = rows.shape[1]
                shards.append(_convert_rows(rows, self.dtype, lines))
                listed.append(b"".join(_encode(line) for line in lines))
                output.record(dict(zip(_RECORD, (last, width, _sync(shards, listed)), strict=True)))
                bar.update(last - first)
        return width

    def _compute_chunks(self, start: int) -> Iterator[tuple[int, int, Float32]]:
        """First and last position and features of each chunk from ``start`` on, in order."""
        for first, last in self._chunks(start):
            yield first, last, self._compute(first, last)

    def _chunks(self, start: int) -> Iterator[tuple[int, int]]:
        """First and last positions of chunks from ``start`` on; none crosses the border of two parts."""
        begin = 0
        for count in self.items.parts:
            for first in range(begin, begin + count, self.network.chunk):
                if first >= start:
                    yield first, min(first + self.network.chunk, begin + count)
            begin += count

    def _compute(self, first: int, last: int) -> Float32:
        """Features of a chunk, of which each process computes its share."""
        return self.ranks.compute_rows(
            last - first, lambda rows: self.network.extract(self.items.take(first + rows.start, first + rows.stop))
        )


def _sync(shards: "_Shards", listed: GrowingFile) -> int:
    shards.sync()
    return listed.sync()


def _convert_rows(rows: Float32, dtype: np.dtype[Any], lines: list[StoredItem]) -> Floating:
    """Rows of the stored type, checked to be finite."""
    with np.errstate(over="ignore"):
        converted: Floating = rows.astype(dtype, copy=False)
    finite = np.isfinite(converted).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        name = lines[row].file_name or lines[row].item_id
        if np.isfinite(rows[row]).all():
            largest = np.abs(rows[row]).max()
            raise DataError(f"The features of {name!r} reach {largest:.4g}, too much for float16: store float32.")
        raise DataError(f"The features of {name!r} hold NaN or infinity.")
    return converted


def _encode(item: StoredItem) -> bytes:
    """A line of the list, in ASCII, as a file name may be no Unicode."""
    entry = {name: value for name, value in msgspec.structs.asdict(item).items() if value not in ("", 0)}
    return f"{json.dumps({'item_id': item.item_id, **entry})}\n".encode()


def _state(entry: dict[str, Any], items: int) -> tuple[int, int, int]:
    """The entries of a record; ValueError or DataError if it is not of these items."""
    rows, width, size = (record(entry[name], Count, name, "a size") for name in _RECORD)
    if rows > items or not width:
        raise ValueError("it is of other items")
    return rows, width, size


class _Shards:
    """The files of the rows, written one after another."""

    def __init__(self, folder: Path, items: int, done: int, dtype: np.dtype[Any], rows_per_shard: int) -> None:
        self._folder, self._items, self._dtype, self._each = folder, items, dtype, rows_per_shard
        self._rows = done
        self._file: GrowingFile | None = None

    def append(self, rows: Floating) -> None:
        """Write rows, which may end one file and begin the next."""
        while len(rows):
            number, there = divmod(self._rows, self._each)
            if self._file is None:
                header = self._header(number, rows.shape[1])
                path = self._folder / shard_name(number)
                size = len(header) + there * rows.shape[1] * self._dtype.itemsize if there else 0
                self._file = GrowingFile(path, size)
                if not there:
                    self._file.append(header)
            taken = rows[: self._each - there]
            self._file.append(np.ascontiguousarray(taken, self._dtype.newbyteorder("<")).tobytes())
            self._rows += len(taken)
            rows = rows[len(taken) :]
            if self._rows % self._each == 0:
                self.close()

    def sync(self) -> None:
        """Force the open file to the disk."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Force the open file to the disk, and close it."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None

    def _header(self, number: int, width: int) -> bytes:
        file = io.BytesIO()
        shape = min(self._each, self._items - number * self._each), width
        head = {"descr": self._dtype.newbyteorder("<").str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, head)
        return file.getvalue()
