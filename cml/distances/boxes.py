"""Sets of labelled boxes. Not for: masks (layout), or sets whose members all look for their nearest (sets)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from cml.array_types import Float32, Float64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short


@dataclass(frozen=True)
class Boxes(LabelDistance):
    """1 - the mean IoU of boxes that are matched one to one as well as possible; a box without a partner counts as 0.

    A label is a list of boxes [class, x0, y0, x1, y1], or of texts "class x0 y0 x1 y1"; boxes of different classes have
    an IoU of 0. The mean is over the larger of the two sets. Two empty sets are equal.

    Source:
        Schuhmacher et al., "A Consistent Metric for Performance Evaluation of Multi-Object Filters", IEEE TSP 2008:
        the OSPA metric of order 1 with cut-off 1, over 1 - IoU.

    Example:
        >>> distance = Boxes()
        >>> rooms = distance.encode([[["bed", 0, 0, 2, 2]], [["bed", 0, 0, 2, 1], ["desk", 3, 3, 4, 4]]])
        >>> distance.pairwise(rooms[:1], rooms).tolist()
        [[0.0, 0.75]]
    """

    name: ClassVar[str] = "boxes"
    unit: ClassVar[str] = "1 - IoU"
    is_metric: ClassVar[bool] = True
    is_costly: ClassVar[bool] = True

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # arrays ``corners`` (N, M, 4) float64, ``kinds`` (N, M) text, ``count`` (N,) int
        """Check and pack sets of boxes."""
        read = [_read_boxes(label, position) for position, label in enumerate(labels)]
        most = max(1, *(len(kinds) for kinds, _ in read))
        corners, kinds = np.zeros((len(read), most, 4)), np.full((len(read), most), "", object)
        for row, (names, numbers) in enumerate(read):
            kinds[row, : len(names)], corners[row, : len(names)] = names, numbers
        count = np.array([len(names) for names, _ in read])
        return Labels({"corners": corners, "kinds": kinds.astype(str), "count": count})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        result = np.empty((len(a), len(b)), np.float32)
        for i in range(len(a)):
            overlap = _overlaps(a[i : i + 1], b)  # (boxes of i, B, M)
            mine = int(a.arrays["count"][i])
            for j, others in enumerate(b.arrays["count"].tolist()):
                pairs = overlap[:, j, :others]
                if min(mine, others) > 1:
                    pairs = pairs[linear_sum_assignment(pairs, maximize=True)]
                best = pairs.sum() if min(mine, others) > 1 else pairs.max(initial=0.0)
                result[i, j] = 1 - best / max(mine, others) if max(mine, others) else 0.0
        return np.maximum(result, 0, out=result)


def _overlaps(label: Labels, others: Labels) -> Float64:
    """Compute the IoU of each box of one label with each box of B labels, 0 between classes: (boxes, B, M)."""
    count = int(label.arrays["count"][0])
    mine, kinds = label.arrays["corners"][0, :count, None, None], label.arrays["kinds"][0, :count, None, None]
    theirs = others.arrays["corners"]
    low, high = np.maximum(mine[..., :2], theirs[..., :2]), np.minimum(mine[..., 2:], theirs[..., 2:])
    shared = np.prod(np.maximum(high - low, 0), axis=-1)
    both = np.prod(mine[..., 2:] - mine[..., :2], axis=-1) + np.prod(theirs[..., 2:] - theirs[..., :2], axis=-1)
    return np.where(kinds == others.arrays["kinds"], shared / (both - shared), 0.0)


def _read_boxes(label: Any, position: int) -> tuple[list[str], Float64]:  # noqa: ANN401 - checked here
    form = "should be a list of boxes [class, x0, y0, x1, y1]"
    if not isinstance(label, list | tuple):
        raise LabelError(position, f"{form}. Got {short(label)} instead.")
    names, corners = [], np.zeros((len(label), 4))
    for row, box in enumerate(label):
        try:
            kind, *numbers = box.rsplit(maxsplit=4) if isinstance(box, str) else box
            corners[row] = numbers
        except (TypeError, ValueError):
            raise LabelError(position, f"{form}. Got {short(box)} as box {row}.") from None
        if len(numbers) != 4 or isinstance(kind, bool) or not isinstance(kind, str | int):
            raise LabelError(position, f"{form}. Got {short(box)} as box {row}.")
        if not np.isfinite(corners[row]).all() or not (corners[row, 2:] > corners[row, :2]).all():
            raise LabelError(position, f"has the box {short(box)}: x0 < x1 and y0 < y1 should hold for finite numbers.")
        names.append(str(kind))
    return names, corners
