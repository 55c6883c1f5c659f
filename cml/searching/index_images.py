"""``cml index``: an index of images, vectors or texts, embedded step by step, so that a killed call is resumed."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import UInt64
from cml.console.messages import say, say_warning
from cml.console.progress_bar import ProgressBar
from cml.data.image_list import COLUMNS, ImageList
from cml.data.item_digests import digest_items, find_known
from cml.errors import DataError, UserError
from cml.processes.cores import CORES
from cml.searching.embed_folder import AllBadError, batch_size_for
from cml.searching.embedded_batches import BATCHES_A_CHUNK, embed_batches
from cml.searching.index import Index, IndexModel
from cml.searching.index_file import holds_index
from cml.searching.index_items import Described, describe_item, mark_training_items


def index_images(
    model: IndexModel,
    images: ImageList,
    out: Path,
    *,
    run: str = "",
    add: bool = False,
    replace: bool = False,
    batch_size: int | None = None,
    threads: int = CORES,
    skip_bad: bool = False,
    quiet: bool = False,
) -> tuple[Index, int]:
    """Embed images and index those that the index does not hold. A call that was killed is resumed by the same call."""
    images.check_kind(model.config.inputs)
    batch_size = batch_size_for(model.network, images, batch_size, threads)
    fingerprint, made = images.fingerprint(), None
    if holds_index(out) or add:
        made = Index.open(out)
        made.check_model(model, run)
        # one without items is that of a call that ended before it added any
        if not add and len(made) and made.about.get("images") != fingerprint:
            raise UserError(
                f"{out} already holds an index ({len(made)} items, {made.method}). Add images to it with --add, or "
                "choose another folder."
            )
        made.model = model
    fresh = list(range(len(images))) if made is None else _find_new(made, images, replace=replace)
    known = len(images) - len(fresh)
    if known and made is not None and not quiet and (add or fresh):
        noun = images.rows[0][0].form.kind if images.rows else "images"
        every = f"all {known} {noun} were in the index already: nothing was added"
        say(f"{known} of the {len(images)} {noun} were in the index already" if fresh else every)
    chosen, index = images.select(fresh), made
    rows: list[Any] = []
    items: list[Described] = []
    unit, trained = model.config.inputs.kind.removesuffix("s"), model.training_items
    with (
        contextlib.closing(embed_batches(model.network, chosen, batch_size, threads, skip_bad=skip_bad)) as batches,
        ProgressBar(total=len(images), initial=known, desc="index", unit=unit, disable=quiet or not fresh) as bar,
    ):
        for number, batch in enumerate(batches, 1):
            rows.append(batch.embeddings)
            are_trained = find_known(_digest(chosen, batch.items), trained)
            items += mark_training_items([_describe(chosen, item) for item in batch.items], are_trained)
            for fault in batch.faults.values():
                say(f"skipped: {fault}")
            bar.update(batch.stop - batch.start)
            is_last = batch.stop == len(chosen)
            if items and (number % BATCHES_A_CHUNK == 0 or is_last):
                index = Index.create(out, model, run=run) if index is None else index
                is_new = made is None or not (add or len(made))
                images_of = {"images": fingerprint, **model.network.forward_pass.departures} if is_new else {}
                begun = None if is_last else fingerprint
                index.insert(np.concatenate(rows), items, replace=replace, begun=begun, **images_of)
                rows, items = [], []
    if index is None:
        raise AllBadError(f"None of the {len(images)} images in {images.source} can be read.")
    if fresh and index is made and len(index) == 0:
        raise AllBadError(f"None of the {len(images)} images in {images.source} can be read.")
    index.note(begun=None, **({"run": json.dumps(run)} if run and not index.run else {}))
    return index, known


def _digest(images: ImageList, items: Sequence[int]) -> UInt64:
    """Digests of the content of some items."""
    if images.rows and len(items):
        return digest_items(images.select(items).inputs(0, len(items)))
    return digest_items([images.paths[item] for item in items])


def _describe(images: ImageList, item: int) -> Described:
    known: Mapping[str, Any] = images.columns[item]
    label = next((value for name, value in known.items() if name not in ("role", COLUMNS)), None)
    return describe_item(images.item_ids[item], label, str(images.paths[item]), known.get(COLUMNS))


def _find_new(index: Index, images: ImageList, *, replace: bool) -> list[int]:
    """Positions of the images that an index does not hold; warn of files that were modified since it took them in."""
    times: dict[Path, float] = {}
    paths: dict[str, Path] = {}
    for item_id, place, added in index.sources():
        paths[item_id] = Path(place or "")
        times[paths[item_id]] = added
    fresh, modified = [], []
    for item, (item_id, path) in enumerate(zip(images.item_ids, images.paths, strict=True)):
        # of vectors and texts, many lie in one file: their ids alone tell which are new
        earlier = path if path in times and not images.rows else paths.get(item_id)
        if earlier is None:
            fresh.append(item)
        elif not (earlier == path or _is_same_file(earlier, path)):
            gone = "" if earlier.exists() else ", which is gone"
            moved = "If the images have moved, build a new index. If not, give" if gone else "Give"
            raise DataError(
                f"{index.folder} already holds an item {item_id!r}, {earlier}{gone}; {path} has the same id. {moved} "
                "the new ones other ids with --prefix."
            )
        elif path.exists() and path.stat().st_mtime > times[earlier]:
            modified.append(item)
    if modified and replace:
        fresh = sorted(fresh + modified)
    elif modified:
        say_warning(
            f"{len(modified)} of the {len(images)} images changed after {index.folder} took them in, such as "
            f"{images.paths[modified[0]]}. It keeps their earlier embeddings. Give --replace to embed them again."
        )
    return fresh


def _is_same_file(first: Path, second: Path) -> bool:
    """Whether two paths, one perhaps through a link, lead to one file."""
    return first.exists() and second.exists() and first.samefile(second)
