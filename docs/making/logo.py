"""The logo, which is the favicon too: twelve labels on a circle, the larger the nearer to the one at the top.

    python docs/making/logo.py

writes docs/static/logo.svg.
"""

from __future__ import annotations

import colorsys
import math
from pathlib import Path

PATH = Path(__file__).resolve().parents[1] / "static" / "logo.svg"
DOTS = 12
RADIUS, LARGEST, SMALLEST = 36.0, 13.0, 3.5  # of the circle and of dots, in a picture of 100 x 100


def draw() -> str:
    """Draw the logo as SVG, in colours that are readable on white and on black."""
    dots = []
    for number in range(DOTS):
        part = number / DOTS
        x, y = 50 + RADIUS * math.sin(2 * math.pi * part), 50 - RADIUS * math.cos(2 * math.pi * part)
        label_distance = 2 * min(part, 1 - part)  # 0 at the top, 1 at the bottom
        size = LARGEST * (SMALLEST / LARGEST) ** label_distance  # equal ratios for equal steps
        red, green, blue = colorsys.hls_to_rgb((0.6 + part) % 1, 0.55, 0.6)
        colour = "".join(f"{round(255 * light):02x}" for light in (red, green, blue))
        dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:.1f}" fill="#{colour}"/>')
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 100 100">{"".join(dots)}</svg>\n'


if __name__ == "__main__":
    PATH.write_text(draw(), encoding="utf-8")
    print(PATH)
