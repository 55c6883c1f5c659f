"""Masks: images whose pixel values are ids; ``details`` may list the known ones, ``ids``, and name an ``ignore_id``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import UInt8
from cml.data.bands import ImageFault, swaps_sides
from cml.data.images import Size, native_size
from cml.data.open_image import open_image, open_named_image
from cml.errors import DataError

_SCALED = {"L;2": 85, "L;4": 17}  # Pillow stretches grey of 2 and 4 bits to 0..255: divide to get the ids


class MaskFault(ImageFault):
    """What is wrong with a mask, to follow its name: "has the mode RGB, ...", without a full stop."""


def read_mask(
    path: Path,  # the file: an 8-bit grey or palette image without lossy compression
) -> UInt8:  # the ids, (H, W)
    """Read a mask file."""
    try:
        with open_image(path) as image:
            lossy = image.format in ("JPEG", "MPO")
            if image.mode not in ("L", "P") or lossy:
                form = "a JPEG" if lossy else f"of mode {image.mode}"
                raise MaskFault(f"is {form}; it should be an 8-bit grey or palette image, such as a PNG")
            stored = image.tile[0][3] if image.tile else None
            ids = np.asarray(image)
    except MaskFault:
        raise
    except ImageFault as fault:
        raise MaskFault(str(fault)) from None
    return ids // np.uint8(_SCALED.get(stored, 1)) if isinstance(stored, str) else ids


def check_ids(
    mask: UInt8,  # the ids, (H, W)
    ids: Mapping[str, Any] | None,  # the known ids as texts, as in JSON; None for any
    ignore: int | None,  # the id of ignored pixels
) -> None:
    """Check that a mask holds only known ids, and one other than that of ignored pixels."""
    present = np.flatnonzero(np.bincount(mask.reshape(-1), minlength=256)).tolist()
    known = None if ids is None else {*ids, str(ignore)}
    if known is not None and (strange := [mask_id for mask_id in present if str(mask_id) not in known]):
        listed = sorted(known - {"None"}, key=lambda text: (int(text) if text.isdecimal() else 256, text))
        raise MaskFault(f"holds the id {strange[0]}; known ids: {', '.join(listed)}")
    if present == [ignore]:
        raise MaskFault(f"has only ignored pixels (id {ignore})")


def check_size(size: Size, image: Path) -> None:
    """Check that a mask is as large as its image."""
    if size != (wanted := native_size(image)):
        turned = ""
        with open_named_image(image) as opened:
            is_turned = swaps_sides(opened)
        if size == wanted[::-1] and is_turned:
            turned = " once it is turned upright by its EXIF orientation; turn the mask likewise"
        raise MaskFault(f"is {size[1]}x{size[0]} pixels, but its image {image} is {wanted[1]}x{wanted[0]}{turned}")


def mask_problem(
    path: Path,
    image: Path,
    # the details of dataset.json, which may list the known ids and name the id of ignored pixels
    details: Mapping[str, Any],
) -> str | None:  # the fault in one sentence; None if there is none, or if the image cannot be read
    """Find what is wrong with a mask."""
    ids, ignore = details.get("ids"), details.get("ignore_id")
    try:
        mask = read_mask(path)
        check_ids(mask, ids if isinstance(ids, dict) else None, ignore if isinstance(ignore, int) else None)
        check_size((mask.shape[0], mask.shape[1]), image)
    except MaskFault as fault:
        return f"The mask {path} {fault}."
    except DataError:
        pass
    return None
