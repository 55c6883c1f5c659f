"""COCO captions: photographs of everyday scenes with five or more captions each."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cml.data_prep.captioned_source import CaptionedSource, Photo
from cml.data_prep.coco_annotations import annotation_files
from cml.data_prep.dataset_source import Content
from cml.data_prep.provenance import record_provenance
from cml.data_prep.readers.coco import load_coco
from cml.data_prep.unique_ids import check_unique
from cml.errors import DataError, UserError
from cml.storage.json_file import read_json

# Karpathy's split of the COCO photographs, which captioning papers use.

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


_NAMES = {2014: re.compile(r"COCO_(?:train|val)2014_(\d{12})\.jpg"), 2017: re.compile(r"\d{12}\.jpg")}


@dataclass(frozen=True)
class CocoCaptions(CaptionedSource):
    """COCO: photographs with captions.

    Command: cml prepare coco_captions --source DIR --out DIR

    Input: a folder as COCO's archives unpack: annotations/captions_train2017.json and .._val2017.json, and the images
    in train2017/ and val2017/; likewise for 2014. The item's id is COCO's image id.

    Split: photographs of the train file are for training, those of the val file are queries and gallery. Where only
    one of the two files is there, its photographs are split by a hash of their ids. With Karpathy's dataset_coco.json
    (its photographs are known by their COCO ids, so it goes with either year) train and restval are for training, test
    is queries and gallery, and val is left out.

    Licence: annotations CC BY 4.0; the photographs have their owners' Flickr licences.
    """

    source: Path
    """Folder with annotations/ and the image folders."""
    year: int = 2017
    """Year of the files, 2014 or 2017. Both contain the same photographs under different names."""
    karpathy: Path | None = None
    """Karpathy's dataset_coco.json, for the split that captioning papers use."""

    published = "COCO captions, Chen et al., arXiv 1504.00325, 2015"
    licence = "annotations CC BY 4.0; photographs under their owners' Flickr licences"
    part = "test"  # of Karpathy's split: queries and gallery

    def __post_init__(self) -> None:
        super().__post_init__()
        check_year(self.year)

    def origin(self, *more: Path) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        files = annotation_files(self.source, self.year, "captions")
        texts = filter(None, (*files.values(), self.karpathy, *more))
        return record_provenance(self, revision=1, files=texts, images=[self._folder(name) for name in files])

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        files = annotation_files(self.source, self.year, "captions")
        roles = None if self.karpathy is None else read_karpathy(self.karpathy, self.part)
        left_out: Counter[str] = Counter()
        split = "Karpathy" if roles else "train and val files" if len(files) == 2 else "hash of the ids"
        content = self._collect_items(self._photos(files, roles, left_out), split, left_out)
        return replace(content, texts={"name": f"coco-captions-{self.year}"})

    def _folder(self, name: str) -> Path:
        folder = self.source / name
        if not folder.is_dir():
            others = sorted(path.name for path in self.source.glob(f"{name[:-4]}20*") if path.is_dir())
            hint = f", not those of {others[0]}, which go with the captions of their own year" if others else ""
            raise DataError(f"The image folder {folder} is missing: captions of {self.year} need its images{hint}.")
        return folder

    def _photos(
        self, files: dict[str, Path], roles: dict[int, str] | None, left_out: Counter[str]
    ) -> Iterator[tuple[Photo, str]]:
        seen: dict[int, Path] = {}
        for name, path in files.items():
            for number, photo in read_captions(path, self.source / name, self.year).items():
                if number in seen:
                    raise DataError(f"{path}: image {number} is already in {seen[number]}; an image has one role.")
                seen[number] = path
                if roles is None:
                    yield photo, self._role(photo, name[:-4] if len(files) == 2 else "")
                elif number not in roles:
                    raise DataError(f"{path}: image {number} is not in the split file {self.karpathy}.")
                elif roles[number]:
                    yield photo, self._role(photo, roles[number])
                else:
                    other = "validation" if self.part == "test" else "test"
                    left_out[f"{other} photographs of Karpathy's split"] += 1
        if roles is not None and (missing := len(roles.keys() - seen.keys())):
            left_out["photographs of Karpathy's split without an annotation file"] += missing


def check_year(year: int) -> None:
    """Raise an error if COCO has no captions of a year."""
    if year not in _NAMES:
        raise UserError(f"The year should be 2014 or 2017. Got {year} instead.")


def read_captions(
    path: Path, folder: Path, year: int
) -> dict[int, Photo]:  # COCO's image ids to photographs; a bad caption is noted in its photograph
    """Read a caption file of COCO."""
    coco = load_coco(path)
    check_unique((entry.get("id") for entry in coco.annotations), f"{path}: the annotation id")
    if not all("caption" in annotation for annotation in coco.annotations):
        raise DataError(f"{path} has annotations without a caption; it should be a captions_*.json.")
    photos: dict[int, Photo] = {}
    for image in coco.photos.values():
        number, name = image.get("id"), image.get("file_name")
        where = f"{path}: image {number}"
        if type(number) is not int or not isinstance(name, str):
            rule = "should have a whole number as id and a text as file_name"
            raise DataError(f"{where}: {rule}. Got {number!r} and {name!r} instead.")
        if not _NAMES[year].fullmatch(name):
            other_year = next((other for other, form in _NAMES.items() if form.fullmatch(name)), None)
            fault = f"is of COCO {other_year}" if other_year else "is none of COCO's names"
            raise DataError(f"{where}: its file_name {name!r} {fault}; this should be a file of COCO {year}.")
        photos[number] = Photo(str(number), folder / name, where)
    for annotation in coco.annotations:
        where = f"{path}: annotation {annotation.get('id')}"
        photo = photos.get((coco.find_photo(annotation) or {}).get("id", -1))
        if photo is None:
            raise DataError(f"{where}: no entry of images has its image_id {annotation.get('image_id')!r}.")
        photo.say(annotation["caption"], where)
    return photos
