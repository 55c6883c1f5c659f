"""A sheet of retrievals as one picture for a paper or a README: one row per query, with the results of each method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw, ImageFont

from cml.errors import UserError
from cml.reporting.drawing import flat
from cml.reporting.retrieval_report import Picture, ReportRow, finite_distances, number_text
from cml.reporting.visible_text import visible_text
from cml.storage.atomic import atomic_file

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

_GAP = 6  # pixels between two pictures; three of them between two methods
_QUERY_LINES, _LINES = 6, 3  # of words below a picture
_LARGEST_TEXT = 0.06  # of a legend, in shares of the picture's longer side
_SMALLEST_TEXT = 7.0  # pixels
_GROUND, _INK, _QUIET, _LINE, _BOX = (
    "#ffffff",
    "#1d1c1a",
    "#6b6760",
    "#d8d3ca",
    "#f3f0ea",
)  # page, letters, quiet letters, lines, boxes


def write_sheet(
    path: Path,
    rows: Sequence[ReportRow],
    *,
    unit: str,
    side: int = 144,  # longer side of a picture in pixels
    # word to its colour, drawn in a strip at the lower edge; None draws no strip
    legend: Mapping[str, str] | None = None,
) -> None:
    """Write the sheet as PNG."""
    methods = list(rows[0].retrieved) if rows else []
    if not methods or any(set(row.retrieved) != set(methods) for row in rows):
        raise UserError("A sheet needs a row, and one or more methods that are the same in all rows.")
    columns = max(1, *(len(row.retrieved[method]) for row in rows for method in methods))
    show = number_text(finite_distances(p for row in rows for top in row.retrieved.values() for p in top))
    sheet = _Sheet(side, methods, columns)
    for row in rows:
        sheet.add(row, show)
    with atomic_file(path) as temporary:
        add_legend(sheet.paint(visible_text(unit)), legend or {}, side / 9).save(temporary, "PNG")


@dataclass(frozen=True)
class _Cell:
    """A picture of a row."""

    x: int  # its left edge in pixels
    image: Image.Image  # the picture, fitted
    number: str  # the number below it, "" if it has none
    lines: Sequence[str]  # the words below it


class _Sheet:
    """Rows of cells below a heading, laid out once and painted in any colours."""

    def __init__(self, side: int, methods: Sequence[str], columns: int) -> None:
        self.side, self.methods, self.columns = side, methods, columns
        self.head, self.number, self.words = _font(side / 7.5), _font(side / 8.5), _font(side / 11)
        self.step, self.under = round(1.25 * self.words.size), round(1.45 * self.number.size)
        self.starts = [side + 3 * _GAP + place * (columns * (side + _GAP) + 2 * _GAP) for place in range(len(methods))]
        self.width = self.starts[-1] + columns * (side + _GAP) + _GAP
        self.rows: list[Sequence[_Cell]] = []

    def add(self, row: ReportRow, show: Callable[[float], str]) -> None:
        """Lay out one query."""
        cells = [self._cell(_GAP, row.query, "", _QUERY_LINES)]
        for start, method in zip(self.starts, self.methods, strict=True):
            for place, picture in enumerate(row.retrieved[method]):
                d = picture.distance
                number = show(d) if d is not None and math.isfinite(d) else "not comparable"
                cells.append(self._cell(start + place * (self.side + _GAP), picture, number, _LINES))
        self.rows.append(cells)

    def _cell(self, x: int, picture: Picture, number: str, most: int) -> _Cell:
        lines = wrap_text(visible_text(picture.caption), self.side, self.words, most)
        return _Cell(x, self._fit_picture(picture), number, lines)

    def paint(self, unit: str) -> Image.Image:
        """Paint the heading and the rows, with lines between them."""
        bands = [self._paint_row(cells) for cells in self.rows]
        tall, foot = round(2.2 * self.head.size), round(1.8 * self.words.size)
        sheet = Image.new("RGB", (self.width, tall + foot + sum(band.height + 1 for band in bands)), _GROUND)
        draw = ImageDraw.Draw(sheet)
        rooms = [self.side, *[self.columns * (self.side + _GAP) - _GAP] * len(self.methods)]
        heads = ["query", *(visible_text(method, 80) for method in self.methods)]
        for x, text, room in zip([_GAP, *self.starts], heads, rooms, strict=True):
            draw.text((x, 0.55 * self.head.size), _cut(text, room, self.head), fill=_INK, font=self.head)
        y = tall
        for band in bands:
            draw.line((_GAP, y, self.width - _GAP, y), fill=_LINE)
            sheet.paste(band, (0, y + 1))
            y += band.height + 1
        note = f"numbers: label distance to the query{f' ({unit})' if unit else ''}"
        draw.text((_GAP, y), _cut(note, self.width - 2 * _GAP, self.words), fill=_QUIET, font=self.words)
        return sheet

    def _paint_row(self, cells: Sequence[_Cell]) -> Image.Image:
        high = max(cell.image.height for cell in cells)
        below = max((self.under if cell.number else 0) + self.step * len(cell.lines) for cell in cells)
        band = Image.new("RGB", (self.width, high + below + 3 * _GAP), _GROUND)
        draw = ImageDraw.Draw(band)
        for cell in cells:
            x, image = cell.x, cell.image
            draw.rectangle((x, _GAP, x + self.side - 1, _GAP + high - 1), fill=_BOX)
            band.paste(image, (x + (self.side - image.width) // 2, _GAP + (high - image.height) // 2))
            y = _GAP + high + _GAP // 2
            draw.text((x, y), cell.number, fill=_INK, font=self.number)
            y += self.under if cell.number else 0
            for place, line in enumerate(cell.lines):
                draw.text((x, y + self.step * place), line, fill=_QUIET, font=self.words)
        return band

    def _fit_picture(self, picture: Picture) -> Image.Image:
        image = flat(picture.image() if callable(picture.image) else picture.image)
        scale = self.side / max(image.size)
        size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
        return image.resize(size, Image.Resampling.LANCZOS)


def wrap_text(
    text: str,
    width: float,  # largest width of a line in pixels
    font: FreeTypeFont,
    most: int,
) -> list[str]:
    """Break a text into lines. Words that are too wide are broken, and a text that is too long ends in an ellipsis."""
    lines: list[str] = []
    left = text.split()
    while left and len(lines) < most:
        line = left.pop(0)
        while left and font.getlength(f"{line} {left[0]}") <= width:
            line = f"{line} {left.pop(0)}"
        if font.getlength(line) > width:  # a single word
            fits = next((n for n in range(len(line) - 1, 0, -1) if font.getlength(line[:n]) <= width), 1)
            left.insert(0, line[fits:])
            line = line[:fits]
        lines.append(line)
    if left:
        lines[-1] = _cut(f"{lines[-1]} {' '.join(left)}", width, font)
    return lines


def _cut(text: str, width: float, font: FreeTypeFont) -> str:
    """``text`` if it is at most ``width`` wide, else its beginning and an ellipsis."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1].rstrip()
    return text + "…"


def add_legend(
    image: Image.Image,
    colors: Mapping[str, str],
    # largest size of the letters in pixels; None takes a share of the picture's longer side
    largest: float | None = None,
) -> Image.Image:
    """Add a strip below a picture, with a patch of colour for each word of a legend."""
    words = {visible_text(word, 24): color for word, color in colors.items()}
    if not words:
        return flat(image)

    def widths(size: float) -> list[float]:  # of each patch, its word and the gap behind it
        font = ImageFont.load_default(size)
        return [1.05 * size + font.getlength(word) + 0.55 * size for word in words]

    size = max(_SMALLEST_TEXT, largest or _LARGEST_TEXT * max(image.size))
    while sum(widths(size)) + 0.35 * size > image.width and size > _SMALLEST_TEXT:
        size -= 0.25
    strip = round(1.7 * size)
    picture = Image.new("RGB", (image.width, image.height + strip), "#16181c")
    picture.paste(flat(image), (0, 0))
    draw, font = ImageDraw.Draw(picture), ImageFont.load_default(size)
    spare = max(0.0, (image.width - (sum(widths(size)) + 0.35 * size)) / len(words))
    x, middle = 0.35 * size + spare / 2, image.height + strip / 2
    for (word, color), width in zip(words.items(), widths(size), strict=True):
        draw.rectangle((x, middle - 0.4 * size, x + 0.8 * size, middle + 0.4 * size), fill=color)
        draw.text((x + 1.05 * size, middle), word, fill="#ffffff", font=font, anchor="lm")
        x += width + spare
    return picture


def _font(size: float) -> FreeTypeFont:
    """The sans serif font of matplotlib, which has more scripts than Pillow's."""
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), round(size))
