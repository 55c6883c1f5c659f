"""A legend below a picture: a patch of colour and a word for each kind of region."""

from collections.abc import Mapping

from PIL import Image, ImageDraw, ImageFont

from cml.reporting.drawing import flat
from cml.reporting.visible_text import visible_text

_LARGEST_TEXT = 0.06  # of the picture's longer side
_SMALLEST_TEXT = 7.0  # pixels


def with_legend(image: Image.Image, colors: Mapping[str, str], largest: float | None = None) -> Image.Image:
    """The picture with a strip below it that says what each colour means, in one row.

    Args:
        image: The picture.
        colors: Word to colour, from left to right; any colour PIL knows.
        largest: Largest height of the words in pixels; by default in proportion to the picture.
    """
    words = {visible_text(word, 24): color for word, color in colors.items()}
    if not words:
        return flat(image)
    size = max(_SMALLEST_TEXT, largest or _LARGEST_TEXT * max(image.size))
    while _needed(words, size) > image.width and size > _SMALLEST_TEXT:
        size -= 0.25
    strip = round(1.7 * size)
    picture = Image.new("RGB", (image.width, image.height + strip), "#16181c")
    picture.paste(flat(image), (0, 0))
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size)
    spare = max(0.0, (image.width - _needed(words, size)) / len(words))
    x, middle = 0.35 * size + spare / 2, image.height + strip / 2
    for word, color in words.items():
        draw.rectangle((x, middle - 0.4 * size, x + 0.8 * size, middle + 0.4 * size), fill=color)
        draw.text((x + 1.05 * size, middle), word, fill="#ffffff", font=font, anchor="lm")
        x += _width(word, size) + spare
    return picture


def _needed(words: Mapping[str, str], size: float) -> float:
    return sum(_width(word, size) for word in words) + 0.35 * size


def _width(word: str, size: float) -> float:
    """Pixels that a patch, its word and the gap behind it take."""
    return 1.05 * size + ImageFont.load_default(size).getlength(word) + 0.55 * size
