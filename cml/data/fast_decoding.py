"""Fast decoding of images: JPEGs at a fraction of their size where that is enough, and torch's resizing.

Where the wanted size is at most a half, a quarter or an eighth of a JPEG's own, libjpeg computes only as many pixels.
What is left is resized by torch, whose compiled loop rounds weights more coarsely than Pillow's: by itself that changes
single levels. Pixels differ from the exact ones by one or two of 256 levels on average, so that features and embeddings
differ slightly too. The exact decoding is the default everywhere.
"""

import numpy as np
from PIL import ImageFile

from cml.array_types import UInt8
from cml.data.bands import swaps_sides, upright_rgb

_SCALED = ("JPEG", "MPO")


def read_fast(
    image: ImageFile.ImageFile,  # an opened file, not decoded yet
    size: tuple[int, int],  # (height, width) in pixels to resize to
) -> UInt8:  # the pixels, (H, W, 3)
    """Decode an image file to RGB, upright, at about the given size, and resize it."""
    if image.format in _SCALED:
        height, width = reversed(size) if swaps_sides(image) else size
        image.draft(None, (width, height))  # at the smallest scale of 1, 1/2, 1/4, 1/8 that is not below the size
    return resize_fast(np.array(upright_rgb(image)), size)


def resize_fast(
    pixels: UInt8,  # (h, w, 3), writable
    size: tuple[int, int],  # (height, width) in pixels
) -> UInt8:  # (H, W, 3)
    """Resize an image by torch: bilinear with antialiasing, the aspect not kept."""
    if pixels.shape[:2] == size:
        return pixels
    import torch
    from torch.nn.functional import interpolate

    planes = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    resized: UInt8 = interpolate(planes, size=size, mode="bilinear", antialias=True)[0].permute(1, 2, 0).numpy()
    return resized
