"""Many lines of a metadata.jsonl parsed at once: for those in which nothing is unusual, as in nearly all.

What this takes, reading line by line (metadata.py) takes as well and finds the same in it, but for a further column
that is named twice, which is read by nobody; whatever else there is
(any fault, a further column of files, an escaped name) it leaves to that. Not for: saying what is wrong.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from numpy.typing import NDArray

from cml.data.label_form import LabelForm

_ODD = (b'_file_name"', rb"\u00", rb"\ud", rb"\uD", rb"\\")
_LONGEST = 4300  # bytes of a line; Python refuses to read a number with more digits


class Block(NamedTuple):
    """N lines, one item each."""

    roles: list[str]
    ids: list[str]
    names: list[str]  # as the file_name column gives them
    labels: NDArray[Any] | list[Any]


class BlockParser:
    """Parses the lines of one metadata.jsonl.

    Args:
        roles: The roles that they may have.
        label_column: The column with the label; not one of files.
    """

    def __init__(self, roles: tuple[str, ...], label_column: str) -> None:
        self._keys = [f'"{key}"'.encode() for key in ("role", "item_id", "file_name", label_column)]
        text = Annotated[str, msgspec.Meta(min_length=1)]
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = [
            ("role", Literal[roles]),
            ("item_id", text),
            ("file_name", text),
            ("label", Any, msgspec.field(name=label_column)),
        ]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Line", fields, gc=False)).decode

    def parse(self, block: bytes, lines: list[bytes], form: LabelForm) -> Block | None:
        """Parse the ``lines`` that ``block`` consists of; None if they have to be read one by one.

        Args:
            block: The lines joined.
            lines: At least one.
            form: The form of the labels, which the first of the dataset sets.
        """
        # an escape of a plain character could hide the name of a column of files; backslashes and half characters are
        # refused where they stand in a name, and a key that stands twice is
        if any(odd in block for odd in _ODD) or max(map(len, lines)) > _LONGEST:
            return None
        if any(block.count(key) != len(lines) for key in self._keys):
            return None
        try:
            block.decode()  # the parser passes over columns that nobody asked for
            rows: list[Any] = list(map(self._decode, lines))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        booleans = b"true" in block or b"false" in block
        labels = form.packed([row.label for row in rows], booleans=booleans)
        if labels is None:
            return None
        return Block([row.role for row in rows], [row.item_id for row in rows], [row.file_name for row in rows], labels)
