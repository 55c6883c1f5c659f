"""Cars-196: photographs of 196 models of cars; the first 98 train, the rest test.

Not for: its boxes, nor its own split for classification (the field test).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import Item, already_prepared
from cml.data_prep.class_labels import Protocol, check_image_size, check_roles, image_item, write_classes
from cml.data_prep.mat_file import read_variables
from cml.data_prep.source import input_folders, made_with
from cml.errors import DataError


@dataclass(frozen=True)
class Cars:
    """Cars of Cars-196 with their model, split as zero-shot retrieval has it: 98 models train, 98 test.

    Command: cml prepare cars --source cars196 --out DIR

    Input: a folder with cars_annos.mat and car_ims/. Every test image is a query that is searched among all other test
    images; Recall@1, 2, 4, 8.

    Licence: none is stated; use it for research only.
    """

    source: Path
    """The folder with cars_annos.mat."""
    image_size: int | None = 256
    """Larger images are shrunk once so that their shorter side has so many pixels; none keeps the files."""

    def __post_init__(self) -> None:
        check_image_size(self.image_size)

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        path = self.source / "cars_annos.mat"
        origin = made_with(self, revision=1, files=[path], images=self.source / "car_ims")
        if (done := already_prepared(out, origin)) is not None:
            return done
        cars, names = read_annotations(path)
        half = max(number for _, number in cars) // 2
        items: list[Item | DataError] = []
        seen: dict[str, str] = {}
        for position, (name, number) in enumerate(cars, 1):
            try:
                items.append(
                    image_item(
                        self.source,
                        name,
                        label=names[number - 1] if number <= len(names) else f"class {number}",
                        role="train" if number <= half else "query",
                        where=f"{path}: annotation {position}",
                        image_size=self.image_size,
                        seen=seen,
                    )
                )
            except DataError as error:
                items.append(error)
        check_roles(items, ("train", "query"), str(path))
        return write_classes(
            out,
            items,
            Protocol((1, 2, 4, 8)),
            name="cars",
            source="Cars-196, Krause and others, 3DRR 2013",
            licence="none stated; research use only",
            made_with=origin,
            skip_bad=skip_bad,
            within=input_folders(self),
        )


def read_annotations(path: Path) -> tuple[list[tuple[str, int]], list[str]]:
    """Read cars_annos.mat.

    Returns:
        The path and the class, from 1, of every image, and the names of the classes; no names if the file has none.

    Raises:
        DataError: the file is no such .mat file, or a class is no whole number of at least 1.
    """
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
            raise DataError(
                f"{path}: annotation {position} should have a path and a class from 1 on. Got {name!r} and {number!r} "
                "instead."
            )
        cars.append((name, int(number)))
    names = np.atleast_1d(content.get("class_names", np.empty(0, object)))
    return cars, [str(name) for name in names]
