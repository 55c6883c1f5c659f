"""The pen that draws a thing in its own frame: x from -1 to 1 across its width, y upwards from 0 where it stands."""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from PIL import ImageDraw

Rgb = tuple[int, int, int]


Place = tuple[float, float]


PALE: Rgb = (246, 243, 236)


TURN = np.linspace(0, 2 * math.pi, 28, endpoint=False)


@dataclass
class Pen:
    """Draws in the frame of one thing, on a canvas larger than the picture: shrinking it smooths the edges."""

    canvas: ImageDraw.ImageDraw  # made with mode "RGBA", so that colours with an alpha blend
    foot: Place  # where the thing stands in the canvas
    half_width: float  # in pixels of the canvas
    colour: Rgb
    _: KW_ONLY
    turned: bool  # draws the thing's mirror image
    tilt: float  # in radians
    light: int  # 1 if the light comes from the right, -1 from the left; of a turned thing in its own frame
    variant: float  # 0 to 1, for what differs within a kind

    def __post_init__(self) -> None:
        mirror, cos, sin = (-1 if self.turned else 1), math.cos(self.tilt), math.sin(self.tilt)
        self._across = self.half_width * cos * mirror, self.half_width * sin
        self._up = self.half_width * sin * mirror, -self.half_width * cos
        self.light *= mirror

    def shape(
        self,
        points: Sequence[Place],
        colour: Rgb | None = None,
        tone: float = 1.0,  # below 1, the colour is darkened; above 1, it is moved towards white
        alpha: int = 255,  # opacity, 0 to 255
    ) -> None:
        """Draw a filled polygon."""
        self.canvas.polygon(self._to_canvas(points), fill=(*_change_tone(colour or self.colour, tone), alpha))

    def oval(
        self, x: float, y: float, rx: float, ry: float, colour: Rgb | None = None, tone: float = 1.0, alpha: int = 255
    ) -> None:
        """Draw a filled ellipse."""
        self.shape([(x + rx * math.cos(t), y + ry * math.sin(t)) for t in TURN], colour, tone, alpha)

    def globe(self, x: float, y: float, rx: float, ry: float, colour: Rgb | None = None) -> None:
        """Draw an ellipse that is shaded as a round body."""
        for step in range(6):
            part, shift, tone = 1 - 0.16 * step, 0.075 * step, 0.62 + 0.105 * step
            self.oval(x + self.light * shift * rx, y + shift * ry, part * rx, part * ry, colour, tone)
        self.oval(x + self.light * 0.42 * rx, y + 0.45 * ry, 0.16 * rx, 0.13 * ry, PALE, alpha=170)

    def line(self, points: Sequence[Place], width: float, colour: Rgb | None = None, tone: float = 1.0) -> None:
        """Draw a polyline with round ends."""
        fill, thick = (*_change_tone(colour or self.colour, tone), 255), max(1, round(width * self.half_width))
        places = self._to_canvas(points)
        self.canvas.line(places, fill=fill, width=thick, joint="curve")
        for x, y in (places[0], places[-1]):
            self.canvas.ellipse([x - thick / 2, y - thick / 2, x + thick / 2, y + thick / 2], fill=fill)

    def _to_canvas(self, points: Sequence[Place]) -> list[Place]:
        (left, top), (right, down), (over, up) = self.foot, self._across, self._up
        return [(left + x * right + y * over, top + x * down + y * up) for x, y in points]


def _change_tone(colour: Rgb, tone: float) -> Rgb:
    """The colour darkened (tone below 1) or moved towards white (above 1)."""
    lighter = min(1.0, tone - 1)
    red, green, blue = (int(part * tone if tone <= 1 else part + (255 - part) * lighter) for part in colour)
    return red, green, blue
