"""Folders of embeddings, written, opened and searched: ``embeddings.npy``, ``items.jsonl``, ``manifest.json``."""

import functools
import io
import json
import mmap
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, Self, TypedDict

import numpy as np

from cml.array_types import Float32, Int64
from cml.data.image_list import COLUMNS
from cml.errors import DataError
from cml.processes.exactness import Decode, Precision
from cml.retrieval.gallery import Gallery
from cml.searching.hit import Hit
from cml.storage.json_file import check_format, parse_json, read_json
from cml.storage.regular_file import digest_file, map_array, open_regular
from cml.storage.safe_paths import check_inside, relative_name
from cml.storage.saved_options import Count, read_record

EMBEDDINGS, ITEMS = "embeddings.npy", "items.jsonl"
_NO_LABEL = ("item_id", "file_name", "role", COLUMNS)
_FOUND, _FIRST = 10, 64  # items that are found by default; that are looked for at first within a distance
DIGESTED = (EMBEDDINGS, ITEMS)  # a flipped bit there would change what a search finds, and nothing else
LONGEST_LINE = 1 << 20  # bytes of an item
_BLOCK = 1 << 24  # bytes of items.jsonl in which line ends are looked for at a time


class Origin(TypedDict):
    """What embeddings were made with: digests, of which ``images`` is "" where there is no folder or dataset."""

    model: str
    images: str
    decode: NotRequired[Decode]  # the decoding of images, where it is not exact
    precision: NotRequired[Precision]  # the precision of the network, where it is not float32


class Manifest(TypedDict):
    """manifest.json of a folder of embeddings: the images' folder, counts, the model's fingerprint.

    ``sha256`` has the digest of each file of ``DIGESTED``, ``run`` the run folder of the model, "" if it is not known.
    """

    format: Count
    run: str

    images: str
    items: Count
    skipped: Count
    dimension: Count
    model: str
    made_with: Origin
    sha256: dict[str, str]


@dataclass(frozen=True, eq=False)
class EmbeddingFolder:
    """A folder that ``cml embed`` wrote: embeddings of items, mapped into memory, to read and to search.

    Attributes:
        folder: The folder.
        manifest: What it holds, and what made it.
        embeddings: The embeddings (N, D) float32.

    Example:
        >>> from cml.data.image_list import ImageList
        >>> from cml.searching.embed_folder import embed_folder
        >>> model = cml.load("runs/mine")
        >>> images, place = ImageList.open("photos"), Path("embeddings/as cml embed does")
        >>> written = embed_folder(model.network, images, place, quiet=True)
        >>> folder = cml.EmbeddingFolder.open("embeddings/as cml embed does")
        >>> folder.search(model.embed(["photos/7.png"]), k=1)[0][0].item_id
        '7.png'
        >>> positions, distances = model.search(["photos/7.png"], folder, k=3)
    """

    folder: Path
    manifest: Manifest = field(repr=False)
    embeddings: Float32 = field(repr=False)

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a folder.

        Args:
            folder: The folder.

        Returns:
            The folder, whose files were compared with their checksums.

        Raises:
            DataError: The folder is not finished, of another format, or damaged.
        """
        folder = Path(folder)
        manifest = read_embedding_manifest(folder)
        path, shape = folder / EMBEDDINGS, (manifest["items"], manifest["dimension"])
        for name in DIGESTED:
            check_inside(folder / name, folder)
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
        """Compare the files with the checksums of the manifest."""
        digests = self.manifest["sha256"]
        for name in DIGESTED:
            path = self.folder / name
            try:
                is_sound = digest_file(path) == digests.get(name)
            except OSError as error:
                raise DataError(f"{path} cannot be read ({error.strerror or error}).") from None
            if not is_sound:
                raise DataError(f"{path} is damaged: its checksum is wrong. Delete {self.folder} and embed again.")

    def __len__(self) -> int:
        return len(self.embeddings)

    @property
    def dimension(self) -> int:
        """D, the number of dimensions of the embeddings."""
        return self.manifest["dimension"]

    @property
    def digest(self) -> str:
        """The digest of the model that made the embeddings."""
        return self.manifest["model"]

    @property
    def run(self) -> str:
        """Run folder of the model; "" if it is not known."""
        return self.manifest["run"]

    @functools.cached_property
    def gallery(self) -> Gallery:
        """The embeddings to search, whose centre and norms are computed when they are asked for first."""
        return Gallery(self.embeddings)

    def search(self, queries: Float32, k: int | None = None, *, within: float | None = None) -> list[list[Hit]]:
        """Find the items nearest to queries, exactly; of items that are equally far, the first one is the nearer.

        Args:
            queries: Embeddings (Q, D) of the queries.
            k: Items found for each query, 1 to N, by default 10, or with ``within`` all.
            within: Only items at this embedding distance or nearer.

        Returns:
            For each query its hits, nearest first.

        Raises:
            UserError: ``k`` is out of range, or queries do not fit.
            DataError: The folder is damaged.
        """
        most = len(self) if within is not None else min(_FOUND, len(self))
        take = most if k is None else k
        look = take if within is None else min(_FIRST, take)
        while True:
            distances, positions = self.gallery.search(queries, look)
            if within is None or look == take or (distances[:, -1] > within).all():
                break
            look = min(4 * look, take)
        describe = functools.cache(self._describe)  # several queries may find the same item
        return [
            [describe(row)(far) for row, far in zip(*both, strict=True) if within is None or far <= within]
            for both in zip(positions.tolist(), distances.tolist(), strict=True)
        ]

    def _describe(self, row: int) -> Callable[[float], Hit]:
        """A hit of one of the items, but for its distance."""
        entry = self.item(row)
        label = next((value for name, value in entry.items() if name not in _NO_LABEL), None)
        columns = entry.get(COLUMNS)
        file = entry.get("file_name")  # a file of vectors is that of all of them
        path = None if file is None or file.endswith(".npy") else Path(self.manifest["images"]) / file
        known = columns if isinstance(columns, dict) else {}
        return lambda distance: Hit(str(entry["item_id"]), path, distance, label, known)

    def items(self) -> Iterator[dict[str, Any]]:
        """The items in the order of the embeddings: item_id, and file_name and what else is known."""
        path, number = self.folder / ITEMS, 0
        with open_regular(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(LONGEST_LINE), b""), 1):
                yield self._parse(line, number)
        self._check_count(number)

    def item(self, row: int) -> dict[str, Any]:
        """One of the items.

        Args:
            row: Its row among the embeddings.

        Returns:
            As of ``items``.

        Raises:
            DataError: The line is not an item.
        """
        content, ends = self._lines
        start = int(ends[row - 1]) + 1 if row else 0
        return self._parse(content[start : min(int(ends[row]), start + LONGEST_LINE)], row + 1)

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
    """Put the further columns of an item beside what else is known of it."""
    known = {name: value for name, value in item.items() if name != COLUMNS}
    columns = item.get(COLUMNS)
    for name, value in columns.items() if isinstance(columns, dict) else ():
        free = name
        while free in known or free in taken:
            free += "_"
        known[free] = value
    return known


def read_embedding_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder of embeddings."""
    path = folder / "manifest.json"
    if path.is_file() and isinstance(found := read_json(path, "what 'cml embed' wrote"), dict):
        check_format(found, path, "Embed again: cml embed RUN --images IMAGES --out FOLDER")
    return read_record(path, Manifest, "what 'cml embed' wrote", "Embed again.")


def encode_item(entry: Mapping[str, Any]) -> bytes:
    """Encode an item as a line of items.jsonl."""
    return f"{json.dumps(entry)}\n".encode()


def npy_header(count: int, dimension: int) -> bytes:
    """Encode the header of a .npy file, which NumPy pads to the same length for any number of rows."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (count, dimension)})
    return file.getvalue()
