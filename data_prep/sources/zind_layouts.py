"""Room layouts cut from panoramas of the Zillow Indoor Dataset, split by room."""

import functools
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cml.data.prepared import ROLES
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.layout_masks import DETAILS, MASK_FRAME, prepare_mask
from cml.data_prep.provenance import record_provenance
from cml.data_prep.row_errors import read_each
from cml.errors import DataError, UserError
from cml.storage.json_file import read_json
from cml.storage.safe_paths import file_inside


@dataclass(frozen=True)
class ZindLayouts(DatasetSource):
    """Zillow Indoor Dataset: views of rooms with masks of front, left and right wall, floor and ceiling.

    Command: cml prepare zind_layouts --source DIR --out DIR

    Input: a folder with images/, masks/ (1 front, 2 left, 3 right, 4 floor, 5 ceiling), labels.json (for each view its
    image, mask, room and panorama) and groups.json (the rooms, their panoramas, and which rooms are for testing).

    Split: by room, since views of one panorama overlap and panoramas of one room show the same things; no room and no
    panorama is on both sides, training and testing. Each view for testing is a query that is searched among all others
    of them. With gallery_rooms, queries and gallery are of different rooms too.

    Licence: ZInD Terms of Use, academic and non-commercial use only.
    """

    source: Path
    """The folder with labels.json, groups.json, images/ and masks/."""
    test_rooms: tuple[str, ...] = ()
    """Rooms held out for testing; by default those that groups.json suggests."""
    gallery_rooms: tuple[str, ...] = ()
    """Test rooms that form the gallery; the other test rooms are queries. By default, each test view is a query against
    all the others."""

    name = "zind_layouts"
    task = "layout"
    frame = MASK_FRAME
    published = "crops of panoramas of the Zillow Indoor Dataset, Cruz et al., CVPR 2021"
    licence = "ZInD Terms of Use: academic, non-commercial use only"

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        files = [self.source / "labels.json", self.source / "groups.json"]
        if missing := [path for path in files if not path.is_file()]:
            form = "a folder with labels.json, groups.json, images/ and masks/"
            mend = "Give another --source or fetch what is missing"
            raise DataError(f"{missing[0]} is missing: {self.source} should be {form}. {mend}.")
        return record_provenance(self, revision=1, files=files, images=(self.source / "images", self.source / "masks"))

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        path = self.source / "labels.json"
        views = read_json(path, "the views of the rooms")
        if not isinstance(views, list) or not views:
            raise DataError(f"{path} should be a list of views with image, mask, room and pano.")
        roles = self._roles(self.source / "groups.json")
        numbered = ((f"{path}: view {place}", view) for place, view in enumerate(views, start=1))
        items = list(read_each(numbered, functools.partial(self._item, roles)))
        rooms = {role: sorted(name for name in roles if roles[name] == role and name[:5] != "pano ") for role in ROLES}
        details = {**DETAILS, "rooms": rooms}
        return Content(items, details if self.gallery_rooms else {**details, "gallery": "queries"})

    def _roles(self, path: Path) -> dict[str, str]:
        """Role of each room and, under "pano NAME", of each panorama."""
        groups = read_json(path, "rooms, their panoramas and the split")
        try:
            rooms: Mapping[str, Any] = groups["rooms"]
            panos = {name: list(room["panos"]) for name, room in rooms.items()}
            testing = list(self.test_rooms or groups["suggested_split"]["test_rooms"])
            if not all(isinstance(name, str) for name in [*testing, *itertools.chain(*panos.values())]):
                raise TypeError
        except (KeyError, TypeError, AttributeError):
            form = "rooms, each with its panos and their views, and suggested_split with test_rooms"
            raise DataError(f"{path} should hold {form}.") from None
        if unknown := [name for name in testing if name not in rooms]:
            raise DataError(f"{path} has no room {unknown[0]!r}. There are: {', '.join(sorted(rooms))}.")
        gallery = self.gallery_rooms
        if strange := [name for name in gallery if name not in testing]:
            known = f"the rooms for testing, {', '.join(testing)}"
            raise UserError(f"gallery_rooms should be among {known}. Got {strange[0]!r} instead.")
        roles = {name: "gallery" if name in gallery else "query" if name in testing else "train" for name in rooms}
        for name, pano in ((name, pano) for name, listed in panos.items() for pano in listed):
            if (first := roles.setdefault(f"pano {pano}", roles[name])) != roles[name]:
                fault = f"is listed in rooms with the roles {first} and {roles[name]}; its views would be on both sides"
                raise DataError(f"{path}: the panorama {pano!r} {fault}. Give its rooms one role.")
        return roles

    def _item(self, roles: Mapping[str, str], where: str, view: Any) -> Item:  # noqa: ANN401 - from JSON
        names = ("image", "mask", "room", "pano")
        if not isinstance(view, dict) or not all(isinstance(view.get(name), str) and view[name] for name in names):
            raise DataError(f"{where} should have the texts {', '.join(names)}. Got {view!r:.80} instead.")
        image, mask = (file_inside(self.source, view[name], where, name) for name in ("image", "mask"))
        role = roles.get(view["room"])
        if role is None or roles.get(f"pano {view['pano']}") != role:
            raise DataError(f"{where}: groups.json does not list its panorama {view['pano']!r} in {view['room']!r}.")
        extra = {"room": view["room"], "pano": view["pano"]}
        return Item(image.stem, role, image, functools.partial(prepare_mask, mask, image), extra=extra, where=where)
