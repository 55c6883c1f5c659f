"""Surfaces of drawn rooms: their ground, the bands along a wall and the patches on it, as colours and glow."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cml.array_types import Float32
from cml.data_prep.synthetic.rooms.materials import Material

Photo = Float32  # (H, W, 3) linear colours


@dataclass(frozen=True)
class Patch:
    """Something flat on a surface."""

    # what it is: a flat patch of material, a round one, a photograph (picture, view), a door's leaf, curtains
    kind: Literal["flat", "round", "photo", "door", "curtain"]
    box: tuple[float, float, float, float]  # its left, right, low and high end in metres on the surface
    material: Material  # what it is made of
    photo: Photo | None = None  # what a photograph shows
    bars: tuple[int, int] = (1, 1)  # how many panes a window has across and up, or how many panels a door
    glow: float = 0.0  # how bright it is by itself; 0 is lit by the room's light


@dataclass(frozen=True)
class Surface:
    """A wall, the floor or the ceiling."""

    material: Material  # the ground
    # strips along a wall, each a material from one height to another: panelling, skirting, cornice
    bands: tuple[tuple[Material, float, float], ...] = ()
    patches: tuple[Patch, ...] = ()  # what is on it; later ones cover earlier ones

    def at(
        self,
        u: Float32,  # places along the surface in metres, (N,)
        v: Float32,  # places up the surface in metres, (N,)
        blur: Float32,  # width of a pixel at each place in metres, (N,)
    ) -> tuple[Float32, Float32 | None]:
        """Return the surface's colours with its bands and patches.

        Returns linear colours, (3, N), and how much of them glows by itself, (N,); None if nothing does.
        """
        colours = self.material.at(u, v, blur)
        glow = np.zeros_like(u) if any(patch.glow > 0 for patch in self.patches) else None
        for material, low, high in self.bands:
            inside = np.flatnonzero((v >= low) & (v < high))
            if len(inside):
                colours[:, inside] = material.at(u[inside], v[inside], blur[inside])
        for patch in self.patches:
            _lay(patch, u, v, blur, colours, glow)
        return colours, glow


def _lay(patch: Patch, u: Float32, v: Float32, blur: Float32, colours: Float32, glow: Float32 | None) -> None:
    """Put a patch over the colours and the glow of places."""
    left, right, low, high = patch.box
    inside = np.flatnonzero((u > left) & (u < right) & (v > low) & (v < high))
    if not len(inside):
        return
    u, v, blur = u[inside], v[inside], blur[inside]
    a, b = (u - left) / (right - left), (v - low) / (high - low)  # 0 to 1
    if patch.kind == "round":
        kept = (2 * a - 1) ** 2 + (2 * b - 1) ** 2 < 1
        inside, u, v, blur = inside[kept], u[kept], v[kept], blur[kept]
    shown, bright = patch.material.at(u, v, blur), np.full_like(u, patch.glow)
    if patch.kind == "photo":
        assert patch.photo is not None
        height, width = patch.photo.shape[:2]
        rows, columns = ((1 - b) * height).astype(np.intp), (a * width).astype(np.intp)
        behind = patch.photo[rows.clip(0, height - 1), columns.clip(0, width - 1)].T
        bar = np.zeros(len(a), bool)
        for part, count, metres in ((a, patch.bars[0], right - left), (b, patch.bars[1], high - low)):
            if count > 1:
                bar |= np.abs(part * count - np.round(part * count)) * metres / count < 0.025
        shown, bright = np.where(bar, shown, behind), np.where(bar, 0, bright)
    elif patch.kind == "door":  # sunken panels, and the shadow line around them
        across, up = patch.bars
        wide = np.abs(a * across - np.floor(a * across) - 0.5) / across
        tall = np.abs(b * up - np.floor(b * up) - 0.5) / up
        rim = np.maximum(wide - (0.5 / across - 0.12), tall - (0.5 / up - 0.06))
        shown *= np.where(np.abs(rim) < 0.02, np.float32(0.6), np.where(rim < 0, np.float32(0.92), np.float32(1)))
    elif patch.kind == "curtain":
        shown *= 0.8 + 0.2 * np.sin(u * (2 * np.pi / 0.11) + 2 * np.sin(3 * v))
    colours[:, inside] = shown
    if glow is not None:
        glow[inside] = bright
