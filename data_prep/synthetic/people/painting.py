"""Painting a figure: hulls of a few spheres each, from far to near, from shade to light."""

import itertools
import math
from typing import NamedTuple

import numpy as np
from PIL import ImageDraw

from cml.data_prep.synthetic.people.figure import Vector

Colour = tuple[float, float, float]  # red, green and blue, 0 to 255


Sphere = tuple[Vector, float]  # centre (3,) and radius


_TURN = np.linspace(0, 2 * math.pi, 20, endpoint=False)


_DIRECTIONS = np.stack([np.cos(_TURN), np.sin(_TURN)])  # (2, D)


# Size of a part, its shift towards the light in radii, and its brightness: the rim in shade, the body, the highlight.
_TONES = ((1.0, 0.0, 0.70), (0.82, 0.14, 0.94), (0.45, 0.32, 1.12))


class Part(NamedTuple):
    """One painted shape: the hull of ``spheres``."""

    depth: float  # higher is nearer the viewer
    colour: Colour
    spheres: list[Sphere]
    flat: bool = False


def paint(
    canvas: ImageDraw.ImageDraw,
    parts: list[Part],
    project: Vector,  # affine map of perspective coordinates (x, y, 1) to pixels, which scales x and y equally, (2, 3)
    distance: float,
    light: Vector,  # direction that light falls from, of length 1 at most, (2,)
) -> None:
    """Paint shapes from far to near."""
    parts = sorted(parts, key=lambda part: part.depth)
    most = max(len(part.spheres) for part in parts)
    filled = [sphere for part in parts for sphere in itertools.islice(itertools.cycle(part.spheres), most)]
    centres = np.array([centre for centre, _ in filled])  # (P * most, 3)
    zoom = distance / (distance - centres[:, 2])
    centres = centres[:, :2] * zoom[:, None] @ project[:, :2].T + project[:, 2]
    radii = np.array([radius for _, radius in filled]) * zoom * abs(project[0, 0])
    centres, radii = centres.reshape(len(parts), most, 2), radii.reshape(len(parts), most)
    sizes, shifts, brightness = (np.array(column)[:, None, None] for column in zip(*_TONES, strict=True))  # (3, 1, 1)
    reach = sizes * radii  # (3, P, most)
    middles = centres + (shifts * radii)[..., None] * light  # (3, P, most, 2)
    # The hull of discs, corner by corner: in each direction the disc that reaches farthest.
    best = (middles @ _DIRECTIONS + reach[..., None]).argmax(2)[..., None]  # (3, P, D, 1)
    corners = np.take_along_axis(middles, best, 2) + np.take_along_axis(reach[..., None], best, 2) * _DIRECTIONS.T
    outlines = corners.reshape(len(_TONES), len(parts), -1).tolist()
    tones = (brightness * np.array([part.colour for part in parts])).clip(0, 255).astype(int).tolist()  # (3, P, 3)
    for row, part in enumerate(parts):
        if part.flat:
            canvas.polygon(outlines[0][row], fill=tuple(map(int, part.colour)))
            continue
        for outline, tone in zip(outlines, tones, strict=True):
            canvas.polygon(outline[row], fill=tuple(tone[row]))
