"""The explorer: one HTML file that shows items through labels and embeddings side by side, and asks no network."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.errors import UserError
from cml.explore.label_side import LabelSide
from cml.explore.packed_arrays import PackedArrays
from cml.explore.picture_sheets import curve_order, draw_sheets
from cml.explore.views import View
from cml.reporting.html_escaping import write_html
from cml.reporting.visible_text import visible_text
from cml.storage.atomic import atomic_file
from cml.storage.safe_paths import check_no_link

IN_ONE_FILE = 10_000  # items
MOST = 100_000
_BYTES, _BYTES_EACH = 14 << 20, 2200  # of pictures in one file of under 30 MB; of a picture where they lie beside it


@dataclass(frozen=True)
class Items:
    """N items as the page shows them."""

    names: Sequence[str]  # their names
    words: Sequence[str]  # their labels in words; may be empty
    roles: Sequence[str]  # their roles: train, query or gallery
    pictures: Sequence[Callable[[], Image.Image]]  # draws each with its label
    # their labels as columns to colour by; see ``cml.explore.label_columns``
    columns: Mapping[str, tuple[NDArray[Any], float | None]] = field(default_factory=dict)
    legend: Mapping[str, str] = field(default_factory=dict)  # colours of the drawn labels: word to colour
    note: str = ""  # a sentence on the pictures; may be empty
    further: Mapping[str, tuple[NDArray[Any], float | None]] = field(default_factory=dict)  # other columns to colour by
    # further texts of each item to show and to search: name to N texts
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    are_known: bool = False  # whether a network was trained on all of them, whatever their roles


def write_explorer(
    path: Path, items: Items, side: LabelSide, views: Sequence[View], *, title: str, unit: str = "", factor: float = 1.0
) -> None:
    """Write the page: one file, with a folder of pictures beside it if there are more than 10,000 items."""
    n = len(items.names)
    if not views or n > MOST:
        raise UserError(f"The explorer takes one embedding or more of at most {MOST:,} items. Got {n:,} items.")
    beside = n > IN_ONE_FILE
    folder = path.with_name(f"{path.stem}.pictures")
    if beside:
        check_no_link(path.parent, folder.name)
    sheets = draw_sheets(items.pictures, curve_order(side.points[:, :2]), _BYTES_EACH * n if beside else _BYTES)
    if beside:
        folder.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(sheets.files):
            with atomic_file(folder / f"{number}.webp") as temporary:
                temporary.write_bytes(content)
    data = PackedArrays()
    roles = list(dict.fromkeys(items.roles))
    data.add("role", np.array(list(map(roles.index, items.roles)), np.uint8))
    data.add("tile", sheets.places.astype(np.uint32))
    data.add("size", sheets.sizes.astype(np.uint16))
    k = views[0].ids.shape[1]
    data.add_map("map", side.points[:, :2])
    data.add_points("points", side.points)
    data.add_items("ids", side.nearest.ids[:, :k].clip(min=0), n)
    data.add_distances("near", side.nearest.distances[:, :k] * np.float32(factor))
    data.add_items("pairs", side.pairs, n)
    data.add_distances("between", side.between * np.float32(factor))
    coloured = {**items.columns, **{name: items.further[name] for name in items.further if name not in items.columns}}
    columns = [_column(data, *named, number) for number, named in enumerate(coloured.items())]
    is_new = not items.are_known and all(items.roles[item] != "train" for item in np.unique(side.pairs).tolist())
    shown = {
        "names": [visible_text(name, 200) for name in items.names],
        "words": [visible_text(text, 300) for text in items.words],
        "roles": [visible_text(role) for role in roles],
        "columns": columns,
        "labels": len(items.columns),
        "unit": visible_text(unit),
        "legend": [[visible_text(word, 40), visible_text(colour)] for word, colour in items.legend.items()],
        "note": visible_text(items.note),
        "texts": [[visible_text(name, 60), [visible_text(text, 100) for text in column]] for name, column in
                  items.texts.items()],
        "exact": len(side.landmarks) == n,
        "known": side.is_known,
        "held_out": is_new,
        "sheet": {
            "width": sheets.width, "height": sheets.height, "across": sheets.across, "down": sheets.down,
            "count": len(sheets.files), "folder": folder.name if beside else "",
        },
        "views": [_view(data, view, side, factor, number, n) for number, view in enumerate(views)],
    }  # fmt: skip
    write_html(
        path,
        "cml.explore",
        "explorer.html.j2",
        styles=("explorer.css",),
        scripts=("data.js", "plane.js", "page.js"),
        title=visible_text(title) or "Explorer",
        is_known=side.is_known,
        meta=_in_script({**shown, "arrays": data.index}),
        data=data.encode(),
        sheets=[] if beside else [base64.b64encode(content).decode() for content in sheets.files],
        pictures="data: blob: file:" if beside else "data: blob:",
    )


def _view(data: PackedArrays, view: View, side: LabelSide, factor: float, number: int, n: int) -> dict[str, Any]:
    for kind, maps in (("map", view.maps), ("stage", view.stages)):
        for place, points in enumerate(maps.values()):
            data.add_map(f"{number}.{kind}{place}", points)
    data.add_points(f"{number}.points", view.points)
    for name in ("ids", "near_ranks", "label_ranks"):
        data.add_items(f"{number}.{name}", getattr(view, name), n)
    for name in ("near", "label_near", "between"):
        data.add_distances(f"{number}.{name}", getattr(view, name))
    data.add_distances(f"{number}.near_labels", view.near_labels * np.float32(factor))
    data.add_distances(f"{number}.error", np.nan_to_num(view.error(side) * np.float32(factor), nan=np.inf))
    for place, pairs in enumerate(view.worst(side)):
        data.add_items(f"{number}.worst{place}", pairs, n)
    shown = {"title": visible_text(view.title, 60), "maps": list(view.maps), "stages": list(view.stages)}
    return {**shown, "agreement": view.agreement if np.isfinite(view.agreement) else None}


def _column(data: PackedArrays, name: str, column: tuple[NDArray[Any], float | None], number: int) -> dict[str, Any]:
    values, period = column
    about: dict[str, Any] = {"name": visible_text(name, 60), "period": period}
    if values.dtype.kind not in "fiu":
        kinds, values = np.unique(values.astype(str), return_inverse=True)
        about = {"name": about["name"], "kinds": [visible_text(kind, 60) for kind in kinds.tolist()]}
    data.add(f"column{number}", values.astype(np.float32))
    return about


def _in_script(value: object) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for mark in "<>&\u2028\u2029":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text
