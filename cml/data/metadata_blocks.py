"""Many lines of a metadata.jsonl parsed at once: for those in which nothing is unusual, as in nearly all.

What this takes, reading line by line (metadata.py) takes as well and finds the same in it, but for a further column
that is named twice, which is read by nobody; whatever else there is
(any fault, a further column of files, an escaped name) it leaves to that. Not for: saying what is wrong.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from cml.data.label_form import LabelForm

_ODD_ESCAPES = (rb"\u00", rb"\ud", rb"\uD", rb"\\")
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
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Line", fields, gc=False)).decode_lines

    def parse(self, block: bytes, form: LabelForm) -> Block | None:
        """Parse a ``block`` of at least one line; None if its lines have to be read one by one.

        Args:
            block: Whole lines; the last may lack its end.
            form: The form of the labels, which the first of the dataset sets.
        """
        if not block.endswith(b"\n"):
            block += b"\n"
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        # an escape of a plain character could hide the name of a column of files; backslashes and half characters are
        # refused where they stand in a name, and a key that stands twice is
        if b"\\" in block and any(odd in block for odd in _ODD_ESCAPES):
            return None
        if b'_file_name"' in block or np.diff(ends, prepend=-1).max() > _LONGEST + 1:
            return None
        if any(block.count(key) != len(ends) for key in self._keys):
            return None
        try:
            block.decode()  # the parser passes over columns that nobody asked for
            rows: list[Any] = self._decode(block)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        # to the parser a line break is a space: as many objects as lines, and none goes on after a line break (no JSON
        # has } before { inside), so each line holds one
        line_break = b"\r\n" if block.endswith(b"\r\n") else b"\n"
        if not len(rows) == len(ends) == block.count(b"}" + line_break + b"{") + 1:
            return None
        labels = [row.label for row in rows]
        booleans = isinstance(labels[0], list) and (b"true" in block or b"false" in block)
        packed = form.packed(labels, booleans=booleans)
        if packed is None:
            return None
        return Block([row.role for row in rows], [row.item_id for row in rows], [row.file_name for row in rows], packed)
