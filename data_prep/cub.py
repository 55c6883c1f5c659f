"""CUB-200-2011: photographs of 200 species of birds; the first hundred train, the rest test.

Not for: its boxes, parts and attributes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import Item, already_prepared
from cml.data_prep.class_labels import Protocol, check_image_size, check_roles, image_item, text_lines, write_classes
from cml.data_prep.source import input_folders, made_with
from cml.errors import DataError


@dataclass(frozen=True)
class Cub:
    """Birds of CUB-200-2011 with their species, split as zero-shot retrieval has it: 100 species train, 100 test.

    Command: cml prepare cub --source CUB_200_2011 --out DIR

    Input: the unpacked folder with images.txt, image_class_labels.txt and images/. Every test image is a query that is
    searched among all other test images; Recall@1, 2, 4, 8.

    Licence: non-commercial research and education; the images are their photographers'.
    """

    source: Path
    """The folder with images.txt."""
    image_size: int | None = 256
    """Larger images are shrunk once so that their shorter side has so many pixels; none keeps the files."""

    def __post_init__(self) -> None:
        check_image_size(self.image_size)

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        lists = [self.source / "images.txt", self.source / "image_class_labels.txt"]
        origin = made_with(self, revision=1, files=lists, images=self.source / "images")
        if (done := already_prepared(out, origin)) is not None:
            return done
        items = self._items(*lists)
        check_roles(items, ("train", "query"), f"{lists[0]} and {lists[1].name}")
        return write_classes(
            out,
            items,
            Protocol((1, 2, 4, 8)),
            name="cub",
            source="Caltech-UCSD Birds-200-2011, Wah and others, 2011",
            licence="non-commercial research and education",
            made_with=origin,
            skip_bad=skip_bad,
            within=input_folders(self),
        )

    def _items(self, images: Path, labels: Path) -> list[Item | DataError]:
        numbers: dict[str, int] = {}
        for where, words in text_lines(labels):
            if len(words) != 2 or not words[1].isdecimal() or int(words[1]) < 1:
                raise DataError(f"{where}: should be an image's number and its class, 1 or more. Got {words} instead.")
            numbers[words[0]] = int(words[1])
        half = max(numbers.values()) // 2
        items: list[Item | DataError] = []
        seen: dict[str, str] = {}
        for where, words in text_lines(images):
            try:
                if len(words) != 2:
                    raise DataError(f"{where}: should be an image's number and its path. Got {words} instead.")
                if words[0] not in numbers:
                    raise DataError(f"{where}: {labels.name} has no class for image {words[0]}.")
                items.append(
                    image_item(
                        self.source / "images",
                        words[1],
                        label=Path(words[1]).parent.name or f"class {numbers[words[0]]}",
                        role="train" if numbers[words[0]] <= half else "query",
                        where=where,
                        image_size=self.image_size,
                        seen=seen,
                    )
                )
            except DataError as error:
                items.append(error)
        return items
