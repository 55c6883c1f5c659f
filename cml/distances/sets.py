"""Sets of labels. Not for: sets of names, whose members are equal or not (jaccard); boxes matched in pairs (boxes)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Float64
from cml.distances.composed import ComposedOfOne
from cml.distances.labels import LabelError, Labels, short

_BLOCK_BYTES = 16 << 20  # of distances between members of sets at a time
_MEMBER = "member."


@dataclass(frozen=True)
class Sets(ComposedOfOne):
    """Sum over the members of both sets of the distance to the nearest member of the other set.

    A label is a list of one or more labels of ``base``. If a member can be compared with none of the other set, the
    sets cannot be compared: infinity.

    Args:
        base: The distance between members, e.g. ``"euclidean"`` or ``"keypoints(min_shared=2)"``.

    Source:
        Kim et al., "Deep Metric Learning Beyond Binary Supervision", CVPR 2019: this sum for sets of captions.

    Example:
        >>> distance = Sets("euclidean")
        >>> ages = distance.encode([[30, 32], [31], [30, 60]])
        >>> distance.pairwise(ages[:1], ages).tolist()
        [[0.0, 3.0, 30.0]]
    """

    name: ClassVar[str] = "sets"

    @property
    def unit(self) -> str:
        """The base's unit."""
        return self._base.unit

    def fit(self, labels: Sequence[Any]) -> Self:
        """Fit the base on all members."""
        return replace(self, base=self._base.fit([member for label in labels for member in label]))

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # the base's arrays as ``member.name`` (N, M, ...), and ``count`` (N,) int32
        """Check and pack sets of labels."""
        form = f"should be a list of one or more {self._base.name} labels"
        for position, label in enumerate(labels):
            if not isinstance(label, list | tuple | np.ndarray) or len(label) == 0:
                raise LabelError(position, f"{form}. Got {short(label)}.")
        count = np.array([len(label) for label in labels], np.int32)
        starts = np.cumsum(count) - count
        try:
            members = self._base.encode([member for label in labels for member in label])
        except LabelError as error:
            position = int(np.searchsorted(starts, error.position, side="right")) - 1
            raise LabelError(position, f"member {error.position - int(starts[position])} {error.fault}") from None
        # shorter sets repeat their last member
        slots = starts[:, None] + np.minimum(np.arange(count.max()), count[:, None] - 1)  # (N, M)
        return Labels({"count": count, **{_MEMBER + name: array[slots] for name, array in members.arrays.items()}})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        result = np.empty((len(a), len(b)), np.float32)
        pair_bytes = 4 * int(a.arrays["count"].max()) * int(b.arrays["count"].max())
        columns = max(1, min(len(b), _BLOCK_BYTES // pair_bytes))
        rows = max(1, _BLOCK_BYTES // (pair_bytes * columns))
        for j in range(0, len(b), columns):
            members_b, starts_b = _members(b[j : j + columns])
            for i in range(0, len(a), rows):
                members_a, starts_a = _members(a[i : i + rows])
                block = self._base.pairwise(members_a, members_b)  # members of a, members of b
                from_a = _sum_of_least(block, starts_a, starts_b)
                from_b = _sum_of_least(block.T, starts_b, starts_a)
                result[i : i + rows, j : j + columns] = from_a + from_b.T
        return result


def _sum_of_least(block: Float32, starts_a: NDArray[np.intp], starts_b: NDArray[np.intp]) -> Float64:
    """Sum up, for each set of rows, its rows' minima over each set of columns: (A, B)."""
    least = np.minimum.reduceat(block, starts_b, axis=1).astype(np.float64, "C")  # (members of a, B)
    return np.add.reduceat(least, starts_a, axis=0)


def _members(labels: Labels) -> tuple[Labels, NDArray[np.intp]]:
    """List all members of N sets one after another, and where each set starts: (N,)."""
    count = labels.arrays["count"]
    arrays = {name.removeprefix(_MEMBER): array for name, array in labels.arrays.items() if name != "count"}
    filled = np.arange(next(iter(arrays.values())).shape[1]) < count[:, None]  # (N, M)
    return Labels({name: array[filled] for name, array in arrays.items()}), np.cumsum(count, dtype=np.intp) - count
