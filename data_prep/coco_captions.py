"""COCO captions: photographs of everyday scenes with five or more captions each, and judgements of their likeness."""

import contextlib
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cml.console.messages import say
from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import unskipped
from cml.data_prep.captioned import CaptionedSource, Photo
from cml.data_prep.listed import read_each, table_rows, within
from cml.data_prep.source import Content, made_with
from cml.data_prep.table import Row
from cml.errors import DataError, UserError
from cml.storage.atomic import atomic_file, read_json

PAIRS = "pairs.csv"  # where cml evaluate looks for them
_COLUMNS = ("image1", "image2", "agg_score")
_NAMES = {2014: re.compile(r"COCO_(?:train|val)2014_(\d{12})\.jpg"), 2017: re.compile(r"\d{12}\.jpg")}
_KARPATHY = {"train": "train", "restval": "train", "test": "", "val": ""}


@dataclass(frozen=True)
class CocoCaptions(CaptionedSource):
    """Photographs of COCO with their captions.

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
    """Year of the files, 2014 or 2017. Both have the same photographs under other names."""
    karpathy: Path | None = None
    """Karpathy's dataset_coco.json, for the split that captioning papers use."""

    published = "COCO captions, Chen et al., arXiv 1504.00325, 2015"
    licence = "annotations CC BY 4.0; photographs under their owners' Flickr licences"
    part = "test"  # of Karpathy's split: queries and gallery

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.year not in _NAMES:
            raise UserError(f"The year should be 2014 or 2017. Got {self.year} instead.")

    def _origin(self, *more: Path) -> dict[str, Any]:
        files = annotation_files(self.source, self.year, "captions")
        texts = filter(None, (*files.values(), self.karpathy, *more))
        return made_with(self, revision=1, files=texts, images=[self._folder(name) for name in files])

    def _content(self, skip_bad: bool) -> Content:
        files = annotation_files(self.source, self.year, "captions")
        roles = None if self.karpathy is None else read_karpathy(self.karpathy, self.part)
        left_out: Counter[str] = Counter()
        split = "Karpathy" if roles else "train and val files" if len(files) == 2 else "hash of the ids"
        made = self._captioned(self._photos(files, roles, left_out), split, left_out)
        return made._replace(about={"name": f"coco-captions-{self.year}"})

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


@dataclass(frozen=True)
class CocoCxc(CocoCaptions):
    """COCO's captions, and beside them how alike people find pairs of the test photographs.

    Command: cml prepare coco_cxc --source COCO --karpathy dataset_coco.json --cxc CXC --out DIR

    Input: COCO as for coco_captions; Karpathy's dataset_coco.json, whose parts val and test were judged; a folder with
    sis_val.csv and sis_test.csv (columns image1, image2, agg_score), from data/ of
    github.com/google-research-datasets/Crisscrossed-Captions. The pairs are written as pairs.csv beside
    dataset.json, where cml evaluate finds them: item, other, and similarity from 0 to 5, where 5 is most alike.

    Licence: judgements CC BY 4.0; annotations CC BY 4.0; the photographs have their owners' Flickr licences.
    """

    karpathy: Path = field(kw_only=True)
    """Karpathy's dataset_coco.json."""
    cxc: Path = field(kw_only=True)
    """Folder with sis_val.csv and sis_test.csv."""
    part: Literal["val", "test"] = "test"
    """The part of Karpathy's split that is tested on; the other is left out."""

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset and the pairs beside it; see ``DataSource.prepare``."""
        pairs: dict[tuple[str, str], float] = {}
        for one in read_pairs(self._judged):
            if not isinstance(one, DataError):
                pairs.setdefault((min(one[:2]), max(one[:2])), one[2])  # of a pair that comes twice the first line
            elif not skip_bad:
                raise unskipped(str(one))
        dataset = super().prepare(out, skip_bad=skip_bad)
        if not (out / PAIRS).exists():
            known = {item for role in dataset.info.roles[1:] for item in dataset.split(role).item_ids}
            lines = [f"{a},{b},{score:g}" for (a, b), score in pairs.items() if a in known and b in known]
            with atomic_file(out / PAIRS) as file:
                file.write_text("\n".join(["item,other,similarity", *lines, ""]))
            say(f"{out / PAIRS}: {len(lines)} of {len(pairs)} judged pairs")
        return dataset

    @property
    def _judged(self) -> Path:
        return self.cxc / f"sis_{self.part}.csv"

    def _origin(self, *more: Path) -> dict[str, Any]:
        return super()._origin(self._judged, *more)


def annotation_files(source: Path, year: int, kind: str) -> dict[str, Path]:
    """The annotation files of a kind ("captions", ..) that are there, by the image folder that they are about."""
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
    return coco


def read_captions(path: Path, folder: Path, year: int) -> dict[int, Photo]:
    """The photographs of a caption file, by COCO id, what is wrong with one noted in it; all else is an error."""
    coco = load_coco(path)
    annotations, images = coco.dataset["annotations"], coco.dataset["images"]
    if not all("caption" in annotation for annotation in annotations):
        raise DataError(f"{path} has annotations without a caption; it should be a captions_*.json.")
    photos: dict[int, Photo] = {}
    for image in images:
        number, name = image.get("id"), image.get("file_name")
        where = f"{path}: image {number}"
        if type(number) is not int or not isinstance(name, str):
            raise DataError(f"{where}: should have a whole number as id and a text as file_name. Got {name!r} instead.")
        if number in photos:
            raise DataError(f"{where}: its id is listed twice.")
        if not _NAMES[year].fullmatch(name):
            of = next((other for other, form in _NAMES.items() if form.fullmatch(name)), None)
            what = f"is of COCO {of}" if of else "is none of COCO's names"
            raise DataError(f"{where}: its file_name {name!r} {what}; this should be a file of COCO {year}.")
        photos[number] = Photo(str(number), folder / name, where)
    seen: set[Any] = set()
    for annotation in annotations:
        number = annotation.get("id")
        where = f"{path}: annotation {number}"
        if number in seen:
            raise DataError(f"{where}: its id is listed twice.")
        seen.add(number)
        photo = photos.get(annotation.get("image_id"))
        if photo is None:
            raise DataError(f"{where}: no entry of images has its image_id {annotation.get('image_id')!r}.")
        photo.say(annotation["caption"], where)
    return photos


def read_karpathy(path: Path, held: str = "test") -> dict[int, str]:
    """The role of each COCO id in Karpathy's dataset_coco.json: "train", "test" for ``held``, "" for those left out."""
    try:
        images = read_json(path, "Karpathy's dataset_coco.json")["images"]
        known = {**_KARPATHY, held: "test"}
        pairs = [(int(image["cocoid"]), known[image["split"]]) for image in images]
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        what = "with a cocoid and a split (train, restval, val, test) for each image"
        raise DataError(f"{path} should be Karpathy's dataset_coco.json, {what}: {error!r}.") from None
    roles = dict(pairs)
    if len(roles) < len(pairs):
        twice = next(number for number, count in Counter(number for number, _ in pairs).items() if count > 1)
        raise DataError(f"{path}: the cocoid {twice} is listed twice.")
    return roles


def read_pairs(path: Path) -> Iterator[tuple[str, str, float] | DataError]:
    """The pairs of a sis_*.csv, or what is wrong with one: two COCO ids and the mean score from 0 to 5."""
    return read_each(table_rows(path, _COLUMNS), _pair)


def _pair(where: str, row: Row) -> tuple[str, str, float]:
    found = [_NAMES[2014].fullmatch(row[column]) for column in _COLUMNS[:2]]
    first, second = (match and str(int(match[1])) for match in found)
    if not first or not second or first == second:
        names = " and ".join(repr(row[column]) for column in _COLUMNS[:2])
        raise DataError(f"{where}: should name two photographs of COCO 2014. Got {names} instead.")
    return first, second, within(row["agg_score"], "agg_score", where, 0, 5)
