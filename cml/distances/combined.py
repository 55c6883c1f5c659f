"""Several labels of an item at once, each with a label distance of its own. Not for: sets of one kind (sets)."""

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int64
from cml.distances import as_label_distance
from cml.distances.composed import Composed
from cml.distances.known_parts import Unknown, check_parts, is_unknown, leave_out_defaults
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError, Labels, short
from cml.errors import UserError

SAMPLE = 1000  # labels whose pairs the medians are taken over
_SCALES, KNOWN = "scales", "known "


@dataclass(frozen=True)
class Combined(Composed):
    """Sum over the parts of weight * distance / scale.

    A label is a dict with an entry for each part. The scale of a part is the median of its positive label distances;
    infinite ones are left out. ``fit`` on the training labels fixes the scales; without it, each ``encode`` takes
    them from its own labels, and labels of different scales refuse to be compared. Where a part cannot be compared,
    the whole cannot: infinity. With ``missing="skip"`` such parts are left out, as are those that a label lacks or
    has as None or NaN, and the sum over the others is scaled to the weights of all; without a common part it is
    infinite.

    Args:
        parts: Name of a part to its distance, e.g. ``{"pose": "keypoints(min_shared=2)", "age": "euclidean"}``.
        weights: Name of a part to its weight, above 0. None: all 1.
        scales: Name of a part to what its distances are divided by, above 0. None: the medians.
        missing: "skip" to compare the parts that both labels have; "refuse" makes an unknown part an error.

    Example:
        >>> distance = Combined({"age": "euclidean", "tags": "jaccard"}, scales={"age": 10, "tags": 0.5})
        >>> people = distance.encode([{"age": 30, "tags": ["tall"]}, {"age": 35, "tags": ["tall", "blond"]}])
        >>> distance.pairwise(people[:1], people).tolist()  # 5 / 10 + 0.5 / 0.5
        [[0.0, 1.5]]
    """

    parts: Mapping[str, str | LabelDistance]
    weights: Mapping[str, float] | None = None
    scales: Mapping[str, float] | None = None
    missing: Unknown = "refuse"
    name: ClassVar[str] = "combined"
    unit: ClassVar[str] = "weighted medians"

    @classmethod
    def is_self_contained(cls, settings: Mapping[str, Any]) -> bool:
        """Whether all parts are."""
        from cml.distances.composed import has_only_self_contained_parts

        return has_only_self_contained_parts(settings.get("parts"))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_parts(self.missing, None)
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
        """True if all parts are, and none is left out."""
        return self.missing == "refuse" and all(distance.is_metric for distance in self._parts.values())

    def fit(self, labels: Sequence[Any]) -> Self:
        """Take the scales from labels unless they are given, and fit the parts."""
        columns = self._labels_by_part(labels)
        fitted, scales = {}, dict(self.scales or {})
        for part, distance in self._parts.items():
            some, rows = self._select_known_labels(columns[part])
            with _name_part(part, rows):
                fitted[part] = distance.fit(some)
                if not self.scales:
                    scales[part] = _scale(part, fitted[part], some)
        return replace(self, parts=fitted, scales=scales)

    def encode(
        self, labels: Sequence[Any]
    ) -> Labels:  # the arrays of part k as ``k:name``, and ``scales`` (N, P) float64, the same in every row
        """Check and pack dicts of labels."""
        columns = self._labels_by_part(labels)
        arrays: dict[str, NDArray[Any]] = {}
        for place, (part, distance) in enumerate(self._parts.items()):
            some, rows = self._select_known_labels(columns[part])
            if not some:
                raise LabelError(0, f"and all others have no part {part!r}: leave it out.")
            with _name_part(part, rows):
                encoded = distance.encode(some)
            if rows is not None:  # an unknown part holds any other, which is never compared
                encoded = encoded[np.maximum(rows, 0)]
                arrays[f"{KNOWN}{place}"] = rows >= 0
            arrays |= {f"{place}:{name}": array for name, array in encoded.arrays.items()}
        known = {part: self._select_known_labels(column)[0] for part, column in columns.items()}
        scales = self.scales or {part: _scale(part, distance, known[part]) for part, distance in self._parts.items()}
        row = np.array([scales[part] for part in self._parts], np.float64)
        return Labels({**arrays, _SCALES: np.tile(row, (len(labels), 1))})

    def settings(self) -> dict[str, Any]:
        """Return the settings as JSON can hold them, without those that are not used."""
        return leave_out_defaults(super().settings(), "missing")

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        total = np.zeros((len(a), len(b)))
        scales, other = a.arrays[_SCALES][0], b.arrays[_SCALES][0]
        if not np.array_equal(scales, other):
            raise UserError(
                f"The two sides were encoded with different scales, {scales.tolist()} and {other.tolist()}; fit the "
                "distance on the training labels first, or give 'scales'."
            )
        compared = np.zeros(total.shape)  # the weight of the parts that both have
        for place, (part, distance) in enumerate(self._parts.items()):
            weight = 1.0 if self.weights is None else self.weights[part]
            apart = distance.pairwise(select_part(a, place), select_part(b, place)) * (weight / scales[place])
            if self.missing == "skip":
                both = a.arrays[f"{KNOWN}{place}"][:, None] & b.arrays[f"{KNOWN}{place}"] & np.isfinite(apart)
                compared += weight * both
                apart = np.where(both, apart, 0)
            total += apart
        if self.missing == "skip":
            whole = float(len(self._parts) if self.weights is None else sum(self.weights.values()))
            total = np.divide(total * whole, compared, out=np.full_like(total, np.inf), where=compared > 0)
        return total.astype(np.float32)

    def _select_known_labels(self, column: list[Any]) -> tuple[list[Any], Int64 | None]:
        """The known labels of a part and, where some may be unknown, the place of each label among them, or -1."""
        if self.missing == "refuse":
            return column, None
        is_known = np.array([not is_unknown(label) for label in column])
        return [label for label in column if not is_unknown(label)], np.where(is_known, np.cumsum(is_known) - 1, -1)

    def _labels_by_part(self, labels: Sequence[Any]) -> dict[str, list[Any]]:
        """Split the dicts into a list of labels for each part."""
        for position, label in enumerate(labels):
            absent = set(self._parts) - set(label) if isinstance(label, Mapping) else {label}
            is_known = isinstance(label, Mapping) and set(label) <= set(self._parts)
            if not is_known or (absent and self.missing == "refuse"):
                raise LabelError(position, f"should be a dict of {', '.join(self._parts)}. Got {short(label)} instead.")
        return {part: [label.get(part) for label in labels] for part in self._parts}


@contextlib.contextmanager
def _name_part(part: str, rows: Int64 | None) -> Iterator[None]:
    """Say of an error in a part's labels which part it is, and which label of all."""
    try:
        yield
    except LabelError as error:
        position = error.position if rows is None else int(np.flatnonzero(rows >= 0)[error.position])
        raise LabelError(position, f"part {part!r} {error.fault}") from None


def select_part(labels: Labels, place: int) -> Labels:
    """The labels of the part in some place among all."""
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
