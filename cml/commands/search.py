"""``cml search INDEX IMAGE.. --k 5``: the images of an index that are nearest to given ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from tyro.conf import Positional, arg

from cml.command_line.command_options import CommandOptions
from cml.command_line.parse_options import parse
from cml.command_line.print_result import print_json
from cml.command_line.shared_options import AsJson, Device, StoreOfBackbone

if TYPE_CHECKING:
    from cml.export.index import Hit
    from cml.retrieval.array_types import Float32
    from cml.retrieval.calibration import Calibration

_LONGEST = 4096  # characters of a path, as on the disk


@dataclass(frozen=True)
class Search(CommandOptions):
    """Search an index for the images that are nearest to query images."""

    index: Annotated[Path, Positional, arg(metavar="INDEX")]
    """Folder of the index, written by 'cml index'."""
    images: Annotated[tuple[Path, ...], Positional, arg(metavar="IMAGE")]
    """Query images; for a model of vectors, one .npy file whose rows are the queries."""
    k: int | None = None
    """Number of results per query; by default 5, or with --within as many as there are."""
    within: float | None = None
    """Only items whose expected label distance is at most this, in the label's unit; needs a calibrated run."""
    exact: bool = False
    """Compare with every item, even if the index is approximate."""
    html: Path | None = None
    """Also write a page that shows the retrieved images."""
    run: Path | None = None
    """Path of the run, if it moved since the index was built."""
    features: StoreOfBackbone = None
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Search, and print what was found."""
    import cml
    from cml.errors import UserError
    from cml.export.index import Index
    from cml.export.search_page import own_label, write_index_page
    from cml.export.search_within import search_within
    from cml.reporting.visible_text import visible_text
    from cml.runs.stored_items import embed_from_store
    from cml.storage.hugging_face import resolve_run

    options = parse(Search, arguments, prog="cml search")
    if not options.images:
        raise UserError("'cml search' needs an image to look for: cml search INDEX IMAGE..")
    if (folder := next((image for image in options.images if image.is_dir()), None)) is not None:
        raise UserError(f"{folder} is a folder; give images to look for, as in {folder}/*.jpg.")
    index = Index.open(options.index)
    source = Path(index.manifest["run"]).absolute() if options.run is None else resolve_run(options.run)
    if not source.is_dir():
        raise UserError(f"{source}, the run of {options.index}, is gone; say where it is with --run.")
    model = cml.load(source, device=options.device)
    index.check_model(model, source)
    calibration = model.calibration
    if options.within is not None and (calibration is None or not options.within >= 0):
        if calibration is not None:
            raise UserError(f"'--within' must be 0 or more. Got {options.within} instead.")
        raise UserError(f"'--within' needs to know what an embedding distance means: cml calibrate {source}")

    def search(embeddings: Float32) -> list[list[Hit]]:
        if options.within is None or calibration is None:
            return index.search(embeddings, 5 if options.k is None else options.k, exact=options.exact)
        results = search_within(index, embeddings, calibration.radius(options.within), exact=options.exact)
        return [hits[: options.k] for hits in results]

    if model.config.inputs.kind == "images" or options.features is not None:
        if options.features is None:
            embeddings = model.embed(options.images)
        else:
            embeddings = embed_from_store(options.images, options.features, model, source)
        results, queries = search(embeddings), options.images
    else:
        if len(options.images) != 1 or options.html is not None:
            raise UserError(
                f"The model takes {model.config.inputs}: give one .npy file, whose rows are the queries, and leave "
                "--html out, which shows images."
            )
        embeddings = model.embed(str(options.images[0]))
        results = search(embeddings)
        queries = tuple(Path(f"{options.images[0]}, row {row}") for row in range(len(embeddings)))
    if options.html is not None:
        write_index_page(options.html, options.images, results, index.folder, len(index))
    if options.json:
        listed = [
            [{**vars(hit), "path": str(hit.path), **_expectation(hit, calibration)} for hit in hits] for hits in results
        ]
        unit = {} if calibration is None else {"unit": calibration.unit}
        print_json([{"image": str(image), "found": hits, **unit} for image, hits in zip(queries, listed, strict=True)])
        return
    if calibration is not None:
        print(f"expected label distance in {calibration.unit}, interval of {calibration.level:.0%}")
    for image, hits in zip(queries, results, strict=True):
        label = own_label(image, hits)
        print(visible_text(f"{image}{f', label {label}' if label else ''}", _LONGEST))
        meaning = "" if calibration is None else f"{'expected':<10}{'interval':<18}"
        print(f"      distance  {meaning}{'label  ' if any(hit.label for hit in hits) else ''}item")
        for place, hit in enumerate(hits, 1):  # names of strangers may hold what steers a terminal
            named = (visible_text(text, _LONGEST) for text in (hit.label, hit.item_id, str(hit.path)) if text)
            meaning = ""
            if calibration is not None:
                expected, low, high = _expectation(hit, calibration).values()
                meaning = f"{expected:<10.3g}{f'{low:.3g} to {high:.3g}':<18}"
            print(f"{place:>4}  {hit.distance:<8.4f}  {meaning}{'  '.join(named)}")
        if not hits:
            print("      none")
    if options.html is not None:
        print(f"page: {options.html}")


def _expectation(hit: Hit, calibration: Calibration | None) -> dict[str, float]:
    """The expected label distance of a hit and the ends of its interval; nothing without a calibration."""
    if calibration is None:
        return {}
    expected, low, high = calibration.expect(np.array(hit.distance))
    return {"expected": float(expected), "low": float(low), "high": float(high)}
