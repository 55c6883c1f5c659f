"""Depth: images of 16 bits per value that use so few of them that they come out nearly black."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from cml.data.deep_tiff import is_deep_tiff, read_deep_tiff
from cml.data.image_fault import ImageFault
from cml.data.open_image import open_image
from cml.data.white_value import WHITE, has_16_bits, loses_bits, read_white
from cml.errors import UserError
from cml.plausibility.finding import Finding

_DARK = 16  # levels of 255; 4095, white of 12 bits, becomes 16
_USUAL_BITS = (8, 10, 12)


def find_shallow_depth(
    brightest: Mapping[Path, int],  # the greatest level of each image, 0 to 255, by its path
) -> Iterator[Finding]:
    """Find whether all images of 16 bits hold at most the values of 12 bits."""
    dark = {path: value for path, level in brightest.items() if level <= _DARK and (value := find_greatest_value(path))}
    greatest = max(dark.values(), default=0)
    bits = next((bits for bits in _USUAL_BITS if greatest < 1 << bits), None)
    if not dark or bits is None or any(_is_deep(path) for path, level in brightest.items() if level > _DARK):
        return
    yield Finding(
        "depth",
        f"all {len(dark)} images of 16 bits hold values up to {greatest}, as {bits} bits do, and come out nearly black",
        f"Prepare them with --bits {bits}, or save them with the whole range of 16 bits.",
        len(dark),
        len(brightest),
        [path.name for path in list(dark)[:8]],
    )


def find_greatest_value(path: Path) -> int | None:
    """Find the greatest value in an image of 16 bits per value.

    Returns the greatest value of any band. Of some images Pillow reads the upper 8 bits alone: then the greatest one
    that the lower ones leave possible. None for an image of another depth, one whose file states the value of white, or
    one that cannot be read.
    """
    try:
        if is_deep_tiff(path):
            values = read_deep_tiff(path)
            return int(values.max(initial=0)) if values.dtype == np.uint16 else None
        with open_image(path) as image:
            if not has_16_bits(image) or read_white(image) != WHITE:
                return None
            is_cut = loses_bits(image)
            greatest = int(np.asarray(image).max(initial=0))
    except (ImageFault, UserError):  # a UserError without the package that reads deep TIFF files
        return None
    return greatest * 256 + 255 if is_cut and greatest else greatest


def _is_deep(path: Path) -> bool:
    """Whether an image has 16 bits per value, by its header."""
    try:
        with open_image(path) as image:
            return has_16_bits(image)
    except ImageFault:
        return is_deep_tiff(path)
