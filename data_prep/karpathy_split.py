"""Karpathy's split of the COCO photographs, which captioning papers use."""

from pathlib import Path

from cml.data_prep.unique_ids import check_unique
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
    check_unique((number for number, _ in pairs), f"{path}: the cocoid")
    return dict(pairs)
