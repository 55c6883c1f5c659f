"""manifest.json of a search index, which names the files that belong to it and is replaced atomically."""

import re
from pathlib import Path
from typing import NotRequired, TypedDict

from cml.errors import DataError
from cml.export.approximate import Method, Recall
from cml.storage.json_file import write_json
from cml.storage.saved_options import Count, read_record
from cml.version import __version__

AGAIN = "Build the index again."
MANIFEST, PARTS, LOCK = "manifest.json", "parts", ".lock"
_FORMAT = 2  # 1 has neither removed items nor items beside the approximate index
_NAME = re.compile(r"\w[\w.-]*")  # of a part or a file: no path to anything elsewhere


class RemovedFile(TypedDict):
    """The file of removed positions: its name below the index, number of positions and SHA-256."""

    file: str
    items: Count
    sha256: str


class IndexManifest(TypedDict):
    """What an index holds.

    The entries that are not required came with format 2, or with checksums.

    Attributes:
        run: Run folder of the model; "" if it is not known.
        model: Digest of the model.
        dimension: D of the embeddings.
        method: How it is searched.
        items: Number of items, without the removed ones.
        parts: Names of the parts, in order.
        file: The approximate index; None if there is none.
        sha256: SHA-256 of ``file``.
        recall: Measured share of the true neighbours that ``file`` finds.
        format: Version of the format; 1 if it is missing.
        auto: Whether the method follows from the number of items as the index grows.
        covered: Number of rows that ``file`` holds, those of the first parts; all if it is missing.
        removed: The removed positions among all rows.
    """

    run: str
    model: str
    dimension: Count
    method: Method
    items: Count
    parts: list[str]
    file: str | None
    recall: Recall | None
    sha256: NotRequired[str | None]
    format: NotRequired[Count]
    auto: NotRequired[bool]
    covered: NotRequired[Count]
    removed: NotRequired[RemovedFile | None]


def read_index_manifest(folder: Path) -> IndexManifest:
    """Read the manifest of an index.

    Args:
        folder: Folder of the index.

    Returns:
        The manifest; its names are of files in the folder.

    Raises:
        DataError: The folder is not a finished index, or the manifest is damaged or of a later version of cml.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"{folder} is not a search index that 'cml index' finished; give one, or make it.")
    manifest = read_record(path, IndexManifest, "what the index holds", AGAIN)
    if manifest.get("format", 1) > _FORMAT:
        raise DataError(f"{path} has format {manifest['format']}, which a later version of cml wrote. Update cml.")
    file, removed = manifest["file"], manifest.get("removed")
    names = [*manifest["parts"], file or "x", removed["file"] if removed else "x"]
    is_empty = not manifest["parts"] and "format" in manifest and not manifest["items"]
    misses_file = file is None and manifest["method"] != "exact" and manifest.get("covered") != 0
    has_wrong_file = file is not None and manifest["method"] == "exact"
    if not (manifest["parts"] or is_empty) or misses_file or has_wrong_file or not all(map(_NAME.fullmatch, names)):
        raise DataError(f"{path} does not describe a search index. {AGAIN}")
    return manifest


def write_index_manifest(folder: Path, manifest: IndexManifest) -> None:
    """Replace the manifest of an index, atomically.

    Args:
        folder: Folder of the index.
        manifest: The manifest.

    Raises:
        OSError: It cannot be written.
    """
    write_json(folder / MANIFEST, {"cml": __version__, "kind": "index", "format": _FORMAT, **manifest})


def number_of(name: str) -> int:
    """The number in the name of a part or file, such as 7 of hnsw-0007.faiss; 0 if it has none."""
    match = re.search(r"(\d+)(\.\w+)?$", name)
    return int(match[1]) if match else 0
