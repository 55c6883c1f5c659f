"""Masks of room layouts: the ids of the surfaces, checks, and shrinking a mask with its image."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cml.array_types import UInt8
from cml.data.masks import MaskFault, check_ids, check_size, read_mask
from cml.data_prep.shrink import Shrink
from cml.errors import DataError

MASK_FRAME = "a mask as large as its image"


FRONT, LEFT, RIGHT, FLOOR, CEILING = 1, 2, 3, 4, 5


SURFACES = {FRONT: "front", LEFT: "left", RIGHT: "right", FLOOR: "floor", CEILING: "ceiling"}
"""What an id of a mask means, as in the corrected labels of the LSUN challenge; 0 means: does not count."""


IDS = {str(number): name for number, name in SURFACES.items()}


DETAILS: dict[str, Any] = {"ids": IDS, "ignore_id": 0}  # for dataset.json


def check_mask(
    mask: UInt8,  # the ids, (H, W)
    path: Path,
    image: Path,
    ids: Mapping[str, str] = IDS,
    ignore_id: int | None = 0,  # the id that does not count, which is allowed too; None if there is none
) -> None:
    """Check a mask of a room layout."""
    try:
        check_size((mask.shape[0], mask.shape[1]), image)
        check_ids(mask, ids, ignore_id)
    except MaskFault as fault:
        raise DataError(f"The mask {path} {fault}.") from None


def prepare_mask(
    path: Path,
    image: Path,
    ids: Mapping[str, str] = IDS,
    ignore_id: int | None = 0,  # the id that does not count; None if there is none
    size: int | None = None,  # length of the image's shorter side after shrinking, in pixels; None if it is not shrunk
) -> Image.Image:
    """Read, check and shrink a mask."""
    try:
        mask = read_mask(path)
    except MaskFault as fault:
        raise DataError(f"The mask {path} {fault}.") from None
    check_mask(mask, path, image, ids, ignore_id)
    return shrink_mask(mask, size)


def shrink_mask(
    mask: UInt8,  # the ids, (H, W)
    length: int | None,  # length of the image's shorter side after shrinking, in pixels; None if it is not shrunk
) -> Image.Image:
    """Shrink a mask as ``Shrink`` shrinks its image. Each pixel takes the nearest id."""
    height, width = Shrink(length).size((mask.shape[0], mask.shape[1]))
    sides = zip((height, width), mask.shape, strict=True)
    rows, columns = ((2 * np.arange(new) + 1) * old // (2 * new) for new, old in sides)
    return Image.fromarray(mask[np.ix_(rows, columns)])
