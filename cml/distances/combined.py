"""Label distances made of others. Not for: sets of names, where members are equal or not (jaccard)."""

import functools
import hashlib
import json
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cml.distances import made
from cml.distances.label_distance import Float32, LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import UserError

SAMPLE = 1000  # labels whose pairs the medians are taken over
_SCALES = "scales"
_BLOCK_BYTES = 16 << 20  # of distances between members of sets at a time
_MEMBER = "member."


class Composed(LabelDistance):
    """Base of a label distance made of others, which are its first setting."""

    @property
    @abstractmethod
    def _parts(self) -> Mapping[str, LabelDistance]:
        """The others by name."""

    @property
    def is_symmetric(self) -> bool:
        """True if all parts are."""
        return all(part.is_symmetric for part in self._parts.values())

    @property
    def is_costly(self) -> bool | None:
        """True if a part is; None if a part is still to be measured."""
        known = [part.is_costly for part in self._parts.values()]
        return True if True in known else None if None in known else False

    @property
    def is_stored(self) -> bool:
        """True if all parts are."""
        return all(part.is_stored for part in self._parts.values())

    def fingerprint(self) -> str:
        """Hex digest of name, parts and the settings that are not parts."""
        parts = {name: part.fingerprint() for name, part in self._parts.items()}
        own = dict(list(self.settings().items())[1:])
        return hashlib.sha256(json.dumps([self.name, parts, own], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Combined(Composed):
    """Sum over the parts of weight * distance / scale.

    A label is a dict with an entry for each part. The scale of a part is the median of its positive label distances;
    infinite ones are left out. ``fit`` on the training labels fixes the scales; without it, each ``encode`` takes
    them from its own labels, and labels of different scales refuse to be compared. Where a part cannot be compared,
    the whole cannot: infinity.

    Args:
        parts: Name of a part to its distance, e.g. ``{"pose": "keypoints(min_shared=2)", "age": "euclidean"}``.
        weights: Name of a part to its weight, above 0. None: all 1.
        scales: Name of a part to what its distances are divided by, above 0. None: the medians.

    Example:
        >>> distance = Combined({"age": "euclidean", "tags": "jaccard"}, scales={"age": 10, "tags": 0.5})
        >>> people = distance.encode([{"age": 30, "tags": ["tall"]}, {"age": 35, "tags": ["tall", "blond"]}])
        >>> distance.pairwise(people[:1], people).tolist()  # 5 / 10 + 0.5 / 0.5
        [[0.0, 1.5]]
    """

    parts: Mapping[str, str | LabelDistance]
    weights: Mapping[str, float] | None = None
    scales: Mapping[str, float] | None = None
    name: ClassVar[str] = "combined"
    unit: ClassVar[str] = "weighted medians"

    def __post_init__(self) -> None:
        if not isinstance(self.parts, Mapping) or not self.parts:
            raise UserError(f"The 'parts' must name at least one part and its distance. Got {self.parts!r} instead.")
        object.__setattr__(self, "parts", self._parts)
        for setting, values in (("weights", self.weights), ("scales", self.scales)):
            if values is not None and (not isinstance(values, Mapping) or set(values) != set(self.parts)):
                raise UserError(f"The '{setting}' must name the parts {', '.join(self.parts)}. Got {values!r} instead.")
            for part, value in (values or {}).items():
                if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                    raise UserError(f"The '{setting}' of {part!r} must be a number above 0. Got {value!r} instead.")

    @functools.cached_property
    def _parts(self) -> dict[str, LabelDistance]:
        return {part: made(distance) for part, distance in self.parts.items()}

    @property
    def is_metric(self) -> bool:
        """True if all parts are."""
        return all(distance.is_metric for distance in self._parts.values())

    def fit(self, labels: Sequence[Any]) -> Self:
        """This distance with the scales taken from ``labels``, unless they are given, and its parts fitted."""
        columns = self._columns(labels)
        fitted = {part: distance.fit(columns[part]) for part, distance in self._parts.items()}
        scales = self.scales or {part: _scale(part, fitted[part], columns[part]) for part in fitted}
        return replace(self, parts=fitted, scales=scales)

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N labels: the arrays of part k as ``k:name``, and ``scales`` (N, P) float64, the same in every row."""
        columns = self._columns(labels)
        arrays: dict[str, Any] = {}
        for place, (part, distance) in enumerate(self._parts.items()):
            try:
                encoded = distance.encode(columns[part])
            except LabelError as error:
                raise LabelError(error.position, f"part {part!r} {error.fault}") from None
            arrays |= {f"{place}:{name}": array for name, array in encoded.arrays.items()}
        scales = self.scales or {part: _scale(part, distance, columns[part]) for part, distance in self._parts.items()}
        row = np.array([scales[part] for part in self._parts], np.float64)
        return Labels({**arrays, _SCALES: np.tile(row, (len(labels), 1))})

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Weighted sums (len(a), len(b)) float32."""
        total = np.zeros((len(a), len(b)))
        scales, other = a.arrays[_SCALES][0], b.arrays[_SCALES][0]
        if not np.array_equal(scales, other):
            raise UserError(
                f"The two sides were encoded with different scales, {scales.tolist()} and {other.tolist()}; fit the "
                "distance on the training labels first, or give 'scales'."
            )
        for place, (part, distance) in enumerate(self._parts.items()):
            weight = 1.0 if self.weights is None else self.weights[part]
            total += distance.pairwise(_part(a, place), _part(b, place)) * (weight / scales[place])
        return total.astype(np.float32)

    def _columns(self, labels: Sequence[Any]) -> dict[str, list[Any]]:
        for position, label in enumerate(labels):
            if not isinstance(label, Mapping) or set(label) != set(self._parts):
                raise LabelError(position, f"should be a dict of {', '.join(self._parts)}. Got {short(label)} instead.")
        return {part: [label[part] for label in labels] for part in self._parts}


def _part(labels: Labels, place: int) -> Labels:
    prefix = f"{place}:"
    return Labels({name.removeprefix(prefix): a for name, a in labels.arrays.items() if name.startswith(prefix)})


def _scale(part: str, distance: LabelDistance, labels: list[Any]) -> float:
    """Median of the positive, finite distances between pairs of a sample of ``labels``."""
    if len(labels) > SAMPLE:
        labels = [labels[i] for i in np.sort(np.random.default_rng(0).choice(len(labels), SAMPLE, replace=False))]
    encoded = distance.encode(labels)
    pairs = distance.pairwise(encoded, encoded)[np.triu_indices(len(labels), 1)]
    if len(pairs := pairs[np.isfinite(pairs) & (pairs > 0)]) == 0:
        why = f"no two of {len(labels)} labels differ in it. Fit on more labels, or give 'scales'."
        raise UserError(f"The part {part!r} has no scale: {why}")
    return float(np.median(pairs))


@dataclass(frozen=True)
class Sets(Composed):
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

    base: str | LabelDistance
    name: ClassVar[str] = "sets"

    def __post_init__(self) -> None:
        object.__setattr__(self, "base", self._base)

    @functools.cached_property
    def _base(self) -> LabelDistance:
        return made(self.base)

    @property
    def _parts(self) -> dict[str, LabelDistance]:
        return {"base": self._base}

    @property
    def unit(self) -> str:
        """The base's unit."""
        return self._base.unit

    def fit(self, labels: Sequence[Any]) -> Self:
        """These sets with the base fitted on all members."""
        return replace(self, base=self._base.fit([member for label in labels for member in label]))

    def encode(self, labels: Sequence[Any]) -> Labels:
        """Pack N sets of up to M members: the base's arrays as (N, M, ..), and ``count`` (N,) int32."""
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
        """Sums of least distances (len(a), len(b)) float32."""
        result = np.empty((len(a), len(b)), np.float32)
        pair_bytes = 4 * int(a.arrays["count"].max()) * int(b.arrays["count"].max())
        columns = max(1, min(len(b), _BLOCK_BYTES // pair_bytes))
        rows = max(1, _BLOCK_BYTES // (pair_bytes * columns))
        for j in range(0, len(b), columns):
            members_b, starts_b = _members(b[j : j + columns])
            for i in range(0, len(a), rows):
                members_a, starts_a = _members(a[i : i + rows])
                block = self._base.pairwise(members_a, members_b)  # members of a, members of b
                there, back = _sum_of_least(block, starts_a, starts_b), _sum_of_least(block.T, starts_b, starts_a)
                result[i : i + rows, j : j + columns] = there + back.T
        return result


def _sum_of_least(block: Float32, starts_a: NDArray[np.intp], starts_b: NDArray[np.intp]) -> NDArray[np.float64]:
    """For each set of rows the sum of its rows' minima over each set of columns: (A, B)."""
    least = np.minimum.reduceat(block, starts_b, axis=1).astype(np.float64, "C")  # (members of a, B)
    return np.add.reduceat(least, starts_a, axis=0)


def _members(labels: Labels) -> tuple[Labels, NDArray[np.intp]]:
    """All members of N sets one after another, and where each set starts: (N,)."""
    count = labels.arrays["count"]
    arrays = {name.removeprefix(_MEMBER): array for name, array in labels.arrays.items() if name != "count"}
    filled = np.arange(next(iter(arrays.values())).shape[1]) < count[:, None]  # (N, M)
    return Labels({name: array[filled] for name, array in arrays.items()}), np.cumsum(count, dtype=np.intp) - count
