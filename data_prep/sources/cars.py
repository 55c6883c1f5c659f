"""Cars-196: photographs of 196 car models; the first half of the models trains, the second half tests."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cml.data_prep.class_protocol import protocol
from cml.data_prep.listed_source import Listed, ListedSource
from cml.data_prep.mat_file import read_variables
from cml.errors import DataError


@dataclass(frozen=True)
class Cars(ListedSource):
    """Cars-196: cars with their model, in the zero-shot retrieval split (98 models for training, 98 for testing).

    Command: cml prepare cars --source cars196 --out DIR

    Input: a folder with cars_annos.mat and car_ims/. Every test image is a query that is searched among all other test
    images; Recall@1, 2, 4, 8.

    Licence: none is stated; use it for research only.
    """

    task = "classes"
    published = "Cars-196, Krause and others, 3DRR 2013"
    licence = "none stated; research use only"
    lists = ("cars_annos.mat",)
    images = "car_ims"
    details = protocol(1, 2, 4, 8)

    def _read_lists(self, lists: list[Path]) -> Iterator[Listed | DataError]:
        cars, names = read_annotations(lists[0])
        half = max(number for _, number in cars) // 2
        for position, (name, number) in enumerate(cars, 1):
            label = names[number - 1] if number <= len(names) else f"class {number}"
            yield Listed(f"{lists[0]}: annotation {position}", name, label, "train" if number <= half else "query")


def read_annotations(path: Path) -> tuple[list[tuple[str, int]], list[str]]:
    """Read cars_annos.mat: path and class, from 1, of every image, and the classes' names, none if it has none."""
    content = read_variables(path, ("annotations", "class_names"), squeeze_me=True)
    table = np.atleast_1d(content.get("annotations", np.empty(0)))
    fields = ("relative_im_path", "class")
    missing = [field for field in fields if field not in (table.dtype.names or ())]
    if missing or not len(table):
        raise DataError(f"{path} should hold a struct array 'annotations' with the field {(missing or fields)[0]!r}.")
    cars = []
    for position, (name, number) in enumerate(zip(table[fields[0]], table[fields[1]], strict=True), 1):
        whole = isinstance(number, int | np.integer) or (isinstance(number, float) and number.is_integer())
        if not isinstance(name, str) or not whole or number < 1:
            rule, got = "a path and a class from 1 on", f"{name!r} and {number!r}"
            raise DataError(f"{path}: annotation {position} should have {rule}. Got {got} instead.")
        cars.append((name, int(number)))
    return cars, [str(name) for name in np.atleast_1d(content.get("class_names", np.empty(0, object)))]
