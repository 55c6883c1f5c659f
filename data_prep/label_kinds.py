"""The kinds of label that a user's own images may have: task, unit, columns and label distance of each."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from cml.errors import DataError, UserError
from cml.registry import Choice

KindName = Literal[
    "numbers",
    "angle",
    "rotation",
    "direction",
    "place",
    "sequence",
    "boxes",
    "captions",
    "classes",
    "masks",
    "keypoints",
]


SHARES = "boxes in shares of the image's width and height"


class Kind(NamedTuple):
    """What a kind of label fixes."""

    task: str  # the task that the dataset belongs to
    unit: str  # the unit of its labels, where the user states none
    default: tuple[str, ...]  # the columns of the user's file, where the user names none
    distances: Mapping[int, str] = {}  # by how many numbers a label has, 0 for any; none where the task knows it


WITH_UNIT = ("numbers", "angle", "rotation", "direction", "place")  # kinds of numbers whose unit the user may state

_ROTATIONS = {4: "rotation", 3: "rotation(form=euler)", 9: "rotation(form=matrix)"}


KINDS: Mapping[KindName, Kind] = {
    "numbers": Kind("value", "", ("value",), {0: "euclidean"}),
    "angle": Kind("value", "degrees", ("angle",), {0: "circular"}),
    "rotation": Kind("value", "rotation", ("x", "y", "z", "w"), _ROTATIONS),
    "direction": Kind("value", "degrees", ("x", "y", "z"), {3: "direction"}),
    "place": Kind("value", "degrees", ("latitude", "longitude"), {2: "haversine", 3: "place"}),
    "sequence": Kind("value", "units of the steps", ("sequence",), {0: "dtw"}),
    "boxes": Kind("value", "boxes", ("class", "x0", "y0", "x1", "y1"), {0: "boxes"}),
    "captions": Kind("caption", "captions", ("caption",)),
    "classes": Kind("classes", "", ("class",)),
    "masks": Kind("layout", "id of a region", ()),
    "keypoints": Kind("pose", "px", ("keypoints",)),
}


def distance_of(kind: KindName, label: Any, where: str) -> str:  # noqa: ANN401 - one of the kind's forms
    """Choose the label distance of a kind of numbers by the length of its labels."""
    choices, numbers = KINDS[kind].distances, len(label) if isinstance(label, list) else 1
    distance = choices.get(numbers, choices.get(0, ""))
    if not distance:
        lengths = " or ".join(map(str, sorted(choices)))
        raise DataError(f"{where}: a label of kind {kind!r} should have {lengths} numbers. It has {numbers}.")
    return distance


def check_distance(kind: KindName, text: str) -> None:
    """Check that labels of a kind can be compared by a label distance of the user's choice.

    Which label distances there are is checked by ``cml.doors.prepare``: sources do not import them.
    """
    if kind == "boxes" or not KINDS[kind].distances:
        raise UserError(f"Labels of kind {kind!r} have a label distance already: leave label_distance={text!r} out.")
    Choice.parse(text)
