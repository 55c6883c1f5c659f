"""Near-duplicates: test images that are training images too, encoded or scaled anew."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numba import njit

from cml.array_types import Int64, UInt8
from cml.plausibility.finding import Finding
from cml.plausibility.image_rules import Thumbnail

FARTHEST = 3  # levels of grey that a pixel of two thumbnails of one image may differ by, after JPEG and scaling


def find_near_duplicates(
    train: Mapping[str, Path],
    test: Mapping[str, Path],
    # the thumbnails of the images; those without one, such as images of almost one colour, are left out
    thumbnails: Mapping[Path, Thumbnail],
) -> list[Finding]:
    """Find test images that also are training images.

    Two images are near-duplicates if no pixel of their thumbnails differs by more than 3 of 255 levels. A frame of a
    film is usually farther from the next.
    """
    train_ids, known = _stack(train, thumbnails)
    test_ids, asked = _stack(test, thumbnails)
    nearest = match_thumbnails(asked, known)
    found = np.flatnonzero(nearest >= 0)
    if not len(found):
        return []
    examples = [f"{test_ids[place]} and {train_ids[nearest[place]]}" for place in found[:8].tolist()]
    finding = Finding(
        "near-duplicates",
        f"{len(found)} of {len(test)} test images look the same as a training image",
        "Keep such images on one side of the split: name what belongs together by --group-column, or delete copies.",
        len(found),
        len(test),
        examples,
    )
    return [finding]


def match_thumbnails(
    asked: UInt8,  # (N, P) thumbnails to find
    known: UInt8,  # (M, P) thumbnails to search
    farthest: int = FARTHEST,  # levels by which a pixel may differ
) -> Int64:  # (N,) the position of the first such one in the order of sums; -1 where there is none
    """Find for each thumbnail another one that no pixel differs from by more than some levels; exact.

    Sums of pixels within reach are found by sorting, since those of two such thumbnails differ by at most ``farthest``
    times the number of pixels. The few that remain are compared pixel by pixel, up to the first difference.
    """
    if not len(asked) or not len(known):
        return np.full(len(asked), -1, np.int64)
    sums = known.sum(axis=1, dtype=np.int64)
    order = np.argsort(sums, kind="stable")
    reach = farthest * known.shape[1]
    wanted = asked.sum(axis=1, dtype=np.int64)
    starts = np.searchsorted(sums[order], wanted - reach, side="left")
    ends = np.searchsorted(sums[order], wanted + reach, side="right")
    return _match(asked, known[order], order, starts, ends, farthest)


@njit(cache=True, nogil=True)
def _match(asked: UInt8, known: UInt8, order: Int64, starts: Int64, ends: Int64, farthest: int) -> Int64:
    found = np.full(len(asked), -1, np.int64)
    for row in range(len(asked)):
        for place in range(starts[row], ends[row]):
            is_near = True
            for pixel in range(asked.shape[1]):
                if abs(np.int64(asked[row, pixel]) - np.int64(known[place, pixel])) > farthest:
                    is_near = False
                    break
            if is_near:
                found[row] = order[place]
                break
    return found


def _stack(images: Mapping[str, Path], thumbnails: Mapping[Path, Thumbnail]) -> tuple[Sequence[str], UInt8]:
    """The ids and thumbnails, (N, P), of the images that have one."""
    ids = [item for item, path in images.items() if path in thumbnails]
    pixels = [thumbnails[images[item]].reshape(-1) for item in ids]
    return ids, np.stack(pixels) if pixels else np.empty((0, 1), np.uint8)
