"""``cml predict RUN IMAGES``: the labels of new images, vectors or texts, from those of similar training items."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, Data, Device, Run, StoreOfImages, check_source, show
from cml.storage.downloads import check_run_folder

_SHOWN = 10  # predictions that are printed where a file holds them all


@dataclass(frozen=True)
class Predict:
    """Predict the labels of images, vectors or texts from those of the nearest training items of a run."""

    run: Run
    images: Annotated[Path, Positional, arg(metavar="IMAGES")]
    """Folder of images, a prepared dataset, whose test items are taken, or a .npy file of vectors, whose ids are their
    row numbers."""
    out: Path | None = None
    """CSV file for the predictions; by default they are printed."""
    k: int = 10
    """Number of training items from whose labels each label is predicted."""
    data: Data = None
    features: StoreOfImages = None
    device: Device = "auto"
    json: AsJson = False


def run(arguments: Sequence[str]) -> None:
    """Predict, and print or write the labels."""
    options = parse(Predict, arguments, prog="cml predict")
    check_run_folder(options.run)
    check_source(options.images)
    from cml.doors.run import open_run
    from cml.reporting.visible_text import visible_text
    from cml.storage.atomic import write_csv

    opened = open_run(options.run, data=options.data, device=options.device, features=options.features)
    found = opened.predict(options.images, k=options.k)
    rows = [(item_id, _as_text(label)) for item_id, label in zip(found.item_ids, found.labels, strict=True)]
    if options.out is not None:
        write_csv(options.out, ["item_id", found.column], rows)
    unit = f" ({found.unit})" if found.unit else ""
    shown = rows if options.out is None else rows[:_SHOWN]
    lines = [f"{visible_text(item_id)}  {visible_text(text)}" for item_id, text in shown]
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} more")
    head = f"{found.column}{unit}, predicted from {options.k} training items each:"
    lines = [head, *lines, *([] if options.out is None else [f"predictions: {options.out}"])]
    if opened.distance.label_vectors(opened.query_labels[:1]) is not None:
        lines.append(f"next: cml evaluate {opened.folder} --protocol regression  (the error on held-out items)")
    result = {
        "items": [
            {"item_id": one, found.column: label} for one, label in zip(found.item_ids, found.labels, strict=True)
        ],
        "unit": found.unit,
        "out": options.out and str(options.out),
    }
    show(result, *lines, as_json=options.json)


def _as_text(label: Any) -> str:  # noqa: ANN401 - a label as the dataset holds it
    if isinstance(label, float):
        return f"{label:.6g}"
    if isinstance(label, str):
        return label
    return json.dumps(_round(label), ensure_ascii=False)


def _round(label: Any) -> Any:  # noqa: ANN401
    """Numbers to six digits, in lists as well."""
    if isinstance(label, list | tuple):
        return [_round(value) for value in label]
    return float(f"{label:.6g}") if isinstance(label, float) else label
