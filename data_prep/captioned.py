"""What sources of captioned photographs share: gathering captions, checking them, and shrinking photographs once.

Not for: any one dataset's files (coco_captions.py, flickr8k.py).
"""

from __future__ import annotations

import functools
import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from cml.data.image_files import Picture
from cml.data.images import Size, native_size, read_image
from cml.data.inside import file_inside
from cml.data.prepared_writer import Item
from cml.errors import DataError, UserError


@dataclass
class Photo:
    """A photograph that captions are being gathered for.

    Attributes:
        item_id: Id of the item.
        file: The photograph.
        where: Where it is listed, for error messages.
        captions: Its captions so far.
        fault: The first thing found wrong with it, or "".
    """

    item_id: str
    file: Path
    where: str
    captions: list[str] = field(default_factory=list)
    fault: str = ""

    def say(self, caption: object, where: str) -> None:
        """Add a caption, or note why it cannot be one."""
        if not isinstance(caption, str) or not caption.strip():
            self.fault = self.fault or f"{where}: the caption should be a text, but is {reprlib.repr(caption)}."
        else:
            self.captions.append(" ".join(caption.split()))  # some end in line breaks

    def item(self, role: str, shrink: Shrink) -> Item:
        """The item to write.

        Raises:
            DataError: the photograph has no caption, a bad one, or no file.
        """
        if self.fault:
            raise DataError(self.fault)
        if not self.captions:
            raise DataError(f"{self.where}: has no caption; every image needs one at least.")
        file = file_inside(self.file.parent, self.file.name, self.where)
        return Item(self.item_id, role, shrink.picture(file), self.captions, where=self.where)


@dataclass(frozen=True)
class Shrink:
    """How photographs are shrunk; they are never enlarged, and a file that is small enough is kept as it is.

    Attributes:
        short_side: Pixels of the shorter side; None keeps every file.
        long_side: Most pixels of the longer side.
    """

    short_side: int | None
    long_side: int

    def __post_init__(self) -> None:
        if self.short_side is not None and not 16 <= self.short_side <= self.long_side:
            raise UserError(
                "The short_side should be at least 16 pixels and the long_side no less than it. "
                f"Got {self.short_side} and {self.long_side} instead."
            )

    def picture(self, path: Path) -> Picture:
        """The photograph as it shall be stored, made when its turn comes."""
        return path if self.short_side is None else functools.partial(self._shrunk, path)

    def size(self, native: Size) -> Size:
        """The stored (height, width) of a photograph of ``native`` (height, width)."""
        short, long = min(native), max(native)
        scale = 1.0 if self.short_side is None else min(1.0, self.short_side / short, self.long_side / long)
        return max(1, round(native[0] * scale)), max(1, round(native[1] * scale))

    def _shrunk(self, path: Path) -> Image.Image | bytes:
        native = native_size(path)
        size = self.size(native)
        return path.read_bytes() if size == native else Image.fromarray(read_image(path, size))


def items_of(photos: Iterable[tuple[Photo, str]], shrink: Shrink) -> list[Item | DataError]:
    """The items of photographs and their roles, a bad one as its error."""
    items: list[Item | DataError] = []
    for photo, role in photos:
        try:
            items.append(photo.item(role, shrink))
        except DataError as error:
            items.append(error)
    return items
