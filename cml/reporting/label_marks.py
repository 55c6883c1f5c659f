"""Labels of angles, rotations, places and boxes drawn on pictures: a dial, three axes, a dot on a map, frames.

Each function returns a new image.
"""

import math
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from cml.errors import UserError
from cml.reporting.drawing import LEAST_SIDE, LEFT, REGIONS, enlarged, joined, layer_of
from cml.reporting.visible_text import visible_text

_SHADE = "#000000a8"
_LINE = "#ffffff90"
_AXES = (("x", "#d55e00"), ("y", "#009e73"), ("z", "#56b4e9"))  # Okabe and Ito


def draw_dial(image: Image.Image, turn: float, *, least_side: int = LEAST_SIDE) -> Image.Image:
    """Draw an arrow on a dial in the lower right corner.

    Args:
        image: The picture.
        turn: Where it points, in whole turns clockwise from above: 0.25 is to the right.
        least_side: The longer side is enlarged to this many pixels if it is smaller.

    Raises:
        UserError: ``turn`` is not finite.
    """
    if not math.isfinite(turn):
        raise UserError(f"A dial needs a finite turn. Got {turn} instead.")
    picture, _ = enlarged(image, least_side)
    layer, draw, zoom = layer_of(picture)
    radius = 0.15 * max(picture.size) * zoom
    x, y = layer.width - 1.2 * radius, layer.height - 1.2 * radius
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=_SHADE)
    draw.line((x, y - radius, x, y - 0.8 * radius), fill=_LINE, width=max(1, round(0.06 * radius)))
    _arrow(draw, (x, y), turn, 0.85 * radius)
    return joined(picture, layer)


def draw_axes(image: Image.Image, rotation: ArrayLike, *, least_side: int = LEAST_SIDE) -> Image.Image:
    """Draw the axes x, y and z of a turned object from the picture's middle, the nearest last.

    Args:
        image: The picture.
        rotation: (3, 3) from the object to the camera, whose x is to the right, y down and z away from it.
        least_side: The longer side is enlarged to this many pixels if it is smaller.

    Raises:
        UserError: ``rotation`` is not (3, 3).
    """
    matrix = np.asarray(rotation, np.float64)
    if matrix.shape != (3, 3):
        raise UserError(f"A rotation must be (3, 3). Got the shape {matrix.shape} instead.")
    picture, _ = enlarged(image, least_side)
    layer, draw, zoom = layer_of(picture)
    x, y, length = layer.width / 2, layer.height / 2, 0.36 * min(layer.size)
    width = max(1.6, max(picture.size) / 64) * zoom
    font = ImageFont.load_default(5 * width)
    for axis in np.argsort(-matrix[2]).tolist():
        name, color = _AXES[axis]
        end = (x + length * matrix[0, axis], y + length * matrix[1, axis])
        for extra, shade in ((2 * zoom, "#000000b0"), (0, color)):
            draw.line([(x, y), end], fill=shade, width=round(width + extra))
            radius = 0.9 * width + extra / 2
            draw.ellipse((end[0] - radius, end[1] - radius, end[0] + radius, end[1] + radius), fill=shade)
        way = np.array([matrix[0, axis], matrix[1, axis]])
        spot = np.array(end) + 3.2 * width * way / max(float(np.hypot(*way)), 0.3)
        draw.text(tuple(spot), name, fill=color, font=font, anchor="mm", stroke_width=zoom, stroke_fill="#000000")
    return joined(picture, layer)


def draw_place(
    image: Image.Image, latitude: float, longitude: float, heading: float | None = None, *, least_side: int = LEAST_SIDE
) -> Image.Image:
    """Draw a place as a dot on a small map of the globe in the lower right corner: a graticule of 30 degrees, no coast.

    Args:
        image: The picture.
        latitude: In degrees, -90..90.
        longitude: In degrees; 180 and -180 are one.
        heading: Of the camera, in degrees clockwise from north: an arrow from the dot.
        least_side: The longer side is enlarged to this many pixels if it is smaller.

    Raises:
        UserError: a number is not finite, or the latitude is out of its range.
    """
    if not (-90 <= latitude <= 90 and math.isfinite(longitude) and math.isfinite(heading or 0)):
        raise UserError(f"A place needs -90 <= latitude <= 90 and finite numbers. Got {latitude}, {longitude}.")
    picture, _ = enlarged(image, least_side)
    layer, draw, zoom = layer_of(picture)
    degree = 0.45 * min(max(picture.size), 2 * min(picture.size)) * zoom / 360
    right, low = layer.width - 4 * degree, layer.height - 4 * degree
    left, top = right - 360 * degree, low - 180 * degree
    draw.rectangle((left, top, right, low), fill=_SHADE)
    for line in range(0, 361, 30):
        thick = round((1.5 if line == 180 else 0.6) * zoom)
        draw.line((left + line * degree, top, left + line * degree, low), fill=_LINE, width=thick)
        if line <= 180:
            thick = round((1.5 if line == 90 else 0.6) * zoom)
            draw.line((left, top + line * degree, right, top + line * degree), fill=_LINE, width=thick)
    x = left + ((longitude + 180) % 360) * degree
    y = top + (90 - latitude) * degree
    radius = 12 * degree
    if heading is not None:
        _arrow(draw, (x, y), heading / 360, 3.5 * radius)
    draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=LEFT, outline="#000000", width=zoom)
    return joined(picture, layer)


def draw_boxes(
    image: Image.Image, boxes: Sequence[tuple[str, float, float, float, float]], *, least_side: int = LEAST_SIDE
) -> Image.Image:
    """Draw boxes as frames with the names of their classes, one colour per class.

    Args:
        image: The picture.
        boxes: (class, x0, y0, x1, y1), in shares of the picture's width and height.
        least_side: The longer side is enlarged to this many pixels if it is smaller.
    """
    picture, _ = enlarged(image, least_side)
    layer, draw, zoom = layer_of(picture)
    width = max(1.4, max(picture.size) / 96) * zoom
    font = ImageFont.load_default(max(11 * zoom, 4.5 * width))
    size = np.array([layer.width, layer.height] * 2)
    for name, *corners in boxes:
        x0, y0, x1, y1 = (np.clip(corners, -1, 2) * size).tolist()
        color = REGIONS[crc32(name.encode()) % len(REGIONS)]
        draw.rectangle((x0, y0, x1, y1), outline="#000000b0", width=round(width + 2 * zoom))
        draw.rectangle((x0 + zoom, y0 + zoom, x1 - zoom, y1 - zoom), outline=color, width=round(width))
        shown = visible_text(name, 24)
        spot = (x0 + 1.5 * width, y0 + 1.5 * width)
        draw.rectangle(draw.textbbox(spot, shown, font), fill="#000000b8")
        draw.text(spot, shown, fill="#ffffff", font=font)
    return joined(picture, layer)


def _arrow(draw: ImageDraw.ImageDraw, start: tuple[float, float], turn: float, length: float) -> None:
    """An arrow of ``length`` from ``start``, with its head within."""
    way = np.array([math.sin(2 * math.pi * turn), -math.cos(2 * math.pi * turn)])
    across = np.array([-way[1], way[0]])
    end, base = start + length * way, start + 0.55 * length * way
    draw.line([start, tuple(base)], fill=LEFT, width=max(1, round(0.16 * length)))
    draw.polygon([tuple(end), tuple(base + 0.28 * length * across), tuple(base - 0.28 * length * across)], fill=LEFT)
