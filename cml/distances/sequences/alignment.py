"""The base of distances by the best alignment of two sequences: all pairs, and nearest lists by lower bounds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.distances.composed import ComposedOfOne
from cml.distances.euclidean import Euclidean
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import Neighbors, Search
from cml.distances.sequences.alignment_loops import align_all, align_apart, bound_others, nearest, wrap
from cml.distances.sequences.packed_sequences import (
    check_band,
    check_lengths,
    check_open_ends,
    check_same_width,
    pack_sequences,
    pack_steps,
    read_text_steps,
    resample_sequences,
    unpack_steps,
)
from cml.errors import UserError

_BLOCK_BYTES = 16 << 20  # of distances between steps at a time


@dataclass(frozen=True)
class Alignment(ComposedOfOne):
    """Base of ``dtw`` and ``frechet``, which differ in what they take of the steps along an alignment.

    Steps that are numbers or vectors on a line are compared in compiled loops with lower bounds; those of any other
    label distance by its own ``pairwise``, all pairs of steps of a block of sequences at once.
    """

    base: str | LabelDistance = "euclidean"
    band: int = 0
    open_ends: int = 0
    is_sum: ClassVar[bool]  # whether the squares of steps are summed up along the alignment, or the largest counts

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("band", "open_ends"):
            if (steps := getattr(self, name)) < 0:
                raise UserError(f"'{name}' should be a number of steps, at least 0. Got {steps} instead.")

    @property
    def _is_plain(self) -> bool:
        return self._base == Euclidean()

    @property
    def is_costly(self) -> bool:
        """True: a pair has as many steps to compare as the product of two lengths."""
        return True

    @property
    def unit(self) -> str:
        """The base's unit, or that of the steps."""
        return "units of the steps" if self._is_plain else self._base.unit

    def fit(self, labels: Sequence[Any]) -> Self:
        """Fit the base on all steps."""
        if self._is_plain:
            return self
        return replace(self, base=self._base.fit([step for row in read_text_steps(labels) for step in row]))

    def encode(self, labels: Sequence[Any]) -> Labels:  # arrays of ``pack_sequences`` or ``pack_steps``
        """Check and pack sequences."""
        steps = read_text_steps(labels)
        packed = pack_sequences(steps) if self._is_plain else pack_steps(steps, self._base)
        check_lengths(self.band, self.open_ends, packed.arrays["lengths"])
        return packed

    def pairwise(self, a: Labels, b: Labels) -> Float32:
        """Compute the label distances between all labels of two sides."""
        a_lengths, b_lengths = a.arrays["lengths"], b.arrays["lengths"]
        if self._is_plain:
            check_same_width(a, b)
        self._check_lengths(a_lengths, b_lengths)
        out = np.empty((len(a), len(b)), np.float32)
        if not self._is_plain:
            self._align_steps(a, b, out)
            return out
        mirror = a is b or (len(a) == len(b) and all(np.array_equal(a.arrays[key], b.arrays[key]) for key in a.arrays))
        sides = _as_lines(a), a_lengths, _as_lines(b), b_lengths
        align_all(*sides, self._reach(a_lengths, b_lengths), self.open_ends, self.is_sum, mirror, out)
        return out

    def searcher(self, labels: Labels, k: int, *, block_bytes: int = 64 << 20) -> Search:
        """Prepare a search that looks at lower bounds first, where steps are numbers or vectors."""
        if not self._is_plain:
            return super().searcher(labels, k, block_bytes=block_bytes)
        steps, lengths = _as_lines(labels), labels.arrays["lengths"]
        self._check_lengths(lengths, lengths)
        reach = self._reach(lengths, lengths)
        low, high = np.empty(steps.shape), np.empty(steps.shape)
        wrap(steps, lengths, reach, low, high)

        def search(start: int, stop: int) -> Neighbors:
            ids, distances = np.full((stop - start, k), -1, np.int32), np.full((stop - start, k), np.inf, np.float32)
            boxes, ends = (steps, lengths, low, high), (self.open_ends, self.is_sum, np.empty(steps.shape[2] + 1))
            bounds = np.empty(len(steps))
            for i, near, apart in zip(range(start, stop), ids, distances, strict=True):
                bound_others(*boxes, i, *ends, bounds)
                nearest(*boxes, i, np.argsort(bounds), bounds, reach, *ends, near, apart)
            return Neighbors(ids, distances)

        return search

    def start_vectors(self, labels: Labels) -> Float32 | None:
        """Return each sequence at some places of its time and of its way; None where steps are no vectors."""
        return resample_sequences(labels) if self._is_plain else None

    def _check_lengths(self, lengths: Int64, others: Int64) -> None:
        check_open_ends(self.open_ends, lengths, others)
        check_band(self.band, self.open_ends, lengths, others)

    def _reach(self, lengths: Int64, others: Int64) -> int:
        """The band, or as many steps as there are."""
        return self.band or int(max(lengths.max(), others.max()))

    def _align_steps(self, a: Labels, b: Labels, out: Float32) -> None:
        """Align by the distances of all steps of a block of sequences."""
        a_lengths, b_lengths = a.arrays["lengths"], b.arrays["lengths"]
        reach = self._reach(a_lengths, b_lengths)
        columns = max(1, _BLOCK_BYTES // (4 * int(a_lengths.max()) * int(b_lengths.max())))
        for j in range(0, len(b), columns):
            lengths = b_lengths[j : j + columns]
            steps = unpack_steps(b[j : j + columns])
            for i in range(len(a)):
                apart = self._base.pairwise(unpack_steps(a[i : i + 1]), steps)  # (S, steps of all)
                align_apart(apart, lengths, reach, self.open_ends, self.is_sum, out[i, j : j + columns])


def _as_lines(labels: Labels) -> Float64:  # (N, F, T)
    return np.ascontiguousarray(labels.arrays["steps"].transpose(0, 2, 1))
