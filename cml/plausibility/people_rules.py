"""What is suspicious about people: joints at the corner of their photographs, and crops of few pixels."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.plausibility.finding import Finding

# The squares that people were cut out of photographs by, as pose datasets record them.


def read_crops(columns: Sequence[Mapping[str, Any]]) -> Float64 | None:
    """Read the crop of each person.

    Returns (N, 3) left, top and side in pixels of the photograph; None unless each has "crop" with three numbers.
    """
    try:
        crops = np.array([row["crop"] for row in columns], np.float64)
    except (KeyError, TypeError, ValueError):
        return None
    return crops if crops.ndim == 2 and crops.shape[1] == 3 and np.isfinite(crops).all() else None


# Corner joints: joints at the corner of the photograph, where annotation tools put those that they did not see.

_REACH_OF_CORNER = 1.6  # pixels from (0, 0): (-1, -1) or (0, 0), counted from 0 or 1, at edges or middles of pixels
_FEWEST_JOINTS = 2  # joints; one may be at the corner by chance


def find_corner_joints(
    items: Sequence[str],
    labels: Sequence[Any],  # the N labels, (J, 3) each: x, y in pixels of the crop, and whether the joint is visible
    # the N further columns of metadata.jsonl, of which "crop" holds left, top and side, in pixels
    columns: Sequence[Mapping[str, Any]],
    size: float,  # side of the crops, in pixels
) -> Iterator[Finding]:  # one finding under the rule ``sentinels``, if there are two or more
    """Find visible joints that lie exactly at the upper left corner of their photographs."""
    crops = read_crops(columns)
    if crops is None or not len(items):
        return
    joints = np.asarray(labels, np.float64)
    if joints.ndim != 3 or joints.shape[2] != 3:
        return
    places = crops[:, None, :2] + joints[..., :2] * (crops[:, 2] / size)[:, None, None]
    at_corner = (np.abs(places).max(axis=2) <= _REACH_OF_CORNER) & (joints[..., 2] > 0)
    people = np.flatnonzero(at_corner.any(axis=1))
    count = int(at_corner.sum())
    if count >= _FEWEST_JOINTS:
        yield Finding(
            "sentinels",
            f"{count} joints that are marked as visible lie at the corner (0, 0) of their photographs",
            "If that stands for a joint that was not seen, mark it as hidden by the third number 0.",
            count,
            int((joints[..., 2] > 0).sum()),
            [items[place] for place in people[:8].tolist()],
        )


# Tiny people: crops of a few pixels of a photograph, which are enlarged to the size of all crops.

_SMALLEST = 24  # pixels of the photograph that are the side of a crop; a stored one has 288


def find_tiny_people(
    items: Sequence[str],
    # the N further columns of metadata.jsonl, of which "crop" holds left, top and side, in pixels
    columns: Sequence[Mapping[str, Any]],
) -> Iterator[Finding]:
    """Find people whose crop has a side of less than 24 pixels in the photograph."""
    crops = read_crops(columns)
    sides = [] if crops is None else crops[:, 2].tolist()
    tiny = [f"{item}: {side:g}" for item, side in zip(items, sides, strict=False) if side < _SMALLEST]
    if tiny:
        yield Finding(
            "tiny-people",
            f"the crops of {len(tiny)} of {len(items)} people have a side of less than {_SMALLEST} pixels",
            "Leave out people of a few pixels, or check whether their joints are in pixels.",
            len(tiny),
            len(items),
            tiny[:8],
        )
