"""Mapillary Street-level Sequences: photographs of streets in 30 cities, with the camera's position and heading."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.published_table import read_published_rows, read_within
from cml.data_prep.row_errors import read_each
from cml.data_prep.row_files import Row
from cml.errors import DataError

_HELD = ("cph", "sf")  # the published validation cities, Copenhagen and San Francisco


_PARTS = {"query": "query", "database": "gallery"}


_BOUNDS = {"lat": (-90, 90), "lon": (-180, 180), "ca": (-360, 360)}  # degrees


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
    frame = "latitude, longitude, heading clockwise from north"
    details: ClassVar[Mapping[str, Any]] = {"label_distance": "place"}

    def _files(self) -> tuple[list[Path], Path]:
        root = self.source / "train_val"
        names = self.cities or sorted(path.name for path in root.glob("*") if path.is_dir())
        lists = [root / city / part / "raw.csv" for city in names for part in _PARTS]
        return lists or [root / "CITY/query/raw.csv"], root

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        for path in lists:
            read = partial(self._line, path.parts[-3], path.parts[-2])
            yield from read_each(read_published_rows(path, ("key", *_BOUNDS, "pano")), read)

    def _line(self, city: str, part: str, where: str, row: Row) -> Listed:
        view = [read_within(row[column], column, where, *bounds) for column, bounds in _BOUNDS.items()]
        role = _PARTS[part] if city in _HELD else "train"
        pano = row["pano"].strip().lower() == "true"
        return Listed(where, f"{city}/{part}/images/{row['key']}.jpg", view, "" if pano else role)
