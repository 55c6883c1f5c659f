"""What is suspicious about images: copies with one label or several, and 12 bits in files of 16."""

import functools
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.array_types import UInt8
from cml.data.bands import WHITE, ImageFault, has_16_bits, loses_bits, read_white
from cml.data.item_digests import digest_items
from cml.data.open_image import is_deep_tiff, open_image, read_deep_tiff
from cml.errors import UserError
from cml.plausibility.finding import Finding

# Small grey copies of a dataset's images, by which images are compared with each other.

SIDE = 16  # pixels
_LEAST_CONTRAST = 4.0  # standard deviation of a thumbnail's levels; below, an image is almost one colour
_BLOCK = 4096  # thumbnails at a time
Thumbnail = UInt8  # (SIDE, SIDE)


class Thumbnails:
    """Collects the thumbnails of images while they are decoded for another purpose; safe to use from threads.

    ``of``: the thumbnail of each image, (16, 16), by its path.

    ``contrasted``: those of images that are more than almost one colour.

    ``brightest``: the greatest level of each image, 0 to 255, by its path.
    """

    def __init__(self) -> None:
        self._taken: dict[Path, Thumbnail] = {}
        self._brightest: dict[Path, int] = {}
        self._lock = threading.Lock()

    @property
    def of(self) -> Mapping[Path, Thumbnail]:
        """The thumbnail of each image by its path."""
        return self._taken

    @functools.cached_property
    def contrasted(self) -> Mapping[Path, Thumbnail]:
        """Those of images that are more than almost one colour; asked for when all are collected."""
        paths, taken = list(self._taken), list(self._taken.values())
        kept: dict[Path, Thumbnail] = {}
        for start in range(0, len(paths), _BLOCK):
            levels = np.stack(taken[start : start + _BLOCK]).astype(np.float32)
            for row in np.flatnonzero(levels.std(axis=(1, 2)) >= _LEAST_CONTRAST).tolist():
                kept[paths[start + row]] = taken[start + row]
        return kept

    @property
    def brightest(self) -> Mapping[Path, int]:
        """The greatest level of each image by its path."""
        return self._brightest

    def add(self, path: Path, picture: Image.Image) -> None:
        """Keep the thumbnail of an image."""
        grey = picture.convert("L")
        thumbnail = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX))
        brightest = int(np.asarray(grey).max())
        with self._lock:
            self._taken[path] = thumbnail
            self._brightest[path] = brightest


# Same images: all, or most, images of a dataset look alike, so that they cannot tell labels apart.

_FEWEST_IMAGES = 4  # images
_SHARE_OF_IMAGES = 0.5  # of all images


def find_same_images(thumbnails: Mapping[Path, Thumbnail]) -> list[Finding]:
    """Find thumbnails that are exactly the same for half of the images or more."""
    if len(thumbnails) < _FEWEST_IMAGES:
        return []
    counts = Counter(thumbnail.tobytes() for thumbnail in thumbnails.values())
    content, count = counts.most_common(1)[0]
    if count < 2 or count < _SHARE_OF_IMAGES * len(thumbnails):
        return []
    alike = [path.name for path, thumbnail in thumbnails.items() if thumbnail.tobytes() == content]
    shade = np.frombuffer(content, np.uint8)
    look = "are of one colour" if np.ptp(shade) == 0 else "look exactly the same"
    mend = "Check that they are the right files, not placeholders, and that their bit depth is read correctly."
    return [
        Finding("same-images", f"{count} of {len(thumbnails)} images {look}", mend, count, len(thumbnails), alike[:8])
    ]


# Repeated labels: one image that is listed several times, and texts or boxes that an image has several times.

_SHARE_OF_FRAMES = 0.1  # of the items of a role
_SHARE_OF_TEXTS = 0.05  # of all items; fewer of them have the same caption twice in sound data, too


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
    if len(repeated) > max(1, _SHARE_OF_TEXTS * len(items)):
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


# Depth: images of 16 bits per value that use so few of them that they come out nearly black.

_DARK = 16  # levels of 255; 4095, white of 12 bits, becomes 16
_USUAL_BITS = (8, 10, 12)


def find_shallow_depth(
    brightest: Mapping[Path, int],  # the greatest level of each image, 0 to 255, by its path
) -> Iterator[Finding]:
    """Find whether all images of 16 bits hold at most the values of 12 bits."""
    dark = {path: value for path, level in brightest.items() if level <= _DARK and (value := find_greatest_value(path))}
    greatest = max(dark.values(), default=0)
    bits = next((bits for bits in _USUAL_BITS if greatest < 1 << bits), None)
    if not dark or bits is None or any(_is_deep(path) for path, level in brightest.items() if level > _DARK):
        return
    yield Finding(
        "depth",
        f"all {len(dark)} 16-bit images use only {bits} bits (values up to {greatest}), so they are nearly black",
        f"Prepare them with --bits {bits}, or save them with the whole range of 16 bits.",
        len(dark),
        len(brightest),
        [path.name for path in list(dark)[:8]],
    )


def find_greatest_value(path: Path) -> int | None:
    """Find the greatest value in an image of 16 bits per value.

    Returns the greatest value of any band. Of some images Pillow reads the upper 8 bits alone: then the greatest one
    that the lower ones leave possible. None for an image of another depth, one whose file states the value of white, or
    one that cannot be read.
    """
    try:
        if is_deep_tiff(path):
            values = read_deep_tiff(path)
            return int(values.max(initial=0)) if values.dtype == np.uint16 else None
        with open_image(path) as image:
            if not has_16_bits(image) or read_white(image) != WHITE:
                return None
            is_cut = loses_bits(image)
            greatest = int(np.asarray(image).max(initial=0))
    except (ImageFault, UserError):  # a UserError without the package that reads deep TIFF files
        return None
    return greatest * 256 + 255 if is_cut and greatest else greatest


def _is_deep(path: Path) -> bool:
    """Whether an image has 16 bits per value, by its header."""
    try:
        with open_image(path) as image:
            return has_16_bits(image)
    except ImageFault:
        return is_deep_tiff(path)
