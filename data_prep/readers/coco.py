"""COCO's JSON of any tool: boxes, joints of any names, captions and attributes, a row for each annotation."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import Quote, Row
from cml.errors import DataError
from cml.storage.json_file import read_json

_NUMBERS = (int, float)
_OUTLINES = frozenset({"segmentation"})  # which make most of a file, and are no label of any kind
_TAKEN = frozenset({"file_name", "class", "keypoints", "caption", "x0", "y0", "x1", "y1"})


class Coco(Reader):
    """COCO's JSON, as CVAT, Label Studio, FiftyOne, Roboflow, SLEAP and COCO itself write it."""

    title = "COCO's JSON"
    is_sparse = True

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        return path.suffix.lower() == ".json" and head.lstrip().startswith("{")

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        coco = read_json(path, "COCO annotations", finite=False, without=_OUTLINES)
        parts = [coco.get(part) if isinstance(coco, dict) else None for part in ("images", "annotations")]
        listed = [part for part in parts if isinstance(part, list) and all(isinstance(entry, dict) for entry in part)]
        if len(listed) < len(parts):
            raise DataError(f"{path} should be COCO's JSON, with lists of images and annotations.")
        photos = {_name_id(photo.get("id")): photo for photo in listed[0]}
        if len(photos) < len(listed[0]):
            raise DataError(f"{path}: two images have one id; export the file again.")
        categories = coco.get("categories") or []
        named = {_name_id(entry.get("id")): entry for entry in categories if isinstance(entry, dict)}
        for position, entry in enumerate(listed[1]):
            where = f"{path}: annotation {entry.get('id', position)}"
            photo = photos.get(_name_id(entry.get("image_id")))
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
