"""Intersection over union of many pairs of masks at once, compiled: one bit per pixel, 64 pixels per instruction."""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import intrinsic

from cml.array_types import Bools, Float32, Int64, UInt64
from cml.distances.compile_loop import AS_WRITTEN, compile_loop

_STRIP = 64  # masks of b that stay in the cache while all of a pass by
_IOU_BITS = 34  # an IoU of 1 as a whole number, for the matching
_SUM_BITS = _IOU_BITS + 4  # room for the sum of up to 15 IoUs, below the pixels (at most 2^24) of a score


class Bits(NamedTuple):
    """N masks of P pixels and K classes as bits; both sides of a comparison name the classes alike unless matched."""

    classes: UInt64  # (N, K, W) pixels of each class, one bit per pixel
    areas: Int64  # (N, K) how many they are
    ignored: UInt64  # (N, W) pixels that do not count
    ignores: Bools  # (N,) whether there are any


def _population_count(context: Any, word: Any) -> Any:  # noqa: ANN401 - numba's own types
    def _generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:  # noqa: ANN401
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), _generate


_bit_count: Any = intrinsic(_population_count)


@compile_loop(fastmath=AS_WRITTEN)
def _overlap(a: UInt64, b: UInt64) -> np.int64:
    total = np.uint64(0)
    for word in range(a.shape[0]):
        total += _bit_count(a[word] & b[word])
    return np.int64(total)


@compile_loop(fastmath=AS_WRITTEN)
def mean_iou_distances(
    a: Bits,
    b: Bits,
    mirror: bool,  # True if ``b`` is ``a``, so that one half is computed
    out: Float32,  # (A, B), written in place; infinite where no pixel counts in both
) -> None:
    """Compute 1 - mIoU of masks of the same classes."""
    for strip in range(0, out.shape[1], _STRIP):
        for i in range(out.shape[0]):
            for j in range(max(strip, i) if mirror else strip, min(strip + _STRIP, out.shape[1])):
                wrong = 0.0  # sum of 1 - IoU over the classes present
                present = 0
                for k in range(a.areas.shape[1]):
                    in_a, in_b = a.areas[i, k], b.areas[j, k]
                    if in_a > 0 and b.ignores[j]:
                        in_a -= _overlap(a.classes[i, k], b.ignored[j])
                    if in_b > 0 and a.ignores[i]:
                        in_b -= _overlap(b.classes[j, k], a.ignored[i])
                    if in_a == 0 and in_b == 0:
                        continue
                    both = np.int64(0)
                    if in_a > 0 and in_b > 0:
                        both = _overlap(a.classes[i, k], b.classes[j, k])
                    present += 1
                    wrong += (in_a + in_b - 2 * both) / (in_a + in_b - both)
                out[i, j] = wrong / present if present > 0 else np.inf
                if mirror:
                    out[j, i] = out[i, j]


@compile_loop(fastmath=AS_WRITTEN)
def matched_iou_distances(
    a: Bits,
    b: Bits,
    mirror: bool,  # True if ``b`` is ``a``, so that one half is computed
    out: Float32,  # (A, B), written in place; infinite where no pixel counts in both
) -> None:
    """Compute 1 - mIoU after the best matching of the classes of each pair of masks.

    Dynamic programming over the sets of classes of ``b`` that are taken, the classes of ``a`` one after another. A
    matching's score is a whole number, agreeing pixels in the high bits and the sum of IoUs in the low ones: both goals
    at once, the same whichever side comes first. Time and memory double with each class of a mask of ``b``.
    """
    # sums and counts are written as loops: numba compiles the functions of NumPy for seconds
    most = 0
    for j in range(out.shape[1]):
        there = 0
        for k in range(b.areas.shape[1]):
            there += 1 if b.areas[j, k] > 0 else 0
        most = max(most, there)
    counts = np.empty((a.areas.shape[1], most), np.int64)
    scores = np.empty((a.areas.shape[1], most), np.int64)
    sums = np.empty(most, np.int64)
    best = np.empty(1 << most, np.int64)
    for strip in range(0, out.shape[1], _STRIP):
        for i in range(out.shape[0]):
            for j in range(max(strip, i) if mirror else strip, min(strip + _STRIP, out.shape[1])):
                rows, columns = 0, 0
                for k in range(a.areas.shape[1]):
                    if a.areas[i, k] > 0:
                        columns = 0
                        for other in range(b.areas.shape[1]):
                            if b.areas[j, other] > 0:
                                counts[rows, columns] = _overlap(a.classes[i, k], b.classes[j, other])
                                columns += 1
                        rows += 1
                present, total = _match(counts, rows, columns, scores, sums, best)
                out[i, j] = (present - total / (1 << _IOU_BITS)) / present if present > 0 else np.inf
                if mirror:
                    out[j, i] = out[i, j]


@compile_loop(fastmath=AS_WRITTEN)
def _match(counts: Int64, rows: int, columns: int, scores: Int64, sums: Int64, best: Int64) -> tuple[int, np.int64]:
    """Match the classes of two masks; returns the classes present on the side that has more, and the best sum of IoUs.

    The sum is in units of 2^-_IOU_BITS. The first rows and columns of ``counts`` are the pixels with class m in a and n
    in b; ``scores`` is room for as many numbers, ``sums`` for n; ``best`` for 2^n, the best score with exactly a set of
    classes of b taken, -1 for none yet.
    """
    present_a, present_b = 0, 0  # a class whose pixels are all ignored in the other mask is not present
    for other in range(columns):
        sums[other] = 0
        for k in range(rows):
            sums[other] += counts[k, other]
        present_b += 1 if sums[other] > 0 else 0
    for k in range(rows):
        own = 0
        for other in range(columns):
            own += counts[k, other]
        present_a += 1 if own > 0 else 0
        for other in range(columns):
            both = counts[k, other]
            if both > 0:
                iou = both / (own + sums[other] - both)
                scores[k, other] = (both << _SUM_BITS) + np.int64(np.rint(iou * (1 << _IOU_BITS)))
    for taken in range(1, 1 << columns):
        best[taken] = -1
    best[0] = 0
    for k in range(rows):
        for taken in range((1 << columns) - 1, -1, -1):  # updates go to larger sets, which are done
            if best[taken] >= 0:
                for other in range(columns):
                    if taken >> other & 1 == 0 and counts[k, other] > 0:
                        more = taken | 1 << other
                        best[more] = max(best[more], best[taken] + scores[k, other])
    most = best[0]
    for taken in range(1, 1 << columns):
        most = max(most, best[taken])
    return max(present_a, present_b), np.int64(most & ((1 << _SUM_BITS) - 1))
