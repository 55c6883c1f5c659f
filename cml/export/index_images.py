"""``cml index``: a search index of images or vectors, embedded step by step, so that a killed call is resumed."""

from pathlib import Path

import numpy as np

from cml.console.messages import say, say_warning
from cml.data.decoding import DEFAULT_THREADS
from cml.data.image_list import ImageList
from cml.errors import DataError, UserError
from cml.export.approximate import Auto, Method, method_for
from cml.export.index import Index, IndexModel
from cml.export.index_changes import change_alone, next_part, publish
from cml.export.index_manifest import MANIFEST, IndexManifest
from cml.export.index_state import IndexState
from cml.searching.embed_folder import AllBadError, embed_part


def build_index(
    model: IndexModel,
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
    with change_alone(out):
        if (out / MANIFEST).exists():
            index = Index.open(out)
            index.check_model(model, run)
            made_of = [part.manifest["made_with"]["images"] for part in index.parts[:1]]
            if made_of != [images.fingerprint()] or (method != "auto" and method != index.manifest["method"]):
                raise UserError(
                    f"{out} already holds an index ({len(index)} items, {index.manifest['method']}). "
                    "Add images to it with --add, or choose another folder."
                )
            return index
        part = embed_part(
            model.network,
            images,
            next_part(out, None, resume=True),
            batch_size=batch_size,
            threads=threads,
            skip_bad=skip_bad,
            quiet=quiet,
        )
        manifest: IndexManifest = {
            "run": run,
            "model": part.manifest["model"],
            "dimension": part.manifest["dimension"],
            "method": method_for(len(part)) if method == "auto" else method,
            "items": 0,
            "parts": [],
            "file": None,
            "sha256": None,
            "recall": None,
            "auto": method == "auto",
            "covered": 0,
            "removed": None,
        }
        return Index(out, model, publish(out, manifest, (part,), np.empty(0, np.int64), cover=True))


def add_to_index(
    model: IndexModel,
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
        quiet: No progress bar, and no line on images that the index already held.

    Returns:
        The index, and the number of images that it already held.

    Raises:
        UserError: The index is of another model.
        DataError: ``out`` is not an index, an id is already taken, or an image cannot be read.
    """
    with change_alone(out):
        state = IndexState.open(out)
        index = Index(out, model, state)
        index.check_model(model, run)
        fresh = _find_new(state, images)
        known = len(images) - len(fresh)
        if known and not quiet:
            noun = "vectors" if images.vectors else "images"
            every = f"all {known} {noun} were in the index already: nothing was added"
            say(f"{known} of the {len(images)} {noun} were in the index already" if fresh else every)
        if not fresh:
            return index, known
        try:
            part = embed_part(
                model.network,
                images.select(fresh),
                next_part(out, state.manifest, resume=True),
                batch_size=batch_size,
                threads=threads,
                skip_bad=skip_bad,
                quiet=quiet,
            )
        except AllBadError:
            if not known:
                raise
            return index, known  # the others were skipped as bad before
        manifest = state.manifest | {"run": state.manifest["run"] or run}
        changed = publish(out, manifest, (*state.parts, part), state.removed)
        return Index(out, model, changed.keep_approximate(state)), known


def _find_new(state: IndexState, images: ImageList) -> list[int]:
    """Positions of the images that an index does not hold; warn of files that were modified since it took them in."""
    indexed_at, paths = {}, {}
    for item_id, path, time in state.items():
        indexed_at[path], paths[item_id] = time, path
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
                f"{state.folder} already holds an item {item_id!r}, {earlier}{gone}; {path} has the same id. {moved} "
                "the new ones other ids with --prefix."
            )
        elif path.exists() and path.stat().st_mtime > indexed_at[earlier]:
            modified.append(path)
    if modified:
        say_warning(
            f"{len(modified)} of the {len(images)} images changed after {state.folder} took them in, such as "
            f"{modified[0]}. It keeps their earlier embeddings. Build a new index to search the images as they are now."
        )
    return fresh


def _is_same_file(first: Path, second: Path) -> bool:
    """Whether two paths, one perhaps through a link, lead to one file."""
    return first.exists() and second.exists() and first.samefile(second)
