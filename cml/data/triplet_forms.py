"""The forms in which people store triplets: odd one out, two options beside a reference, positive and negative.

Each becomes the columns anchor, nearer and farther. A form is recognised by its names and cells; a table that may be
read in two ways is refused with both readings.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cml.data.vocabulary import split_words
from cml.errors import UserError

Columns = Mapping[str, list[Any]]
Judged = list[tuple[int, Any, Any, Any, int]]  # row, anchor, nearer and farther item, count
_REFERENCE = frozenset({"ref", "reference", "anchor", "query", "probe", "target", "standard", "head", "i"})
_POSITIVE = frozenset({"positive", "pos", "nearer", "closer", "near", "similar"})
_NEGATIVE = frozenset({"negative", "neg", "farther", "further", "far", "dissimilar"})
_RESPONSE = frozenset({"response", "choice", "answer", "judge", "judgement", "winner", "chosen", "odd", "oddity"})
_VOTES = frozenset({"vote", "votes"})
_NO_ITEM = frozenset({"count", "rater", "weight", "id", "index", "rt", "time", "split", "annotator", "worker", "user"})
_NOT_NEAREST = frozenset({"odd", "oddity"})
KNOWN = (
    "the columns anchor, nearer and farther; a reference, two options, and a response of 1 or -1, the name of the "
    "nearer one, or the votes of both; or three items and choice, the odd one out"
)


class Triplets(NamedTuple):
    """Rows as anchor, nearer, farther and count, and how they were read."""

    columns: dict[str, list[Any]]
    sources: list[int]  # the row that each of them comes from
    remark: str


def read_form(columns: Columns) -> Triplets | None:
    """Read triplets that are stored in another form; None where the form is not known."""
    words = {name: set(split_words(name)) for name in columns}
    for read in (_read_named, _read_votes, _read_responses):
        if (found := read(columns, words)) is not None:
            return found
    return None


def _pick(words: Mapping[str, set[str]], wanted: frozenset[str]) -> list[str]:
    return [name for name, own in words.items() if own & wanted]


def _collect(columns: Columns, rows: Judged, remark: str, used: Sequence[str]) -> Triplets:
    """Join triplets, and keep the columns that were not read, such as that of raters."""
    sources = [row[0] for row in rows]
    read = {
        name: [row[place] for row in rows] for place, name in enumerate(("anchor", "nearer", "farther", "count"), 1)
    }
    if "count" in columns and "count" not in used:
        read["count"] = [columns["count"][row] for row in sources]
    others = {name: [cells[row] for row in sources] for name, cells in columns.items() if name not in (*used, *read)}
    return Triplets({**read, **others}, sources, remark)


def _read_named(columns: Columns, words: Mapping[str, set[str]]) -> Triplets | None:
    names = [_pick(words, wanted) for wanted in (_REFERENCE, _POSITIVE, _NEGATIVE)]
    if any(len(found) != 1 for found in names):
        return None
    anchor, nearer, farther = (found[0] for found in names)
    cells = zip(columns[anchor], columns[nearer], columns[farther], strict=True)
    rows: Judged = [(row, *items, 1) for row, items in enumerate(cells)]
    remark = f"read as triplets: {anchor} is the anchor, {nearer} the nearer item, {farther} the farther one"
    return _collect(columns, rows, remark, (anchor, nearer, farther))


def _find_options(words: Mapping[str, set[str]], used: Sequence[str]) -> list[str]:
    return [name for name, own in words.items() if name not in used and not own <= _NO_ITEM and name not in _NO_ITEM]


def _read_votes(columns: Columns, words: Mapping[str, set[str]]) -> Triplets | None:
    references, votes = _pick(words, _REFERENCE), _pick(words, _VOTES)
    if len(references) != 1 or len(votes) != 2:
        return None
    anchor = references[0]
    options = []
    for vote in votes:  # left_vote belongs to left_path
        side = words[vote] - _VOTES
        of_side = [name for name in words if name not in (*votes, anchor) and words[name] & side]
        if len(of_side) != 1:
            return None
        options.append(of_side[0])
    rows: Judged = []
    for row, items in enumerate(zip(columns[anchor], *(columns[name] for name in (*options, *votes)), strict=True)):
        reference, one, other, for_one, for_other = items
        for nearer, farther, cell in ((one, other, for_one), (other, one, for_other)):
            count = _whole(cell)
            if count is None or count < 0:
                raise UserError(f"Votes should be whole numbers of at least 0. Got {cell!r} in row {row}.")
            if count:
                rows.append((row, reference, nearer, farther, count))
    remark = (
        f"read as triplets: {anchor} is the anchor, and {votes[0]} and {votes[1]} count the judgements by which "
        f"{options[0]} and {options[1]} are nearer"
    )
    return _collect(columns, rows, remark, (anchor, *options, *votes))


def _read_responses(columns: Columns, words: Mapping[str, set[str]]) -> Triplets | None:
    responses = _pick(words, _RESPONSE)
    if len(responses) != 1:
        return None
    response = responses[0]
    items = _find_options(words, [response])
    if len(items) != 3:
        return None
    cells, rows = columns[response], list(zip(*(columns[name] for name in items), strict=True))
    references = [name for name in items if words[name] & _REFERENCE]
    numbers = [_whole(cell) for cell in cells]
    known = set(numbers)
    by_name = _name_places(cells, rows)
    if len(references) == 1 and not words[response] & _NOT_NEAREST:
        chosen = _choose_of_two(response, numbers, by_name, cells, items, references[0])
        if chosen is not None:
            return _read_two(columns, items, references[0], response, *chosen)
    if known <= {1, 2, 3} and 3 in known and by_name is None:
        places, meaning = [number - 1 for number in numbers if number is not None], "1 to 3"
    elif known <= {0, 1, 2} and 0 in known and by_name is None:
        places, meaning = [number for number in numbers if number is not None], "0 to 2"
    elif by_name is not None and not known <= {0, 1, 2, 3}:
        places, meaning = by_name, "by its name"
    elif response in items or not cells:
        return None
    else:
        shown = ", ".join(map(str, list(dict.fromkeys(map(str, cells)))[:4]))
        raise UserError(
            f"The column {response!r} may say by a number from 1, by a number from 0, or by name which of "
            f"{', '.join(items)} it means; its cells, {shown}, do not tell. Write the names of the items into it."
        )
    triplets: Judged = []
    for row, (place, three) in enumerate(zip(places, rows, strict=True)):
        odd = three[place]
        one, other = (item for number, item in enumerate(three) if number != place)
        triplets += [(row, one, other, odd, 1), (row, other, one, odd, 1)]
    remark = (
        f"read as odd one out: {response} ({meaning}) is the item of {', '.join(items)} that is unlike the two others, "
        "which gives two triplets a row"
    )
    return _collect(columns, triplets, remark, (*items, response))


def _choose_of_two(
    response: str,
    numbers: Sequence[int | None],
    by_name: Sequence[int] | None,
    cells: Sequence[Any],
    items: Sequence[str],
    reference: str,
) -> tuple[list[int], str] | None:
    """Which of the three columns is nearer in each row, and in words how it is said; None for another form."""
    options = [place for place, name in enumerate(items) if name != reference]
    one, other = (items[place] for place in options)
    known = set(numbers)
    by_column = _column_places(cells, items, options)
    if by_column is not None:
        return by_column, "the column of the nearer item"
    if known <= {1, -1}:
        return [options[0] if number == 1 else options[1] for number in numbers], f"1 for {one}, -1 for {other}"
    if by_name is not None and not known <= {0, 1, 2, 3} and items.index(reference) not in by_name:
        return list(by_name), "the name of the nearer item"
    if known <= {1, 2} and len(known) == 2:
        return [options[number - 1] for number in numbers if number is not None], f"1 for {one}, 2 for {other}"
    if known <= {0, 1}:
        raise UserError(
            f"The column {response!r} holds 0 and 1, which may mean that {one} is nearer where it is 1, or where it is "
            f"0. Write 1 where {one} is nearer and -1 where {other} is."
        )
    return None


def _read_two(
    columns: Columns, items: Sequence[str], reference: str, response: str, places: Sequence[int], meaning: str
) -> Triplets:
    options = [place for place, name in enumerate(items) if name != reference]
    rows: Judged = []
    for row, place in enumerate(places):
        farther = options[0] if place == options[1] else options[1]
        anchor, nearer, other = (columns[items[column]][row] for column in (items.index(reference), place, farther))
        rows.append((row, anchor, nearer, other, 1))
    remark = f"read as triplets: {reference} is the anchor, and {response} says which item is nearer ({meaning})"
    return _collect(columns, rows, remark, (*items, response))


def _name_places(cells: Sequence[Any], rows: Sequence[tuple[Any, ...]]) -> list[int] | None:
    """The place of the item that each cell names; None unless each names one of its row."""
    texts = [[str(item).strip() for item in three] for three in rows]
    named = [str(cell).strip() for cell in cells]
    if all(name in three for name, three in zip(named, texts, strict=True)):
        return [three.index(name) for name, three in zip(named, texts, strict=True)]
    return None


def _column_places(cells: Sequence[Any], items: Sequence[str], options: Sequence[int]) -> list[int] | None:
    """The place of the column that each cell names, such as "left"; None unless all cells do so."""
    sides: dict[str, int] = {}
    for place in options:
        own = set(split_words(items[place])) - {
            word for other in options if other != place for word in split_words(items[other])
        }
        sides |= dict.fromkeys({items[place].lower(), *own}, place)
    named = [str(cell).strip().lower() for cell in cells]
    return [sides[name] for name in named] if named and all(name in sides for name in named) else None


def _whole(cell: Any) -> int | None:  # noqa: ANN401 - a cell
    try:
        number = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() else None
