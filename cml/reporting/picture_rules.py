"""Pictures of a page as style rules, each embedded once, and the page that is written with them."""

import base64
import hashlib
import io
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from cml.errors import UserError
from cml.reporting.drawing import flat
from cml.reporting.visible_text import write_html

STEPS = 20  # of the bar under a picture, and of its colour
DENSITY = 1.5  # embedded pixels per CSS pixel: three methods side by side show pictures below full size
QUALITY = 85  # of the JPEGs
_NEAR, _MIDDLE, _FAR = (46, 124, 214), (168, 162, 152), (226, 106, 18)  # blue, grey, orange: safe for colour blindness

Drawable = Image.Image | Callable[[], Image.Image | None]
"""A picture, or a function that makes one or None when it is written; equal functions make equal pictures."""


class PictureRules:
    """The embedded pictures, at most ``thumbnail`` CSS pixels a side, each encoded once as a rule for any element."""

    def __init__(self, thumbnail: int) -> None:
        self.thumbnail = thumbnail
        self.side = round(DENSITY * thumbnail)
        self._names: dict[bytes, str] = {}
        self._made: dict[Callable[[], Image.Image | None], str | None] = {}
        self._rules: list[str] = []
        self._ratios: list[float] = []

    def name(self, picture: Drawable | None) -> str | None:
        """The class of an element that shows ``picture``; None where there is none."""
        if not callable(picture):
            return None if picture is None else self._embed(picture)
        if picture not in self._made:
            self._made[picture] = self.name(picture())
        return self._made[picture]

    def _embed(self, image: Image.Image) -> str:
        if not all(image.size):
            raise UserError("A page cannot show an empty image.")
        self._ratios.append(image.width / image.height)
        key = hashlib.sha256(f"{image.mode}{image.size}".encode() + image.tobytes()).digest()
        if image.mode == "P" or key not in self._names:  # two palettes can share their indices
            small = Image.new("RGB", image.size)
            small.paste(flat(image))  # drops the file's metadata: comment, camera, location
            small.thumbnail((self.side, self.side), Image.Resampling.LANCZOS)
            file = io.BytesIO()
            small.save(file, "JPEG", quality=QUALITY, subsampling=0, optimize=True)  # thin lines keep their colour
            self._names[key] = f"i{len(self._rules)}"
            data = base64.b64encode(file.getvalue()).decode()
            self._rules.append(f".{self._names[key]}{{background-image:url(data:image/jpeg;base64,{data})}}")
        return self._names[key]

    def rules(self) -> tuple[str, str]:
        """Length, height and colour of each step of a bar, and the shape of all boxes; a rule per distinct picture."""
        rules = []
        for step in range(STEPS + 1):
            part = step / STEPS
            ends = (_NEAR, _MIDDLE) if part < 0.5 else (_MIDDLE, _FAR)
            mix = 2 * part if part < 0.5 else 2 * part - 1
            color = ",".join(str(round(a + mix * (b - a))) for a, b in zip(*ends, strict=True))
            rules.append(f".s{step}{{--part:{max(4, round(100 * part))}%;--color:rgb({color})}}")
        ratio = min(2.0, max(0.5, statistics.median(self._ratios or [1.0])))
        width = round(self.thumbnail * min(1.0, ratio))
        rules.append(f":root{{--width:{width}px;--ratio:{ratio:.3f}}}\n")
        return "\n".join(rules), "\n".join(self._rules)


def write_page(path: Path, template: str, images: PictureRules, values: Mapping[str, Any], *, rules: str = "") -> None:
    """Write a page of pictures, atomically and without a script."""
    common, pictures = images.rules()
    write_html(path, "cml.reporting", template, rules=(common + rules, pictures), **values)
