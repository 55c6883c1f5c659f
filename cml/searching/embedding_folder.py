"""Folders of embeddings, opened and written: ``embeddings.npy`` (float32 (N, D)), ``items.jsonl``, ``manifest.json``.

``cml embed`` writes one from images, and an index has one for each of its parts.
"""

import functools
import io
import json
import mmap
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NotRequired, Self, TypedDict

import msgspec
import numpy as np

from cml.array_types import Float32, Int64
from cml.data.image_list import COLUMNS
from cml.errors import DataError
from cml.storage.atomic import atomic_folder, sync_to_disk
from cml.storage.json_file import write_json
from cml.storage.npy import map_array
from cml.storage.regular_file import digest_file, open_regular
from cml.storage.safe_paths import relative_name
from cml.storage.saved_options import Count, read_record
from cml.storage.strict_json import parse_json
from cml.version import __version__

EMBEDDINGS, ITEMS = "embeddings.npy", "items.jsonl"
DIGESTED = (EMBEDDINGS, ITEMS)  # a flipped bit there would change what a search finds, and nothing else
LONGEST_LINE = 1 << 20  # bytes of an item
_BLOCK = 1 << 24  # bytes of items.jsonl in which line ends are looked for at a time


class Origin(TypedDict):
    """Digests of what embeddings were made with; ``images`` is "" where they are not those of a folder or dataset."""

    model: str
    images: str


class Manifest(TypedDict):
    """manifest.json of a folder of embeddings: the images' folder, counts, the model's fingerprint.

    ``sha256`` has the digest of each file of ``DIGESTED``; folders of earlier versions have none.
    """

    images: str
    items: Count
    skipped: Count
    dimension: Count
    model: str
    made_with: Origin
    sha256: NotRequired[dict[str, str]]


class _Named(msgspec.Struct):
    item_id: str


@dataclass(frozen=True)
class EmbeddingFolder:
    """Embeddings (N, D) float32 on disk, memory-mapped, with their manifest."""

    folder: Path
    manifest: Manifest
    embeddings: Float32

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open a folder that ``cml embed`` or an index wrote.

        Raises:
            DataError: The folder is not finished, or damaged: a checksum is wrong, where the folder has them.
        """
        manifest = read_embedding_manifest(folder)
        path, shape = folder / EMBEDDINGS, (manifest["items"], manifest["dimension"])
        try:
            embeddings = map_array(path)
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read ({type(error).__name__}: {error}).") from None
        if embeddings.shape != shape or embeddings.dtype != np.float32:
            got = f"{embeddings.dtype} {embeddings.shape}"
            raise DataError(f"{path} should hold float32 {shape}. Got {got} instead; embed again.")
        opened = cls(folder, manifest, embeddings)
        opened._check_digests()
        return opened

    def _check_digests(self) -> None:
        """Compare the files with the checksums of the manifest, which those of earlier versions lack."""
        digests = self.manifest.get("sha256", {})
        for name in (name for name in DIGESTED if name in digests):
            path = self.folder / name
            try:
                is_sound = digest_file(path) == digests[name]
            except OSError as error:
                raise DataError(f"{path} cannot be read ({error.strerror or error}).") from None
            if not is_sound:
                raise DataError(f"{path} is damaged: its checksum is wrong. Delete {self.folder} and embed again.")

    def __len__(self) -> int:
        return len(self.embeddings)

    def items(self) -> Iterator[dict[str, Any]]:
        """The items in the order of the embeddings: item_id, and file_name and what else is known."""
        path, number = self.folder / ITEMS, 0
        with open_regular(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                yield self._parse(line, number)
        self._check_count(number)

    def map_items(self) -> None:
        """Map items.jsonl into memory: ``item`` and ``rows`` read it from then on, even if the folder is deleted.

        Raises:
            DataError: The file is missing, or has another number of items than there are embeddings.
        """
        _ = self._lines

    def line(self, row: int) -> bytes:
        """The line of one of the items, without its end.

        Args:
            row: Its row among the embeddings.
        """
        content, ends = self._lines
        start = int(ends[row - 1]) + 1 if row else 0
        return content[start : min(int(ends[row]), start + LONGEST_LINE)]

    def item(self, row: int) -> dict[str, Any]:
        """One of the items.

        Args:
            row: Its row among the embeddings.

        Returns:
            As of ``items``.

        Raises:
            DataError: The line is not an item.
        """
        return self._parse(self.line(row), row + 1)

    @functools.cached_property
    def rows(self) -> Mapping[str, int]:
        """The row of every id."""
        ids: dict[str, int] = {}
        for row in range(len(self)):
            try:
                item_id = _DECODER.decode(self.line(row)).item_id
            except msgspec.MsgspecError:  # a file name that is no Unicode, or a damaged line
                item_id = str(self.item(row)["item_id"])
            ids[item_id] = row
        return ids

    @functools.cached_property
    def _lines(self) -> tuple[mmap.mmap | bytes, Int64]:
        """The content of items.jsonl, and where each line ends."""
        path = self.folder / ITEMS
        try:
            with open_regular(path) as file:
                is_empty = not file.read(1)
                content = b"" if is_empty else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror or error}).") from None
        blocks = range(0, len(content), _BLOCK)
        newlines = [
            start + np.flatnonzero(np.frombuffer(content[start : start + _BLOCK], np.uint8) == 10) for start in blocks
        ]
        ends = np.concatenate([np.empty(0, np.int64), *newlines])
        if len(content) and content[-1:] != b"\n":
            ends = np.append(ends, len(content))
        self._check_count(len(ends))
        return content, ends

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            entry: dict[str, Any] = {"item_id": "", **parse_json(line, surrogates=True)}
            if "file_name" in entry:
                relative_name(entry["file_name"], "the images", portable=False)
        except (ValueError, TypeError):
            raise DataError(f"{self.folder / ITEMS}:{number} is not an item: {line[:80]!r}.") from None
        return entry

    def _check_count(self, number: int) -> None:
        if number != len(self.embeddings):
            raise DataError(
                f"{self.folder / ITEMS} has {number} items, but there are {len(self.embeddings)} embeddings; embed "
                "again."
            )


def flatten_columns(item: Mapping[str, Any], taken: Collection[str] = ()) -> dict[str, Any]:
    """Put the further columns of an item beside what else is known of it.

    Args:
        item: The item, as ``EmbeddingFolder.items`` gives it.
        taken: Names that a further column cannot have.

    Returns:
        The item without ``COLUMNS``. A further column whose name is taken gets "_" at its end.
    """
    known = {name: value for name, value in item.items() if name != COLUMNS}
    columns = item.get(COLUMNS)
    for name, value in columns.items() if isinstance(columns, dict) else ():
        free = name
        while free in known or free in taken:
            free += "_"
        known[free] = value
    return known


def read_embedding_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of embeddings.

    Args:
        folder: The folder.

    Returns:
        The manifest.

    Raises:
        DataError: The folder is not finished, or the manifest is damaged.
    """
    return read_record(folder / "manifest.json", Manifest, "what 'cml embed' wrote", "Embed again.")


_DECODER = msgspec.json.Decoder(_Named)


def write_embedding_folder(
    folder: Path,
    blocks: Iterable[Float32],
    lines: Iterable[bytes],
    *,
    items: int,
    dimension: int,
    model: str,
    root: str,
) -> EmbeddingFolder:
    """Write embeddings that are there already into a new folder, atomically and in memory of O(block).

    Args:
        folder: The folder, which must not exist.
        blocks: The embeddings in order, each block (n, D).
        lines: A line of ``encode_item`` for each of them.
        items: N.
        dimension: D.
        model: Digest of the model.
        root: The folder that the items' file names are relative to; "" if they have none.

    Returns:
        The folder, opened.

    Raises:
        OSError: It cannot be written.
    """
    with atomic_folder(folder) as temporary:
        with (temporary / EMBEDDINGS).open("wb") as file:
            file.write(npy_header(items, dimension))
            for block in blocks:
                file.write(np.ascontiguousarray(block, "<f4").data)
        with (temporary / ITEMS).open("wb") as file:
            file.writelines(lines)
        manifest: Manifest = {
            "images": root,
            "items": items,
            "skipped": 0,
            "dimension": dimension,
            "model": model,
            "made_with": {"model": model, "images": ""},
            "sha256": {name: digest_file(temporary / name) for name in DIGESTED},
        }
        write_json(temporary / "manifest.json", {"cml": __version__, "kind": "embeddings", **manifest})
        sync_to_disk(*(temporary / name for name in DIGESTED), temporary)
    sync_to_disk(folder.parent)
    return EmbeddingFolder.open(folder)


def encode_item(entry: Mapping[str, Any]) -> bytes:
    """Encode an item as a line of items.jsonl.

    Args:
        entry: item_id, and file_name and what else is known.

    Returns:
        The line, in ASCII: a file name may be no Unicode.
    """
    return f"{json.dumps(entry)}\n".encode()


def npy_header(count: int, dimension: int) -> bytes:
    """Encode the header of a .npy file, which NumPy pads to the same length for any number of rows.

    Args:
        count: Number of rows.
        dimension: Numbers in a row, float32.

    Returns:
        The header.
    """
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (count, dimension)})
    return file.getvalue()
