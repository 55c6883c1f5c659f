"""One side of a search, queries or documents: their names, and the inputs that belong to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cml.array_types import Int64
from cml.distances.labels import short
from cml.errors import UserError
from cml.items.names import names_of

_PLURALS = {"query": "queries", "document": "documents", "pair": "pairs"}


class AlignedSide(NamedTuple):
    """The inputs of a side, and where its items are among them."""

    inputs: Any  # N inputs, without names
    side: Side  # the side with the N items of the inputs
    places: Int64  # (M,) the position of each item of the former side among the inputs


@dataclass(frozen=True)
class Side:
    """The N queries or documents."""

    names: Sequence[str]  # N names, or numbers as text
    what: str  # query or document
    has_names: bool  # whether items have names, and not only numbers
    is_ordered: bool  # whether the order of the names is that of the inputs

    @classmethod
    def of(cls, column: Sequence[Any], given: Sequence[Any] | int | None, what: str) -> Side:
        """Make a side from the names (P,) of judged items, and from what the user says of all."""
        if given is None:
            if all(_is_whole(name) for name in column):
                return cls(_Numbers(max(map(int, column)) + 1), what, has_names=False, is_ordered=True)
            return cls(tuple(dict.fromkeys(map(str, column))), what, has_names=True, is_ordered=False)
        if isinstance(given, int | np.integer):
            return cls(_Numbers(int(given)), what, has_names=False, is_ordered=True)
        names = tuple(map(str, given))
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise UserError(f"'{_PLURALS[what]}' names {short(twice)} twice: give each a name of its own.")
        return cls(names, what, has_names=True, is_ordered=True)

    def positions(self, column: Sequence[Any], place: Callable[[int], str]) -> Int64:
        """Find the positions (P,) of named items."""
        if self.has_names:
            numbers = {name: number for number, name in enumerate(self.names)}
            found = np.array([numbers.get(str(name), -1) for name in column], np.int64)
        else:
            found = np.array([int(name) if _is_whole(name) else -1 for name in column], np.int64)
        unknown = (found < 0) | (found >= len(self.names))
        if unknown.any():
            pair = int(np.argmax(unknown))
            rule = f"should be a number from 0 to {len(self.names) - 1:,}"
            if self.has_names:
                rule = f"is unknown: it is not among the {count_of(len(self.names), self.what)}"
            mend = f"correct it, or add it to {_PLURALS[self.what]}=[...]"
            raise UserError(f"{place(pair)}: the {self.what} {short(column[pair])} {rule}; {mend}.")
        return found

    def align(self, inputs: Any) -> AlignedSide:  # noqa: ANN401 - as ``cml.fit`` takes them
        """Put inputs beside the items: by name where both have names, else by their order."""
        names, plain = split_names(inputs)
        many = _PLURALS[self.what]
        if names is not None and self.has_names:
            places = {name: place for place, name in enumerate(names)}
            missing = [name for name in self.names if name not in places]
            if missing:
                raise UserError(
                    f"The {self.what} {short(missing[0])} has a grade and no input, as {len(missing):,} of "
                    f"{len(self.names):,} have none. The {many} are named {short(names[0])}, ...; add the missing "
                    "ones, or leave their grades out."
                )
            side = Side(tuple(names), self.what, has_names=True, is_ordered=True)
            return AlignedSide(plain, side, np.array([places[name] for name in self.names], np.int64))
        if not self.is_ordered:
            raise UserError(
                f"The grades name {many} such as {short(self.names[0])}, but the inputs have no names: give a mapping "
                f"from name to input, or {many}=[...], the names in the order of the inputs, to Grades."
            )
        if len(plain) != len(self.names):
            raise UserError(
                f"The grades are of {len(self.names):,} {many}. Got {len(plain):,} inputs instead; say how many there "
                f"are by {many}={len(plain)}, or which by their names."
            )
        return AlignedSide(plain, self, np.arange(len(self.names)))


def count_of(count: int, what: str) -> str:
    """A number of queries or documents in words."""
    return f"{count:,} {what if count == 1 else _PLURALS[what]}"


def number_names(count: int) -> Sequence[str]:
    """The numbers 0 to N - 1 as text."""
    return _Numbers(count)


class _Numbers(Sequence[str]):
    """The numbers 0 to N - 1 as text, without holding them."""

    def __init__(self, count: int) -> None:
        self._range = range(count)

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - as of a sequence
        numbers = self._range[place]
        return str(numbers) if isinstance(numbers, int) else tuple(map(str, numbers))


def split_names(inputs: Any) -> tuple[list[str] | None, Any]:  # noqa: ANN401
    """The names of inputs, None if they have none, and the inputs without them."""
    if isinstance(inputs, Mapping):
        values = list(inputs.values())
        are_vectors = all(isinstance(value, np.ndarray) and value.ndim == 1 for value in values)
        is_even = are_vectors and len({(value.shape, value.dtype.str) for value in values}) == 1
        return list(map(str, inputs)), np.stack(values) if is_even else values
    names = names_of(inputs)
    return (None if names is None else list(map(str, names))), inputs


def _is_whole(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0
