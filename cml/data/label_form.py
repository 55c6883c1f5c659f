"""The common form of a dataset's labels, numbers of one shape or texts, which its reader and writer check."""

import itertools
import math
import reprlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = {int, float}
_DEEPEST = 8  # nested lists; a hostile file could nest until the stack overflows


class LabelForm:
    """The form of all labels of one dataset, set by the first: numbers of one shape, texts, or lists of texts."""

    def __init__(self) -> None:
        self._form: tuple[Any, ...] | None = None

    def fault(
        self, label: object
    ) -> str | None:  # the fault, to follow the name of the label ("is one number, but ..."); None if there is none
        """Find what is wrong with a label."""
        try:
            form = _form(label)
        except ValueError as fault:
            return str(fault)
        except OverflowError:
            return "holds a number too large for a float"
        self._form = self._form or form
        if form != self._form:
            return f"is {_form_in_words(form)}, but the first item's is {_form_in_words(self._form)}"
        return None

    def pack(
        self,
        labels: list[Any],  # N >= 1 labels, as in the JSON
        *,
        booleans: bool,  # whether true or false, which NumPy would take for numbers, may be among them
    ) -> NDArray[Any] | list[Any] | None:
        """Check many labels at once.

        Returns an array (N, ...) of numbers, or the list of texts itself; None if ``fault`` has to check each label.
        """
        packed, form = _pack(labels, booleans=booleans)
        if form is None or (self._form is not None and form != self._form):
            return None
        self._form = form
        return packed


def _form(label: object) -> tuple[Any, ...]:
    if type(label) is float and math.isfinite(label):  # most labels, without a detour
        return ("numbers",)
    if isinstance(label, str):
        if not label.strip():
            raise ValueError("is an empty text")
        return ("text",)
    if isinstance(label, list) and label and all(isinstance(text, str) for text in label):
        if not all(text.strip() for text in label):
            raise ValueError("holds an empty text")
        return ("texts",)
    return ("numbers", *_shape(label))


def _shape(label: object) -> tuple[int, ...]:
    shape: list[int] = []
    level: list[Any] = [label]  # everything that is len(shape) lists deep
    while set(map(type, level)) == {list}:
        if len(lengths := set(map(len, level))) > 1:
            raise ValueError("holds lists of different lengths")
        shape += lengths
        if shape[-1] == 0 or len(shape) > _DEEPEST:
            raise ValueError(f"holds empty lists or is nested deeper than {_DEEPEST} lists")
        level = list(itertools.chain.from_iterable(level))
    if not _NUMBERS.issuperset(map(type, level)):  # True is not a number here
        stranger = next(value for value in level if type(value) not in _NUMBERS)
        raise ValueError(f"should hold finite numbers or texts, but has {reprlib.repr(stranger)}")
    if not all(map(math.isfinite, level)):
        raise ValueError(f"holds a number that is not finite: {reprlib.repr(label)}")
    return tuple(shape)


def _pack(labels: list[Any], *, booleans: bool) -> tuple[NDArray[Any] | list[Any], tuple[Any, ...] | None]:
    kinds = set(map(type, labels))
    if kinds == {str}:
        return labels, ("text",) if all(map(str.strip, labels)) else None
    if kinds == {list} and all(labels):
        inner = set(map(type, itertools.chain.from_iterable(labels)))
        if inner == {str}:
            return labels, ("texts",) if all(map(str.strip, itertools.chain.from_iterable(labels))) else None
    elif kinds not in ({int}, {float}):
        return labels, None
    try:
        array = np.array(labels)
    except (ValueError, OverflowError):  # lists of different lengths
        return labels, None
    exact = "if" if kinds == {list} else "i" if kinds == {int} else "f"
    if (booleans and kinds == {list}) or array.dtype.kind not in exact or not array.size or array.ndim > _DEEPEST + 1:
        return labels, None
    return array, ("numbers", *array.shape[1:]) if np.isfinite(array).all() else None


def _form_in_words(form: tuple[Any, ...]) -> str:
    kind, *shape = form
    if kind != "numbers":
        return "a text" if kind == "text" else "a list of texts"
    return f"an array of {' x '.join(map(str, shape))} numbers" if shape else "one number"


def plain(label: object) -> object:
    """Convert a label to what JSON writes: every number is a float, so that a column has one type."""
    if isinstance(label, np.ndarray | np.generic):
        label = label.tolist()
    if isinstance(label, tuple | list):
        return [plain(part) for part in label]
    if type(label) is not int:
        return label
    return float(label) if abs(label) < 1e300 else math.inf  # not allowed in a label
