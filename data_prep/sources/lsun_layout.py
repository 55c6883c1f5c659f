"""LSUN room layouts: photographs of rooms with masks of front, left and right wall, floor and ceiling."""

import functools
import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.array_types import UInt8
from cml.console.messages import say_warning
from cml.data.images import native_size
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.layout_masks import DETAILS, IDS, MASK_FRAME, check_mask, shrink_mask
from cml.data_prep.layout_types import LAYOUT_TYPES
from cml.data_prep.mat_file import read_variable
from cml.data_prep.provenance import record_provenance
from cml.data_prep.row_errors import read_each
from cml.data_prep.shrink import Shrink
from cml.errors import DataError
from cml.storage.safe_paths import file_inside

_INDEX_BYTES = 64 << 20  # the real training.mat has under 1 MB


_MASK_BYTES = 16 << 20  # the real masks have under 100 KB


_SUSPICIOUS = 0.1  # share of masks whose surfaces lie the wrong way round: corrected labels have none


class Room(NamedTuple):
    """One line of training.mat or validation.mat."""

    name: str
    scene: str
    layout_type: int


@dataclass(frozen=True)
class LsunLayout(DatasetSource):
    """LSUN layout challenge 2015/2016: rooms with masks (4,000 for training, 394 for queries and gallery).

    Command: cml prepare lsun_layout --source DIR --out DIR

    Input: a folder with training.mat and validation.mat (struct arrays: image name, scene type, layout type, corner
    points, resolution), images/NAME.jpg and layout_seg/NAME.mat (variable layout: 1 front wall, 2 left wall, 3 right
    wall, 4 floor, 5 ceiling, 0 ignored). Training rooms train; since the labels of the test rooms were never published,
    the validation rooms are queries and gallery, dealt by a hash of their names. Images are shrunk once.

    Use the corrected labels (the "surface relabel" release). In the first release an id means one surface in one mask
    and another in the next: with ``--labels original`` masks are compared with matching=hungarian, by which ids are
    names only.

    Licence: none is stated; use it for research only.
    """

    source: Path
    """The folder with training.mat, validation.mat, images/ and layout_seg/."""
    labels: Literal["corrected", "original"] = "corrected"
    """Release of layout_seg: corrected (an id always means the same surface) or original (it does not)."""
    layouts: Path | None = None
    """The folder of the NAME.mat masks, if it is not layout_seg/ in the source."""
    image_size: int = 256
    """Shrink larger images and their masks so that the shorter side has this many pixels."""
    query_fraction: float = 0.35
    """Fraction of validation rooms that are queries; the others form the gallery."""

    name = "lsun_layout"
    task = "layout"
    frame = MASK_FRAME
    published = "LSUN room layout estimation challenge, Zhang, Yu, Song, Xu, Seff, Xiao, 2015"
    licence = "none stated; research use only"

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        files, folders = self._input()
        if missing := [path for path in (*files, *folders) if not path.exists()]:
            form = "the folder of the LSUN room layouts, with training.mat, validation.mat, images/ and layout_seg/"
            mend = "Give another --source or fetch the rest"
            raise DataError(f"{missing[0]} is missing: {self.source} should be {form}. {mend}.")
        return record_provenance(self, revision=1, files=files, images=folders, ignored=["layouts"])

    def _input(self) -> tuple[list[Path], tuple[Path, Path]]:
        """The two index files, and the folders of the images and the masks."""
        files = [self.source / f"{split}.mat" for split in ("training", "validation")]
        return files, (self.source / "images", self.layouts or self.source / "layout_seg")

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        files, folders = self._input()
        testing = self.source / "testing.mat"
        left_out = {"test rooms, which have no labels": len(_entries(testing)) if testing.exists() else 0}
        details = {**DETAILS, "labels": self.labels, "left_out": left_out}
        if self.labels == "original":
            say_warning(
                "LSUN's original labels do not name surfaces consistently. They are compared with "
                "layout(matching=hungarian); better fetch the corrected labels (the 'surface relabel' release)."
            )
            details |= {"ids": {number: f"surface {number}" for number in IDS}, "ids_differ": True}
        order: list[bool] = []  # of each mask, whether it lies as no room does
        items: list[Item | DataError] = []
        for path in files:
            rooms = ((f"{path}: room {place}", room) for place, room in enumerate(read_index(path), start=1))
            items += read_each(rooms, functools.partial(self._item, path.stem == "training", *folders, order))
        after = ExitStack()
        after.callback(self._check_order, order)
        return Content(items, details, cleanup=after)

    def _check_order(self, order: list[bool]) -> None:
        if self.labels == "corrected" and (share := sum(order) / max(1, len(order))) > _SUSPICIOUS:
            say_warning(
                f"in {share:.0%} of the masks the floor is above the ceiling or the left wall right "
                "of the right one. These look like LSUN's original labels: prepare them with --labels original."
            )

    def _item(self, training: bool, images: Path, layouts: Path, order: list[bool], where: str, room: Room) -> Item:
        image = file_inside(images, f"{room.name}.jpg", where)
        mask = file_inside(layouts, f"{room.name}.mat", where, "mask")
        native_size(image)  # can its header be read?
        role = "train" if training else split_by_hash(room.name, 1.0, self.query_fraction)
        picture = Shrink(self.image_size).picture(image)
        label = functools.partial(_mask, mask, image, self.image_size, order)
        extra = {"scene": room.scene, "layout_type": room.layout_type}
        return Item(room.name, role, picture, label, extra=extra, where=f"{where}, {room.name}")


def read_index(path: Path) -> list[Room | DataError]:
    """The rooms of training.mat or validation.mat in its order; a DataError stands for one that makes no sense."""
    rooms = _entries(path)
    if rooms.dtype.names is None or len(rooms.dtype.names) < 3 or rooms.ndim != 1:
        fields = "image name, scene type, layout type, corner points and resolution"
        got = f"{' x '.join(map(str, rooms.shape))} of {rooms.dtype}"
        raise DataError(f"{path}: {path.stem} should be a struct array with {fields}. Got {got} instead.")
    return [_room(entry, f"{path}: room {place}") for place, entry in enumerate(rooms, start=1)]


def _room(entry: Any, where: str) -> Room | DataError:  # noqa: ANN401 - a record of any fields
    name, scene, layout_type, *_ = entry
    if not isinstance(name, str) or name in ("", ".", "..") or set(name) & set('/\\\0"'):
        return DataError(f"{where}: its first field should be the image's name without extension. Got {name!r}.")
    number = np.asarray(layout_type)
    if number.size != 1 or number.dtype.kind not in "iuf" or float(number.reshape(())) not in range(len(LAYOUT_TYPES)):
        last = len(LAYOUT_TYPES) - 1
        return DataError(f"{where}, {name}: its layout type should be 0 to {last}. Got {layout_type!r}.")
    return Room(str(name), str(scene) if isinstance(scene, str) else "", int(number.reshape(())))


def read_layout(path: Path) -> UInt8:
    """Read a mask (H, W) of ids from layout_seg/NAME.mat."""
    mask = read_variable(path, "layout", most_bytes=_MASK_BYTES)
    if mask.ndim != 2 or mask.size == 0 or mask.dtype.kind not in "iuf":
        raise DataError(f"{path}: layout should be a mask of ids. Got an array of shape {mask.shape} instead.")
    if not ((mask >= 0) & (mask <= 255) & (mask == np.floor(mask))).all():
        raise DataError(f"{path}: layout holds {mask.min()} to {mask.max()}; ids should be whole numbers from 0 to 5.")
    return np.ascontiguousarray(mask, np.uint8)


def _mask(path: Path, image: Path, image_size: int, order: list[bool]) -> Image.Image:
    mask = read_layout(path)
    check_mask(mask, path, image)
    order.append(_out_of_order(mask))
    return shrink_mask(mask, image_size)


def _out_of_order(mask: UInt8) -> bool:
    """Whether surfaces lie as no room's can, which original labels passed off as corrected look like."""
    step = max(1, min(mask.shape) // 32)
    places = {number: np.nonzero(mask[::step, ::step] == number) for number in (2, 3, 4, 5)}
    rows, columns = ({number: at[axis].mean() for number, at in places.items() if len(at[0])} for axis in (0, 1))
    floor_above = rows.get(4, math.inf) < rows.get(5, -math.inf)
    return bool(floor_above or columns.get(2, -math.inf) > columns.get(3, math.inf))


def _entries(path: Path) -> NDArray[Any]:
    return np.atleast_1d(read_variable(path, path.stem, most_bytes=_INDEX_BYTES, squeeze_me=True))
