"""Stanford Online Products: photographs of 22,634 products with the published split of the products."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cml.data_prep.class_protocol import protocol
from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.text_lines import read_words
from cml.errors import DataError

_HEADER = ["image_id", "class_id", "super_class_id", "path"]


_LISTS: Mapping[str, str] = {"Ebay_train.txt": "train", "Ebay_test.txt": "query"}


@dataclass(frozen=True)
class Sop(ListedSource):
    """Stanford Online Products: products in the published split (11,318 for training, 11,316 for testing).

    Command: cml prepare sop --source Stanford_Online_Products --out DIR

    Input: the unpacked folder with Ebay_train.txt, Ebay_test.txt and a folder of images for each kind of product. Every
    test image is a query that is searched among all other test images; Recall@1, 10, 100, 1000. A class is called by
    its kind and number: "bicycle 1".

    Licence: none is stated; use it for research only.
    """

    task = "classes"
    published = "Stanford Online Products, Oh Song and others, CVPR 2016"
    licence = "none stated; research use only"
    lists = _LISTS
    details = protocol(1, 10, 100, 1000)

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        for path in lists:
            (head, header), *lines = read_words(path)
            if header != _HEADER:
                wanted, got = " ".join(_HEADER), " ".join(header)
                raise DataError(f"{head}: should be the header {wanted!r}. Got {got!r} instead.")
            for where, words in lines:
                if len(words) != 4 or not words[1].isdecimal():
                    yield DataError(f"{where}: should have the numbers of image, class and kind, and a path.")
                else:
                    kind = Path(words[3]).parent.name.removesuffix("_final").replace("_", " ")
                    yield Listed(where, words[3], f"{kind} {words[1]}".strip(), _LISTS[path.name])
