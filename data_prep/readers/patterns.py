"""Labels in the names of files, by a pattern such as "{age:d}_{}_{}.jpg"; and names of files by the cells of a row."""

import re
from pathlib import PurePosixPath
from typing import Any

from cml.data_prep.row_files import Row, cell
from cml.errors import DataError, UserError

_FIELD = re.compile(r"\{(\w*)(?::([^{}]*))?\}")
_FORMS = {"": r"[^/]+?", "d": r"[+-]?\d+", "f": r"[+-]?\d*\.?\d+"}  # a text, a whole number, a number


class NamePattern:
    """A pattern of the names of files. A pattern without / is compared with the last part of a path."""

    def __init__(self, text: str) -> None:
        self.text = text
        fields = list(_FIELD.finditer(text))
        self.columns = [field[1] for field in fields if field[1]]
        are_names = all(column.isidentifier() for column in self.columns)
        if not self.columns or len(set(self.columns)) < len(self.columns) or not are_names:
            raise UserError(
                f'A label_pattern names each column once, as in "{{age:d}}_{{}}.jpg". Got {text!r} instead.'
            )
        parts, end = [], 0
        for field in fields:
            if (form := _FORMS.get(field[2] or "")) is None:
                raise UserError(f"A field of a label_pattern is {{name}}, {{name:d}} or {{name:f}}. Got {field[0]!r}.")
            parts += [re.escape(text[end : field.start()]), f"(?P<{field[1]}>{form})" if field[1] else f"(?:{form})"]
            end = field.end()
        if re.search(r"[{}]", _FIELD.sub("", text)):
            raise UserError(f"The label_pattern {text!r} has a brace that closes no field.")
        self._regex = re.compile("".join([*parts, re.escape(text[end:])]))

    def read(self, path: str) -> Row:
        """The columns that the name of a file says."""
        name = path if "/" in self.text else PurePosixPath(path).name
        if len(name) > 1000 or (found := self._regex.fullmatch(name)) is None:
            raise DataError(f"{path}: the name does not fit the pattern {self.text!r}.")
        return found.groupdict()


def fill_pattern(text: str, row: Row, where: str) -> str:
    """The name of a file by the cells of a row, as "{id:06}.png" with 17 gives 000017.png."""

    def fill(field: re.Match[str]) -> str:
        value: Any = cell(row, field[1], where, option="--file-pattern")
        width = re.fullmatch(r"0?(\d{1,2})?d?", field[2] or "")
        if not field[1] or width is None:
            raise UserError(f"A field of a file_pattern is {{column}} or {{column:06}}. Got {field[0]!r} instead.")
        name = str(value).strip()
        return name.zfill(int(width[1] or 0))

    return _FIELD.sub(fill, text)
