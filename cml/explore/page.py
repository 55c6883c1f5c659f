"""The explorer: one HTML file that shows items through labels and embeddings side by side, and asks no network."""

import base64
import io
import json
import statistics
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.array_types import Floating, Int64
from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.errors import UserError
from cml.explore.label_side import LabelSide
from cml.explore.sequence_curves import SequenceCurves, find_sequence_curves
from cml.explore.views import View
from cml.reporting.drawing import flat
from cml.reporting.visible_text import visible_text, write_html
from cml.storage.atomic import atomic_file
from cml.storage.safe_paths import check_no_link

# Arrays as the explorer's page unpacks them: one compressed block of bytes, and where in it each lies.

_UNKNOWN = 65535  # in place of an infinite distance
_MAP_STEPS, _POINT_STEPS = 32000, 127  # whole numbers that a coordinate is rounded to


class PackedArrays:
    """Named arrays of a page, rounded to the precision that it shows."""

    def __init__(self) -> None:
        self.index: dict[str, list[Any]] = {}
        """Name to kind of number, offset in bytes, count, and factor of the numbers."""
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, name: str, array: NDArray[Any], scale: float = 1.0) -> None:
        """Add an array as it is."""
        content = np.ascontiguousarray(array).tobytes()
        self.index[name] = [array.dtype.name, self._length, array.size, scale]
        self._parts.append(content + bytes(-len(content) % 8))
        self._length += len(self._parts[-1])

    def add_map(self, name: str, points: NDArray[Any]) -> None:
        """Add a map (N, 2), centred and scaled to fill the square from -1 to 1, as int16."""
        centred = points - (points.min(axis=0) + points.max(axis=0)) / 2
        self.add(name, _round_to_steps(centred, _MAP_STEPS).astype(np.int16))

    def add_points(self, name: str, points: NDArray[Any]) -> None:
        """Add points (N, D), scaled to at most 1, as int8."""
        self.add(name, _round_to_steps(points, _POINT_STEPS).astype(np.int8))

    def add_items(self, name: str, ids: NDArray[Any], count: int) -> None:
        """Add numbers of items, as uint16 or uint32."""
        self.add(name, ids.astype(np.uint16 if count <= _UNKNOWN else np.uint32))

    def add_distances(self, name: str, distances: NDArray[Any]) -> None:
        """Add distances as uint16, infinite ones included."""
        finite = np.isfinite(distances)
        scale = max(float(distances[finite].max(initial=0)) / (_UNKNOWN - 1), 1e-30)
        steps = np.rint(np.where(finite, distances, 0).clip(min=0) / scale)
        self.add(name, np.where(finite, steps, _UNKNOWN).astype(np.uint16), scale)

    def encode(self) -> str:
        """All arrays, compressed, in base64."""
        return base64.b64encode(zlib.compress(b"".join(self._parts), 9)).decode()


def _round_to_steps(points: NDArray[Any], steps: int) -> NDArray[Any]:
    """Scale points so that the largest coordinate is ``steps``, and round them."""
    largest = max(float(np.abs(points).max()), 1e-30)
    rounded: NDArray[Any] = np.rint(points * (steps / largest))
    return rounded


# Pictures of the explorer's items as tiles of a few large sheets, which a browser decodes quickly.

_SIDES = (224, 192, 160, 128, 112, 96, 80, 64, 48, 32)  # of a tile, in pixels
_SAMPLE = 36  # pictures whose sizes in bytes are measured
_SHEET = 1024  # pixels that a sheet's side has at most: a browser decodes it in some milliseconds


@dataclass(frozen=True)
class Sheets:
    """Pictures of N items, as tiles of some sheets."""

    width: int  # width of a tile in pixels
    height: int  # height of a tile in pixels
    across: int  # tiles in a row of a sheet
    down: int  # rows of a sheet
    files: Sequence[bytes]  # the sheets as WebP
    places: Int64  # (N,) number of each item's tile, counted through all sheets
    sizes: Int64  # (N, 2) width and height of each picture, in the upper left corner of its tile


def draw_sheets(
    pictures: Sequence[Callable[[], Image.Image]],
    order: Int64,  # (N,) items in the order of their tiles
    most_bytes: int,  # size of all sheets together in bytes, as estimated from a sample
) -> Sheets:
    """Draw pictures as large as a number of bytes allows for all sheets, 224 pixels at most; small ones stay small."""
    n = len(pictures)
    spread = np.unique(np.linspace(0, n - 1, min(_SAMPLE, n)).round().astype(int))
    sample = [flat(pictures[item]()) for item in spread]
    ratio = min(2.0, max(0.5, statistics.median(image.width / image.height for image in sample)))
    largest = max(max(image.size) for image in sample)
    for side in (side for side in _SIDES if side <= max(largest, _SIDES[-1])):  # a browser enlarges as well
        width, height = round(side * min(1.0, ratio)), round(side * min(1.0, 1 / ratio))
        sample_bytes = sum(len(_webp(_fit_to_tile(image, width, height))) for image in sample)
        if sample_bytes * n / len(sample) <= most_bytes:
            break
    across, down = max(1, _SHEET // width), max(1, _SHEET // height)
    places, sizes = np.empty(n, np.int64), np.empty((n, 2), np.int64)
    files = []
    bar = ProgressBar(total=n, desc="pictures", unit="picture", delay=BAR_DELAY)
    for start in range(0, n, across * down):
        tiles = order[start : start + across * down]
        sheet = Image.new("RGB", (across * width, -(-len(tiles) // across) * height), "#808080")
        for tile, item in enumerate(tiles):
            picture = _fit_to_tile(flat(pictures[item]()), width, height)
            sheet.paste(picture, (tile % across * width, tile // across * height))
            places[item], sizes[item] = start + tile, picture.size
            bar.update()
        files.append(_webp(sheet))
    bar.close()
    return Sheets(width, height, across, down, files, places, sizes)


def curve_order(points: Floating) -> Int64:
    """Order items so that those near each other on a map (N, 2) stay near: along Morton's curve."""
    ranks = points.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")  # (N, 2)
    keys = np.zeros(len(points), np.int64)
    for bit in range(20):
        for axis in (0, 1):
            keys |= (ranks[:, axis] >> bit & 1) << (2 * bit + axis)
    return keys.argsort(kind="stable")


def _fit_to_tile(image: Image.Image, width: int, height: int) -> Image.Image:
    """Scale a picture to the largest size that fits into a tile, in its own proportions."""
    scale = min(width / image.width, height / image.height)
    size = (max(1, round(scale * image.width)), max(1, round(scale * image.height)))
    return image.resize(size, Image.Resampling.LANCZOS)


def _webp(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "WEBP", quality=80, method=4)
    return file.getvalue()


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
    # their labels as columns to colour by; see ``cml.items.shown_columns``
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
        "sequences": _sequences(data, find_sequence_curves(side.distance, side.labels)),
        "views": [_view(data, view, side, factor, number, n) for number, view in enumerate(views)],
    }  # fmt: skip
    write_html(
        path,
        "cml.explore",
        "explorer.html.j2",
        styles=("explorer.css",),
        scripts=("data.js", "plane.js", "sequences.js", "page.js"),
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


def _sequences(data: PackedArrays, curves: SequenceCurves | None) -> dict[str, Any] | None:
    if curves is None:
        return None
    data.add("steps", curves.steps)
    data.add("step_ends", curves.ends.astype(np.uint32))
    about = {"band": curves.band, "open_ends": curves.open_ends, "is_sum": curves.is_sum, "period": curves.period}
    return {"width": curves.steps.shape[1], **about}


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
