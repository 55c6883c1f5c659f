"""``cml index RUN IMAGES --out INDEX``: a search index of images, vectors or texts; ``--add`` takes in further ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

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
from cml.processes.cores import CORES
from cml.storage.downloads import check_shared_run


@dataclass(frozen=True)
class IndexOptions:
    """Build a search index of images, vectors or texts, or add items to it."""

    run: SharedRun
    images: Annotated[Path, Positional, arg(metavar="IMAGES")]
    """Folder of images, a prepared dataset, or a .npy file of vectors, whose ids are their row
    numbers."""
    out: Path
    """Folder of the index. Rerun the command to resume."""
    add: bool = False
    """Add the images to an existing index. Images that it already contains are not embedded again."""
    replace: bool = False
    """Embed images again if they were modified since they were added to the index."""
    prefix: str = ""
    """Prefix of every item id, to distinguish files of the same name in different folders."""
    ids: RowIds = None
    dimension: FirstDimensions = None
    features: StoreOfBackbone = None
    splits: Splits = ("train", "query", "gallery")
    batch_size: BatchSize = None
    threads: Threads = CORES
    skip_bad: bool = False
    """Skip images that cannot be read."""
    decode: ImageDecoding = "exact"
    precision: NetworkPrecision = "float32"
    compile: Compiled = False
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Make or extend the index, and print what it holds and how much an approximate one misses."""
    options = parse(IndexOptions, arguments, prog="cml index")
    check_shared_run(options.run)
    check_source(options.images)
    from cml.doors.index import index as build

    index = build(
        options.run,
        options.images,
        options.out,
        add=options.add,
        replace=options.replace,
        prefix=options.prefix,
        ids=options.ids,
        dimension=options.dimension,
        features=options.features,
        splits=options.splits,
        batch_size=options.batch_size,
        threads=options.threads,
        skip_bad=options.skip_bad,
        decode=options.decode,
        precision=options.precision,
        compile=options.compile,
        device=options.device,
    )
    kind = "images" if index.model is None else index.model.config.inputs.kind
    query = {"images": "IMAGE", "texts": '"TEXT"'}.get(kind, "VECTORS.npy")
    method, recall = index.method, index.recall
    lines = [f"{index.folder}: {len(index)} items, {method}", f"next: cml search {index.folder} {query}"]
    if recall is not None:
        share = f"{recall['value']:.3f} of the true {recall['k']} nearest found"
        lines.insert(1, f"recall@{recall['k']}: {share} ({recall['queries']} items as queries, against exact search)")
    result = {"index": str(index.folder), "items": len(index), "method": method, "recall": recall}
    show(result, *lines, as_json=options.json)
