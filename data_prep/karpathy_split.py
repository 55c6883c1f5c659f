"""Karpathy's split of the COCO photographs, which captioning papers use."""

from collections import Counter
from pathlib import Path

from cml.errors import DataError
from cml.storage.json_file import read_json

_KARPATHY = {"train": "train", "restval": "train", "test": "", "val": ""}


def read_karpathy(path: Path, held: str = "test") -> dict[int, str]:
    """The role of each COCO id in Karpathy's dataset_coco.json: "train", "test" for ``held``, "" for those left out."""
    try:
        images = read_json(path, "Karpathy's dataset_coco.json")["images"]
        known = {**_KARPATHY, held: "test"}
        pairs = [(int(image["cocoid"]), known[image["split"]]) for image in images]
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        form = "with a cocoid and a split (train, restval, val, test) for each image"
        raise DataError(f"{path} should be Karpathy's dataset_coco.json, {form}: {error!r}.") from None
    roles = dict(pairs)
    if len(roles) < len(pairs):
        twice = next(number for number, count in Counter(number for number, _ in pairs).items() if count > 1)
        raise DataError(f"{path}: the cocoid {twice} is listed twice.")
    return roles
