"""Tracing a drawn room: rays against furniture, and the light on what they meet."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cml.array_types import Float32, Float64, Int32
from cml.data_prep.synthetic.rooms.materials import Material
from cml.data_prep.synthetic.rooms.surfaces import Surface
from cml.data_prep.synthetic.rooms.view import CEILING_FACE, FACES, FLOOR_FACE, View

_CORNERS = np.array(list(itertools.product((-1, 1), repeat=3)), np.float64)


_NEAREST = 0.05  # metres along a ray


@dataclass(frozen=True)
class Part:
    """A box or an ellipsoid in its piece's frame, which begins on the floor: x along its back, y up, z to its front."""

    centre: tuple[float, float, float]  # (3,) its middle
    half: tuple[float, float, float]  # (3,) half its width, height and depth
    material: Material  # what it is made of
    shape: Literal["box", "ball"] = "box"
    glow: float = 0.0  # how bright it is by itself


@dataclass(frozen=True)
class Piece:
    """A piece of furniture in a room."""

    parts: tuple[Part, ...]
    place: tuple[float, float, float]  # (3,) where its frame's origin lies in the room
    angle: float  # how far its front is turned from z to x, in radians
    shadow: tuple[float, float] = (0.0, 0.0)  # half width and half depth of its shadow on the floor, (0, 0) for none

    def rotate(
        self,
        vectors: Float32,  # the vectors, (3, ...)
        way: int = 1,  # 1 from the room's frame to the piece's, -1 back
    ) -> Float32:  # the rotated vectors, (3, ...)
        """Rotate vectors between the room's frame and the piece's."""
        c, s = np.float32(math.cos(self.angle)), np.float32(way * math.sin(self.angle))
        return np.stack([c * vectors[0] - s * vectors[2], vectors[1], s * vectors[0] + c * vectors[2]])

    def corners(self, part: Part) -> Float64:
        """The corners (8, 3) of a part's box, in the room."""
        local = (np.array(part.centre) + _CORNERS * part.half).astype(np.float32)
        places: Float64 = self.rotate(local.T, -1).T + np.array(self.place)
        return places


@dataclass(frozen=True)
class Light:
    """The light of a room."""

    ambient: Float32  # (3,) what comes from everywhere
    lamps: Float32  # (L, 3) places of lamps and windows
    powers: Float32  # (L, 3) their light at a distance of 1 m
    corners: float  # how much darker it is where two surfaces meet, 0 to 1

    def on(self, points: Float32, normals: Float32) -> Float32:
        """Light (3, N) on points (3, N) with normals (3, N) or (3, 1)."""
        light = np.empty((3, points.shape[1]), np.float32)
        light[:] = self.ambient[:, None]
        for lamp, power in zip(self.lamps, self.powers, strict=True):
            towards = lamp[:, None] - points
            squared = _dot(towards, towards)
            facing = np.maximum(_dot(towards, normals), 0)  # times the distance
            facing /= np.sqrt(squared) * (squared + np.float32(0.7))
            light += power[:, None] * facing
        return light


def trace(
    view: View,
    rays: Float32,  # direction of the ray of each pixel in the room, (3, n, n)
    surfaces: Sequence[Surface],
    pieces: Sequence[Piece],
    light: Light,
) -> Float32:  # linear colours, (3, n, n)
    """Trace the rays of a picture to the furniture and walls of a room, and light them."""
    side = rays.shape[1]
    parts = [(piece, part) for piece in pieces for part in piece.parts]
    depth, owner, normals = _find_nearest(view, rays, parts)
    order = np.argsort(owner, axis=None, kind="stable")
    sorted_owner = owner.reshape(-1)[order]
    starts = np.flatnonzero(np.diff(sorted_owner, prepend=-1)).tolist()
    fine = np.float32(1 / (side * view.focal))  # a pixel's width at 1 m
    ahead = rays.reshape(3, -1).take(order, axis=1)
    far = depth.reshape(-1)[order]
    points = view.eye.astype(np.float32)[:, None] + far * ahead
    slanted, widths = normals.reshape(3, -1).take(order, axis=1), far * fine
    shown = np.empty_like(points)
    for first, last in zip(starts, [*starts[1:], len(order)], strict=True):
        span, number = slice(first, last), int(sorted_owner[first])
        if number < FACES:
            blur = widths[span] * np.sqrt(_dot(ahead[:, span], ahead[:, span]))
            shown[:, span] = _surface(view, number, surfaces[number], points[:, span], blur, light, pieces)
        else:
            piece, part = parts[number - FACES]
            shown[:, span] = _part(piece, part, points[:, span], slanted[:, span], 1.5 * widths[span], light)
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    return shown.take(places, axis=1).reshape(3, side, side)


def _find_nearest(view: View, rays: Float32, parts: Sequence[tuple[Piece, Part]]) -> tuple[Float32, Int32, Float32]:
    """What each pixel sees (n, n): how far it is, its face, or FACES and a part's number, and that part's normal."""
    side = rays.shape[1]
    depth, faces = view.leave(rays)
    owner, normals = faces.astype(np.int32), np.zeros((3, side, side), np.float32)
    for number, (piece, part) in enumerate(parts, FACES):
        window = _find_window(view, piece, part, side)
        if window is None:
            continue
        ahead, before = piece.rotate(rays[:, *window]), depth[window]
        place = (view.eye - np.array(piece.place)).astype(np.float32)
        start = (piece.rotate(place) - np.array(part.centre, np.float32))[:, None, None]
        half = np.array(part.half, np.float32)[:, None, None]
        if part.shape == "box":
            ahead[np.abs(ahead) < 1e-7] = 1e-7
            through, reach = -start / ahead, half / np.abs(ahead)
            enter, leave = through - reach, through + reach
            near = np.maximum(np.maximum(enter[0], enter[1]), enter[2])
            met = near < np.minimum(np.minimum(leave[0], leave[1]), leave[2])
        else:
            scaled, origin = ahead / half, start / half
            a, b = _dot(scaled, scaled), _dot(scaled, origin)
            root = b * b - a * (_dot(origin, origin) - 1)
            near = (-b - np.sqrt(np.maximum(root, 0))) / a
            met = root > 0
        met &= (near > _NEAREST) & (near < before)
        if not met.any():
            continue
        if part.shape == "box":
            part_normals = np.where(enter == near, -np.sign(ahead), np.float32(0))
        else:
            part_normals = (origin + near * scaled) / half
            part_normals /= np.sqrt(_dot(part_normals, part_normals))
        np.copyto(normals[:, *window], part_normals, where=met)
        np.copyto(before, near, where=met)
        np.copyto(owner[window], np.int32(number), where=met)
    return depth, owner, normals


def _dot(a: Float32, b: Float32) -> Float32:
    """Products of vectors (3, ...): numpy's own sums along an axis of three are slow."""
    product: Float32 = a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
    return product


def _find_window(view: View, piece: Piece, part: Part, side: int) -> tuple[slice, slice] | None:
    """Rows and columns of the picture that a part may cover; None if it is out of view."""
    places = view.project(piece.corners(part))
    if (places[:, 2] < 0.02).all():
        return None
    if (places[:, 2] < 0.02).any():  # partly beside or behind the camera
        return slice(0, side), slice(0, side)
    left, right = (places[:, 0].min() + 0.5) * side, (places[:, 0].max() + 0.5) * side
    top, bottom = (0.5 - places[:, 1].max()) * side, (0.5 - places[:, 1].min()) * side
    if right < 0 or bottom < 0 or left > side or top > side:
        return None
    rows = slice(max(0, math.floor(top)), min(side, math.ceil(bottom)))
    columns = slice(max(0, math.floor(left)), min(side, math.ceil(right)))
    return rows, columns


def _surface(
    view: View, face: int, surface: Surface, points: Float32, blur: Float32, light: Light, pieces: Sequence[Piece]
) -> Float32:
    axis = face // 2
    along, up = ((2, 1), (0, 2), (0, 1))[axis]
    normal = np.zeros((3, 1), np.float32)
    normal[axis] = -1.0 if face % 2 else 1.0
    colours, glow = surface.at(points[along], points[up], blur)
    shade = np.ones(points.shape[1], np.float32)
    for other in (along, up):
        for gap in (points[other], np.float32(view.room[other]) - points[other]):
            shade *= 1 - np.float32(light.corners) * np.exp(np.minimum(-gap, 0) / np.float32(0.22))
    if face == FLOOR_FACE:
        shade *= _shadows(points, pieces)
    lit = light.on(points, normal)
    lit *= shade
    if face == CEILING_FACE:
        lit += 0.15 * light.ambient[:, None]  # what the floor sends up
    if glow is not None:
        lit += glow * (1 - np.minimum(1, lit)) + np.maximum(glow - 1, 0)
    colours *= lit
    return colours


def _shadows(points: Float32, pieces: Sequence[Piece]) -> Float32:
    shade = np.ones(points.shape[1], np.float32)
    for piece in pieces:
        if piece.shadow[0] > 0:
            local = piece.rotate(points - np.array(piece.place, np.float32)[:, None])
            across = np.maximum(np.abs(local[0]) - np.float32(piece.shadow[0]), 0)
            along = np.maximum(np.abs(local[2]) - np.float32(piece.shadow[1]), 0)
            shade *= 1 - np.float32(0.55) * np.exp((across * across + along * along) / np.float32(-0.05))
    return shade


def _part(piece: Piece, part: Part, points: Float32, normals: Float32, blur: Float32, light: Light) -> Float32:
    x, y, z = piece.rotate(points - np.array(piece.place, np.float32)[:, None])
    size = np.abs(normals)
    sideways, upwards = size[0] > np.maximum(size[1], size[2]), size[1] > np.maximum(size[0], size[2])
    colours = part.material.at(np.where(sideways, z, x), np.where(upwards, z, y), blur)
    lit = light.on(points, piece.rotate(normals, -1))
    lit *= np.float32(0.75) + np.minimum(points[1] * np.float32(0.5), np.float32(0.25))  # darker near the floor
    colours *= lit + np.float32(part.glow)
    return colours
