"""Flickr8k and Flickr30k: photographs of people and animals with five captions each."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cml.data_prep.captioned_source import CaptionedSource, Photo
from cml.data_prep.dataset_source import Content
from cml.data_prep.provenance import record_provenance
from cml.data_prep.text_lines import read_lines
from cml.errors import DataError, UserError

_LINE = re.compile(r"(?P<name>[^\t/\\]+)#(?P<number>\d+)\t(?P<caption>.*)")


_WITHOUT_PHOTO = "2258277193_586949ec62.jpg.1"  # never published, but the published file has captions of it


@dataclass(frozen=True)
class Flickr8k(CaptionedSource):
    """Flickr8k, or Flickr30k, which has the same format: photographs with captions.

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
    """File with the names of the training photographs, one per line; requires --test-list."""
    test_list: Path | None = None
    """File with the names of the photographs that are queries and gallery."""

    published = "Flickr8k, Hodosh, Young and Hockenmaier, JAIR 2013, or Flickr30k, Young et al., TACL 2014"
    licence = "photographs under their owners' Flickr licences; research and education only"

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.train_list is None) != (self.test_list is None):
            raise UserError("The train_list and the test_list go together: give both, or neither for a split by hash.")

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        files = filter(None, (self.captions, self.train_list, self.test_list))
        return record_provenance(self, revision=1, files=files, images=self.images)

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        left_out: Counter[str] = Counter()
        photos, bad = read_tokens(self.captions, self.images, left_out)
        split = "lists" if self.train_list else "hash of the names"
        return self._collect_items(self._with_roles(photos, left_out), split, left_out, bad)

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


def read_tokens(
    path: Path,  # the file; a line reads ``NAME.jpg#NUMBER<TAB>CAPTION``
    folder: Path,
    left_out: Counter[str],
) -> tuple[dict[str, Photo], list[DataError]]:
    """Read the caption file of Flickr8k or Flickr30k."""
    photos: dict[str, Photo] = {}
    numbers: dict[tuple[str, str], str] = {}
    bad: list[DataError] = []
    for where, text in read_lines(path):
        match = _LINE.fullmatch(text)
        if match is None:
            bad.append(DataError(f"{where}: should read NAME.jpg#NUMBER<TAB>CAPTION, but is {text[:60]!r}."))
            continue
        name, number = unicodedata.normalize("NFC", match["name"]), match["number"]
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
    for where, text in read_lines(path):
        if (name := unicodedata.normalize("NFC", text.strip())) not in photos:
            raise DataError(f"{where}: {name!r} has no captions; is the list of another dataset?")
        names.add(name)
    return names
