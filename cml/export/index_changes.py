"""Changes of a search index: new parts, removed rows, the approximate index. Each ends with a new manifest.

Only files with new names are written, and the manifest that names them is replaced last. A change that is killed before
that leaves the index as it was, and those files without an owner, which the next change deletes.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float32, Int64
from cml.errors import DataError
from cml.export.approximate import ApproximateIndex, measure_recall, method_for
from cml.export.index_manifest import (
    LOCK,
    MANIFEST,
    PARTS,
    IndexManifest,
    RemovedFile,
    number_of,
    read_index_manifest,
    write_index_manifest,
)
from cml.export.index_state import IndexState, read_stamp
from cml.searching.embedding_folder import EmbeddingFolder, encode_item, read_embedding_manifest, write_embedding_folder
from cml.storage.atomic import PARTIAL, atomic_file, delete, make_folder
from cml.storage.exclusive_lock import exclusive_lock
from cml.storage.regular_file import digest_file
from cml.storage.safe_paths import check_no_link

_NUMBERED = re.compile(r"(flat|hnsw|ivf)-\d{4,}\.faiss|removed-\d{4,}\.npy")
_MOST_MERGED = 65_536  # rows of a part that additions rewrite
_BESIDE = 10_000  # rows that are searched exactly beside an approximate index, or a tenth of its rows if that is more
_LEAST_REMOVED = 1000  # rows, below which removed ones are not worth rewriting the others
_BLOCK = 16_384


@contextlib.contextmanager
def change_alone(folder: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Keep other processes out of an index while it is changed; delete files that do not belong to it.

    Args:
        folder: Folder of the index, which is made if it is missing.
        patience: Seconds to wait for another process.

    Yields:
        Nothing.

    Raises:
        UserError: Another process is changing the index.
    """
    check_no_link(folder, PARTS)
    with make_folder(folder), exclusive_lock(folder / LOCK, f"the index {folder}", patience=patience):
        _delete_unnamed(folder)
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                (folder / PARTS).rmdir()  # if it is empty
            if not (folder / PARTS).exists() and not (folder / MANIFEST).exists():
                (folder / LOCK).unlink()
            raise
        _delete_unnamed(folder)


def append_part(state: IndexState, rows: Float32, entries: Sequence[dict[str, Any]], root: str) -> IndexState:
    """Append items to an index. Small parts are merged, so that there are about log2 of the number of items.

    Args:
        state: The index.
        rows: Embeddings (n, D) of the items.
        entries: Of each item item_id, and file_name, label and indexed_at, if it has these.
        root: The folder that the file names are relative to; "" if there are none.

    Returns:
        The index with the items, already on the disk.
    """
    first = _first_merged(state, len(rows), root)
    merged = range(first, len(state.parts))
    roots = {root, *(state.parts[number].manifest["images"] for number in merged)} - {""}
    part = _write_part(
        state, merged, next(iter(roots), ""), more_rows=rows, more_lines=[encode_item(entry) for entry in entries]
    )
    kept = state.parts[:first]
    removed = state.removed[state.removed < sum(map(len, kept))]
    return publish(state.folder, state.manifest, (*kept, part), removed)


def remove_rows(state: IndexState, positions: Sequence[int]) -> IndexState:
    """Remove items from an index. Their rows stay until a part is rewritten, and are not found.

    Args:
        state: The index.
        positions: Positions of the items.

    Returns:
        The index without the items, already on the disk.
    """
    removed = np.union1d(state.removed, np.asarray(positions, np.int64))
    changed = publish(state.folder, state.manifest, state.parts, removed)
    if changed.covered or len(removed) <= max(_LEAST_REMOVED, len(changed)):
        return changed
    return rewrite(changed)


def rewrite(state: IndexState) -> IndexState:
    """Write an index anew as one part, without its removed rows, with a new approximate index if it has a method.

    Args:
        state: The index.

    Returns:
        The index, already on the disk.
    """
    by_root: dict[str, list[int]] = {}
    for number, part in enumerate(state.parts):
        by_root.setdefault(Path(part.manifest["images"]).anchor, []).append(number)
    if len(by_root) > 1 and "" in by_root:
        next(numbers for root, numbers in by_root.items() if root).extend(by_root.pop(""))
    parts: list[EmbeddingFolder] = []
    for root, numbers in by_root.items():  # several only on Windows, where each drive has its own
        if sum(len(state.live_rows(number)) for number in numbers):
            parts.append(_write_part(state, numbers, root, taken=len(parts)))
    manifest = state.manifest
    if manifest.get("auto"):
        manifest = manifest | {"method": method_for(len(state))}
    nothing: IndexManifest = manifest | {"file": None, "sha256": None, "recall": None, "covered": 0}
    changed = publish(state.folder, nothing, tuple(parts), np.empty(0, np.int64), cover=True)
    for part in state.parts:
        delete(part.folder)
    return changed


def publish(
    folder: Path, manifest: IndexManifest, parts: Sequence[EmbeddingFolder], removed: Int64, *, cover: bool = False
) -> IndexState:
    """Replace the manifest of an index, after files that it is to name and that do not exist yet.

    Args:
        folder: Folder of the index.
        manifest: The manifest so far.
        parts: The parts that there are now.
        removed: The positions that are removed now, ascending.
        cover: Whether the approximate index must hold all rows; otherwise it is extended when many are beside it.

    Returns:
        The index.
    """
    items = sum(map(len, parts)) - len(removed)
    manifest = _cover(folder, manifest, [part.embeddings for part in parts], items, always=cover)
    named = _write_removed(folder, manifest.get("removed"), removed)
    manifest = manifest | {"items": items, "parts": [part.folder.name for part in parts], "removed": named}
    write_index_manifest(folder, manifest)
    for part in parts:
        part.map_items()
    return IndexState(folder, manifest, tuple(parts), removed, read_stamp(folder))


def next_part(folder: Path, manifest: IndexManifest | None, *, taken: int = 0, resume: bool = False) -> Path:
    """The folder of a new part.

    Args:
        folder: Folder of the index.
        manifest: Its manifest; None before it has one.
        taken: Number of new parts that were named before.
        resume: Whether it may be one that a killed call began to embed.

    Returns:
        A folder that the manifest does not name.
    """
    named = [] if manifest is None else manifest["parts"]
    if resume and (begun := sorted(path for path in _unnamed_parts(folder, named) if not _is_addition(path))):
        return begun[0]
    number = max(map(number_of, named), default=0) + 1 + taken
    while not resume and (folder / PARTS / f"{number:04}").exists():
        number += 1
    return folder / PARTS / f"{number:04}"


def _first_merged(state: IndexState, size: int, root: str) -> int:
    """Number of the first part that is merged with ``size`` new rows: those after it are no larger together."""
    first = len(state.parts)
    while first > state.covered_parts:
        part = state.parts[first - 1]
        fits = len({root, part.manifest["images"]} - {""}) < 2
        if not _is_addition(part) or not fits or len(part) > size or size + len(part) > _MOST_MERGED:
            break
        first, size, root = first - 1, size + len(part), root or part.manifest["images"]
    return first


def _write_part(
    state: IndexState,
    numbers: Sequence[int],
    root: str,
    *,
    more_rows: Float32 | None = None,
    more_lines: Sequence[bytes] = (),
    taken: int = 0,
) -> EmbeddingFolder:
    """Write the rows of some parts that were not removed, and further ones, as a new part."""
    live = {number: state.live_rows(number) for number in numbers}

    def blocks() -> Iterator[Float32]:
        for number, rows in live.items():
            for start in range(0, len(rows), _BLOCK):
                yield state.parts[number].embeddings[rows[start : start + _BLOCK]]
        if more_rows is not None:
            yield more_rows

    def lines() -> Iterator[bytes]:
        for number, rows in live.items():
            yield from _lines(state.parts[number], rows)
        yield from more_lines

    return write_embedding_folder(
        next_part(state.folder, state.manifest, taken=taken),
        blocks(),
        lines(),
        items=sum(map(len, live.values())) + len(more_lines),
        dimension=state.manifest["dimension"],
        model=state.manifest["model"],
        root=root,
    )


def _lines(part: EmbeddingFolder, rows: Int64) -> Iterator[bytes]:
    """Lines of some rows, with file names relative to the root of the file system and the time of indexing."""
    if _is_addition(part):
        yield from (part.line(row) + b"\n" for row in rows.tolist())
        return
    folder, written = Path(part.manifest["images"]), (part.folder / MANIFEST).stat().st_mtime
    for entry in map(part.item, rows.tolist()):
        if "file_name" in entry:
            path = folder / entry["file_name"]
            entry["file_name"] = path.relative_to(path.anchor).as_posix()
        yield encode_item({**entry, "indexed_at": written})


def _is_addition(part: EmbeddingFolder | Path) -> bool:
    """Whether a part was written whole, from embeddings, and not embedded step by step from a list of images."""
    try:
        manifest = part.manifest if isinstance(part, EmbeddingFolder) else read_embedding_manifest(part)
    except DataError:  # it was not finished
        return False
    return not manifest["made_with"]["images"]


def _unnamed_parts(folder: Path, named: Iterable[str]) -> list[Path]:
    """Folders of parts that no manifest names."""
    if not (folder / PARTS).is_dir():
        return []
    visible = (path for path in (folder / PARTS).iterdir() if not path.name.startswith("."))
    return [path for path in visible if path.name not in named and path.is_dir()]


def _delete_unnamed(folder: Path) -> None:
    """Delete files of an index that its manifest does not name, apart from images that a killed call embedded.

    Before the first manifest, a folder with parts is an index that a killed call began; others are left alone.
    """
    if (folder / MANIFEST).exists():
        manifest = read_index_manifest(folder)
        removed = manifest.get("removed")
        files, parts = {manifest["file"], removed["file"] if removed else None}, manifest["parts"]
    elif (folder / PARTS).is_dir():
        files, parts = set(), []
    else:
        return
    for path in (*folder.iterdir(), *(folder / PARTS).glob("*")):
        is_old = _NUMBERED.fullmatch(path.name) and path.name not in files
        if is_old or PARTIAL in path.name:  # nobody else is writing
            delete(path)
    for path in _unnamed_parts(folder, parts):
        if _is_addition(path):
            delete(path)


def _new_file(folder: Path, name: str, suffix: str) -> Path:
    """A numbered file that does not exist."""
    numbers = [number_of(path.name) for path in folder.glob(f"{name}-*{suffix}")]
    return folder / f"{name}-{max(numbers, default=0) + 1:04}{suffix}"


def _write_removed(folder: Path, earlier: RemovedFile | None, removed: Int64) -> RemovedFile | None:
    """Write the removed positions, unless they are those of the earlier file."""
    if not len(removed):
        return None
    if earlier is not None and earlier["items"] == len(removed):
        with contextlib.suppress(OSError, ValueError):
            if np.array_equal(np.load(folder / earlier["file"], allow_pickle=False), removed):
                return earlier
    path = _new_file(folder, "removed", ".npy")
    with atomic_file(path) as temporary:
        np.save(temporary, removed, allow_pickle=False)
    return {"file": path.name, "items": len(removed), "sha256": digest_file(path)}


def _cover(
    folder: Path, manifest: IndexManifest, embeddings: list[Float32], items: int, *, always: bool
) -> IndexManifest:
    """The manifest after the approximate index was built or extended, if that is due."""
    if manifest.get("auto") and manifest["method"] == "exact":
        manifest = manifest | {"method": method_for(items)}
    file, rows = manifest["file"], sum(map(len, embeddings))
    covered = 0 if file is None else manifest.get("covered", manifest["items"])
    beside = rows - covered
    if manifest["method"] == "exact" or not beside or (not always and beside <= max(_BESIDE, covered // 10)):
        return manifest | {"covered": covered}
    if file is None:
        approximate = ApproximateIndex.build(manifest["method"], embeddings)
    else:
        # not the one that is open, in which other threads may be searching
        approximate = ApproximateIndex.load(folder / file, manifest.get("sha256"))
        approximate.check(manifest["method"], covered, manifest["dimension"])
        starts = np.cumsum([0, *map(len, embeddings)])
        approximate.add(embeddings[int(np.searchsorted(starts, covered)) :])
    path = _new_file(folder, manifest["method"], ".faiss")
    digest, recall = approximate.save(path), measure_recall(approximate, embeddings)
    return manifest | {"file": path.name, "sha256": digest, "recall": recall, "covered": rows}
