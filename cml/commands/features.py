"""``cml features --backbone NAME --data DATASET --out STORE``: the features of a frozen network, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import (
    AsJson,
    Compiled,
    Device,
    ImageDecoding,
    NetworkPrecision,
    Splits,
    check_source,
    show,
)
from cml.errors import UserError
from cml.feature_store.manifest import FeatureType
from cml.storage.json_file import read_parsed


@dataclass(frozen=True)
class Features:
    """Compute the features of a frozen network once, into a feature store. Rerun to resume."""

    out: Path
    """Folder of the store."""
    images: Path | None = None
    """Folder of images."""
    data: Path | None = None
    """Folder of a prepared dataset."""
    texts: Path | None = None
    """File with one text per line, for a sentence model."""
    text_column: str | None = None
    """Column of the prepared dataset with the texts for a sentence model; by default its labels, such as captions."""
    backbone: str = "efficientnet-lite0"
    """Network: a backbone as for cml train, or a sentence-transformers model, such as sentences/all-minilm-l6-v2 for
    texts, sentence-transformers/clip-ViT-B-32 for images, or sentences/FOLDER."""
    weights: str = "imagenet"
    """Weights of the backbone, as for cml train."""
    image_size: Annotated[tuple[int, int] | None, tyro.conf.arg(metavar="INT INT")] = None
    """Height and width of the backbone's input in pixels; by default those of the recipe of the dataset's task, or
    224 224."""
    crop: float | None = None
    """Side of the centre crop as a fraction of the image's side; by default that of the recipe, or 1."""
    dtype: FeatureType = "float32"
    """Type of the stored numbers: float32, or float16 for half the space."""
    decode: ImageDecoding = "exact"
    precision: NetworkPrecision = "float32"
    compile: Compiled = False
    splits: Splits = ("train", "query", "gallery")
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Compute, and print what was written."""
    options = parse(Features, arguments, prog="cml features")
    sources = [source for source in (options.images, options.data, options.texts) if source is not None]
    if len(sources) != 1:
        raise UserError("Give one of --images FOLDER, --data DATASET and --texts FILE.")
    if options.texts is None:
        check_source(sources[0])
    from cml.doors.features import features
    from cml.launch import launch

    store = features(
        _read_texts(sources[0]) if options.texts is not None else sources[0],
        backbone=options.backbone,
        out=options.out,
        weights=options.weights,
        image_size=options.image_size,
        crop=options.crop,
        dtype=options.dtype,
        splits=options.splits,
        text_column=options.text_column,
        decode=options.decode,
        precision=options.precision,
        compile=options.compile,
        device=options.device,
    )
    if not launch().first:
        return
    manifest = store.manifest
    shape = f"{manifest['items']} x {manifest['features']} {manifest['dtype']}"
    result = {"folder": str(store.folder), **{key: manifest[key] for key in ("items", "features", "dtype")}}
    show(result, f"{store.folder}: features of {manifest['made_by']['backbone']}, {shape}", as_json=options.json)


def _read_texts(path: Path) -> list[str]:
    """The lines of a file."""

    def parse(raw: bytes) -> list[str]:
        try:
            return raw.decode().splitlines()
        except UnicodeDecodeError as error:
            raise ValueError(f"is not UTF-8 text: {error.reason} at byte {error.start + 1}") from None

    lines: list[str] = read_parsed(path, "one text per line", "text", parse)
    return lines
