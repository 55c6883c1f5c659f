"""Pairs of texts that people judged, such as STS-B: which columns hold the texts, and which the similarity."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cml.data.vocabulary import split_words
from cml.data_prep.row_files import Row
from cml.errors import DataError

_FIRST = re.compile(r"(.+?)[ _.-]?(1|a)", re.IGNORECASE)
_OTHERS = {"1": "2", "a": "b", "A": "B"}
_KNOWN = (("item", "other"), ("premise", "hypothesis"), ("query", "document"))
_SIMILARITY = {"similarity", "relatedness", "score", "label", "rating"}


class TextPair(NamedTuple):
    """The columns of a judged pair of texts."""

    item: str
    other: str
    value: str
    meaning: str  # distance or similarity

    def rename(self, row: Row, ids: Mapping[str, str], where: str) -> dict[str, Any]:
        """A row as judged pairs have it, with the ids of its texts."""
        item, other = (ids[self.read(row, column, where)] for column in (self.item, self.other))
        rest = {name: cell for name, cell in row.items() if name in ("rater", "weight")}
        return {"item": item, "other": other, self.meaning: row.get(self.value), **rest}

    @staticmethod
    def read(row: Row, column: str, where: str) -> str:
        """The text in a column."""
        text = row.get(column)
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: {column} should be a text. Got {text!r:.80} instead.")
        return " ".join(text.split())


def find_text_pair(names: Sequence[str], file: object) -> TextPair:
    """Find the columns of two texts and of their similarity or distance."""
    found = [(one, other) for one, other in _KNOWN if one in names and other in names]
    for name in names:
        if (match := _FIRST.fullmatch(name)) is not None:
            other = name[: match.start(2)] + _OTHERS[match[2]]
            found += [(name, other)] if other in names else []
    values = [name for name in names if set(split_words(name)) & {*_SIMILARITY, "distance"}]
    exact = [name for name in values if name in ("similarity", "distance")] or values
    if len(found) != 1 or len(exact) != 1:
        rule = "should have two columns of texts, such as sentence1 and sentence2, and one of similarity or distance"
        raise DataError(f"{file} {rule}. There are: {', '.join(names)}.")
    is_distance = "distance" in split_words(exact[0])
    return TextPair(*found[0], exact[0], "distance" if is_distance else "similarity")
