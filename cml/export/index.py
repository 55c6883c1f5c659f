"""Search indexes: folders of embeddings, ``parts/0001``, .., one for each set of images that was added.

``manifest.json`` names them and is replaced atomically, so that an index is always either the old or the new one.
"""

import contextlib
import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NotRequired, Self, TypedDict

import numpy as np

from cml.console.messages import say_warning
from cml.errors import DataError, UserError
from cml.export.approximate import ApproximateIndex, Method, Recall, measure_recall, method_for
from cml.export.decoding import DEFAULT_THREADS
from cml.export.embed_folder import AllBadError, EmbeddingFolder, embed_part, model_fingerprint
from cml.export.image_list import ImageList
from cml.models.embedding import EmbeddingModel
from cml.retrieval.array_types import Float32
from cml.retrieval.search import distances_to, nearest_embeddings
from cml.storage.atomic import make_folder
from cml.storage.exclusive_lock import exclusive_lock
from cml.storage.json_file import write_json
from cml.storage.safe_paths import check_no_link
from cml.storage.saved_options import Count, read_record
from cml.version import __version__

Auto = Literal["auto"]
_AGAIN = "Build the index again."
_MANIFEST, _PARTS, _LOCK = "manifest.json", "parts", ".lock"
_NAME = re.compile(r"\w[\w.-]*")  # of a part or an approximate index: no path to anything elsewhere


@dataclass(frozen=True)
class Hit:
    """One answer to a query.

    Attributes:
        item_id: Id of the item.
        path: Its image.
        distance: L2 distance of its embedding to the query's.
        label: Its label, if the index was made from a dataset whose labels are numbers or texts.
    """

    item_id: str
    path: Path
    distance: float
    label: str = ""


class Manifest(TypedDict):
    """manifest.json of an index; ``file`` and its sha256 are of an approximate one."""

    run: str
    model: str
    dimension: Count
    method: Method
    items: Count
    parts: list[str]
    file: str | None
    sha256: NotRequired[str | None]
    recall: Recall | None


@dataclass(frozen=True)
class Index:
    """A finished index.

    Attributes:
        folder: Its folder.
        manifest: Its manifest.json.
        parts: The folders of its embeddings.
    """

    folder: Path
    manifest: Manifest
    parts: tuple[EmbeddingFolder, ...]

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open an index.

        Args:
            folder: Its folder.

        Returns:
            The index.

        Raises:
            DataError: It is not a finished index, or is damaged.
        """
        folder = Path(folder)
        if not (folder / _MANIFEST).is_file():
            raise DataError(f"{folder} is not a search index that 'cml index' finished; give one, or make it.")
        manifest = read_record(folder / _MANIFEST, Manifest, "what the index holds", _AGAIN)
        names, file = manifest["parts"], manifest["file"]
        is_exact = manifest["method"] == "exact"
        if not names or (file is None) != is_exact or not all(map(_NAME.fullmatch, [*names, file or "x"])):
            raise DataError(f"{folder / _MANIFEST} does not describe a search index. {_AGAIN}")
        parts = tuple(EmbeddingFolder.open(folder / _PARTS / name) for name in names)
        if sum(len(part.embeddings) for part in parts) != manifest["items"]:
            raise DataError(f"{folder} has lost items: its manifest counts {manifest['items']}. {_AGAIN}")
        for part in parts:
            model = part.manifest["model"], part.manifest["dimension"]
            if model != (manifest["model"], manifest["dimension"]):
                raise DataError(f"{part.folder} is of another model than the index {folder}. {_AGAIN}")
        return cls(folder, manifest, parts)

    def __len__(self) -> int:
        return self.manifest["items"]

    @property
    def embeddings(self) -> list[Float32]:
        """The embeddings of all parts, mapped into memory."""
        return [part.embeddings for part in self.parts]

    def check_model(self, model: EmbeddingModel, run: Path | str) -> None:
        """Check that the index was made with a model.

        Args:
            model: The model.
            run: Its run folder, for the message.

        Raises:
            UserError: The index was made with another model.
        """
        if model_fingerprint(model) != self.manifest["model"]:
            if str(run) == self.manifest["run"]:
                raise UserError(f"{run} was trained again after {self.folder} was made. {_AGAIN}")
            raise UserError(
                f"{self.folder} is an index of another run ({self.manifest['run']}), not of {run}: their embeddings "
                "cannot be compared. Give that run, or build the index again."
            )

    def search(self, query: Float32, k: int, *, exact: bool = False) -> list[list[Hit]]:
        """Find the items nearest to queries.

        Args:
            query: Embeddings (Q, D) of the queries.
            k: Items found for each, or fewer if the index holds fewer.
            exact: Compare with every item, even if the index is approximate.

        Returns:
            The hits of each query, nearest first.

        Raises:
            UserError: ``k`` is below 1.
            DataError: The index is damaged.
        """
        if k < 1:
            raise UserError(f"'k' must be 1 or more. Got {k} instead.")
        k = min(k, len(self))
        if exact or self.manifest["method"] == "exact":
            distances, positions = nearest_embeddings(query, self.embeddings, k)
        else:
            positions = self.approximate.search(query, k)
            distances = distances_to(query, self.embeddings, positions)
        if not np.isfinite(distances[positions >= 0]).all():
            raise DataError(f"The embeddings of {self.folder} hold NaN, infinity or too large numbers. {_AGAIN}")
        wanted = set(positions[positions >= 0].tolist())
        items = {position: item for position, item in enumerate(_list_items(self.parts)) if position in wanted}
        return [
            [Hit(*items[at][:2], distance, items[at][2]) for at, distance in zip(places, row, strict=True) if at >= 0]
            for places, row in zip(positions.tolist(), distances.tolist(), strict=True)
        ]

    @functools.cached_property
    def approximate(self) -> ApproximateIndex:
        """The approximate index; ``DataError`` if its file is missing, damaged or of other items."""
        assert self.manifest["file"] is not None
        index = ApproximateIndex.load(self.folder / self.manifest["file"], self.manifest.get("sha256"))
        index.check(self.manifest["method"], len(self), self.manifest["dimension"])
        return index


def build_index(
    model: EmbeddingModel,
    images: ImageList,
    out: Path,
    *,
    run: str,
    method: Method | Auto = "auto",
    batch_size: int | None = None,
    threads: int = DEFAULT_THREADS,
    skip_bad: bool = False,
    quiet: bool = False,
) -> Index:
    """Embed images and index them. A call that was killed is resumed by the same call.

    Args:
        model: The model.
        images: The images.
        out: Folder of the index.
        run: Run folder of the model, which a search opens.
        method: exact compares a query with every item, the others are faiss's, auto chooses by the number of items.
        batch_size: Images per forward pass; by default 64, or 16 on a CPU.
        threads: Images decoded at a time.
        skip_bad: Leave out images that cannot be read.
        quiet: No progress bar.

    Raises:
        UserError: ``out`` holds an index of other images or with another method.
        DataError: An image cannot be read.
    """
    with _alone(out):
        if (out / _MANIFEST).exists():
            index = Index.open(out)
            index.check_model(model, run)
            same = index.parts[0].manifest["made_with"]["images"] == images.fingerprint()
            if not same or (method != "auto" and method != index.manifest["method"]):
                raise UserError(
                    f"{out} already holds an index ({len(index)} items, {index.manifest['method']}). "
                    "Add images to it with --add, or choose another folder."
                )
            return index
        part = embed_part(
            model, images, out / _PARTS / "0001", batch_size=batch_size, threads=threads, skip_bad=skip_bad, quiet=quiet
        )
        chosen = method_for(len(part.embeddings)) if method == "auto" else method
        approximate = None if chosen == "exact" else ApproximateIndex.build(chosen, [part.embeddings])
        return _publish(out, run, chosen, (part,), approximate)


def add_to_index(
    model: EmbeddingModel,
    images: ImageList,
    out: Path,
    *,
    run: str,
    batch_size: int | None = None,
    threads: int = DEFAULT_THREADS,
    skip_bad: bool = False,
    quiet: bool = False,
) -> tuple[Index, int]:
    """Add the images that an index does not hold yet.

    Args:
        model: The model that the index was made with.
        images: The images.
        out: Folder of the index.
        run: Run folder of the model.
        batch_size: Images per forward pass; by default 64, or 16 on a CPU.
        threads: Images decoded at a time.
        skip_bad: Leave out images that cannot be read.
        quiet: No progress bar.

    Returns:
        The index, and the number of images that it already held.

    Raises:
        UserError: The index is of another model.
        DataError: ``out`` is not an index, an id is already taken, or an image cannot be read.
    """
    with _alone(out):
        index = Index.open(out)
        index.check_model(model, run)
        fresh = _find_new(index, images)
        known = len(images) - len(fresh)
        if not fresh:
            return index, known
        try:
            part = embed_part(
                model,
                images.select(fresh),
                out / _PARTS / f"{len(index.parts) + 1:04}",
                batch_size=batch_size,
                threads=threads,
                skip_bad=skip_bad,
                quiet=quiet,
            )
        except AllBadError:
            if not known:
                raise
            return index, known  # the others were skipped as bad before
        run, method = index.manifest["run"], index.manifest["method"]
        approximate = None if method == "exact" else index.approximate
        if approximate is not None:
            approximate.add([part.embeddings])
        return _publish(out, run, method, (*index.parts, part), approximate), known


def _find_new(index: Index, images: ImageList) -> list[int]:
    """Positions of the images that an index does not hold; warn of files that were modified since it took them in."""
    indexed_at = {path: time for part in index.parts for path, time in _list_times(part)}
    paths = {item_id: path for item_id, path, _ in _list_items(index.parts)}
    fresh, modified = [], []
    for item, (item_id, path) in enumerate(zip(images.item_ids, images.paths, strict=True)):
        # of vectors, many lie in one file: their ids alone tell which are new
        earlier = path if path in indexed_at and not images.vectors else paths.get(item_id)
        if earlier is None:
            fresh.append(item)
        elif not (earlier == path or _is_same_file(earlier, path)):
            gone = "" if earlier.exists() else ", which is gone"
            moved = "If the images have moved, build a new index. If not, give" if gone else "Give"
            raise DataError(
                f"{index.folder} already holds an item {item_id!r}, {earlier}{gone}; {path} has the same id. {moved} "
                "the new ones other ids with --prefix."
            )
        elif path.exists() and path.stat().st_mtime > indexed_at[earlier]:
            modified.append(path)
    if modified:
        say_warning(
            f"{len(modified)} of the {len(images)} images changed after {index.folder} took them in, such as "
            f"{modified[0]}. It keeps their earlier embeddings. Build a new index to search the images as they are now."
        )
    return fresh


def _list_times(part: EmbeddingFolder) -> Iterable[tuple[Path, float]]:
    """The image of every item of a part, and when the part was written, in seconds since 1970."""
    time = (part.folder / _MANIFEST).stat().st_mtime
    return ((path, time) for _, path, _ in _list_items([part]))


def _is_same_file(first: Path, second: Path) -> bool:
    """Whether two paths, one perhaps through a link, lead to one file."""
    return first.exists() and second.exists() and first.samefile(second)


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Keep other processes out of an index; delete what is of no use: an empty one after a failure, an old graph."""
    check_no_link(out, _PARTS)
    with make_folder(out), exclusive_lock(out / _LOCK, f"the index {out}"):
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):
                (out / _PARTS).rmdir()  # if it is empty
            if not (out / _PARTS).exists():
                (out / _LOCK).unlink()
            raise
        named = read_record(out / _MANIFEST, Manifest, "what the index holds", _AGAIN)["file"]
        for path in out.glob("*-[0-9][0-9][0-9][0-9].faiss"):
            if path.name != named:
                path.unlink()


def _publish(
    out: Path, run: str, method: Method, parts: tuple[EmbeddingFolder, ...], approximate: ApproximateIndex | None
) -> Index:
    """Write the approximate index, if there is one, then the manifest that names it."""
    embeddings = [part.embeddings for part in parts]
    file = recall = digest = None
    if approximate is not None:
        file = f"{method}-{len(parts):04}.faiss"
        digest, recall = approximate.save(out / file), measure_recall(approximate, embeddings)
    manifest: Manifest = {
        "run": run,
        "model": parts[0].manifest["model"],
        "dimension": parts[0].manifest["dimension"],
        "method": method,
        "items": sum(map(len, embeddings)),
        "parts": [part.folder.name for part in parts],
        "file": file,
        "sha256": digest,
        "recall": recall,
    }
    write_json(out / _MANIFEST, {"cml": __version__, "kind": "index", **manifest})
    return Index(out, manifest, parts)


def _list_items(parts: Iterable[EmbeddingFolder]) -> Iterable[tuple[str, Path, str]]:
    """Id, path and label (or "") of every item, in order."""
    for part in parts:
        root = Path(part.manifest["images"])
        for entry in part.items():
            label = [value for name, value in entry.items() if name not in ("item_id", "file_name", "role")]
            shown = f"{label[0]:.6g}" if label and isinstance(label[0], float) else " ".join(map(str, label))
            yield str(entry["item_id"]), root / str(entry["file_name"]), shown
