"""``cml embed``: a folder of embeddings, see ``cml.searching.embedding_folder``, of images or vectors, resumably."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.console.messages import say
from cml.console.progress_bar import ProgressBar
from cml.data.image_list import ImageList
from cml.errors import DataError
from cml.models.weights import model_fingerprint
from cml.processes.cores import CORES
from cml.processes.device import check_batch_size
from cml.searching.embedded_batches import BATCHES_A_CHUNK, embed_batches
from cml.searching.embedding_folder import (
    DIGESTED,
    EMBEDDINGS,
    ITEMS,
    EmbeddingFolder,
    encode_item,
    flatten_columns,
    npy_header,
)
from cml.storage.atomic import GrowingFile, atomic_file
from cml.storage.regular_file import digest_file
from cml.storage.resumable_output import ResumableOutput, resumable_output
from cml.storage.saved_options import Count, record

if TYPE_CHECKING:
    from cml.models.embedding import EmbeddingModel

SKIPPED = "skipped.jsonl"
VECTORS_TSV, METADATA_TSV = "vectors.tsv", "metadata.tsv"
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # the last four are full-width
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_RECORD = ("seen", "kept", EMBEDDINGS, ITEMS, SKIPPED)  # images seen and kept, bytes of the files
_VECTORS_A_PASS = 4096


class AllBadError(DataError):
    """None of the images can be read."""


def batch_size_for(model: EmbeddingModel, images: ImageList, batch_size: int | None, threads: int) -> int:
    """Check the number of items per forward pass, or choose it by what they are."""
    has_numbers = (images.rows and images.rows[0][0].form.has_shape) or images.features is not None
    on_gpu, on_cpu = (_VECTORS_A_PASS,) * 2 if has_numbers else (64, 16)
    return check_batch_size(model.mean.device, batch_size, threads, on_gpu=on_gpu, on_cpu=on_cpu)


def embed_folder(
    model: EmbeddingModel,
    images: ImageList,
    out: Path,
    *,
    run: str = "",
    batch_size: int | None = None,
    threads: int = CORES,
    skip_bad: bool = False,
    tsv: bool = False,
    quiet: bool = False,
) -> EmbeddingFolder:
    """Embed images into a folder, in memory of O(batch). A call that was killed is resumed by the same call."""
    images.check_kind(model.config.inputs)
    batch_size = batch_size_for(model, images, batch_size, threads)
    # without batch size and threads: they change at most rounding, and a call may be continued with others
    fingerprints = {"model": model_fingerprint(model), "images": images.fingerprint()}
    made_with = {**fingerprints, **model.forward_pass.departures}
    about = {"images": str(images.root)}
    parse = functools.partial(_state, images=len(images), dimension=model.config.dimension)
    with resumable_output(out, made_with, (EMBEDDINGS, ITEMS, SKIPPED), about=about, parse=parse) as output:
        if output.manifest is None:
            kept = _write(model, images, output, batch_size, threads, skip_bad, quiet)
            if not kept:
                output.start_over()  # there is nothing to continue
                raise AllBadError(f"None of the {len(images)} images in {images.source} can be read.")
            digests = {name: digest_file(output.work / name) for name in DIGESTED}
            counts = {"items": kept, "skipped": len(images) - kept, "dimension": model.config.dimension}
            output.finish(
                {"kind": "embeddings", "run": run, **about, "model": made_with["model"], **counts, "sha256": digests}
            )
    if tsv:
        _write_tsv(out)
    return EmbeddingFolder.open(out)


def _write(
    model: EmbeddingModel,
    images: ImageList,
    output: ResumableOutput,
    batch_size: int,
    threads: int,
    skip_bad: bool,
    quiet: bool,
) -> int:
    """Write embeddings and items after the last record; returns their number."""
    dimension = model.config.dimension
    seen, kept, *sizes = _state(output.records[-1], len(images), dimension) if output.records else (0,) * 5
    form = model.config.inputs
    unit = form.kind.removesuffix("s")
    with (
        GrowingFile(output.work / EMBEDDINGS, sizes[0]) as body,
        GrowingFile(output.work / ITEMS, sizes[1]) as items,
        GrowingFile(output.work / SKIPPED, sizes[2]) as skipped,
        ProgressBar(total=len(images), initial=seen, desc="embed", unit=unit, disable=quiet) as bar,
        contextlib.closing(embed_batches(model, images, batch_size, threads, skip_bad=skip_bad, start=seen)) as batches,
    ):
        if not sizes[0]:
            body.append(npy_header(0, dimension))  # a placeholder; the number of rows is known at the end
        for number, batch in enumerate(batches, 1):
            if batch.items:
                if not (finite := np.isfinite(batch.embeddings).all(axis=1)).all():
                    item = batch.items[int(np.argmin(finite))]
                    name = images.item_ids[item] if images.rows else images.paths[item]
                    raise DataError(f"The embedding of {name} holds NaN or infinity: was the training stable?")
                body.append(np.ascontiguousarray(batch.embeddings, "<f4").tobytes())
                items.append(b"".join(_line(images, item) for item in batch.items))
            for item, fault in batch.faults.items():
                say(f"skipped: {fault}")
                skipped.append(_line(images, item, error=fault))
            kept += len(batch.items)
            bar.update(batch.stop - batch.start)
            if number % BATCHES_A_CHUNK == 0 or batch.stop == len(images):
                state = batch.stop, kept, body.sync(), items.sync(), skipped.sync()
                output.record(dict(zip(_RECORD, state, strict=True)))
    with (output.work / EMBEDDINGS).open("r+b") as file:
        file.write(npy_header(kept, dimension))
    if not (output.work / SKIPPED).stat().st_size:
        (output.work / SKIPPED).unlink()
    return kept


def _state(entry: Mapping[str, Any], images: int, dimension: int) -> tuple[int, ...]:
    """The entries of a record, in the order of ``_RECORD``; ValueError or DataError if it is not of these images."""
    seen, kept, size, *others = (record(entry[name], Count, name, "a size") for name in _RECORD)
    if not kept <= seen <= images or size != len(npy_header(0, dimension)) + 4 * dimension * kept:
        raise ValueError("it is of other images")
    return seen, kept, size, *others


def _line(images: ImageList, item: int, **more: str) -> bytes:
    entry = {"item_id": images.item_ids[item], "file_name": images.file_name(item), **images.columns[item], **more}
    return encode_item(entry)


def _write_tsv(folder: Path) -> None:
    """The projector's pair: vectors without a header, metadata with one."""
    embedded = EmbeddingFolder.open(folder)
    with atomic_file(folder / VECTORS_TSV) as temporary, temporary.open("w", encoding="ascii", newline="\n") as file:
        for row in embedded.embeddings:
            file.write("\t".join(map(str, row)) + "\n")
    with atomic_file(folder / METADATA_TSV) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        columns: list[str] | None = None
        for entry in map(flatten_columns, embedded.items()):
            if columns is None:
                columns = list(entry)
                file.write("\t".join(map(_tsv_cell, columns)) + "\n")
            file.write("\t".join(_tsv_cell(entry.get(column, "")) for column in columns) + "\n")


def _tsv_cell(value: object) -> str:
    """A cell as text. One that a spreadsheet would take for a formula gets an apostrophe; numbers stay numbers."""
    from cml.reporting.visible_text import visible_text

    text = visible_text(str(value))
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text
