"""Mapillary Street-level Sequences: photographs of streets in 30 cities, with the camera's position and heading."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.row_files import Row

_HELD = ("cph", "sf")  # the published validation cities, Copenhagen and San Francisco


_PARTS = {"query": "query", "database": "gallery"}


@dataclass(frozen=True)
class Msls(ListedSource):
    """Mapillary Street-level Sequences: street photographs with position and heading, compared by overlap of view.

    Command: cml prepare msls --source MSLS --out DIR

    Input: the unpacked folder (mapillary.com/dataset/places) with train_val/CITY/query and train_val/CITY/database,
    each with raw.csv (columns key, lat, lon, ca, pano) and images/KEY.jpg. Panoramas are left out.

    Split: as published. Copenhagen and San Francisco test, their queries are searched in their databases; all
    photographs of the other cities train.

    Licence: CC BY-NC-SA 4.0, as Mapillary grants it for research.
    """

    cities: tuple[str, ...] = ()
    """Folder names of the cities to use; by default all."""

    published = "Mapillary Street-level Sequences, Warburg and others, CVPR 2020"
    licence = "CC BY-NC-SA 4.0"
    label_unit = "degrees"
    columns = ("key", "lat", "lon", "ca", "pano")
    numbers = (("lat", -90, 90), ("lon", -180, 180), ("ca", -360, 360))
    frame = "latitude, longitude, heading clockwise from north"
    details: ClassVar[Mapping[str, Any]] = {"label_distance": "place"}

    def _files(self) -> tuple[list[Path], Path]:
        root = self.source / "train_val"
        names = self.cities or sorted(path.name for path in root.glob("*") if path.is_dir())
        lists = [root / city / part / "raw.csv" for city in names for part in _PARTS]
        return lists or [root / "CITY/query/raw.csv"], root

    def _line(self, path: Path, where: str, row: Row) -> Listed:
        city, part = path.parts[-3:-1]
        is_panorama = row["pano"].strip().lower() == "true"
        role = "" if is_panorama else _PARTS[part] if city in _HELD else "train"
        return super()._line(path, where, {**row, "path": f"{city}/{part}/images/{row['key']}.jpg", "role": role})

    def _role(self, row: Row, where: str) -> str:
        role: str = row["role"]
        return role
