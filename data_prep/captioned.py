"""What sources of captioned photographs share: gathering captions and checking them.

Not for: any one dataset's files (coco_captions.py, flickr8k.py).
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cml.data.prepared import DatasetInfo
from cml.data.prepared_writer import Item
from cml.data_prep.shrink import Shrink
from cml.errors import DataError
from cml.storage.safe_paths import file_inside


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


def items_of(photos: Iterable[tuple[Photo, str]], shrink: Shrink) -> list[Item | DataError]:
    """The items of photographs and their roles, a bad one as its error."""
    items: list[Item | DataError] = []
    for photo, role in photos:
        try:
            items.append(photo.item(role, shrink))
        except DataError as error:
            items.append(error)
    return items


def caption_info(
    name: str, split: str, left_out: Mapping[str, int], made_with: Mapping[str, Any], *, source: str, licence: str
) -> DatasetInfo:
    """What dataset.json says of captioned photographs."""
    return DatasetInfo(
        name=name,
        task="caption",
        label_column="captions",
        label_unit="captions",
        frame="",
        source=source,
        licence=licence,
        details={"split": split, "left_out": dict(left_out)},
        made_with=made_with,
    )
