"""Room layouts cut from ZInD panoramas: photographs of rooms with masks, split by room.

Not for: ZInD as it is published (panoramas and floor plans); the folder read here holds crops with masks made from it.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from PIL import Image

from cml.data.masks import MaskFault, read_mask
from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.errors import DataError, UserError
from cml.files import read_json
from data_prep.layout_masks import DETAILS, check_mask
from data_prep.source import made_with


@dataclass(frozen=True)
class ZindLayouts:
    """Views of the rooms of a home with masks of front, left and right wall, floor and ceiling.

    Command: cml prepare zind_layouts --source DIR --out DIR

    Input: a folder with images/, masks/ (1 front, 2 left, 3 right, 4 floor, 5 ceiling), labels.json (for each view its
    image, mask, room and panorama) and groups.json (the rooms, their panoramas, and which rooms are for testing).

    Split: by room, since views of one panorama overlap and panoramas of one room show the same things. No room and no
    panorama has two roles: of the rooms for testing the one with the most views is the gallery, the others are queries.

    Licence: ZInD Terms of Use, academic and non-commercial use only.
    """

    source: Path
    """The folder with labels.json, groups.json, images/ and masks/."""
    query_rooms: tuple[str, ...] = ()
    """Rooms whose views are queries; as described above when none are given."""
    gallery_rooms: tuple[str, ...] = ()
    """Rooms whose views are the gallery; all further rooms are for training."""

    def __post_init__(self) -> None:
        if bool(self.query_rooms) != bool(self.gallery_rooms):
            raise UserError("Give query_rooms and gallery_rooms both, or neither.")
        if both := set(self.query_rooms) & set(self.gallery_rooms):
            raise UserError(f"The room {min(both)!r} cannot be among query_rooms and gallery_rooms both.")

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        files = [self.source / "labels.json", self.source / "groups.json"]
        for path in files:
            if not path.is_file():
                raise DataError(
                    f"{path} is missing: {self.source} should be a folder with labels.json, groups.json, images/ and "
                    "masks/. Give another --source or fetch what is missing."
                )
        origin = made_with(self, revision=1, files=files, images=(self.source / "images", self.source / "masks"))
        if (done := already_prepared(out, origin)) is not None:
            return done
        views = read_json(files[0], "the views of the rooms")
        if not isinstance(views, list) or not views:
            raise DataError(f"{files[0]} should be a list of views with image, mask, room and pano.")
        roles = self._roles(files[1])
        items = [self._item(view, roles, f"{files[0]}: view {place}") for place, view in enumerate(views, start=1)]
        info = DatasetInfo(
            name="zind_layouts",
            task="layout",
            label_column="layout_file_name",
            label_unit="id of a surface",
            frame="a mask as large as its image",
            source="crops of panoramas of the Zillow Indoor Dataset, Cruz et al., CVPR 2021",
            licence="ZInD Terms of Use: academic, non-commercial use only",
            details={**DETAILS, "rooms": {role: sorted(_of(roles, role)) for role in ("train", "query", "gallery")}},
            made_with=origin,
        )
        return write_dataset(out, info, items, skip_bad=skip_bad)

    def _roles(self, path: Path) -> dict[str, str]:
        """Role of each room and, under "pano NAME", of each panorama."""
        groups = read_json(path, "rooms, their panoramas and the split")
        try:
            rooms: Mapping[str, Any] = groups["rooms"]
            sizes = {name: sum(map(len, room["panos"].values())) for name, room in rooms.items()}
            testing = [*self.query_rooms, *self.gallery_rooms] or list(groups["suggested_split"]["test_rooms"])
        except (KeyError, TypeError, AttributeError):
            raise DataError(
                f"{path} should hold rooms, each with its panos and their views, and suggested_split with test_rooms."
            ) from None
        if unknown := [name for name in testing if name not in sizes]:
            raise DataError(f"{path} has no room {unknown[0]!r}. There are: {', '.join(sorted(sizes))}.")
        gallery = self.gallery_rooms or (max(testing, key=lambda name: sizes[name]),)
        roles = {name: "gallery" if name in gallery else "query" if name in testing else "train" for name in rooms}
        for name, room in rooms.items():
            for pano in room["panos"]:
                if roles.setdefault(f"pano {pano}", roles[name]) != roles[name]:
                    raise DataError(
                        f"{path}: the panorama {pano!r} is listed in rooms with the roles {roles[f'pano {pano}']} and "
                        f"{roles[name]}; its views would be on both sides. Give its rooms one role."
                    )
        return roles

    def _item(self, view: Any, roles: Mapping[str, str], where: str) -> Item | DataError:  # noqa: ANN401 - from JSON
        names = ("image", "mask", "room", "pano")
        if not isinstance(view, dict) or not all(isinstance(view.get(name), str) and view[name] for name in names):
            return DataError(f"{where} should have the texts {', '.join(names)}. Got {view!r:.80} instead.")
        image, mask = self.source / view["image"], self.source / view["mask"]
        for name, path in (("image", image), ("mask", mask)):
            parts = PurePosixPath(view[name]).parts
            if parts[0] == "/" or ".." in parts:
                return DataError(
                    f"{where}: its {name} should be a path within {self.source}. Got {view[name]!r} instead."
                )
            if not path.is_file():
                return DataError(f"{where}: its {name} {path} is missing. Fetch the dataset again.")
        role = roles.get(view["room"])
        if role is None or roles.get(f"pano {view['pano']}") != role:
            return DataError(f"{where}: groups.json does not list its panorama {view['pano']!r} in {view['room']!r}.")
        return Item(
            item_id=image.stem,
            role=role,
            image=image,
            label=functools.partial(_mask, mask, image),
            extra={"room": view["room"], "pano": view["pano"]},
            where=where,
        )


def _of(roles: Mapping[str, str], role: str) -> list[str]:
    return [name for name, one in roles.items() if one == role and not name.startswith("pano ")]


def _mask(path: Path, image: Path) -> Image.Image:
    try:
        mask = read_mask(path)
    except MaskFault as fault:
        raise DataError(f"The mask {path} {fault}.") from None
    check_mask(mask, path, image)
    return Image.fromarray(mask)
