"""Texts as inputs: N strings, which the backbone tokenises and pads itself."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np

from cml.array_types import Int64, Integer
from cml.data.input_form import InputForm
from cml.errors import UserError

_SHOWN = 60  # characters of a text in a message
_PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".npy", ".png", ".tif", ".tiff", ".webp"}
_LOOKED_AT = 20  # strings that tell whether they are texts or names of files


class Texts:
    """N texts in memory.

    ``reads_anew``: false, for a text is the same at each read.
    """

    reads_anew = False

    def __init__(self, values: list[str], positions: Int64 | None = None, fields: tuple[str, ...] = ()) -> None:
        self.values = values
        self._positions = np.arange(len(values)) if positions is None else positions
        self.form = InputForm("texts", fields=fields)

    @classmethod
    def of(cls, source: Iterable[Any], fields: tuple[str, ...] = ()) -> Self:
        """Take a list, an array or a column of texts; a UserError names the first value that is none."""
        if isinstance(source, str | Path):
            raise UserError(f"Texts are a list of strings. Got the single one {str(source)[:_SHOWN]!r} instead.")
        values = list(source)
        for number, value in enumerate(values):
            if not isinstance(value, str):
                raise UserError(
                    f"The backbone takes texts, but input {number} is of type {type(value).__name__}: give a list of "
                    "strings, a backbone for such inputs, or input_kind='images' for one that takes images too."
                )
            if not value.strip():
                raise UserError(f"Input {number} is an empty text: leave it out, with its label.")
        return cls([str(value) for value in values], fields=fields)  # of NumPy's strings plain ones

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def paths(self) -> None:
        """None: texts are no image files."""
        return

    def subset(self, items: slice | Int64) -> Self:
        """Take a part of the texts."""
        return type(self)(self.values, self._positions[items], self.form.fields)

    def load(self) -> None:
        """Do nothing: texts are in memory."""

    def read(self, items: Integer) -> list[str]:  # items (B,)
        """Read some texts."""
        return [self.values[position] for position in self._positions[items].tolist()]


def are_texts(values: Any) -> bool:  # noqa: ANN401 - inputs of any kind
    """Tell whether inputs are strings that name no files, as far as the first ones tell."""
    if isinstance(values, str | Path) or not hasattr(values, "__len__") or not hasattr(values, "__getitem__"):
        return False
    try:
        some = [values[row] for row in range(min(len(values), _LOOKED_AT))]
    except (KeyError, IndexError, TypeError):
        return False
    return bool(some) and all(isinstance(value, str) and not _names_file(value) for value in some)


def _names_file(text: str) -> bool:
    if Path(text).suffix.lower() in _PICTURES:
        return True
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # longer than a name may be, or with a null character
        return False
