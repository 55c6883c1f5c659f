"""Stanford Online Products: photographs of 22,634 products from a sale site; half of the products train, half test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import Item, already_prepared
from cml.data_prep.class_labels import Protocol, check_image_size, check_roles, image_item, text_lines, write_classes
from cml.data_prep.source import input_folders, made_with
from cml.errors import DataError

_LISTS = {"Ebay_train.txt": "train", "Ebay_test.txt": "query"}
_HEADER = ["image_id", "class_id", "super_class_id", "path"]


@dataclass(frozen=True)
class Sop:
    """Products of Stanford Online Products, split as published: 11,318 products train, 11,316 test.

    Command: cml prepare sop --source Stanford_Online_Products --out DIR

    Input: the unpacked folder with Ebay_train.txt, Ebay_test.txt and a folder of images for each kind of product. Every
    test image is a query that is searched among all other test images; Recall@1, 10, 100, 1000. A class is called by
    its kind and number: "bicycle 1".

    Licence: none is stated; use it for research only.
    """

    source: Path
    """The folder with Ebay_train.txt."""
    image_size: int | None = 256
    """Larger images are shrunk once so that their shorter side has so many pixels; none keeps the files."""

    def __post_init__(self) -> None:
        check_image_size(self.image_size)

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        lists = [self.source / name for name in _LISTS]
        origin = made_with(self, revision=1, files=lists, images=self.source)
        if (done := already_prepared(out, origin)) is not None:
            return done
        seen: dict[str, str] = {}
        items = [item for path in lists for item in self._items(path, seen)]
        check_roles(items, ("train", "query"), " and ".join(map(str, lists)))
        return write_classes(
            out,
            items,
            Protocol((1, 10, 100, 1000)),
            name="sop",
            source="Stanford Online Products, Oh Song and others, CVPR 2016",
            licence="none stated; research use only",
            made_with=origin,
            skip_bad=skip_bad,
            within=input_folders(self),
        )

    def _items(self, path: Path, seen: dict[str, str]) -> list[Item | DataError]:
        items: list[Item | DataError] = []
        (head, header), *lines = text_lines(path)
        if header != _HEADER:
            raise DataError(f"{head}: should be the header {' '.join(_HEADER)!r}. Got {' '.join(header)!r} instead.")
        for where, words in lines:
            try:
                if len(words) != 4 or not words[1].isdecimal():
                    raise DataError(f"{where}: should have the numbers of image, class and kind, and a path.")
                kind = Path(words[3]).parent.name.removesuffix("_final").replace("_", " ")
                items.append(
                    image_item(
                        self.source,
                        words[3],
                        label=f"{kind} {words[1]}".strip(),
                        role=_LISTS[path.name],
                        where=where,
                        image_size=self.image_size,
                        seen=seen,
                    )
                )
            except DataError as error:
                items.append(error)
        return items
