"""Scikit-learn's handwritten digits as classes: 0 to 4 train, 5 to 9 test."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from PIL import Image

from cml.data.prepared_writer import Item
from cml.data_prep.class_protocol import protocol
from cml.data_prep.dataset_source import Content, DatasetSource
from cml.data_prep.provenance import record_provenance

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True)
class Digits(DatasetSource):
    """1,797 handwritten digits of scikit-learn; 0 to 4 are for training, 5 to 9 for testing.

    Command: cml prepare digits --out DIR

    Input: none; scikit-learn brings them (8 x 8 pixels, UCI's optical recognition test set). Every test image is a
    query that is searched among all other test images; Recall@1, 2, 4, 8.

    Licence: CC BY 4.0 (UCI Machine Learning Repository).
    """

    size: int = 32
    """Side in pixels to which the images are enlarged."""

    task = "classes"
    published = "scikit-learn's digits: Alpaydin and Kaynak, UCI, 1998"
    licence = "CC BY 4.0"
    minimums: ClassVar[Mapping[str, float]] = {"size": 8}

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        return record_provenance(self, revision=1)

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        items = []
        for number, (pixels, digit) in enumerate(zip(digits.images, digits.target.tolist(), strict=True)):
            image = Image.fromarray(np.rint(pixels * (255 / 16)).astype(np.uint8))
            image = image.resize((self.size, self.size), Image.Resampling.BICUBIC)
            role = "train" if digit < 5 else "query"
            items.append(Item(f"{number:04d}", role, image, _DIGITS[digit], quality=None))
        return Content(items, protocol(1, 2, 4, 8))
