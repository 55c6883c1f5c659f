"""Skeletons, region borders, gauges and text drawn on a new picture, enlarged if it is small; sheets of pictures."""

import math
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageColor, ImageDraw, ImageFont

from cml.array_types import Float32
from cml.errors import UserError
from cml.reporting.visible_text import visible_text

Some = Collection[int]
LEAST_SIDE = 192  # pixels: a thumbnail of 96 on a display of two pixels a point
LEFT = "#ffb000"  # orange and blue differ under every common colour blindness
RIGHT = "#3da5ff"
MIDDLE = "#ffffff"
REGIONS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")  # Okabe and Ito
_OVERSAMPLING = 4  # lines are drawn this much larger, then shrunk: PIL draws without antialiasing
_LARGEST_LAYER = 4096  # pixels a side


class Canvas:
    """A picture, enlarged by ``scale``, and a layer over it, larger by ``zoom``, to draw on."""

    def __init__(self, image: Image.Image) -> None:
        self.picture, self.scale = enlarge_small(image)
        self.side = max(self.picture.size)
        self.zoom = max(1, min(_OVERSAMPLING, _LARGEST_LAYER // self.side))
        self.width, self.height = self.picture.width * self.zoom, self.picture.height * self.zoom
        self._layer = Image.new("RGBA", (self.width, self.height), (0, 0, 0, 0))
        self.draw = ImageDraw.Draw(self._layer)

    def strip(self) -> tuple[float, ImageFont.FreeTypeFont | ImageFont.ImageFont]:
        """Height of a strip for text at the lower edge, and its font."""
        height = min(self.height, max(14.0, self.side * 0.105) * self.zoom)
        return height, ImageFont.load_default(0.72 * height)

    def merge_layers(self) -> Image.Image:
        """The picture with the layer over it."""
        return Image.alpha_composite(self.picture.convert("RGBA"), self._layer.reduce(self.zoom)).convert("RGB")


def draw_skeleton(
    image: Image.Image,
    points: ArrayLike,  # (J, 3) x and y in pixels of ``image``, and a number above 0 if the joint is visible
    limbs: Sequence[tuple[int, int]],  # pairs of joints, as row numbers of ``points``
    *,
    left: Some = (),
    right: Some = (),
) -> Image.Image:
    """Draw the visible joints of a person and the limbs between them."""
    joints = np.asarray(points, np.float64)
    if joints.ndim != 2 or joints.shape[1] != 3:
        raise UserError(f"points must be (J, 3): x, y, visible. Got the shape {joints.shape} instead.")
    for limb in limbs:
        if not all(0 <= joint < len(joints) for joint in limb):
            raise UserError(f"The limb {tuple(limb)} names a joint outside 0..{len(joints) - 1}.")

    def color_of(*some: int) -> str:
        is_left, is_right = (any(joint in side for joint in some) for side in (left, right))
        return MIDDLE if is_left == is_right else LEFT if is_left else RIGHT

    canvas = Canvas(image)
    seen = np.isfinite(joints).all(axis=1) & (joints[:, 2] > 0)
    far = 4 * canvas.side / canvas.scale  # PIL overflows on points far outside
    spots = [tuple(at) for at in np.clip(np.nan_to_num(joints[:, :2]), -far, far) * canvas.scale * canvas.zoom]
    width = max(1.6, canvas.side / 64) * canvas.zoom  # 3 pixels at 192, 1 where the page shows it at 64
    lines = [(color_of(a, b), [spots[a], spots[b]]) for a, b in limbs if seen[a] and seen[b]]
    ends = [(color_of(joint), spots[joint]) for joint in np.flatnonzero(seen).tolist()]
    # the dark rim goes below all lines, so that crossing limbs do not cut each other
    for extra, rim in ((canvas.zoom, "#000000b0"), (0, "")):
        for color, line in lines:
            canvas.draw.line(line, fill=rim or color, width=round(width + 2 * extra))
        for color, end in ends:
            canvas.draw.circle(end, 0.85 * width + extra, fill=rim or color)
    return canvas.merge_layers()


def draw_regions(
    image: Image.Image,
    mask: ArrayLike,  # (H, W) integer ids of the regions, of any size; it is scaled to the picture
    *,
    colors: Mapping[int, str] = {},
    ignore: Some = (),
    tint: float = 0.25,  # opacity of the colour, 0..1
) -> Image.Image:
    """Tint the regions of a mask and draw their borders."""
    from scipy.ndimage import binary_dilation

    ids = np.asarray(mask)
    if ids.ndim != 2 or ids.dtype.kind not in "iub" or not ids.size:
        raise UserError(f"mask must be (H, W) integers. Got the shape {ids.shape} of {ids.dtype} instead.")
    picture, _ = enlarge_small(image)
    width, height = picture.size
    rows = np.arange(height) * ids.shape[0] // height
    columns = np.arange(width) * ids.shape[1] // width
    ids = ids[rows[:, None], columns]  # (height, width)
    pixels = np.asarray(picture, np.float32).copy()  # (height, width, 3)
    for region in np.unique(ids).tolist():
        if region not in ignore:
            color = ImageColor.getrgb(colors.get(region, REGIONS[region % len(REGIONS)]))[:3]
            inside = ids == region
            pixels[inside] += tint * (np.asarray(color, np.float32) - pixels[inside])
    border = np.zeros(ids.shape, bool)
    border[:, 1:] |= ids[:, 1:] != ids[:, :-1]
    border[1:] |= ids[1:] != ids[:-1]
    line = binary_dilation(border, iterations=max(1, round(max(picture.size) / 160)))
    pixels[binary_dilation(line) & ~line] *= 0.45
    pixels[line] = 255
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def draw_gauge(
    image: Image.Image,
    value: float,
    low: float,  # lower end of the scale. If it is negative, the bar starts at 0, otherwise at ``low``
    high: float,
    *,
    text: str | None = None,  # text beside the bar; None writes the number
) -> Image.Image:
    """Draw a number as a bar on a scale along the lower edge."""
    if not (math.isfinite(value) and math.isfinite(high - low) and low < high):
        raise UserError(f"A gauge needs finite numbers with low < high. Got {value}, {low}, {high} instead.")
    signed = low < 0
    decimals = min(6, max(0, 2 - math.floor(math.log10(high - low) + 0.5)))
    form = f"{'+' if signed else ''}.{decimals}f"
    shown = visible_text(text) if text is not None else format(value, form)
    canvas = Canvas(image)
    draw, width, height, (strip, font) = canvas.draw, canvas.width, canvas.height, canvas.strip()
    pad, middle, thick = 0.32 * strip, height - strip / 2, 0.14 * strip
    draw.rectangle((0, height - strip, width, height), fill="#000000a8")
    words = [re.sub(r"\d", "0", word) for word in (shown, format(low, form), format(high, form))]
    room = max(draw.textlength(word, font) for word in words)  # as for every value: the scales of two pictures are one
    draw.text((width - pad, middle), shown, fill="#ffffff", font=font, anchor="rm")
    left, right = pad, width - 2 * pad - min(room, 0.6 * width)
    start, end = (
        left + (right - left) * (min(max(x, low), high) - low) / (high - low) for x in (0.0 if signed else low, value)
    )
    draw.rectangle((left, middle - 0.4 * thick, right, middle + 0.4 * thick), fill="#ffffff70")
    draw.rectangle((min(start, end), middle - thick, max(start, end), middle + thick), fill=LEFT)
    half = 0.5 * canvas.zoom
    draw.rectangle((start - half, middle - 0.3 * strip, start + half, middle + 0.3 * strip), fill="#ffffffc0")
    draw.circle((end, middle), 0.24 * strip, fill=LEFT)
    return canvas.merge_layers()


def draw_text(image: Image.Image, text: str) -> Image.Image:
    """Write one line of text on a dark badge in the lower left corner; a long text ends in an ellipsis."""
    canvas = Canvas(image)
    draw, height, (strip, font) = canvas.draw, canvas.height, canvas.strip()
    pad = 0.32 * strip
    shown = visible_text(text)
    if not shown:
        return canvas.picture
    while draw.textlength(shown, font) > canvas.width - 2 * pad and len(shown) > 1:
        shown = shown[:-2].rstrip() + "…"
    draw.rectangle((0, height - strip, 2 * pad + draw.textlength(shown, font), height), fill="#000000b8")
    draw.text((pad, height - strip / 2), shown, fill="#ffffff", font=font, anchor="lm")
    return canvas.merge_layers()


def contact_sheet(
    images: Sequence[Image.Image],
    columns: int,
    *,
    gap: int = 4,  # pixels between two cells
) -> Image.Image:
    """Lay images out in rows, in cells of the size of the largest image, smaller images centred."""
    if not images or columns < 1:
        raise UserError(f"A contact sheet needs an image and a column. Got {len(images)} images, {columns} columns.")
    columns = min(columns, len(images))
    rows = -(-len(images) // columns)
    width, height = (max(image.size[axis] for image in images) for axis in (0, 1))
    sheet = Image.new("RGB", (columns * (width + gap) + gap, rows * (height + gap) + gap), "#ffffff")
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


def enlarge_small(image: Image.Image) -> tuple[Image.Image, float]:
    """A copy whose longer side has at least 192 pixels, and its scale."""
    picture = flat(image)
    scale = LEAST_SIDE / max(picture.size)
    if scale <= 1:
        return picture, 1.0
    width, height = (max(1, round(length * scale)) for length in picture.size)
    return picture.resize((width, height), Image.Resampling.BICUBIC), scale


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


_INK = "#202020"
_LINES = 8  # lines of a picture, of twice as many letters


def draw_words(
    text: str,
    size: int,  # width and height of the picture in pixels
) -> Image.Image:
    """Write the first words of a text on an empty picture."""
    image = Image.new("RGB", (size, size), _PAPER)
    margin = max(2, size // 32)
    height = (size - 2 * margin) / _LINES
    plain = " ".join("".join(sign if sign.isprintable() else " " for sign in text[: 8 * _LINES**2]).split())
    lines = textwrap.wrap(plain, 2 * _LINES, max_lines=_LINES, placeholder=" ...")
    font = ImageFont.load_default(max(1.0, 0.75 * height))
    ImageDraw.Draw(image).multiline_text((margin, margin), "\n".join(lines), _INK, font, spacing=0.25 * height)
    return image
