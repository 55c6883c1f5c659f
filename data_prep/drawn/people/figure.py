"""A jointed human figure in three dimensions: proportions, joint angles within anatomical limits, joint positions.

The figure is what ``people.py`` photographs. Not for: drawing (``clothes.py``) or for measuring real
people; the limits are rounded from clinical ranges of motion, the proportions from drawing manuals.

Frames are right-handed and the figure's own: x to its left, y up, z to its front. Lengths are in torso lengths (pelvis
to thorax of the average figure), angles in degrees.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
"""(3,) a point or direction."""
Frame = NDArray[np.float64]
"""(3, 3) a rotation; its columns are the part's left, up and front."""

# fmt: off
JOINTS: tuple[str, ...] = (
    "r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle", "pelvis", "thorax",
    "upper_neck", "head_top", "r_wrist", "r_elbow", "r_shoulder", "l_shoulder", "l_elbow", "l_wrist",
)
# fmt: on
"""The 16 MPII joints in their order; ``r_`` is the person's own right."""

LIMITS: dict[str, tuple[float, float]] = {
    # The whole body against the upright: any, people fall and somersault.
    "lean": (-180.0, 180.0),
    "list": (-180.0, 180.0),
    # Lumbar and thoracic spine together; positive: forward, to the left, left shoulder back.
    "spine_flexion": (-25.0, 75.0),
    "spine_side": (-35.0, 35.0),
    "spine_twist": (-45.0, 45.0),
    "neck_flexion": (-40.0, 45.0),
    "neck_side": (-30.0, 30.0),
    "neck_twist": (-70.0, 70.0),
    # Of each side. Hip: positive is forward, outwards, toes outwards.
    "hip_flexion": (-25.0, 125.0),
    "hip_abduction": (-20.0, 55.0),
    "hip_rotation": (-35.0, 45.0),
    "knee_flexion": (0.0, 145.0),
    "ankle_flexion": (-45.0, 25.0),
    # Shoulder: elevation from hanging (0) to upright (180) in a vertical plane: 0 sideways, 90 to the front.
    "shoulder_elevation": (0.0, 175.0),
    "shoulder_plane": (-75.0, 125.0),
    "shoulder_rotation": (-85.0, 80.0),
    "elbow_flexion": (0.0, 145.0),
}
"""Lowest and highest angle of each degree of freedom; those of limbs hold for both sides."""

BACKWARD_ELEVATION = 60.0
"""Highest shoulder elevation when the upper arm points behind the trunk (plane below -20)."""

SIDES: tuple[tuple[str, float], ...] = (("r", -1.0), ("l", 1.0))


@dataclass(frozen=True)
class Proportions:
    """Lengths of the bones and a factor on all girths, in average torso lengths."""

    torso: float = 1.0
    thigh: float = 0.88
    shin: float = 0.86
    foot: float = 0.36
    upper_arm: float = 0.60
    forearm: float = 0.51
    hand: float = 0.20
    neck: float = 0.17
    head: float = 0.58
    half_shoulders: float = 0.39
    half_hips: float = 0.20
    girth: float = 1.0


@dataclass(frozen=True)
class Figure:
    """A posed figure."""

    angles: Mapping[str, float]  # every degree of freedom in degrees, those of limbs with the prefix ``r_`` or ``l_``
    proportions: Proportions  # the lengths it is built with
    # name -> (3,) position: the 16 joints, ``waist``, and ``toe``, ``heel`` and ``finger`` of each side
    points: Mapping[str, Vector]
    # name -> (3, 3): ``pelvis``, ``waist``, ``chest``, ``head``, and of each side ``thigh``, ``shin``,
    # ``upper_arm`` and ``forearm``
    frames: Mapping[str, Frame]

    @property
    def joints(self) -> NDArray[np.float64]:
        """(16, 3) positions in the order of ``JOINTS``."""
        return np.array([self.points[name] for name in JOINTS])


def clip_angles(angles: Mapping[str, float]) -> dict[str, float]:
    """Bring every angle within ``LIMITS``, and the elevation of an arm that points backwards below its own."""
    clipped = {}
    for name, angle in angles.items():
        low, high = LIMITS[name[2:] if name[:2] in ("r_", "l_") else name]
        clipped[name] = float(min(max(angle, low), high))
    for side, _ in SIDES:
        if clipped[f"{side}_shoulder_plane"] < -20.0:
            name = f"{side}_shoulder_elevation"
            clipped[name] = min(clipped[name], BACKWARD_ELEVATION)
    return clipped


def pose_figure(angles: Mapping[str, float], proportions: Proportions) -> Figure:
    """Forward kinematics: place every joint for these angles, pelvis at the origin, facing along z."""
    p, a = proportions, angles
    frames: dict[str, Frame] = {}
    points: dict[str, Vector] = {"pelvis": np.zeros(3)}
    frames["pelvis"] = turn("z", -a["list"]) @ turn("x", a["lean"])
    half = (
        turn("y", a["spine_twist"] / 2)
        @ turn("z", -a["spine_side"] / 2)  # about +z, the head would go to the figure's right
        @ turn("x", a["spine_flexion"] / 2)
    )
    frames["waist"] = frames["pelvis"] @ half
    frames["chest"] = frames["waist"] @ half
    points["waist"] = 0.42 * p.torso * frames["waist"][:, 1]
    points["thorax"] = points["waist"] + 0.58 * p.torso * frames["chest"][:, 1]
    neck = frames["chest"] @ turn("x", 14.0 + 0.5 * a["neck_flexion"])  # the neck leans forward at rest
    points["upper_neck"] = points["thorax"] + p.neck * neck[:, 1]
    nod = turn("x", 0.5 * a["neck_flexion"] - 10.0)
    frames["head"] = neck @ turn("y", a["neck_twist"]) @ turn("z", -a["neck_side"]) @ nod
    points["head_top"] = points["upper_neck"] + p.head * frames["head"][:, 1]
    for side, left in SIDES:
        _place_leg(side, left, a, p, points, frames)
        _place_arm(side, left, a, p, points, frames)
    return Figure(angles=dict(angles), proportions=p, points=points, frames=frames)


def _place_leg(
    side: str, left: float, a: Mapping[str, float], p: Proportions, points: dict[str, Vector], frames: dict[str, Frame]
) -> None:
    pelvis = frames["pelvis"]
    thigh = pelvis @ turn("x", -a[f"{side}_hip_flexion"]) @ turn("z", left * a[f"{side}_hip_abduction"])
    thigh = thigh @ turn("y", left * a[f"{side}_hip_rotation"])
    shin = thigh @ turn("x", a[f"{side}_knee_flexion"])
    foot = shin @ turn("x", -a[f"{side}_ankle_flexion"])
    hip = left * p.half_hips * pelvis[:, 0]
    knee = hip - p.thigh * thigh[:, 1]
    ankle = knee - p.shin * shin[:, 1]
    points[f"{side}_hip"], points[f"{side}_knee"], points[f"{side}_ankle"] = hip, knee, ankle
    points[f"{side}_heel"] = ankle + p.foot * (-0.22 * foot[:, 1] - 0.15 * foot[:, 2])
    points[f"{side}_toe"] = ankle + p.foot * (-0.25 * foot[:, 1] + 0.75 * foot[:, 2])
    frames[f"{side}_thigh"], frames[f"{side}_shin"] = thigh, shin


def _place_arm(
    side: str, left: float, a: Mapping[str, float], p: Proportions, points: dict[str, Vector], frames: dict[str, Frame]
) -> None:
    chest = frames["chest"]
    elevation, plane = a[f"{side}_shoulder_elevation"], left * a[f"{side}_shoulder_plane"]
    shrug = math.radians(min(max(0.3 * (elevation - 60.0), 0.0), 30.0) - 8.0)  # the collar bone follows a raised arm
    reach = p.half_shoulders * (left * math.cos(shrug) * chest[:, 0] + math.sin(shrug) * chest[:, 1])
    # Tilt the hanging arm outwards within its plane and undo the turn, so that a raised arm is not twisted.
    arm = chest @ turn("y", -plane) @ turn("z", left * elevation) @ turn("y", plane)
    arm = arm @ turn("y", -left * a[f"{side}_shoulder_rotation"])
    forearm = arm @ turn("x", -a[f"{side}_elbow_flexion"])
    shoulder = points["thorax"] + reach
    elbow = shoulder - p.upper_arm * arm[:, 1]
    wrist = elbow - p.forearm * forearm[:, 1]
    points[f"{side}_shoulder"], points[f"{side}_elbow"], points[f"{side}_wrist"] = shoulder, elbow, wrist
    points[f"{side}_finger"] = wrist - p.hand * forearm[:, 1]
    frames[f"{side}_upper_arm"], frames[f"{side}_forearm"] = arm, forearm


def turn(axis: str, degrees: float) -> Frame:
    """The rotation about an axis: ``x`` turns up to the front, ``y`` the front to the left, ``z`` the left upwards."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    if axis == "x":
        return np.array([[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]])
    if axis == "y":
        return np.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
    return np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
