"""What is suspicious about a prepared dataset, by all rules that need no label distance."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.data.bands import ImageFault
from cml.data.columns import Numbers
from cml.data.masks import read_mask
from cml.data.prepared import PreparedDataset, Split
from cml.plausibility.finding import Finding, Rule
from cml.plausibility.image_rules import (
    Thumbnails,
    find_repeated_images,
    find_repeated_texts,
    find_same_images,
    find_shallow_depth,
)
from cml.plausibility.label_rules import find_in_labels

# Lone queries: queries that are searched among one item or none, so that every order of them is the best one.


def find_lone_queries(queries: int, others: int) -> Iterator[Finding]:
    """Find that each query is searched among one item or none."""
    if queries and others < 2:
        each = "1 query has" if queries == 1 else f"each of {queries} queries has"
        found = "only one item" if others else "no items"
        what = f"{each} {found} to retrieve, so nothing can be measured"
        mend = "Hold out more items for testing, or collect more."
        yield Finding("lone-queries", what, mend, queries, queries)


# Stray ids: ids of masks that cover next to nothing, as antialiased edges or lossy compression make them.

_LOOKED_AT = 200  # masks, spread over the dataset
_STRAY = 0.005  # share of a mask that an id covers at most, in every mask
_MANY = 8  # stray ids
_IGNORED, _USUAL = 255, 64  # 255 often marks pixels to ignore, where all other ids are small


def find_stray_ids(
    masks: Sequence[Path],  # the files of masks, at least one
    names: Mapping[str, str],
    ignore_id: int | None,  # the id of pixels to ignore; None if there is none
) -> list[Finding]:  # at most two findings
    """Find ids that never cover more than half a per cent of a mask, where there are many, and 255 among small ids."""
    chosen = [masks[place] for place in np.unique(np.linspace(0, len(masks) - 1, _LOOKED_AT).astype(int)).tolist()]
    largest = np.zeros(256)
    for path in chosen:
        try:
            mask = read_mask(path)
        except ImageFault:  # it is reported as a fault of its own
            continue
        largest = np.maximum(largest, np.bincount(mask.reshape(-1), minlength=256) / mask.size)
    if ignore_id is not None:
        largest[ignore_id] = 0
    present = np.flatnonzero(largest)
    stray = np.flatnonzero((largest > 0) & (largest <= _STRAY))
    findings = []
    if len(stray) >= _MANY and len(stray) > len(present) / 2:
        what = f"{len(stray)} of {len(present)} ids never cover more than {_STRAY:.1%} of a mask"
        mend = "If edges were antialiased or compressed, draw the masks anew, with one whole id for each pixel."
        shown = [str(number) for number in stray[:8].tolist()]
        findings.append(Finding("stray-ids", what, mend, len(stray), len(present), shown))
    others = present[present != _IGNORED]
    is_unnamed = names.get(str(_IGNORED), "").startswith("region ") or str(_IGNORED) not in names
    if largest[_IGNORED] and is_unnamed and len(others) and others.max() < _USUAL and not findings:
        what = f"the id 255 is a region, but all {len(others)} others are below {_USUAL}"
        mend = "If it marks pixels to ignore, prepare the masks with --ignore-id 255."
        findings.append(Finding("stray-ids", what, mend, 1, len(present)))
    return findings


# Thousands: numbers such as 1.500 that may have meant 1500 where a table was read.


def find_thousands(
    # the details of dataset.json, in which ``grouped_numbers`` lists numbers as they were written
    details: Mapping[str, Any],
    total: int,
) -> list[Finding]:
    """Find what was noted of the numbers of the table when it was read."""
    written = details.get("grouped_numbers")
    if not isinstance(written, list) or not written:
        return []
    what = "all numbers are whole or have exactly three decimals, in a table of cells separated by semicolons"
    mend = 'If a point separates thousands, prepare the table with --decimal "," --thousands "."'
    return [Finding("thousands", what, mend, total, total, [str(text) for text in written[:4]])]


# Frame: joints or boxes that were made on images of another size than those that they lie in.

_FEWEST_IMAGES = 8
_HUNDRED = 100.0  # per cent
_LARGER = 1.5  # times as large as 100 pixels are images that show joints in per cent
_REACH = 0.6  # of both sides; labels of whole images come nearer to their right and lower ends in some


def find_frame(details: Mapping[str, Any]) -> list[Finding]:  # details of dataset.json, in which ``frame`` says how far
    """Find labels that never reach the right and lower parts of any image."""
    frame = details.get("frame")
    numbers = [frame.get(name) for name in ("images", "x", "y", "largest", "side")] if isinstance(frame, dict) else []
    if not numbers or not all(isinstance(number, int | float) for number in numbers):
        return []
    images, x, y, largest, side = (float(number) for number in numbers if number is not None)
    labels = str(frame.get("labels", "labels")) if isinstance(frame, dict) else ""
    if isinstance(frame, dict) and frame.get("sizes_grow"):
        what = f"the boxes of {images:g} images tend to be wider and higher the farther right and down they begin"
        mend = "If the last two numbers are the right and lower end, name the columns x0, y0, x1 and y1."
        return [Finding("frame", what, mend, int(images), int(images))]
    is_hundredths = largest <= _HUNDRED and side >= _LARGER * _HUNDRED
    if images < _FEWEST_IMAGES or (max(x, y) >= _REACH and not is_hundredths):
        return []
    place = f"{x:.0%} of the width and {y:.0%} of the height"
    what = f"all {labels} of {images:g} images lie within {place}, in the upper left part"
    mend = f"If the {labels} belong to images of another size, scale them, or give the images that they were made on."
    if is_hundredths:
        what = f"all {labels} of all {images:g} images lie in 0..100, and the images are larger"
        mend = f"If the {labels} are in per cent, multiply x by width / 100 and y by height / 100."
    return [Finding("frame", what, mend, int(images), int(images))]


_OF_STEPS = ("dtw", "frechet", "edit")  # label distances of labels in which a text is a step


def find_in_dataset(
    dataset: PreparedDataset,
    thumbnails: Thumbnails | None = None,  # the thumbnails of its images; without them no images are looked at
    *,
    skip: Collection[str] = (),
) -> list[Finding]:
    """Find what is suspicious about the values of a prepared dataset, without a label distance."""
    details = dataset.info.details
    roles = ("train", "query") if dataset.info.queries_are_gallery else ("train", "query", "gallery")
    splits = [dataset.split(role) for role in roles]
    items = [item for split in splits for item in split.item_ids]
    labels = _join_labels(splits)
    columns = details.get("label_columns") or [dataset.info.label_column]
    distance = str(details.get("label_distance", ""))
    name = distance.partition("(")[0].strip()
    others = len(dataset.split("gallery")) - dataset.info.queries_are_gallery
    masks = [] if isinstance(labels, np.ndarray) else [label for label in labels if isinstance(label, Path)]
    ids, ignore_id = details.get("ids") or {}, details.get("ignore_id")
    rules: dict[Rule, Callable[[], Iterable[Finding]]] = {
        "thousands": lambda: find_thousands(details, len(items)),
        "frame": lambda: find_frame(details),
        # a sequence may stay where it is
        "repeated-labels": lambda: () if name in _OF_STEPS else find_repeated_texts(items, labels),
        "lone-queries": lambda: find_lone_queries(len(dataset.split("query")), others),
    }
    if masks:
        rules["stray-ids"] = lambda: find_stray_ids(masks, ids, ignore_id)
    if dataset.info.task == "pose":
        rows = [row for role in roles for row in dataset.read_further(role)]
        size = details.get("image_size")
        if isinstance(size, list) and size and isinstance(size[0], int | float) and size[0] > 0:
            side = float(size[0])
            rules["sentinels"] = lambda: find_corner_joints(items, labels, rows, side)
        rules["tiny-people"] = lambda: find_tiny_people(items, rows)
    findings = [finding for rule, find in rules.items() if rule not in skip for finding in find()]
    is_grouped = any(finding.rule == "thousands" for finding in findings)  # such numbers lie far apart
    skip_labels = {*skip, "outliers"} if is_grouped else skip
    findings = find_in_labels(labels, items=items, columns=columns, distance=distance, skip=skip_labels) + findings
    if thumbnails is not None and dataset.info.inputs.kind == "images":
        # queries that are known on purpose would all be reported
        own = {"near-duplicates"} if dataset.info.queries_are_known else set()
        findings += _find_in_images(splits, thumbnails, {*skip, *own})
    return findings


def _join_labels(splits: Sequence[Split]) -> Any:  # noqa: ANN401 - an array or a list
    """The labels of roles: an array, if they are numbers of one shape; else a list."""
    if all(isinstance(split.labels, Numbers) for split in splits):
        arrays = [np.asarray(split.labels) for split in splits]
        if len({array.shape[1:] for array in arrays}) == 1:
            return np.concatenate(arrays)
    return [label for split in splits for label in split.labels]


def _find_in_images(splits: list[Split], thumbnails: Thumbnails, skip: Collection[str]) -> list[Finding]:
    """What is suspicious about images; what one rule explains, others do not repeat."""
    findings = [] if "depth" in skip else list(find_shallow_depth(thumbnails.brightest))
    if "same-images" not in skip and not findings:
        findings += find_same_images(thumbnails.of)
    if any(finding.rule == "same-images" for finding in findings):
        return findings
    if "repeated-labels" not in skip:
        findings += find_repeated_images(_paths(splits[:1]), splits[0].labels, thumbnails.contrasted)
        tested = [label for split in splits[1:] for label in split.labels]
        findings += find_repeated_images(_paths(splits[1:]), tested, thumbnails.contrasted)
    if "near-duplicates" not in skip:
        from cml.plausibility.near_duplicates import find_near_duplicates  # it imports numba

        findings += find_near_duplicates(_paths(splits[:1]), _paths(splits[1:]), thumbnails.contrasted)
    return findings


def _paths(splits: Iterable[Split]) -> Mapping[str, Path]:
    """The images of roles by their ids."""
    return {item: path for split in splits for item, path in zip(split.item_ids, split.paths, strict=True)}


# The squares that people were cut out of photographs by, as pose datasets record them.


def read_crops(columns: Sequence[Mapping[str, Any]]) -> Float64 | None:
    """Read the crop of each person.

    Returns (N, 3) left, top and side in pixels of the photograph; None unless each has "crop" with three numbers.
    """
    try:
        crops = np.array([row["crop"] for row in columns], np.float64)
    except (KeyError, TypeError, ValueError):
        return None
    return crops if crops.ndim == 2 and crops.shape[1] == 3 and np.isfinite(crops).all() else None


# Corner joints: joints at the corner of the photograph, where annotation tools put those that they did not see.

_REACH_OF_CORNER = 1.6  # pixels from (0, 0): (-1, -1) or (0, 0), counted from 0 or 1, at edges or middles of pixels
_FEWEST_JOINTS = 2  # joints; one may be at the corner by chance


def find_corner_joints(
    items: Sequence[str],
    labels: Sequence[Any],  # the N labels, (J, 3) each: x, y in pixels of the crop, and whether the joint is visible
    # the N further columns of metadata.jsonl, of which "crop" holds left, top and side, in pixels
    columns: Sequence[Mapping[str, Any]],
    size: float,  # side of the crops, in pixels
) -> Iterator[Finding]:  # one finding under the rule ``sentinels``, if there are two or more
    """Find visible joints that lie exactly at the upper left corner of their photographs."""
    crops = read_crops(columns)
    if crops is None or not len(items):
        return
    joints = np.asarray(labels, np.float64)
    if joints.ndim != 3 or joints.shape[2] != 3:
        return
    places = crops[:, None, :2] + joints[..., :2] * (crops[:, 2] / size)[:, None, None]
    at_corner = (np.abs(places).max(axis=2) <= _REACH_OF_CORNER) & (joints[..., 2] > 0)
    people = np.flatnonzero(at_corner.any(axis=1))
    count = int(at_corner.sum())
    if count >= _FEWEST_JOINTS:
        yield Finding(
            "sentinels",
            f"{count} joints that are marked as visible lie at the corner (0, 0) of their photographs",
            "If that stands for a joint that was not seen, mark it as hidden by the third number 0.",
            count,
            int((joints[..., 2] > 0).sum()),
            [items[place] for place in people[:8].tolist()],
        )


# Tiny people: crops of a few pixels of a photograph, which are enlarged to the size of all crops.

_SMALLEST = 24  # pixels of the photograph that are the side of a crop; a stored one has 288


def find_tiny_people(
    items: Sequence[str],
    # the N further columns of metadata.jsonl, of which "crop" holds left, top and side, in pixels
    columns: Sequence[Mapping[str, Any]],
) -> Iterator[Finding]:
    """Find people whose crop has a side of less than 24 pixels in the photograph."""
    crops = read_crops(columns)
    sides = [] if crops is None else crops[:, 2].tolist()
    tiny = [f"{item}: {side:g}" for item, side in zip(items, sides, strict=False) if side < _SMALLEST]
    if tiny:
        yield Finding(
            "tiny-people",
            f"the crops of {len(tiny)} of {len(items)} people have a side of less than {_SMALLEST} pixels",
            "Leave out people of a few pixels, or check whether their joints are in pixels.",
            len(tiny),
            len(items),
            tiny[:8],
        )
