"""Distances by the best alignment of two sequences: all pairs, and nearest lists by lower bounds."""

import numpy as np

from cml.array_types import Float32
from cml.distances.labels import Labels
from cml.distances.nearest import Neighbors, Search
from cml.distances.sequences.dynamic_programs import align_all, nearest, wrap
from cml.distances.sequences.packed_sequences import check_band, check_same_width
from cml.errors import UserError


def check_steps(name: str, steps: int) -> None:
    """Check a number of steps."""
    if steps < 0:
        raise UserError(f"'{name}' should be a number of steps, at least 0. Got {steps} instead.")


def pairwise_alignment(a: Labels, b: Labels, band: int, *, is_sum: bool) -> Float32:
    """Compute the distances (A, B)."""
    check_same_width(a, b)
    a_lengths, b_lengths = a.arrays["lengths"], b.arrays["lengths"]
    if band:
        check_band(band, a_lengths, b_lengths)
    mirror = a is b or (len(a) == len(b) and all(np.array_equal(a.arrays[key], b.arrays[key]) for key in a.arrays))
    out = np.empty((len(a), len(b)), np.float32)
    steps = np.ascontiguousarray(a.arrays["steps"]), np.ascontiguousarray(b.arrays["steps"])
    align_all(steps[0], a_lengths, steps[1], b_lengths, _reach(a, b, band), is_sum, mirror, out)
    return out


def search_alignments(labels: Labels, k: int, band: int, *, is_sum: bool) -> Search:
    """Prepare the search of the k nearest sequences."""
    steps, lengths = np.ascontiguousarray(labels.arrays["steps"]), labels.arrays["lengths"]
    if band:
        check_band(band, lengths, lengths)
    reach = _reach(labels, labels, band)
    low, high = np.empty(steps.shape), np.empty(steps.shape)
    wrap(steps, lengths, reach, low, high)

    def search(start: int, stop: int) -> Neighbors:
        ids, distances = np.full((stop - start, k), -1, np.int32), np.full((stop - start, k), np.inf, np.float32)
        nearest(steps, lengths, low, high, start, stop, reach, is_sum, ids, distances)
        return Neighbors(ids, distances)

    return search


def _reach(a: Labels, b: Labels, band: int) -> int:
    """The band, or as many steps as there are."""
    return band or max(a.arrays["steps"].shape[1], b.arrays["steps"].shape[1])
