"""All rules, on a prepared dataset: its labels, masks, images and split."""

from collections.abc import Collection, Mapping
from pathlib import Path

from cml.data.prepared import PreparedDataset
from cml.plausibility.finding import Finding
from cml.plausibility.label_rules import find_in_labels
from cml.plausibility.same_images import find_same_images
from cml.plausibility.stray_ids import find_stray_ids
from cml.plausibility.thousands import find_thousands
from cml.plausibility.thumbnails import Thumbnail


def find_in_dataset(
    dataset: PreparedDataset, thumbnails: Mapping[Path, Thumbnail] | None = None, *, skip: Collection[str] = ()
) -> list[Finding]:
    """Find what is suspicious about a prepared dataset.

    Args:
        dataset: The dataset.
        thumbnails: The thumbnails of its images, which ``Thumbnails`` collects; without them no images are compared.
        skip: Names of rules to skip.

    Returns:
        The findings; none of clean data.
    """
    details = dataset.info.details
    roles = ("train", "query") if dataset.info.queries_are_gallery else ("train", "query", "gallery")
    splits = [dataset.split(role) for role in roles]
    items = [item for split in splits for item in split.item_ids]
    labels = [label for split in splits for label in split.labels]
    columns = details.get("label_columns") or [dataset.info.label_column]
    distance = str(details.get("label_distance", ""))
    findings = find_in_labels(labels, items=items, columns=columns, distance=distance, skip=skip)
    if "thousands" not in skip:
        findings += find_thousands(details, len(items))
    masks = [label for label in labels if isinstance(label, Path)]
    if masks and "stray-ids" not in skip:
        findings += find_stray_ids(masks, details.get("ids") or {}, details.get("ignore_id"))
    if thumbnails is None or splits[0].vectors is not None:
        return findings
    if "same-images" not in skip:
        findings += find_same_images(thumbnails)
    if "near-duplicates" not in skip:
        from cml.plausibility.near_duplicates import find_near_duplicates  # it imports numba

        train = dict(zip(splits[0].item_ids, splits[0].paths, strict=True))
        test = {item: path for split in splits[1:] for item, path in zip(split.item_ids, split.paths, strict=True)}
        findings += find_near_duplicates(train, test, thumbnails)
    return findings
