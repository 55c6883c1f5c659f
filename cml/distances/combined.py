"""Several labels of an item at once, each with a label distance of its own. Not for: sets of one kind (sets)."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32
from cml.distances import as_label_distance
from cml.distances.composed import Composed
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import UserError

SAMPLE = 1000  # labels whose pairs the medians are taken over
_SCALES = "scales"


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

    @classmethod
    def is_self_contained(cls, settings: Mapping[str, Any]) -> bool:
        """Whether all parts are."""
        from cml.distances.composed import has_only_self_contained_parts

        return has_only_self_contained_parts(settings.get("parts"))

    def __post_init__(self) -> None:
        super().__post_init__()
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
        return {part: as_label_distance(distance) for part, distance in self.parts.items()}

    @property
    def is_metric(self) -> bool:
        """True if all parts are."""
        return all(distance.is_metric for distance in self._parts.values())

    def fit(self, labels: Sequence[Any]) -> Self:
        """Take the scales from labels unless they are given, and fit the parts."""
        columns = self._labels_by_part(labels)
        fitted = {part: distance.fit(columns[part]) for part, distance in self._parts.items()}
        scales = self.scales or {part: _scale(part, fitted[part], columns[part]) for part in fitted}
        return replace(self, parts=fitted, scales=scales)

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # the arrays of part k as ``k:name``, and ``scales`` (N, P) float64, the same in every row
        """Check and pack dicts of labels."""
        columns = self._labels_by_part(labels)
        arrays: dict[str, NDArray[Any]] = {}
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
        """Compute the label distances between all labels of two sides."""
        total = np.zeros((len(a), len(b)))
        scales, other = a.arrays[_SCALES][0], b.arrays[_SCALES][0]
        if not np.array_equal(scales, other):
            raise UserError(
                f"The two sides were encoded with different scales, {scales.tolist()} and {other.tolist()}; fit the "
                "distance on the training labels first, or give 'scales'."
            )
        for place, (part, distance) in enumerate(self._parts.items()):
            weight = 1.0 if self.weights is None else self.weights[part]
            total += distance.pairwise(_select_part(a, place), _select_part(b, place)) * (weight / scales[place])
        return total.astype(np.float32)

    def _labels_by_part(self, labels: Sequence[Any]) -> dict[str, list[Any]]:
        """Split the dicts into a list of labels for each part."""
        for position, label in enumerate(labels):
            if not isinstance(label, Mapping) or set(label) != set(self._parts):
                raise LabelError(position, f"should be a dict of {', '.join(self._parts)}. Got {short(label)} instead.")
        return {part: [label[part] for label in labels] for part in self._parts}


def _select_part(labels: Labels, place: int) -> Labels:
    prefix = f"{place}:"
    return Labels({name.removeprefix(prefix): a for name, a in labels.arrays.items() if name.startswith(prefix)})


def _scale(part: str, distance: LabelDistance, labels: list[Any]) -> float:
    """Compute the median of the positive, finite distances between pairs of a sample of ``labels``."""
    if len(labels) > SAMPLE:
        labels = [labels[i] for i in np.sort(np.random.default_rng(0).choice(len(labels), SAMPLE, replace=False))]
    encoded = distance.encode(labels)
    pairs = distance.pairwise(encoded, encoded)[np.triu_indices(len(labels), 1)]
    pairs = pairs[np.isfinite(pairs) & (pairs > 0)]
    if len(pairs) == 0:
        why = f"no two of {len(labels)} labels differ in it. Fit on more labels, or give 'scales'."
        raise UserError(f"The part {part!r} has no scale: {why}")
    return float(np.median(pairs))
