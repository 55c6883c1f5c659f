"""The items of pose datasets: square crops of people with their joints."""

import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, InfoTexts
from cml.data_prep.person_crop import Box, Float64, crop_file, into_crop
from cml.errors import DataError


def person_item(item_id: str, role: str, photo: Path, joints: Float64, box: Box, size: int, where: str) -> Item:
    """The crop of a person of a photograph with its joints, which are in pixels of the photograph."""
    picture, label = functools.partial(crop_file, photo, box, size), into_crop(joints, box, size).round(2)
    extra = {"crop": [round(value, 2) for value in box]}
    return Item(item_id, role, picture, label, extra=extra, where=where)


def pose_content(
    made: Sequence[Item | str | DataError], joints: Sequence[str], size: int, texts: InfoTexts | None = None
) -> Content:
    """People in crops of ``size`` pixels; a text in place of an item is why somebody is left out, to be counted."""
    left_out = Counter(one for one in made if isinstance(one, str))
    details = {"joints": list(joints), "image_size": [size, size], "left_out": dict(left_out)}
    return Content([one for one in made if not isinstance(one, str)], details, texts or {})
