"""Where boxes and joints lie in their images: their form by the names of columns, and how far they reach."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.data.images import Size
from cml.data.vocabulary import means, order_by_meaning, split_words
from cml.data_prep.row_files import Misread, Row
from cml.errors import DataError, UserError

_FORMS = (  # of boxes: meanings of the four columns, and what they become
    (("cx", "cy", "w", "h"), "middle and size"),
    (("x", "y", "w", "h"), "corner and size"),
    (("left", "top", "right", "bottom"), "corners"),
)
_CORNERS = ({"x0": 0, "y0": 1, "x1": 2, "y1": 3}, {"x1": 0, "y1": 1, "x2": 2, "y2": 3})
_MANY = 0.3  # share of the images that labels lie beyond, from which the frame is wrong and not the label
_BEYOND = 1.02  # of a side
_FEWEST = 3  # images
_FEWEST_BOXES = 12
_GROWS = 0.5  # the correlation of a box's size and its left and upper end, which sound boxes do not have


def order_box(names: Sequence[str]) -> tuple[tuple[int, ...], str]:
    """Decide by their names what the four numbers of a box are: their order, and "corners" or a form with a size."""
    for known in _CORNERS:
        places = [known.get(split_words(name)[-1] if split_words(name) else "") for name in names]
        if sorted(place for place in places if place is not None) == [0, 1, 2, 3]:
            return tuple(places.index(place) for place in range(4)), "corners"
    for meanings, form in _FORMS:
        if (ordered := order_by_meaning(names, meanings)) is not None:
            return tuple(names.index(name) for name in ordered), form
    if any(means(name, meaning) for name in names for meaning in ("w", "h")):
        raise UserError(
            f"The columns {', '.join(names)} of a box name a width or a height, but not all of x, y, w and h: say what "
            "they are, as in --label-columns class x=LEFT y=TOP w=WIDTH h=HEIGHT."
        )
    corners, size = (
        " ".join(f"{meaning}={name}" for meaning, name in zip(meanings, names, strict=True))
        for meanings in (("x0", "y0", "x1", "y1"), ("x", "y", "w", "h"))
    )
    raise UserError(
        f"The columns {', '.join(names)} of a box may be its corners, or a corner, width and height: say it by "
        f"--label-columns class {corners}, or class {size}."
    )


def to_corners(numbers: Sequence[float], form: str) -> list[float]:
    """The corners x0, y0, x1, y1 of a box of one of the forms of ``order_box``."""
    x, y, third, fourth = numbers
    if form == "corner and size":
        return [x, y, x + third, y + fourth]
    if form == "middle and size":
        return [x - third / 2, y - fourth / 2, x + third / 2, y + fourth / 2]
    return [x, y, third, fourth]


@dataclass
class Reach:
    """How far the labels of all images reach, as shares of the sides."""

    labels: str  # joints or boxes
    images: int = 0
    beyond: int = 0  # images whose labels lie outside
    swapped: int = 0  # of these, those whose labels would lie inside with x and y swapped
    x: float = 0.0
    y: float = 0.0
    largest: float = 0.0  # coordinate in pixels
    side: float = float("inf")  # the shorter side of the smallest image
    names: tuple[str, ...] = ()  # of joints that a file names
    boxes: int = 0
    wider: int = 0  # boxes wider and higher than the image's part to their left and above
    # sums of the left and upper end, the size, and their products, of which ``sizes_grow`` makes correlations
    sums: Float64 = field(default_factory=lambda: np.zeros((5, 2)))

    def add(self, places: Float64, size: Size) -> None:  # places: (P, 2) in pixels; size: height and width
        """Note the labels of an image."""
        if not len(places) or not np.isfinite(places).all():
            return
        high = places.max(axis=0)
        sides = np.array(size[::-1], np.float64)
        self.images += 1
        is_beyond = bool((high > _BEYOND * sides).any())
        self.beyond += is_beyond
        self.swapped += is_beyond and bool((high[::-1] <= _BEYOND * sides).all())
        self.x, self.y = max(self.x, float(high[0] / sides[0])), max(self.y, float(high[1] / sides[1]))
        self.largest, self.side = max(self.largest, float(high.max())), min(self.side, float(sides.min()))

    def add_box(self, corners: Float64, size: Size) -> None:  # corners: (2, 2) in pixels
        """Note a box."""
        start, extent = corners[0] / size[::-1], (corners[1] - corners[0]) / size[::-1]
        self.boxes += 1
        self.wider += bool((extent > start).all())
        self.sums += np.array([start, extent, start * start, extent * extent, start * extent])
        self.add(corners, size)

    @property
    def sizes_grow(self) -> bool:
        """Whether boxes are the larger the farther right and down they begin, as where ends are taken for sizes."""
        if self.boxes < _FEWEST_BOXES or self.wider < self.boxes:
            return False
        start, extent, squares, squared, product = self.sums / self.boxes
        variances = (squares - start**2) * (squared - extent**2)
        return bool((variances > 0).all() and ((product - start * extent) > _GROWS * np.sqrt(variances)).all())

    def check(self, file: object, fault: DataError | None) -> None:  # fault: that of the first bad row
        """Refuse labels that lie beyond many of their images, which is no fault of single rows."""
        if self.beyond < max(_FEWEST, _MANY * self.images):
            return
        mend = f"the largest x / width is {self.x:.2f} and y / height {self.y:.2f}. Are they of images of another size?"
        if self.swapped == self.beyond:
            mend = "with x and y swapped all would lie inside: is y the first number?"
        elif self.labels == "boxes":
            mend += " Are the last two numbers a width and a height? Then name them so, as in --label-columns"
            mend += " class x=LEFT y=TOP w=WIDTH h=HEIGHT, or corners x0, y0, x1 and y1."
        first = f"{fault} " if fault else f"{file}: "
        raise Misread(f"{first}The {self.labels} of {self.beyond} of {self.images} images lie outside them; {mend}")

    def details(self) -> dict[str, Any]:
        """What dataset.json records, which the rule ``frame`` reads."""
        values: dict[str, Any] = {"images": self.images, "x": round(self.x, 4), "y": round(self.y, 4)}
        values |= {"sizes_grow": True} if self.sizes_grow else {}
        return {**values, "labels": self.labels, "largest": round(self.largest, 2), "side": self.side}


def name_joints_in(row: Row, column: str, reach: Reach, where: str) -> Row:
    """A row whose joints are a list: those that are named come in the order of the first row's names."""
    joints = row.get(column)
    if not isinstance(joints, Mapping):
        return row
    reach.names = reach.names or tuple(map(str, joints))
    if unknown := [name for name in joints if name not in reach.names]:
        known = f"the first item's joints are {', '.join(reach.names)}"
        raise DataError(f"{where}: {column} names the joint {unknown[0]!r}, but {known}. Write null for a missing one.")
    return {**row, column: [joints.get(name, [None, None]) for name in reach.names]}
