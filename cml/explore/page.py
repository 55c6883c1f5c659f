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

from cml.console.progress_bar import BAR_DELAY, ProgressBar
from cml.errors import UserError
from cml.explore.views import LabelSide, View
from cml.reporting.drawing import flat
from cml.reporting.gallery_style import write_html
from cml.reporting.visible_text import visible_text
from cml.storage.atomic import atomic_file

IN_ONE_FILE = 10_000  # items
MOST = 100_000
_BYTES, _BYTES_EACH = 14 << 20, 2200  # of pictures in one file of under 30 MB; of a picture where they lie beside it
_UNKNOWN = 65535  # in place of an infinite distance
_SIDES = (224, 192, 160, 128, 112, 96, 80, 64, 48, 32)  # of a tile, in pixels
_SAMPLE = 36  # pictures that tell how many bytes one takes
_SHEET = 1024  # pixels that a sheet's side has at most: a browser decodes it in some milliseconds


@dataclass(frozen=True)
class Items:
    """N items as the page shows them."""

    names: Sequence[str]
    words: Sequence[str]  # labels in words; may be empty
    roles: Sequence[str]
    pictures: Sequence[Callable[[], Image.Image]]  # with their labels drawn
    columns: Mapping[str, tuple[NDArray[Any], float | None]] = field(default_factory=dict)  # see ``columns_of``
    legend: Mapping[str, str] = field(default_factory=dict)  # colours of the drawn labels: word to colour


def write_explorer(
    path: Path, items: Items, side: LabelSide, views: Sequence[View], *, title: str, unit: str = "", factor: float = 1.0
) -> None:
    """Write the page, a tab for each view, label distances times ``factor``; many pictures lie in a folder beside."""
    n = len(items.names)
    if not views or n > MOST:
        raise UserError(f"The explorer takes one embedding or more of at most {MOST:,} items. Got {n:,} items.")
    beside = n > IN_ONE_FILE
    sheets = make_sheets(items.pictures, along_a_curve(side.points[:, :2]), _BYTES_EACH * n if beside else _BYTES)
    folder = path.with_name(f"{path.stem}.pictures")
    if beside:
        folder.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(sheets.files):
            with atomic_file(folder / f"{number}.webp") as temporary:
                temporary.write_bytes(content)
    data = _Arrays()
    roles = list(dict.fromkeys(items.roles))
    data.add("role", np.array(list(map(roles.index, items.roles)), np.uint8))
    data.add("tile", sheets.places.astype(np.uint32))
    data.add("size", sheets.sizes.astype(np.uint16))
    k = views[0].ids.shape[1]
    data.add_map("map", side.points[:, :2])
    data.add_points("points", side.points)
    data.add_whole("ids", side.nearest.ids[:, :k].clip(min=0), n)
    data.add_distances("near", side.nearest.distances[:, :k] * np.float32(factor))
    data.add_whole("pairs", side.pairs, n)
    data.add_distances("between", side.between * np.float32(factor))
    columns = [_column(data, *named, number) for number, named in enumerate(items.columns.items())]
    shown = {
        "names": [visible_text(name, 200) for name in items.names],
        "words": [visible_text(text, 300) for text in items.words],
        "roles": [visible_text(role) for role in roles],
        "columns": columns,
        "unit": visible_text(unit),
        "legend": [[visible_text(word, 40), visible_text(colour)] for word, colour in items.legend.items()],
        "exact": len(side.landmarks) == n,
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
        meta=_in_script({**shown, "arrays": data.index}),
        data=data.packed(),
        sheets=[] if beside else [base64.b64encode(content).decode() for content in sheets.files],
        pictures="data: blob: file:" if beside else "data: blob:",
    )


class _Arrays:
    """Arrays as the page unpacks them: one block of bytes, and where in it each lies."""

    def __init__(self) -> None:
        self.index: dict[str, list[Any]] = {}  # name to kind, offset, count, what a number is multiplied with
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, name: str, array: NDArray[Any], scale: float = 1.0) -> None:
        content = np.ascontiguousarray(array).tobytes()
        self.index[name] = [array.dtype.name, self._length, array.size, scale]
        self._parts.append(content + bytes(-len(content) % 8))
        self._length += len(self._parts[-1])

    def add_map(self, name: str, points: NDArray[Any]) -> None:
        """Points (N, 2), centred and to fill the square from -1 to 1."""
        self.add_points(name, points - (points.min(axis=0) + points.max(axis=0)) / 2, 32000, np.int16)

    def add_points(self, name: str, points: NDArray[Any], most: int = 127, kind: type = np.int8) -> None:
        self.add(name, np.rint(points * (most / max(float(np.abs(points).max()), 1e-30))).astype(kind))

    def add_whole(self, name: str, numbers: NDArray[Any], most: int) -> None:
        self.add(name, numbers.astype(np.uint16 if most <= _UNKNOWN else np.uint32))

    def add_distances(self, name: str, distances: NDArray[Any]) -> None:
        known = np.isfinite(distances)
        scale = max(float(distances[known].max(initial=0)) / (_UNKNOWN - 1), 1e-30)
        steps = np.rint(np.where(known, distances, 0).clip(min=0) / scale)
        self.add(name, np.where(known, steps, _UNKNOWN).astype(np.uint16), scale)

    def packed(self) -> str:
        return base64.b64encode(zlib.compress(b"".join(self._parts), 9)).decode()


def _view(data: _Arrays, view: View, side: LabelSide, factor: float, number: int, n: int) -> dict[str, Any]:
    for kind, maps in (("map", view.maps), ("stage", view.stages)):
        for place, points in enumerate(maps.values()):
            data.add_map(f"{number}.{kind}{place}", points)
    data.add_points(f"{number}.points", view.points)
    for name in ("ids", "near_ranks", "label_ranks"):
        data.add_whole(f"{number}.{name}", getattr(view, name), n)
    for name in ("near", "label_near", "between"):
        data.add_distances(f"{number}.{name}", getattr(view, name))
    data.add_distances(f"{number}.near_labels", view.near_labels * np.float32(factor))
    data.add_distances(f"{number}.error", np.nan_to_num(view.error(side) * np.float32(factor), nan=np.inf))
    for place, pairs in enumerate(view.worst(side)):
        data.add_whole(f"{number}.worst{place}", pairs, n)
    shown = {"title": visible_text(view.title, 60), "maps": list(view.maps), "stages": list(view.stages)}
    return {**shown, "agreement": view.agreement if np.isfinite(view.agreement) else None}


def _column(data: _Arrays, name: str, column: tuple[NDArray[Any], float | None], number: int) -> dict[str, Any]:
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


@dataclass(frozen=True)
class Sheets:
    """Pictures of N items."""

    width: int  # of a tile
    height: int
    across: int  # tiles in a row of a sheet
    down: int  # rows of a sheet
    files: Sequence[bytes]  # the sheets as WebP
    places: NDArray[np.int64]  # (N,) number of each item's tile, counted through all sheets
    sizes: NDArray[np.int64]  # (N, 2) width and height of each picture, in the upper left corner of its tile


def make_sheets(pictures: Sequence[Callable[[], Image.Image]], order: NDArray[np.int64], most_bytes: int) -> Sheets:
    """Draw pictures as large as ``most_bytes`` allow for all sheets, 224 pixels at most; ``order`` is of the tiles."""
    n = len(pictures)
    spread = np.unique(np.linspace(0, n - 1, min(_SAMPLE, n)).round().astype(int))
    sample = [flat(pictures[item]()) for item in spread]
    ratio = min(2.0, max(0.5, statistics.median(image.width / image.height for image in sample)))
    for side in _SIDES:
        width, height = round(side * min(1.0, ratio)), round(side * min(1.0, 1 / ratio))
        if sum(len(_webp(_fitted(image, width, height))) for image in sample) * n / len(sample) <= most_bytes:
            break
    across, down = max(1, _SHEET // width), max(1, _SHEET // height)
    places, sizes = np.empty(n, np.int64), np.empty((n, 2), np.int64)
    files = []
    bar = ProgressBar(total=n, desc="pictures", unit="picture", delay=BAR_DELAY)
    for start in range(0, n, across * down):
        tiles = order[start : start + across * down]
        sheet = Image.new("RGB", (across * width, -(-len(tiles) // across) * height), "#808080")
        for tile, item in enumerate(tiles):
            picture = _fitted(flat(pictures[item]()), width, height)
            sheet.paste(picture, (tile % across * width, tile // across * height))
            places[item], sizes[item] = start + tile, picture.size
            bar.update()
        files.append(_webp(sheet))
    bar.close()
    return Sheets(width, height, across, down, files, places, sizes)


def along_a_curve(points: NDArray[np.floating]) -> NDArray[np.int64]:
    """Items in an order in which those near each other on a map (N, 2) stay near: along Morton's curve."""
    ranks = points.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable")  # (N, 2)
    keys = np.zeros(len(points), np.int64)
    for bit in range(20):
        for axis in (0, 1):
            keys |= (ranks[:, axis] >> bit & 1) << (2 * bit + axis)
    return keys.argsort(kind="stable")


def _fitted(image: Image.Image, width: int, height: int) -> Image.Image:
    scale = min(width / image.width, height / image.height)
    size = (max(1, round(scale * image.width)), max(1, round(scale * image.height)))
    return image.resize(size, Image.Resampling.LANCZOS)


def _webp(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "WEBP", quality=80, method=4)
    return file.getvalue()
