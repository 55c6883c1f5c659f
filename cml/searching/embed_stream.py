"""A folder of embeddings of a stream, see ``cml.searching.embedding_folder``, written as the stream is read."""

import contextlib
import hashlib
import numbers
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float32
from cml.console.progress_bar import ProgressBar
from cml.errors import DataError, UserError
from cml.models.embedding import EmbeddingModel
from cml.models.weights import model_fingerprint
from cml.processes.cores import CORES
from cml.processes.device import check_batch_size
from cml.searching.embed_folder import SKIPPED, AllBadError
from cml.searching.embedding_folder import DIGESTED, EMBEDDINGS, ITEMS, EmbeddingFolder, encode_item, npy_header
from cml.storage.atomic import GrowingFile
from cml.storage.regular_file import digest_file
from cml.storage.resumable_output import resumable_output
from cml.streams.labelled_stream import LabelledStream
from cml.streams.read_inputs import StreamInputs, read_inputs
from cml.streams.skipped_items import SkippedItems


def embed_items(
    network: EmbeddingModel,
    stream: LabelledStream,
    *,
    field: str | None = None,
    label: str | None = None,
    batch_size: int | None = None,
    threads: int = CORES,
    bar: str = "",
) -> Iterator[tuple[StreamInputs, Float32]]:  # some items, and the embeddings (n, D) of those that could be read
    """Embed the items of one pass over a stream, batch by batch."""
    size = check_batch_size(network.mean.device, batch_size, threads, on_gpu=64, on_cpu=16)
    parts = read_inputs(stream, network, size, threads=threads, field=field, label=label)
    skipped = SkippedItems()
    with ProgressBar(desc=bar, unit="item", disable=not bar) as shown:
        for part in parts:
            skipped.note(part.faults.values())
            empty = np.empty((0, network.config.dimension), np.float32)
            yield part, empty if part.inputs is None else network.embed(part.inputs, batch_size=size)
            shown.update(len(part.ids) + len(part.faults))
    skipped.end_pass(1)


def embed_stream(
    network: EmbeddingModel,
    stream: LabelledStream,
    out: Path,
    *,
    run: str = "",
    field: str | None = None,
    label: str | None = None,
    batch_size: int | None = None,
    threads: int = CORES,
    quiet: bool = False,
) -> EmbeddingFolder:
    """Embed the items of one pass over a stream into a folder. A call that was killed starts anew."""
    fingerprint = hashlib.sha256(repr((stream.describe(), field, label)).encode()).hexdigest()
    made_with = {"model": model_fingerprint(network), "images": fingerprint, **network.forward_pass.departures}
    with resumable_output(out, made_with, (EMBEDDINGS, ITEMS, SKIPPED)) as output:
        if output.manifest is not None and not stream.is_known_again:
            raise UserError(
                f"{out} already holds embeddings, and only of tar files it is known whether they are the same. Choose "
                "another folder, or delete this one."
            )
        if output.manifest is None:
            options: dict[str, Any] = {"field": field, "label": label, "batch_size": batch_size, "threads": threads}
            title = "" if quiet else "embed"
            with contextlib.closing(embed_items(network, stream, **options, bar=title)) as parts:  # type: ignore[type-var]
                kept, skipped = _write(output.work, parts, network.config.dimension)
            if not kept:
                raise AllBadError("No item of the stream can be read.")
            digests = {name: digest_file(output.work / name) for name in DIGESTED}
            counts = {"items": kept, "skipped": skipped, "dimension": network.config.dimension}
            about = {"kind": "embeddings", "run": run, "images": "", "model": made_with["model"]}
            output.finish({**about, **counts, "sha256": digests})
    return EmbeddingFolder.open(out)


def _write(folder: Path, parts: Iterator[tuple[StreamInputs, Float32]], dimension: int) -> tuple[int, int]:
    """Write embeddings and items as they come; returns how many were kept, and how many skipped."""
    kept = left_out = 0
    names: set[str] = set()
    with (
        GrowingFile(folder / EMBEDDINGS, 0) as body,
        GrowingFile(folder / ITEMS, 0) as items,
        GrowingFile(folder / SKIPPED, 0) as skipped,
    ):
        body.append(npy_header(0, dimension))  # a placeholder; the number of rows is known at the end
        for part, embeddings in parts:
            if not (finite := np.isfinite(embeddings).all(axis=1)).all():
                name = part.ids[int(np.argmin(finite))]
                raise DataError(f"The embedding of {name} holds NaN or infinity: was the training stable?")
            for item_id in part.ids:
                if item_id in names:
                    raise DataError(f"Two items of the stream have the key {item_id!r}: give each one of its own.")
                names.add(item_id)
            body.append(np.ascontiguousarray(embeddings, "<f4").tobytes())
            items.append(b"".join(map(_line, part.ids, part.labels)))
            skipped.append(b"".join(encode_item({"item_id": name, "error": why}) for name, why in part.faults.items()))
            kept, left_out = kept + len(part.ids), left_out + len(part.faults)
        for file in (body, items, skipped):
            file.sync()
    with (folder / EMBEDDINGS).open("r+b") as whole:
        whole.write(npy_header(kept, dimension))
    if not left_out:
        (folder / SKIPPED).unlink()
    return kept, left_out


def _line(item_id: str, label: Any) -> bytes:  # noqa: ANN401 - as the stream gives it
    """An item as a line of the list, with its label if that is a number or a text."""
    is_shown = isinstance(label, str | numbers.Real)
    return encode_item({"item_id": item_id, **({"label": label} if is_shown else {})})
