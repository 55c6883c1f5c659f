"""A vector as a small picture: a curve over its numbers, for pages that show items."""

import numpy as np
from PIL import Image, ImageDraw

from cml.array_types import Float32

_LIMIT = 4.0  # standard deviations at the upper and lower edge
_CURVE, _ZERO, _PAPER = "#0072b2", "#c8c8c8", "white"


def draw_vector(
    # (F,) in standard deviations from the mean; those beyond 4 lie at the edge, missing ones (NaN) are gaps
    values: Float32,
    size: int,  # width and height of the picture in pixels
) -> Image.Image:
    """Draw standardised numbers as a curve, in the order of the vector, with a line at the mean."""
    image = Image.new("RGB", (size, size), _PAPER)
    pen = ImageDraw.Draw(image)
    middle, margin = size / 2, max(2.0, size / 32)
    pen.line([(0, middle), (size, middle)], fill=_ZERO)
    heights = middle - np.clip(values, -_LIMIT, _LIMIT) / _LIMIT * (middle - margin)
    places = np.linspace(margin, size - margin, len(values)) if len(values) > 1 else np.array([middle])
    points = np.stack([places, heights], axis=1)
    width = max(1, size // 64)
    gaps = np.flatnonzero(np.isnan(heights))
    for part in np.split(points, gaps):
        shown = [tuple(point) for point in part[~np.isnan(part[:, 1])].tolist()]
        if len(shown) > 1:
            pen.line(shown, fill=_CURVE, width=width, joint="curve")
        elif shown:
            x, y = shown[0]
            pen.ellipse([x - width, y - width, x + width, y + width], fill=_CURVE)
    return image
