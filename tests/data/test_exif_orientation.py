"""The EXIF orientation of photographs: 1 to 8 turn a picture, anything else leaves it as it is."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from cml.data.bands import read_orientation
from cml.data.images import native_size
from cml.data.masks import MaskFault, check_size
from cml.data.open_image import read_upright

ORIENTATION = 0x0112


def photo(path: Path, orientation: int | str) -> Path:
    """Write a photograph of 60 x 40 pixels whose tag holds a SHORT, as the standard asks, or a text."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    kind, value = (2, orientation.encode()) if isinstance(orientation, str) else (3, struct.pack("<H", orientation))
    count = len(value) + 1 if kind == 2 else 1
    entry = struct.pack("<HHI4s", ORIENTATION, kind, count, value)
    exif = b"Exif\0\0" + struct.pack("<2sHIH", b"II", 42, 8, 1) + entry + bytes(4)
    Image.fromarray(pixels).save(path, exif=exif, quality=95)
    return path


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_eight_orientations_turn_the_picture(tmp_path: Path, orientation: int) -> None:
    path = photo(tmp_path / "a.jpg", orientation)
    with Image.open(path) as image:
        wanted = np.asarray(ImageOps.exif_transpose(image))
        assert read_orientation(image) == orientation
    assert native_size(path) == wanted.shape[:2]
    np.testing.assert_array_equal(np.asarray(read_upright(path)), wanted)


@pytest.mark.parametrize("orientation", [0, 9, 255, 65535, "6"])
def test_anything_else_is_upright(tmp_path: Path, orientation: int | str) -> None:
    path = photo(tmp_path / "a.jpg", orientation)
    with Image.open(path) as image:
        assert read_orientation(image) == 1
    assert native_size(path) == (40, 60)
    assert np.asarray(read_upright(path)).shape[:2] == (40, 60)


def test_a_mask_that_was_not_turned_with_its_image_is_told_so(tmp_path: Path) -> None:
    turned = photo(tmp_path / "a.jpg", 6)
    with pytest.raises(MaskFault, match="turned upright by its EXIF orientation; turn the mask likewise"):
        check_size((40, 60), turned)
    check_size((60, 40), turned)
