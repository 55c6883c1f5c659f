"""COCO's annotation files: which of them are present, and their content read strictly and indexed by pycocotools."""

import contextlib
import io
from pathlib import Path
from typing import Any

from cml.data_prep.unique_ids import check_unique
from cml.errors import DataError
from cml.storage.json_file import read_json


def annotation_files(
    source: Path,  # the folder of COCO, with annotations/
    year: int,
    kind: str,
) -> dict[str, Path]:
    """Find the annotation files of COCO for training and validation."""
    names = [f"{part}{year}" for part in ("train", "val")]
    files = {name: source / "annotations" / f"{kind}_{name}.json" for name in names}
    there = {name: path for name, path in files.items() if path.exists()}
    if not there:
        others = sorted(path.name for path in (source / "annotations").glob(f"{kind}_*.json"))
        hint = f" There is {others[0]}: give its year with --year." if others else ""
        raise DataError(f"{files[names[0]]} is missing: {source} should be a folder of COCO {year}.{hint}")
    return there


def load_coco(path: Path) -> Any:  # noqa: ANN401 - pycocotools has no types
    """The file as pycocotools' ``COCO``; its images and annotations are lists of objects."""
    from pycocotools.coco import COCO

    coco = COCO()
    coco.dataset = read_json(path, "COCO annotations", finite=False)
    try:
        listed = [*coco.dataset["images"], *coco.dataset["annotations"], *coco.dataset.get("categories", [])]
        if not all(isinstance(entry, dict) for entry in listed):
            raise TypeError("images, annotations and categories should be objects")
        with contextlib.redirect_stdout(io.StringIO()):  # it talks
            coco.createIndex()
    except Exception as error:  # on a broken file it raises whatever that leads it to
        raise DataError(f"{path} is not a complete COCO annotation file: {error!r}. Fetch it again.") from None
    # of two, the index keeps the last one, and the annotations of the first would show another image
    for kind in ("image", "annotation"):
        check_unique((entry.get("id") for entry in coco.dataset[f"{kind}s"]), f"{path}: the {kind} id")
    return coco
