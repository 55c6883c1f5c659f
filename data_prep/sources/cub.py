"""CUB-200-2011: photographs of 200 bird species; the first hundred train, the others test."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cml.data_prep.class_protocol import protocol
from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.text_lines import read_words
from cml.errors import DataError


@dataclass(frozen=True)
class Cub(ListedSource):
    """CUB-200-2011: birds with their species, in the zero-shot retrieval split (100 for training, 100 for testing).

    Command: cml prepare cub --source CUB_200_2011 --out DIR

    Input: the unpacked folder with images.txt, image_class_labels.txt and images/. Every test image is a query that is
    searched among all other test images; Recall@1, 2, 4, 8.

    Licence: non-commercial research and education; the images are their photographers'.
    """

    task = "classes"
    published = "Caltech-UCSD Birds-200-2011, Wah and others, 2011"
    licence = "non-commercial research and education"
    details = protocol(1, 2, 4, 8)

    def _files(self) -> tuple[list[Path], Path]:
        return [self.source / "images.txt", self.source / "image_class_labels.txt"], self.source / "images"

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        images, labels = lists
        numbers: dict[str, int] = {}
        for where, words in read_words(labels):
            if len(words) != 2 or not words[1].isdecimal() or int(words[1]) < 1:
                raise DataError(f"{where}: should be an image's number and its class, 1 or more. Got {words} instead.")
            numbers[words[0]] = int(words[1])
        half = max(numbers.values()) // 2
        for where, words in read_words(images):
            if len(words) != 2:
                yield DataError(f"{where}: should be an image's number and its path. Got {words} instead.")
            elif words[0] not in numbers:
                yield DataError(f"{where}: {labels.name} has no class for image {words[0]}.")
            else:
                label = Path(words[1]).parent.name or f"class {numbers[words[0]]}"
                yield Listed(where, words[1], label, "train" if numbers[words[0]] <= half else "query")
