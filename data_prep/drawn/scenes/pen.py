"""The pen that draws a thing in its own frame: x from -1 to 1 across its width, y upwards from 0 where it stands.

Shapes are drawn on a canvas larger than the picture, which smooths their edges when it is shrunk. Not for: what things
look like (``things.py``).
"""

import math
from collections.abc import Sequence

import numpy as np
from PIL import ImageDraw

Rgb = tuple[int, int, int]
Points = Sequence[tuple[float, float]]

PALE: Rgb = (246, 243, 236)
TURN = np.linspace(0, 2 * math.pi, 28, endpoint=False)


class Pen:
    """Draws in the frame of one thing, on a canvas larger than the picture.

    Args:
        canvas: Made with mode "RGBA", so that colours with an alpha blend.
        foot: (x, y) in the canvas where the thing stands.
        half_width: In pixels of the canvas.
        colour: Of the thing.
        turned: Draws the thing's mirror image.
        tilt: In radians.
        light: 1 if the light comes from the right, -1 from the left.
        variant: 0 to 1, for what differs within a kind.
    """

    def __init__(
        self,
        canvas: ImageDraw.ImageDraw,
        foot: tuple[float, float],
        half_width: float,
        colour: Rgb,
        *,
        turned: bool,
        tilt: float,
        light: int,
        variant: float,
    ) -> None:
        self._canvas, self._foot, self._scale = canvas, foot, half_width
        self._across = (half_width * math.cos(tilt) * (-1 if turned else 1), half_width * math.sin(tilt))
        self._up = (half_width * math.sin(tilt) * (-1 if turned else 1), -half_width * math.cos(tilt))
        self.colour, self.variant = colour, variant
        self.light = -light if turned else light

    def shape(self, points: Points, colour: Rgb | None = None, tone: float = 1.0, alpha: int = 255) -> None:
        """A filled polygon; ``tone`` darkens (below 1) or lightens (above 1) the colour."""
        fill = (*toned(self.colour if colour is None else colour, tone), alpha)
        self._canvas.polygon([self._place(x, y) for x, y in points], fill=fill)

    def oval(
        self, x: float, y: float, rx: float, ry: float, colour: Rgb | None = None, tone: float = 1.0, alpha: int = 255
    ) -> None:
        """A filled ellipse."""
        self.shape([(x + rx * math.cos(t), y + ry * math.sin(t)) for t in TURN], colour, tone, alpha)

    def globe(self, x: float, y: float, rx: float, ry: float, colour: Rgb | None = None) -> None:
        """An ellipse shaded as a round body."""
        for step in range(6):
            part, shift = 1 - 0.16 * step, 0.075 * step
            self.oval(
                x + self.light * shift * rx, y + shift * ry, part * rx, part * ry, colour, tone=0.62 + 0.105 * step
            )
        self.oval(x + self.light * 0.42 * rx, y + 0.45 * ry, 0.16 * rx, 0.13 * ry, PALE, alpha=170)

    def line(self, points: Points, width: float, colour: Rgb | None = None, tone: float = 1.0) -> None:
        """A polyline of ``width`` half widths, with round ends."""
        fill = (*toned(self.colour if colour is None else colour, tone), 255)
        thick = max(1, round(width * self._scale))
        places = [self._place(x, y) for x, y in points]
        self._canvas.line(places, fill=fill, width=thick, joint="curve")
        for x, y in (places[0], places[-1]):
            self._canvas.ellipse([x - thick / 2, y - thick / 2, x + thick / 2, y + thick / 2], fill=fill)

    def _place(self, x: float, y: float) -> tuple[float, float]:
        return (
            self._foot[0] + x * self._across[0] + y * self._up[0],
            self._foot[1] + x * self._across[1] + y * self._up[1],
        )


def toned(colour: Rgb, tone: float) -> Rgb:
    """The colour darkened (tone below 1) or moved towards white (above 1)."""
    if tone <= 1:
        return int(colour[0] * tone), int(colour[1] * tone), int(colour[2] * tone)
    part = min(1.0, tone - 1)
    red, green, blue = (int(channel + (255 - channel) * part) for channel in colour)
    return red, green, blue
