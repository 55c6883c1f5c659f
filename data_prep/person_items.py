"""The items of pose datasets: square crops of people with their joints."""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cml.array_types import Float64
from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, InfoTexts
from cml.data_prep.person_crop import Box, crop_file, into_crop
from cml.errors import DataError

CROP = "crop"  # column of the square that was cut out of the photograph


def person_item(
    item_id: str,
    role: str,
    photo: Path,
    joints: Float64,  # joints in pixels of the photograph: x, y, and 1 if visible, (J, 3)
    box: Box,
    size: int,  # side of the crop, in pixels
    where: str,
    bits: int | None = None,
) -> Item:
    """Make the item of one person of a photograph."""
    picture = functools.partial(crop_file, photo, box, size, bits)
    label = into_crop(joints, box, size).round(2)
    extra = {CROP: [round(value, 2) for value in box]}
    return Item(item_id, role, picture, label, extra=extra, where=where)


def pose_content(
    people: Sequence[Item | str | DataError],
    joints: Sequence[str],
    size: int,  # side of the crops, in pixels
    texts: InfoTexts | None = None,
) -> Content:
    """Make the content of a dataset of people."""
    left_out = Counter(person for person in people if isinstance(person, str))
    details = {"joints": list(joints), "image_size": [size, size], "left_out": dict(left_out)}
    return Content([person for person in people if not isinstance(person, str)], details, texts or {})
