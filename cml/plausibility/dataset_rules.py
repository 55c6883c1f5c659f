"""All rules, on a prepared dataset: its labels, masks, images and split."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cml.data.columns import Numbers
from cml.data.prepared import PreparedDataset, Split
from cml.plausibility.corner_joints import find_corner_joints
from cml.plausibility.depth import find_shallow_depth
from cml.plausibility.finding import Finding, Rule
from cml.plausibility.label_rules import find_in_labels
from cml.plausibility.lone_queries import find_lone_queries
from cml.plausibility.repeated_labels import find_repeated_images, find_repeated_texts
from cml.plausibility.same_images import find_same_images
from cml.plausibility.stray_ids import find_stray_ids
from cml.plausibility.thousands import find_thousands
from cml.plausibility.thumbnails import Thumbnails
from cml.plausibility.tiny_people import find_tiny_people


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
    others = len(dataset.split("gallery")) - dataset.info.queries_are_gallery
    masks = [] if isinstance(labels, np.ndarray) else [label for label in labels if isinstance(label, Path)]
    ids, ignore_id = details.get("ids") or {}, details.get("ignore_id")
    rules: dict[Rule, Callable[[], Iterable[Finding]]] = {
        "thousands": lambda: find_thousands(details, len(items)),
        "repeated-labels": lambda: find_repeated_texts(items, labels),
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
    if thumbnails is not None and splits[0].vectors is None:
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
