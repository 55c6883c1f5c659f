"""Marks drawn on pictures: skeletons, region borders, gauges, text; and sheets of many pictures.

Each function returns a new RGB image. A picture whose longer side is below ``least_side`` is enlarged first, so that
lines are thin on a small one.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageColor, ImageDraw, ImageFont

from cml.errors import UserError
from cml.reporting.visible_text import visible_text

LEAST_SIDE = 192  # pixels: a thumbnail of 96 on a display of two pixels a point
LEFT = "#ffb000"  # orange and blue differ under every common colour blindness
RIGHT = "#3da5ff"
MIDDLE = "#ffffff"
REGIONS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")  # Okabe and Ito
_OVERSAMPLING = 4  # lines are drawn this much larger, then shrunk: PIL draws without antialiasing
_LARGEST_LAYER = 4096  # pixels a side


def draw_skeleton(
    image: Image.Image,
    points: ArrayLike,
    limbs: Sequence[tuple[int, int]],
    *,
    left: Collection[int] = (),
    right: Collection[int] = (),
    left_color: str = LEFT,
    right_color: str = RIGHT,
    middle_color: str = MIDDLE,
    least_side: int = LEAST_SIDE,
) -> Image.Image:
    """Draw the visible joints and the limbs between them.

    Args:
        image: The picture.
        points: (J, 3): x and y in pixels of ``image``, and a number above 0 if the joint is visible. A joint that is
            not visible or not finite is not drawn, nor are its limbs.
        limbs: Pairs of joints, each drawn as a line.
        left: Joints of the person's left side. A limb with one of them has ``left_color``.
        right: The same for the right side.
        left_color: Any colour PIL knows.
        right_color: Any colour PIL knows.
        middle_color: For joints and limbs that are neither left nor right, or both.
        least_side: The longer side is enlarged to this many pixels if it is smaller.

    Raises:
        UserError: ``points`` is not (J, 3), or a limb names a joint that does not exist.
    """
    joints = np.asarray(points, np.float64)
    if joints.ndim != 2 or joints.shape[1] != 3:
        raise UserError(f"points must be (J, 3): x, y, visible. Got the shape {joints.shape} instead.")
    for limb in limbs:
        if not all(0 <= joint < len(joints) for joint in limb):
            raise UserError(f"The limb {tuple(limb)} names a joint outside 0..{len(joints) - 1}.")
    picture, scale = enlarged(image, least_side)
    layer, draw, zoom = layer_of(picture)
    side = max(picture.size)
    seen = np.isfinite(joints).all(axis=1) & (joints[:, 2] > 0)
    far = 4 * side / scale  # PIL overflows on points far outside
    spots = np.clip(np.nan_to_num(joints[:, :2]), -far, far) * scale * zoom
    width = max(1.6, side / 64) * zoom  # 3 pixels at 192, 1 where the page shows it at 64
    color_of = {-1: left_color, 0: middle_color, 1: right_color}
    marks = [
        (_side_of({a, b}, left, right), [tuple(spots[a]), tuple(spots[b])]) for a, b in limbs if seen[a] and seen[b]
    ]
    ends = [(_side_of({int(joint)}, left, right), tuple(spots[joint])) for joint in np.flatnonzero(seen)]
    # the dark rim goes below all lines, so that crossing limbs do not cut each other
    for extra, color in ((1.0 * zoom, "#000000b0"), (0.0, "")):
        for sign, line in marks:
            draw.line(line, fill=color or color_of[sign], width=round(width + 2 * extra))
        for sign, (x, y) in ends:
            radius = 0.85 * width + extra
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color or color_of[sign])
    return joined(picture, layer)


def draw_regions(
    image: Image.Image,
    mask: ArrayLike,
    *,
    colors: Mapping[int, str] | None = None,
    ignore: Collection[int] = (),
    tint: float = 0.25,
    least_side: int = LEAST_SIDE,
) -> Image.Image:
    """Tint the regions of a mask and draw the borders between them.

    Args:
        image: The picture.
        mask: (H, W) integer ids, resized to the picture's size by nearest neighbour.
        colors: Id to colour; other ids get a default colour.
        ignore: Ids that are not tinted.
        tint: Share of the colour, 0 to 1.
        least_side: The longer side is enlarged to this many pixels if it is smaller.

    Raises:
        UserError: ``mask`` is not two-dimensional or not of integers.
    """
    ids = np.asarray(mask)
    if ids.ndim != 2 or ids.dtype.kind not in "iub" or not ids.size:
        raise UserError(f"mask must be (H, W) integers. Got the shape {ids.shape} of {ids.dtype} instead.")
    picture, _ = enlarged(image, least_side)
    width, height = picture.size
    rows = np.arange(height) * ids.shape[0] // height
    columns = np.arange(width) * ids.shape[1] // width
    ids = ids[rows[:, None], columns]  # (height, width)
    pixels = np.asarray(picture, np.float32).copy()  # (height, width, 3)
    for region in np.unique(ids):
        if int(region) not in ignore:
            color = (colors or {}).get(int(region), REGIONS[int(region) % len(REGIONS)])
            inside = ids == region
            pixels[inside] += tint * (np.asarray(_rgb(color), np.float32) - pixels[inside])
    border = np.zeros(ids.shape, bool)
    border[:, 1:] |= ids[:, 1:] != ids[:, :-1]
    border[1:] |= ids[1:] != ids[:-1]
    line = _widened(border, max(1, round(max(picture.size) / 160)))
    rim = _widened(line, 1) & ~line
    pixels[rim] *= 0.45
    pixels[line] = 255
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def draw_gauge(
    image: Image.Image,
    value: float,
    low: float,
    high: float,
    *,
    text: str | None = None,
    color: str = LEFT,
    least_side: int = LEAST_SIDE,
) -> Image.Image:
    """Draw a number as a bar on a scale along the lower edge, with its text.

    The bar starts at 0 if the scale contains 0, else at ``low``. A value outside the scale fills it to its end.

    Args:
        image: The picture.
        value: The number.
        low: Left end of the scale.
        high: Right end.
        text: Written instead of the value.
        color: The bar's.
        least_side: The longer side is enlarged to this many pixels if it is smaller.

    Raises:
        UserError: ``value``, ``low`` or ``high`` is not finite, or ``low`` is not below ``high``.
    """
    if not (math.isfinite(value) and math.isfinite(high - low) and low < high):
        raise UserError(f"A gauge needs finite numbers with low < high. Got {value}, {low}, {high} instead.")
    signed = low < 0
    form = f"{'+' if signed else ''}.{_decimals(high - low)}f"
    shown = visible_text(text) if text is not None else format(value, form)
    picture, _ = enlarged(image, least_side)
    layer, draw, zoom = layer_of(picture)
    (width, height), strip, font = layer.size, *_strip(picture, layer, zoom)
    pad = 0.32 * strip
    draw.rectangle((0, height - strip, width, height), fill="#000000a8")
    widths = [
        draw.textlength(re.sub(r"\d", "0", word), font) for word in (shown, format(low, form), format(high, form))
    ]
    room = max(widths)  # the same for every value, so that the scales of two pictures can be compared
    draw.text((width - pad, height - strip / 2), shown, fill="#ffffff", font=font, anchor="rm")
    left, right = pad, width - 2 * pad - min(room, 0.6 * width)
    middle, thick = height - strip / 2, 0.14 * strip
    at = [
        left + (right - left) * (min(max(x, low), high) - low) / (high - low) for x in (0.0 if signed else low, value)
    ]
    draw.rectangle((left, middle - 0.4 * thick, right, middle + 0.4 * thick), fill="#ffffff70")
    draw.rectangle((min(at), middle - thick, max(at), middle + thick), fill=color)
    draw.rectangle(
        (at[0] - 0.5 * zoom, middle - 0.3 * strip, at[0] + 0.5 * zoom, middle + 0.3 * strip), fill="#ffffffc0"
    )
    knob = 0.24 * strip
    draw.ellipse((at[1] - knob, middle - knob, at[1] + knob, middle + knob), fill=color)
    return joined(picture, layer)


def draw_text(image: Image.Image, text: str, *, least_side: int = LEAST_SIDE) -> Image.Image:
    """Write one line of text on a dark badge in the lower left corner; a long text ends in an ellipsis."""
    picture, _ = enlarged(image, least_side)
    layer, draw, zoom = layer_of(picture)
    (width, height), strip, font = layer.size, *_strip(picture, layer, zoom)
    pad = 0.32 * strip
    shown = visible_text(text)
    if not shown:
        return picture
    while draw.textlength(shown, font) > width - 2 * pad and len(shown) > 1:
        shown = shown[:-2].rstrip() + "…"
    draw.rectangle((0, height - strip, 2 * pad + draw.textlength(shown, font), height), fill="#000000b8")
    draw.text((pad, height - strip / 2), shown, fill="#ffffff", font=font, anchor="lm")
    return joined(picture, layer)


def contact_sheet(
    images: Sequence[Image.Image], columns: int, *, gap: int = 4, background: str = "#ffffff"
) -> Image.Image:
    """Lay images out in rows; every cell has the size of the largest image, and smaller ones are centred.

    Raises:
        UserError: no images, or fewer than one column.
    """
    if not images or columns < 1:
        raise UserError(f"A contact sheet needs an image and a column. Got {len(images)} images, {columns} columns.")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    width, height = (max(image.size[axis] for image in images) for axis in (0, 1))
    sheet = Image.new("RGB", (columns * (width + gap) + gap, rows * (height + gap) + gap), background)
    for place, image in enumerate(images):
        x = gap + (place % columns) * (width + gap) + (width - image.width) // 2
        y = gap + (place // columns) * (height + gap) + (height - image.height) // 2
        sheet.paste(flat(image), (x, y))
    return sheet


def flat(image: Image.Image) -> Image.Image:
    """A new RGB copy, with transparent parts on white."""
    if image.has_transparency_data:
        solid = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", solid.size, "white"), solid).convert("RGB")
    if image.mode.startswith(("I", "F")):  # 16 and 32 bit: PIL would clip instead of scaling
        values = np.asarray(image, np.float64)
        low, span = values.min(), max(float(np.ptp(values)), 1e-12)
        return Image.fromarray(((values - low) * (255 / span)).astype(np.uint8)).convert("RGB")
    return image.convert("RGB") if image.mode != "RGB" else image.copy()


def enlarged(image: Image.Image, least_side: int) -> tuple[Image.Image, float]:
    """A copy whose longer side has at least ``least_side`` pixels, and its scale."""
    picture = flat(image)
    scale = least_side / max(picture.size)
    if scale <= 1:
        return picture, 1.0
    size = tuple(max(1, round(length * scale)) for length in picture.size)
    return picture.resize((size[0], size[1]), Image.Resampling.BICUBIC), scale


def layer_of(picture: Image.Image) -> tuple[Image.Image, ImageDraw.ImageDraw, int]:
    """An empty layer to draw on, larger than the picture, its drawing object and its scale."""
    zoom = max(1, min(_OVERSAMPLING, _LARGEST_LAYER // max(picture.size)))
    layer = Image.new("RGBA", (picture.width * zoom, picture.height * zoom), (0, 0, 0, 0))
    return layer, ImageDraw.Draw(layer), zoom


def joined(picture: Image.Image, layer: Image.Image) -> Image.Image:
    """The picture with the layer over it."""
    shrunk = layer.reduce(layer.width // picture.width)
    return Image.alpha_composite(picture.convert("RGBA"), shrunk).convert("RGB")


def _strip(
    picture: Image.Image, layer: Image.Image, zoom: int
) -> tuple[float, ImageFont.FreeTypeFont | ImageFont.ImageFont]:
    """Height of a strip for text at the lower edge of a layer, and its font."""
    height = min(layer.height, max(14.0, max(picture.size) * 0.105) * zoom)
    return height, ImageFont.load_default(0.72 * height)


def _side_of(joints: Collection[int], left: Collection[int], right: Collection[int]) -> int:
    """-1 for left, 1 for right, 0 for neither or both."""
    return int(any(joint in right for joint in joints)) - int(any(joint in left for joint in joints))


def _decimals(span: float) -> int:
    return min(6, max(0, 2 - math.floor(math.log10(span) + 0.5)))


def _rgb(color: str) -> tuple[int, ...]:
    return ImageColor.getrgb(color)[:3]


def _widened(line: NDArray[np.bool_], by: int) -> NDArray[Any]:
    wide = line.copy()
    for _ in range(by):
        grown = wide.copy()
        grown[1:] |= wide[:-1]
        grown[:-1] |= wide[1:]
        grown[:, 1:] |= wide[:, :-1]
        grown[:, :-1] |= wide[:, 1:]
        wide = grown
    return wide
