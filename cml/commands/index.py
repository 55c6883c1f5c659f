"""``cml index RUN IMAGES --out INDEX``: a search index of a folder of images; ``--add`` takes in further ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from cml.command_line.command_options import CommandOptions
from cml.command_line.parse_options import parse
from cml.command_line.print_result import show
from cml.command_line.shared_options import AsJson, BatchSize, Device, SharedRun, Splits, StoreOfBackbone, Threads
from cml.console.messages import say
from cml.export.decoding import DEFAULT_THREADS


@dataclass(frozen=True)
class IndexOptions(CommandOptions):
    """Build a search index of images, or add images to it."""

    run: SharedRun
    images: Annotated[Path, Positional, arg(metavar="IMAGES")]
    """Folder of images, or a prepared dataset of images or vectors."""
    out: Path
    """Folder of the index. Rerun the command to resume."""
    add: bool = False
    """Add the images to an existing index. Images that it already contains are not embedded again."""
    method: Literal["auto", "exact", "flat", "hnsw", "ivf"] = "auto"
    """'exact' compares with every item; 'flat', 'hnsw' and 'ivf' use faiss; 'auto' chooses by the number of images."""
    prefix: str = ""
    """Prefix of every item id, to distinguish files of the same name in different folders."""
    features: StoreOfBackbone = None
    splits: Splits = ("train", "query", "gallery")
    batch_size: BatchSize = None
    threads: Threads = DEFAULT_THREADS
    skip_bad: bool = False
    """Skip images that cannot be read."""
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Make or extend the index, and print what it holds and how much an approximate one misses."""
    import cml
    from cml.errors import UserError
    from cml.export.image_list import ImageList
    from cml.export.index import add_to_index, build_index
    from cml.runs.stored_items import list_from_store
    from cml.storage.hugging_face import resolve_run

    options = parse(IndexOptions, arguments, prog="cml index")
    run = resolve_run(options.run)
    model = cml.load(run, device=options.device)
    images = ImageList.open(options.images, options.splits)
    if options.features is not None:
        images = list_from_store(images, options.features, model, run)
    images = images.add_prefix(options.prefix) if options.prefix else images
    if options.add and options.method != "auto":
        raise UserError("An index keeps its method: leave --method out, or make a new index.")
    known = 0
    if options.add:
        index, known = add_to_index(
            model,
            images,
            options.out,
            run=str(run.absolute()),
            batch_size=options.batch_size,
            threads=options.threads,
            skip_bad=options.skip_bad,
        )
    else:
        index = build_index(
            model,
            images,
            options.out,
            run=str(run.absolute()),
            method=options.method,
            batch_size=options.batch_size,
            threads=options.threads,
            skip_bad=options.skip_bad,
        )
    noun = "vectors" if images.vectors else "images"
    if known == len(images):
        say(f"all {known} {noun} were in the index already: nothing was added")
    elif known:
        say(f"{known} of the {len(images)} {noun} were in the index already")
    query = "VECTORS.npy" if images.vectors else "IMAGE"
    method, recall = index.manifest["method"], index.manifest["recall"]
    lines = [f"{index.folder}: {len(index)} items, {method}", f"next: cml search {index.folder} {query}"]
    if recall is not None:
        share = f"{recall['value']:.3f} of the true {recall['k']} nearest found"
        lines.insert(1, f"recall@{recall['k']}: {share} ({recall['queries']} items as queries, against exact search)")
    result = {"index": str(index.folder), "items": len(index), "method": method, "recall": recall}
    show(result, *lines, as_json=options.json)
