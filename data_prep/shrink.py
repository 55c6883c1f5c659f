"""Shrinking photographs, and scaling their depth, once, when a dataset is prepared."""

import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from cml.data.encode_image import FilePicture, Picture
from cml.data.images import Size, native_size, read_image
from cml.data_prep.scale_depth import scale_depth
from cml.errors import UserError


@dataclass(frozen=True)
class Shrink:
    """How photographs are shrunk; they are never enlarged, and a file that is small enough is kept as it is."""

    short_side: int | None  # pixels of the shorter side; None keeps every file
    long_side: int = sys.maxsize  # most pixels of the longer side
    bits: int | None = None  # that images of 16 bits use; None if they use all

    def __post_init__(self) -> None:
        if self.short_side is not None and not 16 <= self.short_side <= self.long_side:
            rule = "The short_side should be at least 16 pixels and the long_side no less than it"
            raise UserError(f"{rule}. Got {self.short_side} and {self.long_side} instead.")

    def picture(self, path: Path) -> Picture:
        """The photograph as it shall be stored, made when its turn comes."""
        is_kept = self.short_side is None and self.bits is None
        return path if is_kept else FilePicture(path, self.shrink)

    def size(self, native: Size) -> Size:
        """The stored (height, width) of a photograph of ``native`` (height, width)."""
        short, long = min(native), max(native)
        scale = 1.0 if self.short_side is None else min(1.0, self.short_side / short, self.long_side / long)
        return max(1, round(native[0] * scale)), max(1, round(native[1] * scale))

    def shrink(self, photo: Path | bytes) -> Image.Image | bytes:
        """A photograph, or its file's content, as it shall be stored."""
        if self.bits is not None:
            photo = scale_depth(photo, self.bits)
        native = native_size(photo)
        if (size := self.size(native)) != native:
            return Image.fromarray(read_image(photo, size))
        return photo.read_bytes() if isinstance(photo, Path) else photo
