"""Captioned photographs: what their sources share, and Flickr8k and Flickr30k."""

import re
import reprlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cml.data.prepared_writer import Item
from cml.data_prep.listed import Shrink, read_each
from cml.data_prep.source import Content, DatasetSource, made_with, role_by_hash, text_lines
from cml.errors import DataError, UserError
from cml.storage.safe_paths import file_inside

_LINE = re.compile(r"(?P<name>[^\t/\\]+)#(?P<number>\d+)\t(?P<caption>.*)")
_WITHOUT_PHOTO = "2258277193_586949ec62.jpg.1"  # never published, but the published file has captions of it


@dataclass
class Photo:
    """A photograph that captions are being gathered for."""

    item_id: str
    file: Path
    where: str  # where it is listed, for error messages
    captions: list[str] = field(default_factory=list)  # so far
    fault: str = ""  # the first thing found wrong with it, or ""

    def say(self, caption: object, where: str) -> None:
        """Add a caption, or note why it cannot be one."""
        if not isinstance(caption, str) or not caption.strip():
            self.fault = self.fault or f"{where}: the caption should be a text, but is {reprlib.repr(caption)}."
        else:
            self.captions.append(" ".join(caption.split()))  # some end in line breaks

    def item(self, role: str, shrink: Shrink) -> Item:
        """The item to write."""
        if self.fault:
            raise DataError(self.fault)
        if not self.captions:
            raise DataError(f"{self.where}: has no caption; every image needs one at least.")
        file = file_inside(self.file.parent, self.file.name, self.where)
        return Item(self.item_id, role, shrink.picture(file), self.captions, where=self.where)


@dataclass(frozen=True)
class CaptionedSource(DatasetSource):
    """Photographs with their captions. A source of its own reads its files."""

    short_side: int | None = field(default=256, kw_only=True)
    """Larger photographs are shrunk once so that their shorter side has this many pixels; none keeps the files."""
    long_side: int = field(default=640, kw_only=True)
    """Most pixels of the longer side, where photographs are shrunk."""
    test_share: float = field(default=0.3, kw_only=True)
    """Share of the photographs that are not for training, where no file says which are."""
    query_share: float = field(default=0.2, kw_only=True)
    """Share of the test photographs that are queries; the others are the gallery."""

    task = "caption"

    def __post_init__(self) -> None:
        super().__post_init__()
        Shrink(self.short_side, self.long_side)

    def _role(self, photo: Photo, part: str = "") -> str:
        """The role of a photograph of the part for training, the part for testing, or of neither."""
        if part == "train":
            return part
        return role_by_hash(photo.item_id, 1.0 if part else self.test_share, self.query_share)

    def _captioned(
        self, photos: Iterable[tuple[Photo, str]], split: str, left_out: Counter[str], bad: Sequence[DataError] = ()
    ) -> Content:
        """The items of photographs and their roles, a bad one as its error; ``left_out`` is filled as they come."""
        shrink = Shrink(self.short_side, self.long_side)
        items = read_each((("", photo) for photo in photos), lambda _, photo: photo[0].item(photo[1], shrink))
        return Content([*bad, *items], {"split": split, "left_out": dict(left_out)})


@dataclass(frozen=True)
class Flickr8k(CaptionedSource):
    """Photographs of Flickr8k with their captions; Flickr30k has the same form.

    Command: cml prepare flickr8k --captions Flickr8k.token.txt --images DIR --out DIR

    Input: the caption file, one line ``NAME.jpg#NUMBER<TAB>CAPTION`` a caption, and the folder of the photographs. The
    item's id is the photograph's name without its ending. The five captions of 2258277193_586949ec62.jpg.1, a
    photograph that the published dataset lacks, are left out.

    Split: that of the lists Flickr_8k.trainImages.txt and .testImages.txt where they are given; photographs of neither
    are left out. Without them the photographs are split by a hash of their names.

    Licence: the photographs have their owners' Flickr licences; the dataset is for research and education only.
    """

    captions: Path
    """Flickr8k.token.txt, or Flickr30k's results_20130124.token."""
    images: Path
    """Folder of the photographs."""
    train_list: Path | None = None
    """Names of the photographs to train on, one per line; test_list is needed with it."""
    test_list: Path | None = None
    """Names of those that are queries and gallery."""

    published = "Flickr8k, Hodosh, Young and Hockenmaier, JAIR 2013, or Flickr30k, Young et al., TACL 2014"
    licence = "photographs under their owners' Flickr licences; research and education only"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.train_list is None) != (self.test_list is None):
            raise UserError("The train_list and the test_list go together: give both, or neither for a split by hash.")

    def _origin(self) -> dict[str, Any]:
        files = filter(None, (self.captions, self.train_list, self.test_list))
        return made_with(self, revision=1, files=files, images=self.images)

    def _content(self, skip_bad: bool) -> Content:
        left_out: Counter[str] = Counter()
        photos, bad = read_tokens(self.captions, self.images, left_out)
        split = "lists" if self.train_list else "hash of the names"
        return self._captioned(self._with_roles(photos, left_out), split, left_out, bad)

    def _with_roles(self, photos: dict[str, Photo], left_out: Counter[str]) -> Iterator[tuple[Photo, str]]:
        if self.train_list is None or self.test_list is None:
            yield from ((photo, self._role(photo)) for photo in photos.values())
            return
        train, test = (_names(path, photos) for path in (self.train_list, self.test_list))
        if both := train & test:
            raise DataError(f"{self.test_list}: {min(both)} is also in {self.train_list}; an image has one role.")
        for name, photo in photos.items():
            if name in train or name in test:
                yield photo, self._role(photo, "train" if name in train else "test")
            else:
                left_out["photographs in neither list"] += 1


def read_tokens(path: Path, folder: Path, left_out: Counter[str]) -> tuple[dict[str, Photo], list[DataError]]:
    """The photographs of a caption file by name, what is wrong with one noted in it; and lines that are none."""
    photos: dict[str, Photo] = {}
    numbers: dict[tuple[str, str], str] = {}
    bad: list[DataError] = []
    for where, text in text_lines(path):
        match = _LINE.fullmatch(text)
        if match is None:
            bad.append(DataError(f"{where}: should read NAME.jpg#NUMBER<TAB>CAPTION, but is {text[:60]!r}."))
            continue
        name, number = match["name"], match["number"]
        if name == _WITHOUT_PHOTO:
            left_out["captions of a photograph that was never published"] += 1
            continue
        photo = photos.setdefault(name, Photo(Path(name).stem, folder / name, where))
        if (first := numbers.setdefault((name, number), where)) != where:
            line = first.rpartition(":")[2]
            photo.fault = photo.fault or f"{where}: caption {number} of {name} is already in line {line}."
        photo.say(match["caption"], where)
    if not photos:
        raise DataError(str(bad[0]) if bad else f"{path} holds no caption.")
    return photos, bad


def _names(path: Path, photos: dict[str, Photo]) -> set[str]:
    names = set()
    for where, text in text_lines(path):
        if (name := text.strip()) not in photos:
            raise DataError(f"{where}: {name!r} has no captions; is the list of another dataset?")
        names.add(name)
    return names
