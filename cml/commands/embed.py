"""``cml embed RUN --images DIR --out DIR``: the embeddings of images or vectors, and the list of their items."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import (
    AsJson,
    BatchSize,
    Compiled,
    Device,
    FirstDimensions,
    ImageDecoding,
    NetworkPrecision,
    RowIds,
    SharedRun,
    Splits,
    StoreOfBackbone,
    Threads,
    check_source,
    show,
)
from cml.errors import UserError
from cml.processes.cores import CORES
from cml.storage.downloads import check_shared_run

if TYPE_CHECKING:
    from cml.doors.model import Model
    from cml.searching.embedding_folder import EmbeddingFolder


@dataclass(frozen=True)
class Embed:
    """Embed images, vectors or texts: embeddings.npy (N, D) float32 and items.jsonl in the same order."""

    run: SharedRun
    out: Path
    """Output folder. Rerun the command to resume."""
    images: Path | None = None
    """Folder of images, or a prepared dataset of images, vectors or texts."""
    vectors: Path | None = None
    """In place of --images, a .npy file of vectors (N, F), whose ids are their row numbers."""
    shards: str | None = None
    """In place of --images, tar files in the form of WebDataset, such as "shards/*.tar", read from start to end."""
    field: str | None = None
    """With --shards, the field of the inputs, such as jpg; by default the only one that fits."""
    label: str | None = None
    """With --shards, a field of numbers or texts to keep with each item, such as json.age."""
    ids: RowIds = None
    dimension: FirstDimensions = None
    features: StoreOfBackbone = None
    splits: Splits = ("train", "query", "gallery")
    batch_size: BatchSize = None
    threads: Threads = CORES
    skip_bad: bool = False
    """Leave out images that cannot be read, and list them in skipped.jsonl."""
    decode: ImageDecoding = "exact"
    precision: NetworkPrecision = "float32"
    compile: Compiled = False
    tsv: bool = False
    """Also write vectors.tsv and metadata.tsv for the TensorBoard projector."""
    parquet: bool = False
    """Also write embeddings.parquet: id, vector, label."""
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Embed, and print what was written."""
    options = parse(Embed, arguments, prog="cml embed")
    check_shared_run(options.run)
    _check_inputs(options)
    check_source(options.images)
    check_source(options.vectors)
    import cml
    from cml.models.forward_pass import ForwardPass
    from cml.storage.downloads import resolve_run

    if options.parquet:  # before anything is embedded: it may not be installed
        from cml.searching.parquet_file import write_parquet
    run = resolve_run(options.run)
    model = cml.load(run, device=options.device)
    if options.dimension is not None:
        model = model.shorten(options.dimension)
    with model.network.use_forward_pass(ForwardPass(options.decode, options.precision, options.compile)):
        embedded = (_embed_list if options.shards is None else _embed_shards)(options, model, run)
    if options.parquet:
        write_parquet(embedded)
    items, dimension, skipped = (embedded.manifest[key] for key in ("items", "dimension", "skipped"))
    note = f", {skipped} skipped (skipped.jsonl)" if skipped else ""
    show(
        {"folder": str(embedded.folder), "items": items, "dimension": dimension, "skipped": skipped},
        f"{embedded.folder}: embeddings, {items} x {dimension} float32{note}",
        as_json=options.json,
    )


def _check_inputs(options: Embed) -> None:
    """Refuse options that do not go together: one of three kinds of inputs is needed."""
    unfit = {"images": None, "vectors": None, "ids": None, "features": None, "tsv": False}
    if options.shards is not None:
        for name, value in unfit.items():
            if getattr(options, name) != value:
                raise UserError(f"--shards does not go with --{name}: leave it out.")
        return
    for name in ("field", "label"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name} is an option of --shards: give these, or leave it out.")
    given = [source for source in (options.images, options.vectors) if source is not None]
    if len(given) != 1:
        raise UserError(
            "cml embed needs --images, --vectors or --shards, one of them. 'cml embed --help' lists all options."
        )
    if options.vectors is not None and options.vectors.suffix != ".npy":
        raise UserError(
            f"--vectors must be a .npy file. Got {options.vectors} instead. Folders and datasets go to --images."
        )


def _embed_list(options: Embed, model: "Model", run: Path) -> "EmbeddingFolder":
    """Embed images, vectors or texts that can be listed."""
    from cml.data.image_list import ImageList
    from cml.doors.stored_items import list_from_store
    from cml.searching.embed_folder import embed_folder

    source = options.vectors if options.images is None else options.images
    assert source is not None  # as checked
    images = ImageList.open(source, options.splits)
    if options.ids is not None:
        images = images.with_ids(options.ids)
    if options.features is not None:
        images = list_from_store(images, options.features, model, run)
    return embed_folder(
        model.network,
        images,
        options.out,
        run=str(run.absolute()),
        batch_size=options.batch_size,
        threads=options.threads,
        skip_bad=options.skip_bad,
        tsv=options.tsv,
    )


def _embed_shards(options: Embed, model: "Model", run: Path) -> "EmbeddingFolder":
    """Embed the items of tar files."""
    from cml.searching.embed_stream import embed_stream
    from cml.streams.labelled_stream import LabelledStream

    assert options.shards is not None
    return embed_stream(
        model.network,
        LabelledStream(options.shards, skip_bad=options.skip_bad),
        options.out,
        run=str(run.absolute()),
        field=options.field,
        label=options.label,
        batch_size=options.batch_size,
        threads=options.threads,
    )
