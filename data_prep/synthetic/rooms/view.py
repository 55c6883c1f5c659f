"""A camera in a cuboid room: which of its six planes each pixel's ray leaves through, so that masks are exact.

Coordinates are in metres: x to the right, y up, z ahead, the room from 0 to its width, height and depth.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from cml.array_types import Float32, Float64, UInt8
from cml.data_prep.layout_masks import CEILING, FLOOR, FRONT, LEFT, RIGHT
from cml.data_prep.synthetic.random_choice import Rng

FACES = 6  # numbers of the planes: x = 0, x = width, floor, ceiling, z = 0, z = depth


FLOOR_FACE, CEILING_FACE = 2, 3


CLOCKWISE = (4, 0, 5, 1)  # the walls as a camera sees them that turns to the right


LEAST_SHARE = 0.02  # of the picture: a surface that shows less would be a label that nobody sees


@dataclass(frozen=True)
class View:
    """A room and a camera in it."""

    room: Float64  # (3,) width, height and depth in metres
    eye: Float64  # (3,) where the camera is
    frame: Float64  # (3, 3) rows are the camera's right, up and forward
    focal: float  # focal length in picture widths
    walls: tuple[int, ...] = ()  # walls in view, from left to right, as numbers of faces

    def directions(self, across: Float32, up: Float32) -> Float32:
        """Rays (3, ...) through picture coordinates ``across`` and ``up`` of one shape, -0.5 to 0.5, not normalised."""
        right, above, forward = self.frame.astype(np.float32)
        rays = np.empty((3, *across.shape), np.float32)
        for axis in range(3):
            np.add(across * right[axis], up * above[axis] + np.float32(self.focal) * forward[axis], out=rays[axis])
        rays[np.abs(rays) < 1e-7] = 1e-7  # parallel to a wall
        return rays

    def rays(self, side: int) -> Float32:
        """Rays (3, side, side) through the centres of the pixels of a square picture."""
        across = ((np.arange(side) + 0.5) / side - 0.5).astype(np.float32)
        return self.directions(*np.meshgrid(across, -across))

    def leave(self, rays: Float32) -> tuple[Float32, UInt8]:
        """How far each ray (3, ...) goes until it leaves the room, in its own lengths, and through which face."""
        eye, room = self.eye.astype(np.float32), self.room.astype(np.float32)
        far, faces = np.full(rays.shape[1:], np.inf, np.float32), np.zeros(rays.shape[1:], np.uint8)
        for axis in range(3):
            ahead = rays[axis] > 0
            reach = np.where(ahead, room[axis] - eye[axis], -eye[axis]) / rays[axis]
            faces[reach < far] = 2 * axis
            faces += ahead & (reach < far)
            np.minimum(far, reach, out=far)
        return far, faces

    def project(self, points: Float64) -> Float64:
        """Points (N, 3) to (N, 3): across and up in the picture, -0.5 to 0.5 in view, and depth (<= 0: behind)."""
        seen = (points - self.eye) @ self.frame.T
        depth = seen[:, 2:]
        return np.concatenate([self.focal * seen[:, :2] / np.where(depth > 1e-6, depth, 1e-6), depth], axis=1)


def mask_of(view: View, faces: UInt8) -> UInt8:
    """LSUN ids of the faces that pixels see, any shape."""
    ids = np.zeros(FACES, np.uint8)
    ids[FLOOR_FACE], ids[CEILING_FACE] = FLOOR, CEILING
    names = {1: (FRONT,), 2: (LEFT, RIGHT), 3: (LEFT, FRONT, RIGHT)}[len(view.walls)]
    first, last = CLOCKWISE.index(view.walls[0]), CLOCKWISE.index(view.walls[-1])
    ids[CLOCKWISE[first - 1]] = names[0]  # out of view but for less than a pixel, if at all
    ids[CLOCKWISE[(last + 1) % 4]] = names[-1]
    ids[list(view.walls)] = names
    return ids[faces]


def sample_view(rng: Rng) -> View:
    """Draw a room and a camera in it whose picture has one of the 11 layout types, no surface as a mere sliver."""
    border = np.linspace(-0.5, 0.5, 257, dtype=np.float32)
    ends = np.full_like(border, 0.5)
    around = (np.concatenate([border, border, ends, -ends]), np.concatenate([ends, -ends, border, border]))
    while True:
        view = _propose(rng)
        shares = np.bincount(view.leave(view.rays(32))[1].ravel(), minlength=FACES) / 32**2
        seen = (shares > 0) | (np.bincount(view.leave(view.directions(*around))[1], minlength=FACES) > 0)
        places = [place for place, wall in enumerate(CLOCKWISE) if seen[wall]]
        if 1 <= len(places) <= 3 and seen.sum() >= 2 and shares[seen].min() >= LEAST_SHARE:
            first = next(place for place in places if (place - 1) % 4 not in places)
            return replace(view, walls=tuple(CLOCKWISE[(first + step) % 4] for step in range(len(places))))


def _propose(rng: Rng) -> View:
    """A room and a camera, as people photograph rooms: into a corner or towards a wall, more or less level."""
    narrow = rng.random() < 0.15  # a hall or a bathroom
    room = np.array([rng.uniform(1.5, 2.4) if narrow else rng.uniform(2.4, 6.5), rng.uniform(2.2, 3.4), 0.0])
    room[2] = rng.uniform(2.4, 7.5)
    close = rng.random() < 0.18  # a detail of the room
    eye = room * rng.uniform([0.06, 0, 0.05], [0.94, 0, 0.95])
    eye[1] = np.clip(rng.normal(1.4, 0.3), 0.4, room[1] - 0.25)
    yaw: float = rng.integers(4) * math.pi / 2 + rng.normal(0, math.radians(9))
    if rng.random() < 0.6:  # into the room instead of towards a wall
        target = room * rng.uniform(0.0 if close else 0.1, 1.0 if close else 0.9, 3)
        yaw = math.atan2(target[0] - eye[0], target[2] - eye[2])
    pitch = math.radians(np.clip(rng.normal(-5.0, 17.0 if close else 8.0), -40, 40))
    roll = math.radians(np.clip(rng.normal(0, 1.0), -3, 3))
    angle = math.radians(rng.uniform(30, 58) if close else rng.uniform(52, 92))
    level = np.array([[math.cos(yaw), 0, -math.sin(yaw)], [0, 1, 0], [math.sin(yaw), 0, math.cos(yaw)]])
    c, s = math.cos(pitch), math.sin(pitch)
    tilted = np.array([[1, 0, 0], [0, c, -s], [0, s, c]]) @ level
    c, s = math.cos(roll), math.sin(roll)
    return View(room, eye, np.array([[c, s, 0], [-s, c, 0], [0, 0, 1]]) @ tilted, 0.5 / math.tan(angle / 2))
