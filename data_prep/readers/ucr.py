"""Time series of the UCR and UEA archives: .ts files, and the older tables that begin with the class."""

from collections.abc import Iterator
from pathlib import Path

from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import Quote, Row
from cml.data_prep.text_lines import read_lines
from cml.errors import DataError

_FEWEST = 8  # numbers of a series in a table without a header


class Ucr(Reader):
    """A series for each row: the column series, or dimension 1, dimension 2 ... of several, and class or value."""

    title = "time series of the UCR archive"

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        if path.suffix.lower() == ".ts":
            return True
        first = head.splitlines()[0].replace("\t", ",").split(",") if head else []
        return path.suffix.lower() in (".tsv", ".txt") and len(first) > _FEWEST and all(map(_is_number, first))

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        is_table, label, has_times = path.suffix.lower() != ".ts", "class", False
        for where, line in read_lines(path):
            text = line.strip()
            if text.startswith(("#", "@")) and not is_table:
                words = text.lower().split()
                label = "value" if words[:2] == ["@targetlabel", "true"] else label
                has_times |= words[:2] == ["@timestamps", "true"]
                continue
            if has_times:
                raise DataError(f"{path} has time stamps, which are not read: export it with equal steps.")
            *series, last = [text.split(",")] if is_table else [part.split(",") for part in text.split(":")]
            if is_table:
                cells = text.replace("\t", ",").split(",")
                series, last = [cells[1:]], cells[:1]
            faulty = next((cell for own in series for cell in own if not _is_number(cell)), None)
            if faulty is not None or not series or len(last) != 1:
                yield (
                    where,
                    DataError(f"{where}: should be a series of numbers and its {label}. Got {faulty or text!r:.60}."),
                )
                continue
            values = [[float("nan") if cell.strip() == "?" else float(cell) for cell in own] for own in series]
            names = ["series"] if len(values) == 1 else [f"dimension {place}" for place in range(1, len(values) + 1)]
            yield where, {**dict(zip(names, values, strict=True)), label: last[0].strip()}


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text.strip() == "?"
    return True
