"""Random bodies and poses for the jointed figure: what people in photographs do, in numbers.

A pose is a stance and a gesture of each arm, with continuous variation around both. The weights were chosen so that
projected joints spread as those of the MPII poses; the angles come from no recorded motion.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cml.data_prep.synthetic.people.figure import SIDES, Proportions, clip_angles
from cml.data_prep.synthetic.random_choice import Rng

_TRUNK: dict[str, tuple[float, float]] = {  # mean and standard deviation where a stance does not say
    "lean": (2.0, 6.0),
    "list": (0.0, 4.0),
    "spine_flexion": (6.0, 9.0),
    "spine_side": (0.0, 7.0),
    "spine_twist": (0.0, 11.0),
    "neck_flexion": (4.0, 13.0),
    "neck_side": (0.0, 8.0),
    "neck_twist": (0.0, 22.0),
}


# A stance: its weight, the trunk's angles, then the leading and the other leg (None: like the leading one). Every angle
# is (mean, deviation); a leg is flexion, abduction and rotation of the hip, flexion of the knee. Which leads is drawn.
_Angle = tuple[float, float]


_Leg = tuple[_Angle, _Angle, _Angle, _Angle]


_STANCES: dict[str, tuple[float, dict[str, _Angle], _Leg, _Leg | None]] = {
    "stand": (0.20, {}, ((6, 7), (4, 5), (8, 9), (9, 9)), ((2, 6), (4, 5), (8, 9), (6, 7))),
    "shift": (0.10, {"list": (0, 7)}, ((20, 12), (10, 9), (12, 12), (32, 20)), ((2, 8), (6, 7), (8, 10), (9, 8))),
    "walk": (0.12, {"lean": (4, 5)}, ((25, 9), (2, 4), (4, 6), (14, 10)), ((-12, 7), (2, 4), (4, 6), (28, 16))),
    "run": (0.08, {"lean": (12, 8)}, ((58, 18), (2, 6), (2, 6), (82, 25)), ((-10, 12), (2, 6), (2, 6), (36, 28))),
    "straddle": (0.05, {}, ((10, 12), (22, 9), (14, 12), (14, 15)), None),
    "lunge": (0.05, {"lean": (10, 12)}, ((66, 18), (8, 9), (8, 10), (76, 20)), ((-10, 11), (6, 8), (5, 9), (26, 20))),
    "kick": (0.03, {"lean": (-8, 14)}, ((68, 28), (14, 14), (8, 14), (28, 26)), ((4, 12), (5, 7), (8, 10), (16, 12))),
    "sit": (0.12, {"lean": (-2, 12)}, ((84, 12), (10, 9), (4, 10), (86, 22)), None),
    "ride": (0.05, {"lean": (26, 13)}, ((84, 15), (6, 6), (4, 6), (88, 18)), ((48, 15), (6, 6), (4, 6), (54, 20))),
    "crouch": (0.06, {"lean": (20, 13)}, ((100, 16), (16, 11), (8, 12), (112, 20)), None),
    "kneel": (0.04, {}, ((82, 14), (8, 7), (4, 8), (86, 14)), ((4, 10), (6, 6), (2, 8), (92, 12))),
    "bend": (0.08, {"lean": (38, 18), "spine_flexion": (34, 15)}, ((48, 18), (7, 7), (6, 8), (22, 18)), None),
    "prone": (0.03, {"lean": (78, 16)}, ((14, 20), (5, 7), (4, 8), (20, 22)), ((5, 14), (5, 7), (4, 8), (12, 16))),
    "tumble": (0.04, {"lean": (0, 85), "list": (0, 45)}, ((30, 40), (16, 18), (5, 15), (40, 38)), None),
}


# A gesture of one arm: its weight, then elevation, plane and rotation of the shoulder, flexion of the elbow.
_GESTURES: dict[str, tuple[float, _Angle, _Angle, _Angle, _Angle]] = {
    "hang": (0.26, (14, 8), (25, 35), (20, 18), (24, 16)),
    "forwards": (0.12, (36, 13), (82, 18), (15, 16), (55, 28)),
    "backwards": (0.08, (36, 12), (-60, 12), (10, 14), (52, 28)),
    "hold": (0.18, (30, 12), (50, 24), (46, 20), (88, 24)),
    "akimbo": (0.06, (42, 8), (-8, 12), (62, 10), (92, 12)),
    "reach": (0.11, (70, 22), (82, 18), (8, 26), (34, 25)),
    "aside": (0.06, (72, 20), (8, 18), (0, 26), (30, 24)),
    "face": (0.06, (46, 18), (62, 20), (22, 18), (122, 13)),
    "wave": (0.03, (84, 18), (6, 20), (-62, 20), (85, 28)),
    "up": (0.04, (152, 18), (45, 32), (-5, 22), (36, 28)),
}


_LEG = ("hip_flexion", "hip_abduction", "hip_rotation", "knee_flexion")


_ARM = ("shoulder_elevation", "shoulder_plane", "shoulder_rotation", "elbow_flexion")


def sample_proportions(rng: Rng) -> Proportions:
    """Draw a body: children to adults, slim to stout, no two limbs scaled quite alike."""
    adult = Proportions()
    legs, arms, shoulders, hips, torso = (1.0 + 0.05 * np.clip(rng.standard_normal(5), -2.5, 2.5)).tolist()
    childlike = max(0.0, rng.normal(-0.1, 0.14))  # shorter limbs, larger head
    short, shorter = 1 - 0.4 * childlike, 1 - 0.5 * childlike
    leg = {"thigh": adult.thigh * legs * shorter, "shin": adult.shin * legs * shorter, "foot": adult.foot * legs}
    upper, lower, hand = adult.upper_arm * arms * short, adult.forearm * arms * short, adult.hand * arms
    trunk = {"torso": adult.torso * torso, "half_shoulders": adult.half_shoulders * shoulders * short}
    neck = adult.neck * float(rng.uniform(0.7, 1.3))
    head = adult.head * (1 + childlike) * (1 + 0.06 * float(np.clip(rng.standard_normal(), -2, 2)))
    trunk |= {"neck": neck, "head": head, "half_hips": adult.half_hips * hips}
    girth = float(np.clip(rng.lognormal(0.0, 0.14), 0.75, 1.45))
    return Proportions(**leg, **trunk, upper_arm=upper, forearm=lower, hand=hand, girth=girth)


def sample_angles(rng: Rng) -> dict[str, float]:
    """Draw a pose: a stance, a gesture of each arm, and continuous variation around both, all within ``LIMITS``."""
    stance = _choose(rng, _STANCES)
    _, trunk, leading, other = _STANCES[stance]
    angles = {name: rng.normal(*trunk.get(name, usual)) for name, usual in _TRUNK.items()}
    leader = "r" if rng.random() < 0.5 else "l"
    for side, _ in SIDES:
        leg = leading if side == leader or other is None else other
        angles |= {f"{side}_{name}": rng.normal(*angle) for name, angle in zip(_LEG, leg, strict=True)}
    if stance in ("walk", "run") and rng.random() < 0.75:  # the arm swings against the leg of its side
        gestures = {side: "backwards" if side == leader else "forwards" for side, _ in SIDES}
    elif stance in ("ride", "prone", "bend") and rng.random() < 0.6:
        gestures = dict.fromkeys("rl", "reach")
    else:
        gestures = {side: _choose(rng, _GESTURES) for side, _ in SIDES}
        if rng.random() < 0.4:
            gestures["l"] = gestures["r"]
    for side, gesture in gestures.items():
        arm = zip(_ARM, _GESTURES[gesture][1:], strict=True)
        angles |= {f"{side}_{name}": rng.normal(*angle) for name, angle in arm}
    for side, _ in SIDES:  # a sole lies flat on the ground where the ankle can bend so far; else the toes point
        slope = angles["lean"] - angles[f"{side}_hip_flexion"] + angles[f"{side}_knee_flexion"]
        angles[f"{side}_ankle_flexion"] = 0.8 * slope if abs(slope) < 40.0 else rng.normal(-18.0, 10.0)
    return clip_angles(angles)


def _choose(rng: Rng, rows: Mapping[str, Sequence[Any]]) -> str:
    """A name, each as likely as the first entry of its row says."""
    mark = rng.random() * sum(row[0] for row in rows.values())
    for name, row in rows.items():  # noqa: B007 - the last one where rounding leaves none
        mark -= row[0]
        if mark < 0:
            break
    return name
