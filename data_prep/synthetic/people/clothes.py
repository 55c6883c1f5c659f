"""Random clothes for the jointed figure, and the dressed figure as painted shapes."""

import colorsys
import math
from typing import NamedTuple

from cml.data_prep.synthetic.people.figure import SIDES, Figure, Frame, Vector
from cml.data_prep.synthetic.people.painting import Colour, Part, Sphere
from cml.data_prep.synthetic.random_choice import Rng, pick

_SLEEVES = (0.0, 0.55, 0.7, 1.0, 2.0, 2.0)


_LEGS = (0.6, 1.0, 2.0, 2.0, 2.0)


_HAIR: tuple[Colour, ...] = ((28, 24, 24), (58, 40, 30), (92, 62, 38), (140, 100, 60), (196, 164, 108), (120, 118, 116))


class Clothes(NamedTuple):
    """What a figure wears, and its colours."""

    skin: Colour  # colour of skin; likewise hair, shirt, trousers, shoes and mark
    hair: Colour
    shirt: Colour
    trousers: Colour
    shoes: Colour
    sleeve: float  # covered part of the arm: 0 none, 1 to the elbow, 2 to the wrist
    leg: float  # covered part of the leg: 0 none, 1 to the knee, 2 to the ankle
    skirt: float  # how far a skirt reaches down the thigh, 0 to 1.4; 0: no skirt
    long_hair: bool  # whether the hair falls on the shoulders
    mark: Colour | None  # colour of the print on the front of the chest, or None


def sample_clothes(rng: Rng) -> Clothes:
    """Draw random clothes and colours."""
    skin = _mix((242, 205, 178), (92, 60, 44), rng.random() ** 1.3)  # light to dark
    hair = pick(rng, _HAIR)
    if rng.random() < 0.2:  # a cap
        hair = _cloth(rng)
    shirt = _cloth(rng)
    trousers = shirt if rng.random() < 0.1 else _cloth(rng, sober=True)
    skirt = rng.uniform(0.5, 1.4) if rng.random() < 0.15 else 0.0
    leg = 0.3 if skirt else pick(rng, _LEGS)
    shoes = skin if rng.random() < 0.1 else _cloth(rng, sober=True)
    sleeve, leg = pick(rng, _SLEEVES) * (1 - 0.1 * rng.random()), leg * (1 - 0.1 * rng.random())
    long_hair, mark = bool(rng.random() < 0.3), _cloth(rng) if rng.random() < 0.5 else None
    return Clothes(skin, hair, shirt, trousers, shoes, sleeve, leg, skirt, long_hair, mark)


def body_parts(figure: Figure, clothes: Clothes, view: Frame) -> list[Part]:  # view (3, 3)
    """Dress a figure, and take it apart into painted shapes."""
    return _Model(figure, clothes, view).parts


class _Model:
    """A dressed figure in camera coordinates, and the parts made of it."""

    def __init__(self, figure: Figure, clothes: Clothes, view: Frame) -> None:
        self.proportions, self.clothes = figure.proportions, clothes
        self.points = {name: view @ point for name, point in figure.points.items()}
        self.frames = {name: view @ frame for name, frame in figure.frames.items()}
        self.parts: list[Part] = []
        self._add_trunk()
        self._add_head()
        for side, _ in SIDES:
            self._add_arm(side)
            self._add_leg(side)

    def _add(self, depth: float, colour: Colour, spheres: list[Sphere], *, flat: bool = False) -> None:
        self.parts.append(Part(float(depth), colour, spheres, flat))

    def _of_side(self, side: str, *names: str) -> list[Vector]:
        return [self.points[f"{side}_{name}"] for name in names]

    def _add_trunk(self) -> None:
        p, g, clothes, at = self.proportions, self.proportions.girth, self.clothes, self.points
        chest, waist, pelvis = self.frames["chest"], self.frames["waist"], self.frames["pelvis"]
        thorax, middle, root = at["thorax"], at["waist"], at["pelvis"]
        ribs = thorax - 0.3 * p.torso * chest[:, 1]
        top = thorax - 0.02 * chest[:, 1]
        upper = [
            (thorax - 0.04 * chest[:, 1], 0.12),
            *((0.85 * at[f"{side}_shoulder"] + 0.15 * top, 0.125 * g) for side, _ in SIDES),
            *((ribs + left * 0.5 * p.half_shoulders * chest[:, 0] + 0.02 * chest[:, 2], 0.17 * g) for _, left in SIDES),
        ]
        half = 0.6 * p.half_hips * g
        belly = [(middle + left * half * waist[:, 0] + 0.02 * waist[:, 2], 0.155 * g) for _, left in SIDES]
        hips = [(root + left * 0.75 * p.half_hips * pelvis[:, 0], 0.175 * g) for _, left in SIDES]
        seat = (root - 0.05 * pelvis[:, 2] - 0.02 * pelvis[:, 1], 0.18 * g)
        hem = [(0.45 * middle + 0.55 * centre, radius) for centre, radius in hips]
        shirt_depth, seat_depth = 0.6 * ribs[2] + 0.4 * middle[2], 0.3 * middle[2] + 0.7 * root[2]
        self._add(seat_depth - 0.03, clothes.trousers, [*belly, *hips, seat])
        self._add(shirt_depth, clothes.shirt, [*belly, *upper])
        # The shirt hangs over the trousers even where the seat is nearer.
        self._add(max(shirt_depth - 0.001, seat_depth + 0.001), clothes.shirt, [*belly, *hem])
        towards = chest[2, 2]
        if towards > 0.15:  # the chest shows
            surface = thorax + 0.15 * g * chest[:, 2]
            opening = [(surface - 0.03 * chest[:, 1] + left * 0.07 * chest[:, 0], 0.035) for _, left in SIDES]
            opening.append((surface - 0.13 * chest[:, 1], 0.03))
            self._add(shirt_depth + 0.01, clothes.skin, opening, flat=True)
            if clothes.mark is not None:
                sign = ribs + 0.17 * g * chest[:, 2]
                patch = [(sign + left * 0.12 * chest[:, 0], 0.07) for _, left in SIDES]
                self._add(shirt_depth + 0.011, clothes.mark, patch, flat=True)
        neck = [(thorax, 0.1), (0.1 * thorax + 0.9 * at["upper_neck"], 0.095)]
        self._add(thorax[2] + math.copysign(0.012, towards), clothes.skin, neck)

    def _add_head(self) -> None:
        size, clothes, base = self.proportions.head, self.clothes, self.points["upper_neck"]
        left, up, front = size * self.frames["head"].T
        skull, jaw = base + 0.60 * up - 0.03 * front, base + 0.20 * up + 0.12 * front
        depth, towards = skull[2], front[2] / size  # towards: 1 looks at the viewer, -1 away
        order = math.copysign(0.002, towards)  # what is in front of what, within the head
        self._add(depth - 0.003, clothes.skin, [(skull - 0.05 * up, 0.36 * size), (jaw, 0.22 * size)])
        self._add(depth, clothes.hair, [(skull, 0.40 * size), (skull - 0.08 * (front + up), 0.40 * size)])
        face = [(skull + 0.24 * front + 0.02 * up + x * left, 0.20 * size) for x in (-0.15, 0.15)]
        self._add(depth + order, clothes.skin, [*face, (jaw + 0.02 * front, 0.21 * size)])
        if towards > -0.15:
            nose = [(skull + 0.43 * front - 0.08 * up, 0.04 * size), (skull + 0.40 * front - 0.18 * up, 0.06 * size)]
            self._add(depth + 0.004, clothes.skin, nose)
            for x in (-0.17, 0.17):
                if (0.9 * front + 2.2 * x * left)[2] > 0.2 * size:  # this eye is not behind the curve of the face
                    eye = skull + 0.36 * front + x * left - 0.02 * up
                    self._add(depth + 0.003, (38, 28, 26), [(eye, 0.05 * size)], flat=True)
        if towards > 0.2:
            mouth = [(skull + 0.34 * front - 0.36 * up + x * left, 0.035 * size) for x in (-0.1, 0.1)]
            self._add(depth + 0.003, _mix(clothes.skin, (120, 30, 30), 0.55), mouth, flat=True)
        if clothes.long_hair:
            nape = [(base - 0.18 * front - 0.15 * up + x * left, 0.2 * size) for x in (-0.15, 0.15)]
            hair = [(skull - 0.16 * front - 0.1 * up, 0.38 * size), *nape]
            self._add(nape[0][0][2] - 1.5 * order, clothes.hair, hair)

    def _add_arm(self, side: str) -> None:
        g, skin = self.proportions.girth, self.clothes.skin
        shoulder, elbow, wrist, finger = self._of_side(side, "shoulder", "elbow", "wrist", "finger")
        upper, lower = (shoulder[2] + elbow[2]) / 2, (elbow[2] + wrist[2]) / 2
        self._add(upper, skin, [(shoulder, 0.105 * g), (elbow, 0.078 * g)])
        self._add(lower, skin, [(elbow, 0.078 * g), (0.7 * elbow + 0.3 * wrist, 0.08 * g), (wrist, 0.052 * g)])
        self._add(lower + 0.001, skin, [(0.8 * wrist + 0.2 * finger, 0.055), (0.25 * wrist + 0.75 * finger, 0.05)])
        limb = [(shoulder, 0.125 * g), (elbow, 0.095 * g), (wrist, 0.07 * g)]
        self._add_cloth(self.clothes.shirt, self.clothes.sleeve, limb, (upper, lower))

    def _add_leg(self, side: str) -> None:
        g, clothes = self.proportions.girth, self.clothes
        hip, knee, ankle, toe, heel = self._of_side(side, "hip", "knee", "ankle", "toe", "heel")
        upper, lower = (hip[2] + knee[2]) / 2, (knee[2] + ankle[2]) / 2
        calf = 0.7 * knee + 0.3 * ankle - 0.03 * self.frames[f"{side}_shin"][:, 2]
        self._add(upper, clothes.skin, [(hip, 0.155 * g), (knee, 0.108 * g)])
        self._add(lower, clothes.skin, [(knee, 0.102 * g), (calf, 0.108 * g), (ankle, 0.062 * g)])
        self._add(ankle[2] + 0.001, clothes.shoes, [(ankle, 0.07), (heel, 0.065), (toe, 0.055)])
        limb = [(hip, 0.17 * g), (knee, 0.12 * g), (ankle, 0.09 * g)]
        self._add_cloth(clothes.trousers, clothes.leg, limb, (upper, lower))
        if clothes.skirt:
            other = self.points["l_knee" if side == "r" else "r_knee"]
            hem = hip + clothes.skirt * (0.8 * knee + 0.2 * other - hip)
            skirt = [(self.points["pelvis"], 0.19 * g), (hip, 0.17 * g), (hem, 0.17 * g)]
            self._add(upper + 0.004, clothes.trousers, skirt)

    def _add_cloth(self, colour: Colour, length: float, limb: list[Sphere], depths: tuple[float, float]) -> None:
        """A sleeve or trouser leg over the first ``length`` of a limb's two segments."""
        for segment, depth in enumerate(depths):
            covered = min(length - segment, 1.0)
            if covered > 0.05:
                (start, wide), (end, narrow) = limb[segment : segment + 2]
                cuff = start + covered * (end - start), wide + covered * (narrow - wide)
                self._add(depth + 0.002, colour, [(start, wide), cuff])


def _cloth(rng: Rng, *, sober: bool = False) -> Colour:
    hue, saturation, value = rng.random(3)
    if sober:  # blue, brown, black, grey
        hue, saturation, value = (0.6 if hue < 0.5 else hue), 0.55 * saturation, 0.12 + 0.6 * value
    else:
        saturation, value = saturation**0.8, 0.18 + 0.8 * value
    red, green, blue = colorsys.hsv_to_rgb(hue, saturation, value)
    return 255 * red, 255 * green, 255 * blue


def _mix(a: Colour, b: Colour, share: float) -> Colour:
    red, green, blue = ((1 - share) * x + share * y for x, y in zip(a, b, strict=True))
    return red, green, blue
