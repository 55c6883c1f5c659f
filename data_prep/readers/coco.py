"""COCO's JSON of any tool: boxes, joints of any names, captions and attributes, a row for each annotation."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import Quote, Row
from cml.data_prep.unique_ids import check_unique
from cml.errors import DataError
from cml.storage.json_file import read_json

_NUMBERS = (int, float)
_OUTLINES = frozenset({"segmentation"})  # which make most of a file, and are no label of any kind
_TAKEN = frozenset({"file_name", "class", "keypoints", "caption", "x0", "y0", "x1", "y1"})


class CocoFile(NamedTuple):
    """The lists of COCO's JSON."""

    photos: dict[str, dict[str, Any]]  # by their ids as texts
    annotations: list[dict[str, Any]]
    categories: list[dict[str, Any]]

    def find_photo(self, annotation: dict[str, Any]) -> dict[str, Any] | None:
        """The image of an annotation; None for none."""
        return self.photos.get(_name_id(annotation.get("image_id")))


def load_coco(path: Path, without: Collection[str] = ()) -> CocoFile:  # without: keys that are not read
    """Read a file of COCO's JSON."""
    coco = read_json(path, "COCO annotations", finite=False, without=frozenset(without))
    parts = [coco.get(part) if isinstance(coco, dict) else None for part in ("images", "annotations")]
    parts.append((coco.get("categories") or []) if isinstance(coco, dict) else None)
    images, annotations, categories = (
        part if isinstance(part, list) and all(isinstance(entry, dict) for entry in part) else None for part in parts
    )
    if images is None or annotations is None or categories is None:
        raise DataError(
            f"{path} should be COCO's JSON, with lists of images and annotations; fetch or export it again."
        )
    ids = [photo.get("id") for photo in images]
    check_unique(
        (int(n) if isinstance(n, str) and re.fullmatch(r"\d{1,18}", n) else n for n in ids), f"{path}: the image id"
    )
    return CocoFile({_name_id(photo.get("id")): photo for photo in images}, annotations, categories)


class Coco(Reader):
    """COCO's JSON, as CVAT, Label Studio, FiftyOne, Roboflow, SLEAP and COCO itself write it."""

    title = "COCO's JSON"
    is_sparse = True

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        return path.suffix.lower() == ".json" and head.lstrip().startswith("{")

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        coco = load_coco(path, without=_OUTLINES)
        named = {_name_id(entry.get("id")): entry for entry in coco.categories}
        for position, entry in enumerate(coco.annotations):
            where = f"{path}: annotation {entry.get('id', position)}"
            photo = coco.find_photo(entry)
            if photo is None:
                yield where, DataError(f"{where}: no entry of images has its image_id {entry.get('image_id')!r}.")
                continue
            try:
                yield where, _make_row(entry, photo, named.get(_name_id(entry.get("category_id")), {}), where)
            except DataError as error:
                yield where, error


def _name_id(number: object) -> str:
    """An id as text: some tools write "7" in one list and 7 in the other."""
    return number if isinstance(number, str) else repr(number)


def _make_row(entry: dict[str, Any], photo: dict[str, Any], category: dict[str, Any], where: str) -> Row:
    attributes = entry.get("attributes")
    row: dict[str, Any] = {**(attributes if isinstance(attributes, dict) else {}), **photo, **entry}
    row = {name: value for name, value in row.items() if name not in _TAKEN}
    name = photo.get("file_name")
    if isinstance(name, str) and "/" not in name:  # of Windows, as Label Studio writes paths there
        name = name.replace("\\", "/")
    row |= {"file_name": name, "class": category.get("name")}
    if isinstance(entry.get("caption"), str):
        row["caption"] = entry["caption"]
    if entry.get("iscrowd") == 1:  # a region of many, without joints or a box of one
        return row
    if (box := entry.get("bbox")) is not None:
        x, y, width, height = _read_numbers(box, f"{where}: the bbox", 4)
        row |= {"x0": x, "y0": y, "x1": x + width, "y1": y + height}
    if joints := entry.get("keypoints"):
        names = category.get("keypoints") or []
        numbers = _read_numbers(joints, f"{where}: keypoints", 3 * (len(names) or len(joints) // 3))
        places = [numbers[start : start + 3] for start in range(0, len(numbers), 3)]
        if any(place[2] for place in places):
            row["keypoints"] = dict(zip(map(str, names), places, strict=True)) if names else places
    return row


def _read_numbers(value: object, subject: str, count: int) -> list[float]:
    if not isinstance(value, list) or len(value) != count or not all(type(number) in _NUMBERS for number in value):
        raise DataError(f"{subject} should be {count} numbers. Got {value!r:.80} instead.")
    return value
