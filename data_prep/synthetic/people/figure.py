"""A jointed human figure in three dimensions: its degrees of freedom, and where the joints lie.

The limits of the joints are rounded from clinical ranges of motion, the proportions from drawing manuals.

Frames are right-handed and the figure's own: x to its left, y up, z to its front. Lengths are in torso lengths (pelvis
to thorax of the average figure), angles in degrees.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cml.array_types import Float64

Vector = Float64  # (3,) a point or direction


Frame = Float64  # (3, 3) a rotation; its columns are the part's left, up and front


JOINTS: tuple[str, ...] = (
    *("r_ankle", "r_knee", "r_hip", "l_hip", "l_knee", "l_ankle", "pelvis", "thorax", "upper_neck", "head_top"),
    *("r_wrist", "r_elbow", "r_shoulder", "l_shoulder", "l_elbow", "l_wrist"),
)
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


BACKWARD_ELEVATION = 60.0  # highest shoulder elevation when the upper arm points behind the trunk (plane below -20)


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
    proportions: Proportions
    # name -> (3,) position: the 16 joints, ``waist``, and ``toe``, ``heel`` and ``finger`` of each side
    points: Mapping[str, Vector]
    # name -> (3, 3): ``pelvis``, ``waist``, ``chest``, ``head``, and of each side ``thigh``, ``shin``,
    # ``upper_arm`` and ``forearm``
    frames: Mapping[str, Frame]

    @property
    def joints(self) -> Float64:
        """(16, 3) positions in the order of ``JOINTS``."""
        return np.array([self.points[name] for name in JOINTS])


def clip_angles(angles: Mapping[str, float]) -> dict[str, float]:
    """Bring every angle within ``LIMITS``, and the elevation of an arm that points backwards below its own."""
    limits = {name: LIMITS[name[2:] if name[:2] in ("r_", "l_") else name] for name in angles}
    clipped = {name: float(min(max(angle, limits[name][0]), limits[name][1])) for name, angle in angles.items()}
    for side, _ in SIDES:
        if clipped[f"{side}_shoulder_plane"] < -20.0:
            clipped[f"{side}_shoulder_elevation"] = min(clipped[f"{side}_shoulder_elevation"], BACKWARD_ELEVATION)
    return clipped


def pose_figure(angles: Mapping[str, float], proportions: Proportions) -> Figure:
    """Forward kinematics: place every joint for these angles, pelvis at the origin, facing along z."""
    p, a = proportions, angles
    pelvis = turn("z", -a["list"]) @ turn("x", a["lean"])
    sway, bend = turn("z", -a["spine_side"] / 2), turn("x", a["spine_flexion"] / 2)  # +z: the head to the right
    half = turn("y", a["spine_twist"] / 2) @ sway @ bend
    waist = pelvis @ half
    chest = waist @ half
    neck = chest @ turn("x", 14.0 + 0.5 * a["neck_flexion"])  # the neck leans forward at rest
    nod = turn("x", 0.5 * a["neck_flexion"] - 10.0)
    head = neck @ turn("y", a["neck_twist"]) @ turn("z", -a["neck_side"]) @ nod
    frames: dict[str, Frame] = {"pelvis": pelvis, "waist": waist, "chest": chest, "head": head}
    points: dict[str, Vector] = {"pelvis": np.zeros(3), "waist": 0.42 * p.torso * waist[:, 1]}
    points["thorax"] = points["waist"] + 0.58 * p.torso * chest[:, 1]
    points["upper_neck"] = points["thorax"] + p.neck * neck[:, 1]
    points["head_top"] = points["upper_neck"] + p.head * head[:, 1]
    for side, left in SIDES:
        own = {name[2:]: angle for name, angle in a.items() if name.startswith(f"{side}_")}
        thigh = pelvis @ turn("x", -own["hip_flexion"]) @ turn("z", left * own["hip_abduction"])
        thigh = thigh @ turn("y", left * own["hip_rotation"])
        shin = thigh @ turn("x", own["knee_flexion"])
        foot = shin @ turn("x", -own["ankle_flexion"])
        hip = left * p.half_hips * pelvis[:, 0]
        knee = hip - p.thigh * thigh[:, 1]
        ankle = knee - p.shin * shin[:, 1]
        heel = ankle + p.foot * (-0.22 * foot[:, 1] - 0.15 * foot[:, 2])
        toe = ankle + p.foot * (-0.25 * foot[:, 1] + 0.75 * foot[:, 2])

        elevation, plane = own["shoulder_elevation"], left * own["shoulder_plane"]
        shrug = math.radians(min(max(0.3 * (elevation - 60.0), 0.0), 30.0) - 8.0)  # the collar bone follows the arm
        reach = p.half_shoulders * (left * math.cos(shrug) * chest[:, 0] + math.sin(shrug) * chest[:, 1])
        # Tilt the hanging arm outwards within its plane and undo the turn, so that a raised arm is not twisted.
        arm = chest @ turn("y", -plane) @ turn("z", left * elevation) @ turn("y", plane)
        arm = arm @ turn("y", -left * own["shoulder_rotation"])
        forearm = arm @ turn("x", -own["elbow_flexion"])
        shoulder = points["thorax"] + reach
        elbow = shoulder - p.upper_arm * arm[:, 1]
        wrist = elbow - p.forearm * forearm[:, 1]
        finger = wrist - p.hand * forearm[:, 1]

        leg = {"hip": hip, "knee": knee, "ankle": ankle, "heel": heel, "toe": toe}
        limbs = {**leg, "shoulder": shoulder, "elbow": elbow, "wrist": wrist, "finger": finger}
        points |= {f"{side}_{name}": point for name, point in limbs.items()}
        turned = {"thigh": thigh, "shin": shin, "upper_arm": arm, "forearm": forearm}
        frames |= {f"{side}_{name}": frame for name, frame in turned.items()}
    return Figure(dict(angles), p, points, frames)


def turn(axis: str, degrees: float) -> Frame:
    """The rotation about an axis: ``x`` turns up to the front, ``y`` the front to the left, ``z`` the left upwards."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    rows = {
        "x": [[1.0, 0.0, 0.0], [0.0, c, -s], [0.0, s, c]],
        "y": [[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]],
        "z": [[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]],
    }
    return np.array(rows[axis])
