"""The three layouts of captioning features that the loaders of public captioning code read.

Directories (``NAME_fc/ID.npy``, ``NAME_att/ID.npz`` with one array ``feat``), two HDF5 files with one dataset per id,
two LMDB files with ASCII ids as keys and the same .npy and .npz bytes as values. Writing an id again changes nothing.
"""

import contextlib
import errno
import importlib
import io
import math
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int64
from cml.errors import DataError, require_extra
from cml.storage import system
from cml.storage.atomic import atomic_file, sync_to_disk, write_all

Layout = Literal["directory", "hdf5", "lmdb"]
_BLOCK = 4096  # bytes: what a file system and LMDB round up to
_TRANSACTION = 8  # images
_COPIED = 1 << 20  # bytes at a time


@dataclass(frozen=True)
class Shape:
    """Features of an image: C ``channels``, S x S positions with S = ``side``, the ``dtype`` of the spatial ones."""

    channels: int
    side: int
    dtype: Literal["float32", "float16"]
    compress: bool = False


class Features(NamedTuple):
    """Global features ``fc`` (C,) float32 and spatial ones ``att`` (S, S, C) of an image; ``key`` is its COCO id."""

    key: str
    fc: Float32
    att: NDArray[Any]


class FeatureStore(ABC):
    """One layout, begun or continued in the folder ``work``, of the features of ``keys``, all ids in order."""

    suffix: ClassVar[str] = ""

    def __init__(self, work: Path, name: str, keys: Sequence[str], shape: Shape) -> None:
        self._work, self._keys, self.shape = work, keys, shape
        self._fc, self._att = (work / part for part in self.parts(name))

    @classmethod
    def parts(cls, name: str) -> tuple[str, str]:
        """Names of the files or folders of global and of spatial features."""
        return f"{name}_fc{cls.suffix}", f"{name}_att{cls.suffix}"

    @staticmethod
    def bytes_each(shape: Shape) -> int:
        """Disk space per image, an upper bound if files are compressed."""
        sizes = 4 * shape.channels, shape.side**2 * shape.channels * np.dtype(shape.dtype).itemsize
        return sum(-(-(size + 512) // _BLOCK) * _BLOCK for size in sizes)

    @abstractmethod
    def write(self, features: Sequence[Features]) -> None:
        """Store the features of some images; they are on the disk when it returns."""

    @abstractmethod
    def close(self) -> None:
        """End writing."""

    def drop(self, missing: Sequence[str]) -> None:
        """After ``close``: remove the space of ids that were never written. It may be repeated after a kill."""
        return

    def _save_fc(self, features: Features, file: BinaryIO) -> None:
        np.save(file, features.fc, allow_pickle=False)

    def _save_att(self, features: Features, file: BinaryIO) -> None:
        (np.savez_compressed if self.shape.compress else np.savez)(file, feat=features.att)


class _DirectoryStore(FeatureStore):
    """One file per image in each of two folders."""

    def __init__(self, work: Path, name: str, keys: Sequence[str], shape: Shape) -> None:
        super().__init__(work, name, keys, shape)
        for folder in (self._fc, self._att):
            folder.mkdir(exist_ok=True)
        self._pool = ThreadPoolExecutor(4)  # each waits until its file is on the disk

    def write(self, features: Sequence[Features]) -> None:
        def open_files(folder: Path, suffix: str) -> list[BinaryIO]:
            return [files.enter_context((folder / f"{image.key}{suffix}").open("wb")) for image in features]

        with contextlib.ExitStack() as files:
            fc, att = open_files(self._fc, ".npy"), open_files(self._att, ".npz")
            # all are written before the first is forced, so that the file system forces one set of changes
            list(self._pool.map(self._save_fc, features, fc))
            list(self._pool.map(self._save_att, features, att))
            list(self._pool.map(_force_file, [*fc, *att]))
        sync_to_disk(self._fc, self._att)

    def close(self) -> None:
        self._pool.shutdown()


class _Hdf5Store(FeatureStore):
    """Two HDF5 files with one dataset per image.

    A process that is killed while it changes the structure of an HDF5 file leaves it broken. So the whole structure is
    written first, with an offset for every dataset; features are then written at their offsets.
    """

    suffix = ".h5"

    def __init__(self, work: Path, name: str, keys: Sequence[str], shape: Shape) -> None:
        super().__init__(work, name, keys, shape)
        self._row = {key: row for row, key in enumerate(keys)}
        s, c = shape.side, shape.channels
        self._forms: dict[Path, tuple[tuple[int, ...], str]]
        self._forms = {self._fc: ((c,), "float32"), self._att: ((s, s, c), shape.dtype)}
        self._places = {path: self._allocate(path) for path in self._forms}
        self._files = {path: os.open(path, os.O_RDWR | system.PLAIN) for path in self._places}

    def _allocate(self, path: Path) -> Int64:
        """Offsets (N,) of the datasets in the file, which is made if it is missing."""
        saved = self._work / f"{path.name}.places.npy"
        if not saved.exists():
            places = self._make(path, *self._forms[path])
            sync_to_disk(path)
            with atomic_file(saved) as temporary:
                np.save(temporary, places, allow_pickle=False)
        offsets: Int64 = np.load(saved, allow_pickle=False)
        return offsets

    def _make(self, path: Path, shape: tuple[int, ...], dtype: str) -> Int64:
        """Make a file with all datasets, without their content; always the same bytes."""
        h5py = _module("h5py", "hdf5")
        plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plan.set_layout(h5py.h5d.CONTIGUOUS)
        plan.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plan.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        plan.set_obj_track_times(False)
        space, kind = h5py.h5s.create_simple(shape), h5py.h5t.py_create(np.dtype(dtype).newbyteorder("<"))
        with h5py.File(path, "w") as file:
            datasets = (h5py.h5d.create(file.id, key.encode("ascii"), kind, space, plan) for key in self._keys)
            return np.array([dataset.get_offset() for dataset in datasets], np.int64)

    def write(self, features: Sequence[Features]) -> None:
        for path, handle in self._files.items():
            for image in features:
                array = image.fc if path == self._fc else image.att
                content = array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data
                write_all(handle, content, int(self._places[path][self._row[image.key]]))
            os.fsync(handle)

    def close(self) -> None:
        while self._files:
            os.close(self._files.popitem()[1])

    def drop(self, missing: Sequence[str]) -> None:
        """Remove the datasets of ``missing`` ids; first everything but the features is made again, after a kill."""
        gone = set(missing)
        kept = [row for key, row in self._row.items() if key not in gone]
        for path, (shape, dtype) in self._forms.items():
            like = path.with_name(f"{path.name}.structure")
            places = self._make(like, shape, dtype)
            if not np.array_equal(places, self._places[path]):
                raise DataError(f"{path} was begun by another version of HDF5; delete {self._work} to start over.")
            _copy_around(like, path, np.sort(places[kept]), math.prod(shape) * np.dtype(dtype).itemsize)
            with _module("h5py", "hdf5").File(path, "r+") as file:
                for key in missing:
                    del file[key]
            sync_to_disk(path)


def _copy_around(source: Path, target: Path, places: Int64, size: int) -> None:
    """Copy ``source`` to ``target``, except ``size`` bytes at each of the ascending ``places``."""
    end = source.stat().st_size
    with source.open("rb") as read, target.open("r+b") as write:
        for start, stop in zip([0, *(places + size).tolist()], [*places.tolist(), end], strict=True):
            read.seek(start)
            write.seek(start)
            for at in range(start, stop, _COPIED):
                write.write(read.read(min(_COPIED, stop - at)))
        write.truncate(end)


class _LmdbStore(FeatureStore):
    """Two LMDB files, written in transactions of a few images, as a transaction keeps its values in memory."""

    suffix = ".lmdb"

    def __init__(self, work: Path, name: str, keys: Sequence[str], shape: Shape) -> None:
        super().__init__(work, name, keys, shape)
        lmdb = _module("lmdb", "lmdb")
        room = (1 << 30) + 3 * len(keys) * self.bytes_each(shape)  # address space; the file grows with its content
        how = {"subdir": False, "map_size": room, "lock": False, "meminit": False}
        self._databases = {path: lmdb.open(str(path), **how) for path in (self._fc, self._att)}

    def write(self, features: Sequence[Features]) -> None:
        for path, database in self._databases.items():
            save = self._save_fc if path == self._fc else self._save_att
            try:
                for start in range(0, len(features), _TRANSACTION):
                    with database.begin(write=True) as transaction:
                        for image in features[start : start + _TRANSACTION]:
                            content = io.BytesIO()
                            save(image, content)
                            transaction.put(image.key.encode("ascii"), content.getbuffer())
            except _module("lmdb", "lmdb").Error as error:  # of the disk: a failed transaction does not change the file
                full = shutil.disk_usage(path.parent).free < len(features) * self.bytes_each(self.shape)
                raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(path)) from None

    def close(self) -> None:
        for database in self._databases.values():
            database.close()


STORES: dict[Layout, type[FeatureStore]] = {"directory": _DirectoryStore, "hdf5": _Hdf5Store, "lmdb": _LmdbStore}


def _force_file(file: BinaryIO) -> None:
    """Force the content of an open file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def _module(name: Literal["h5py", "lmdb"], layout: Layout) -> Any:  # noqa: ANN401 - modules without types
    with require_extra(layout, f"The layout {layout!r}"):
        return importlib.import_module(name)
