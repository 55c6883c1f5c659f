"""What sources of captioned photographs share: collecting the captions of each photograph and checking them."""

import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cml.data.prepared_writer import Item
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.row_errors import read_each
from cml.data_prep.shrink import Shrink
from cml.errors import DataError
from cml.storage.safe_paths import file_inside


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

    def check(self) -> None:
        """Raise an error that says what is wrong with its captions, if anything is."""
        if self.fault:
            raise DataError(self.fault)
        if not self.captions:
            raise DataError(f"{self.where}: has no caption; every image needs one at least.")

    def item(self, role: str, shrink: Shrink) -> Item:
        """The item to write."""
        self.check()
        file = file_inside(self.file.parent, self.file.name, self.where)
        return Item(self.item_id, role, shrink.picture(file), self.captions, where=self.where)


@dataclass(frozen=True)
class CaptionedSource(DatasetSource):
    """Photographs with their captions. A source of its own reads its files."""

    short_side: int | None = field(default=256, kw_only=True)
    """Shrink larger photographs so that their shorter side has this many pixels; none keeps the files unchanged."""
    long_side: int = field(default=640, kw_only=True)
    """Maximum number of pixels of the longer side of photographs that are shrunk."""
    test_fraction: float = field(default=0.3, kw_only=True)
    """Fraction of photographs held out for testing, if no file defines the split."""
    query_fraction: float = field(default=0.2, kw_only=True)
    """Fraction of test photographs that are queries; the others form the gallery."""

    task = "caption"

    def __post_init__(self) -> None:
        super().__post_init__()
        Shrink(self.short_side, self.long_side)

    def _role(self, photo: Photo, part: str = "") -> str:
        """The role of a photograph of the part for training, the part for testing, or of neither."""
        if part == "train":
            return part
        return split_by_hash(photo.item_id, 1.0 if part else self.test_fraction, self.query_fraction)

    def _collect_items(
        self, photos: Iterable[tuple[Photo, str]], split: str, left_out: Counter[str], bad: Sequence[DataError] = ()
    ) -> Content:
        """The items of photographs and their roles, a bad one as its error; ``left_out`` is filled as they come."""
        shrink = Shrink(self.short_side, self.long_side)
        items = read_each((("", photo) for photo in photos), lambda _, photo: photo[0].item(photo[1], shrink))
        return Content([*bad, *items], {"split": split, "left_out": dict(left_out)})
