"""Repeated labels: one image that is listed several times, and texts or boxes that an image has several times."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.data.item_digests import digest_items
from cml.plausibility.finding import Finding
from cml.plausibility.thumbnails import Thumbnail

_SHARE_OF_FRAMES = 0.1  # of the items of a role
_SHARE = 0.05  # of all items; fewer of them have the same caption twice in sound data, too


def find_repeated_texts(items: Sequence[str], labels: Sequence[Any] | NDArray[Any]) -> Iterator[Finding]:
    """Find labels of several texts, such as captions and boxes, in which one occurs twice, for 5 % of the items."""
    if isinstance(labels, np.ndarray):
        return
    several = [
        (item, label)
        for item, label in zip(items, labels, strict=True)
        if isinstance(label, list) and len(label) > 1 and all(isinstance(text, str) for text in label)
    ]
    repeated = [item for item, label in several if len(set(label)) < len(label)]
    if len(repeated) > max(1, _SHARE * len(items)):
        what = f"{len(repeated)} of {len(items)} items have the same text several times in their label"
        mend = "Check whether lines of the labels file were doubled."
        yield Finding("repeated-labels", what, mend, len(repeated), len(items), repeated[:8])


def find_repeated_images(
    images: Mapping[str, Path],
    labels: Sequence[Any],
    # the thumbnails of the images; those without one, such as images of almost one colour, are left out
    thumbnails: Mapping[Path, Thumbnail],
) -> Iterator[Finding]:
    """Find images of one role that are listed several times under different names, with equal or other labels.

    Files whose thumbnails are equal are compared by their digests. Neighbours in the list are left out, if they are
    less than 10 % of it: a film may have the same frame twice.
    """
    alike = defaultdict[bytes, list[int]](list)
    ids, paths = list(images), list(images.values())
    for place, path in enumerate(paths):
        if path in thumbnails:
            alike[thumbnails[path].tobytes()].append(place)
    candidates = [place for places in alike.values() if len(places) > 1 for place in places]
    same = defaultdict[int, list[int]](list)
    for place, digest in zip(candidates, digest_items([paths[place] for place in candidates]).tolist(), strict=True):
        if digest:
            same[digest].append(place)
    groups = [places for places in same.values() if len(places) > 1]
    neighbors = [places for places in groups if places[-1] - places[0] == len(places) - 1]
    if sum(map(len, neighbors)) < _SHARE_OF_FRAMES * len(ids):
        groups = [places for places in groups if places not in neighbors]
    agreeing: list[list[int]] = []
    contradicting: list[list[int]] = []
    for places in groups:
        plain = [_as_plain(labels[place]) for place in places]
        (agreeing if all(label == plain[0] for label in plain) else contradicting).append(places)
    for found, which, mend in (
        (agreeing, "the same label", "Keep one of each: others count twice."),
        (contradicting, "contradicting labels", "Keep the right one of each."),
    ):
        if found:
            count = sum(len(places) for places in found)
            listed = "1 image is listed" if len(found) == 1 else f"{len(found)} images are listed"
            what = f"{listed} several times, with {which}, as {count} items"
            examples = [" and ".join(ids[place] for place in places[:3]) for places in found[:8]]
            yield Finding("repeated-labels", what, mend, count, len(ids), examples)


def _as_plain(label: Any) -> Any:  # noqa: ANN401 - a label of any kind
    """A label to compare: the content of a mask's file, or the label as in the JSON."""
    return label.read_bytes() if isinstance(label, Path) else label
