"""``cml predict RUN IMAGES``: the labels of new images, vectors or texts, from those of similar training items."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from cml.command_line.parse_options import parse
from cml.command_line.shared_options import AsJson, Data, Device, Run, StoreOfImages, check_source, show
from cml.storage.downloads import check_run_folder

BOUND = "within_90"
"""The column of the label distances within which the true labels of 90 % of new items lie."""
_SHOWN = 10  # predictions that are printed where a file holds them all


@dataclass(frozen=True)
class Predict:
    """Predict the labels of images, vectors or texts from those of the nearest training items of a run."""

    run: Run
    images: Annotated[Path, Positional, arg(metavar="IMAGES")]
    """Folder of images, a prepared dataset (its test items are used), or a .npy file of vectors, whose ids are their
    row numbers."""
    out: Path | None = None
    """CSV file for the predictions; by default they are printed."""
    k: int = 10
    """Number of nearest training items that each label is predicted from."""
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
    bounds = [f"{bound:.3g}" if math.isfinite(bound) else "" for bound in found.bounds.tolist()]
    rows = list(zip(found.item_ids, map(_as_text, found.labels), bounds, strict=True))
    if options.out is not None:
        write_csv(options.out, ["item_id", found.column, BOUND], rows)
    shown = rows if options.out is None else rows[:_SHOWN]
    unit = f" ({found.unit})" if found.unit else ""
    lines = [
        f"{found.column}{unit}, from the labels of the {options.k} nearest training items, weighted by 1 / distance:"
    ]
    for (item_id, text, bound), is_trained in zip(shown, found.are_trained.tolist(), strict=False):
        more = "  training item" if is_trained else f"  (within {bound})" if bound else ""
        lines.append(f"{visible_text(item_id)}  {visible_text(text)}{more}")
    if len(shown) < len(rows):
        lines.append(f"... and {len(rows) - len(shown)} more")
    if count := int(found.are_trained.sum()):
        lines.append(f"training items, which are predicted from the others: {count} of {len(rows)}")
    if found.error is not None:
        items, mean, constant, error_unit = found.error
        error_unit = f" {error_unit}" if error_unit else ""
        lines.append(
            f"error on {items} test items: label distance {mean:.3g}{error_unit} on average, and {constant:.3g} with "
            "one label for all"
        )
    if any(bounds):
        lines.append("within: for 90% of new items like the test items, the true label is at most this far off")
    lines += [] if options.out is None else [f"predictions: {options.out}"]
    result = {
        "items": [
            {"item_id": one, found.column: label, BOUND: float(bound) if bound else None, "is_trained": is_trained}
            for one, label, bound, is_trained in zip(
                found.item_ids, found.labels, bounds, found.are_trained.tolist(), strict=True
            )
        ],
        "unit": found.unit,
        "error": found.error and found.error._asdict(),
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
