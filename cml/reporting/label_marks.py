"""Labels of angles, rotations, places and boxes drawn on a new picture: a dial, three axes, a dot on a map, frames."""

import math
from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

from cml.errors import UserError
from cml.reporting.drawing import LEFT, REGIONS, Canvas
from cml.reporting.visible_text import visible_text

_SHADE = "#000000a8"
_LINE = "#ffffff90"
_AXES = (("x", "#d55e00"), ("y", "#009e73"), ("z", "#56b4e9"))  # Okabe and Ito


def draw_dial(image: Image.Image, turn: float) -> Image.Image:
    """Draw an arrow on a dial in the lower right corner, at whole turns clockwise from above: 0.25 is to the right."""
    if not math.isfinite(turn):
        raise UserError(f"A dial needs a finite turn. Got {turn} instead.")
    canvas = Canvas(image)
    radius = 0.15 * canvas.side * canvas.zoom
    x, y = canvas.width - 1.2 * radius, canvas.height - 1.2 * radius
    canvas.draw.circle((x, y), radius, fill=_SHADE)
    canvas.draw.line((x, y - radius, x, y - 0.8 * radius), fill=_LINE, width=max(1, round(0.06 * radius)))
    _arrow(canvas.draw, (x, y), turn, 0.85 * radius)
    return canvas.merge_layers()


def draw_axes(image: Image.Image, rotation: ArrayLike) -> Image.Image:
    """Draw the axes of an object from the picture's middle, by its ``rotation`` (3, 3) to right, down and away."""
    matrix = np.asarray(rotation, np.float64)
    if matrix.shape != (3, 3):
        raise UserError(f"A rotation must be (3, 3). Got the shape {matrix.shape} instead.")
    canvas = Canvas(image)
    draw, zoom = canvas.draw, canvas.zoom
    middle, length = np.array([canvas.width, canvas.height]) / 2, 0.36 * min(canvas.width, canvas.height)
    width = max(1.6, canvas.side / 64) * zoom
    font = ImageFont.load_default(5 * width)
    for axis in np.argsort(-matrix[2]).tolist():
        (name, color), way = _AXES[axis], matrix[:2, axis]
        end = middle + length * way
        for extra, shade in ((2 * zoom, "#000000b0"), (0, color)):
            draw.line([tuple(middle), tuple(end)], fill=shade, width=round(width + extra))
            draw.circle(tuple(end), 0.9 * width + extra / 2, fill=shade)
        spot = end + 3.2 * width * way / max(float(np.hypot(*way)), 0.3)
        draw.text(tuple(spot), name, fill=color, font=font, anchor="mm", stroke_width=zoom, stroke_fill="#000000")
    return canvas.merge_layers()


def draw_place(
    image: Image.Image,
    latitude: float,  # degrees, -90..90
    longitude: float,  # degrees
    heading: float | None = None,  # direction of an arrow in degrees clockwise from north; None draws no arrow
) -> Image.Image:
    """Draw a place as a dot on a small map with a graticule of 30 degrees."""
    if not (-90 <= latitude <= 90 and math.isfinite(longitude) and math.isfinite(heading or 0)):
        raise UserError(f"A place needs -90 <= latitude <= 90 and finite numbers. Got {latitude}, {longitude}.")
    canvas = Canvas(image)
    draw, zoom = canvas.draw, canvas.zoom
    degree = 0.45 * min(canvas.side, 2 * min(canvas.picture.size)) * zoom / 360
    right, low = canvas.width - 4 * degree, canvas.height - 4 * degree
    left, top = right - 360 * degree, low - 180 * degree
    draw.rectangle((left, top, right, low), fill=_SHADE)
    for line in range(0, 361, 30):
        at = line * degree
        draw.line((left + at, top, left + at, low), fill=_LINE, width=round((1.5 if line == 180 else 0.6) * zoom))
        if line <= 180:
            draw.line((left, top + at, right, top + at), fill=_LINE, width=round((1.5 if line == 90 else 0.6) * zoom))
    spot = left + ((longitude + 180) % 360) * degree, top + (90 - latitude) * degree
    radius = 12 * degree
    if heading is not None:
        _arrow(draw, spot, heading / 360, 3.5 * radius)
    draw.circle(spot, radius, fill=LEFT, outline="#000000", width=zoom)
    return canvas.merge_layers()


def draw_boxes(image: Image.Image, boxes: Sequence[tuple[str, float, float, float, float]]) -> Image.Image:
    """Draw boxes (class, x0, y0, x1, y1), in shares of width and height, as named frames, one colour per class."""
    canvas = Canvas(image)
    draw, zoom = canvas.draw, canvas.zoom
    width = max(1.4, canvas.side / 96) * zoom
    font = ImageFont.load_default(max(11 * zoom, 4.5 * width))
    size = np.array([canvas.width, canvas.height] * 2)
    for name, *corners in boxes:
        x0, y0, x1, y1 = (np.clip(corners, -1, 2) * size).tolist()
        color = REGIONS[crc32(name.encode()) % len(REGIONS)]
        draw.rectangle((x0, y0, x1, y1), outline="#000000b0", width=round(width + 2 * zoom))
        draw.rectangle((x0 + zoom, y0 + zoom, x1 - zoom, y1 - zoom), outline=color, width=round(width))
        shown = visible_text(name, 24)
        spot = (x0 + 1.5 * width, y0 + 1.5 * width)
        draw.rectangle(draw.textbbox(spot, shown, font), fill="#000000b8")
        draw.text(spot, shown, fill="#ffffff", font=font)
    return canvas.merge_layers()


def _arrow(draw: ImageDraw.ImageDraw, start: tuple[float, float], turn: float, length: float) -> None:
    """An arrow of ``length`` from ``start``, with its head within."""
    way = np.array([math.sin(2 * math.pi * turn), -math.cos(2 * math.pi * turn)])
    across = np.array([-way[1], way[0]])
    end, base = start + length * way, start + 0.55 * length * way
    draw.line([start, tuple(base)], fill=LEFT, width=max(1, round(0.16 * length)))
    draw.polygon([tuple(end), tuple(base + 0.28 * length * across), tuple(base - 0.28 * length * across)], fill=LEFT)
