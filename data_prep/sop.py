"""Stanford Online Products: photographs of 22,634 products from a sale site; half of the products train, half test."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cml.data_prep.class_labels import ClassSource, Protocol, split_lines
from cml.data_prep.listed import Listed
from cml.errors import DataError

_LISTS = {"Ebay_train.txt": "train", "Ebay_test.txt": "query"}
_HEADER = ["image_id", "class_id", "super_class_id", "path"]


@dataclass(frozen=True)
class Sop(ClassSource):
    """Products of Stanford Online Products, split as published: 11,318 products train, 11,316 test.

    Command: cml prepare sop --source Stanford_Online_Products --out DIR

    Input: the unpacked folder with Ebay_train.txt, Ebay_test.txt and a folder of images for each kind of product. Every
    test image is a query that is searched among all other test images; Recall@1, 10, 100, 1000. A class is called by
    its kind and number: "bicycle 1".

    Licence: none is stated; use it for research only.
    """

    source: Path
    """The folder with Ebay_train.txt."""

    protocol = Protocol((1, 10, 100, 1000))
    name = "sop"
    published = "Stanford Online Products, Oh Song and others, CVPR 2016"
    licence = "none stated; research use only"

    def _files(self) -> tuple[list[Path], Path]:
        return [self.source / name for name in _LISTS], self.source

    def _listed(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        for path in lists:
            (head, header), *lines = split_lines(path)
            if header != _HEADER:
                raise DataError(
                    f"{head}: should be the header {' '.join(_HEADER)!r}. Got {' '.join(header)!r} instead."
                )
            for where, words in lines:
                if len(words) != 4 or not words[1].isdecimal():
                    yield DataError(f"{where}: should have the numbers of image, class and kind, and a path.")
                else:
                    kind = Path(words[3]).parent.name.removesuffix("_final").replace("_", " ")
                    yield Listed(where, words[3], f"{kind} {words[1]}".strip(), _LISTS[path.name])
