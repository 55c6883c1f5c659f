"""Corner joints: joints at the corner of the photograph, where annotation tools put those that they did not see."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cml.plausibility.crops import read_crops
from cml.plausibility.finding import Finding

_REACH = 1.6  # pixels from (0, 0): (-1, -1) or (0, 0), counted from 0 or 1, at edges or middles of pixels
_FEWEST = 2  # joints; one may be at the corner by chance


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
    at_corner = (np.abs(places).max(axis=2) <= _REACH) & (joints[..., 2] > 0)
    people = np.flatnonzero(at_corner.any(axis=1))
    count = int(at_corner.sum())
    if count >= _FEWEST:
        yield Finding(
            "sentinels",
            f"{count} joints that are marked as visible lie at the corner (0, 0) of their photographs",
            "If that stands for a joint that was not seen, mark it as hidden by the third number 0.",
            count,
            int((joints[..., 2] > 0).sum()),
            [items[place] for place in people[:8].tolist()],
        )
