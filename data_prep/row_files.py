"""The rows of a user's own CSV or JSONL file, each with "FILE:LINE", and what is wrong with one of them."""

import codecs
import contextlib
import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from operator import itemgetter
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cml.console.messages import say
from cml.data_prep.number_format import PLAIN, NumberFormat
from cml.errors import DataError, UserError, did_you_mean
from cml.storage.json_file import find_repeated, parse_json, read_json
from cml.storage.regular_file import open_regular

# The mend that fits the cause, for a cell of a table that should hold a number and does not.

_MISSING = frozenset({"nan", "na", "n/a", "null", "none", "nil", "-", "--", "?", "missing", "unknown"})
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+")
_POINT_GROUPS = re.compile(r"[+-]?\d{1,3}(\.\d{3}){2,}|[+-]?\d{1,3}(\.\d{3})+,\d+")
_PERCENT = re.compile(r"[+-]?[\d.,]+\s*%")
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?|\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")
_OTHER_GROUPS = re.compile(r"[+-]?\d{1,3}([ '])\d{3}(\1\d{3})*(\.\d+)?")
_SEXAGESIMAL = re.compile(r"[NSEW]?\s*[+-]?\d+\s*°\s*\d+")
_SEVERAL = re.compile(r"[(\[]?\s*[+-]?\d+\.\d+(\s*[,;]\s*|\s+)[+-]?\d+\.\d+.*")
_ID = re.compile(r"(?=.*[^\W\d_])(?=.*\d)[\w-]+")
_WITH_UNIT = re.compile(r"([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([^\W\d_°]+[²³]?|°[CF]?|[$€£])")


def suggest_mend(value: object, *, own: bool = True) -> str:
    """Say how a cell could become a number."""
    text = value.strip() if isinstance(value, str) else ""
    if value is None or (isinstance(value, str) and not text):
        return "the cell is empty: fill it, or delete the line"
    if text.lower().lstrip("+-") in ("inf", "infinity") or value in (math.inf, -math.inf):
        return "an infinite number has no distance: correct it, or delete the line"
    if isinstance(value, float) or text.lower() in _MISSING:
        return "the number is missing: fill it, or delete the line"
    if isinstance(value, bool) or text.lower() in ("true", "false"):
        return "for yes and no take --kind classes" if own else "write 0 or 1"
    if isinstance(value, Mapping):
        return "it holds fields: name one of them, as in COLUMN.FIELD"
    if text.startswith("#"):
        return "a formula of the table has failed: correct it, or delete the line"
    if isinstance(value, date | datetime | time | timedelta) or _DATE.fullmatch(text):
        return "a date or time is no number: convert it, for example to days or hours since a fixed one"
    if _PERCENT.fullmatch(text):
        return "write the number without the percent sign" + (', and give the unit by --unit "%"' if own else "")
    if _GROUPED.fullmatch(text):
        whole, decimal = text.replace(",", ""), text.replace(",", ".", 1)
        if text.count(",") > 1:
            return f'for {whole} give --thousands ","' if own else f"write {whole}"
        if own:
            return f'it may be {whole} or {decimal}: say which by --thousands "," or --decimal ","'
        return f"write {whole} or {decimal}, whichever it means"
    if _DECIMAL_COMMA.fullmatch(text):
        return 'for a decimal comma give --decimal ","' if own else "write a point for the decimal comma"
    if _POINT_GROUPS.fullmatch(text):
        return 'for points between thousands give --decimal "," --thousands "."' if own else "leave the separators out"
    if _SEXAGESIMAL.match(text):
        return "write degrees, minutes and seconds as one number of degrees, such as 48.5 for 48° 30 min"
    if _SEVERAL.fullmatch(text):
        return "the cell holds several numbers: put each into a column of its own"
    if (parts := _WITH_UNIT.fullmatch(text)) is not None:
        unit = f', and give the unit by --unit "{parts[2]}"' if own else ""
        return f"write the number alone, {parts[1]}{unit}"
    if own and (match := _OTHER_GROUPS.fullmatch(text)) is not None:
        return f'for such a mark between thousands give --thousands "{match[1]}"'
    levels = "for ordered grades name them all, as in --levels none mild severe"
    if own and _ID.fullmatch(text):
        return f"an id is no number: name another column by --label-columns, or take --kind classes; {levels}"
    return f"for texts take --kind captions or --kind classes; {levels}" if own else "mend it"


_LISTED = 20  # columns that an error names
TAB = "\t"
_DELIMITERS = {",": "commas", ";": "semicolons", TAB: "tabs", "|": "bars"}
CELLS = (".csv", ".tsv")  # how the names of files of cells end

Row = Mapping[str, Any]
Quote = Literal['"', "'", "none"]
MOST_EXACT = 1 << 53  # whole numbers beyond are not all floats


def read_rows(path: Path, items: str = "images", quote: Quote = '"') -> Iterator[tuple[str, Row | DataError]]:
    """Read the rows of a CSV or JSONL file."""
    if path.suffix.lower() == ".json":
        yield from _json(path)
        return
    if path.suffix.lower() not in (*CELLS, ".jsonl"):
        files = ".csv, .tsv, .jsonl, .json, .parquet or .xlsx file, or of another format that --format names"
        mend = (
            "; convert XML and folders of JSON files to COCO's JSON" if path.is_dir() or path.suffix == ".xml" else ""
        )
        raise UserError(f"The labels should be a {files}{mend}. Got {path} instead.")
    empty, name = True, str(path)
    try:
        with io.TextIOWrapper(open_regular(path), _encoding(path), newline="") as file:
            for line, row in _csv(file, path, quote) if path.suffix.lower() in CELLS else _jsonl(file, path):
                empty = False
                yield f"{name}:{line}", row
    except UnicodeError as error:
        where = f" at byte {error.start + 1}" if isinstance(error, UnicodeDecodeError) else ""
        reason = error.reason if isinstance(error, UnicodeDecodeError) else error
        raise DataError(f"{path} should be UTF-8 text, but is not: {reason}{where}. Save it as UTF-8.") from None
    if empty:
        raise DataError(f"{path} lists no {items}.")


class MissingColumn(DataError):
    """A row has no such column; in a CSV file, whose rows share a header, none has."""


class Misread(DataError):
    """The file as a whole means something else than it was read as: leaving out rows would not mend it."""


def cell(row: Row, column: str, where: str, *, option: str = "--label-columns") -> Any:  # noqa: ANN401 - what is there
    """Return a cell of a row. "attributes.age" and "position.1" name a part of an object or a list in a cell."""
    if column not in row:
        first, *rest = column.split(".")
        value = row.get(first)
        for part in rest:
            if isinstance(value, Mapping):
                value = value.get(part)
            elif isinstance(value, list) and part.isdecimal() and len(part) < 5 and int(part) < len(value):
                value = value[int(part)]
            else:
                value = None
        if rest and value is not None:
            return value
        names = list(map(str, row))
        there = f"{', '.join(names[:_LISTED])}{', ...' if len(names) > _LISTED else ''}"
        meant = did_you_mean(column, names)
        mend = f"Name yours with {option}."
        if any(isinstance(value, str) and value.strip() == column for value in row.values()):
            mend = "This line seems to hold the names of the columns: delete the lines above it."
        elif any(_is_value(name) for name in names):
            mend = "This line seems to hold an item: put a line with the names of the columns above it."
            where = f"{where.rpartition(':')[0]}:1"
        raise MissingColumn(f"{where}: there is no column {column!r}.{meant} There are: {there}. {mend}")
    return row[column]


def name_in(row: Row, column: str, where: str, *, option: str) -> str:
    """Read a cell that names something, such as a group: any text or number but an empty one."""
    value = cell(row, column, where, option=option)
    if value is None or value != value or not str(value).strip():
        mend = "fill it in; of cells that are merged in a workbook only the first holds the value"
        raise DataError(f"{where}: {column} is empty, but should be a name; {mend}.")
    return str(value)


def number(value: object, column: str, where: str, *, written: NumberFormat = PLAIN, own: bool = True) -> float:
    """Read a cell as a finite number."""
    odd = isinstance(value, bool) or (isinstance(value, str) and "_" in value)  # Python reads 1_0 as 10
    result = math.nan if odd else _float(written.to_plain(value) if isinstance(value, str) else value)
    if not math.isfinite(result):
        mend = suggest_mend(value, own=own)
        raise DataError(f"{where}: {column} should be a finite number. Got {value!r} instead; {mend}.")
    digits = str(value).strip().lstrip("+-") if abs(result) >= MOST_EXACT else ""
    if digits.isdecimal() and int(digits) != abs(int(result)):
        rule = "should be a number that float64 holds exactly; above 2**53 it may round"
        raise DataError(f"{where}: {column} {rule}. Got {value!r} instead; for ids take --kind classes.")
    return result


def cut_blocks(rows: Iterable[tuple[str, Row | DataError]], size: int) -> Iterator[list[tuple[str, Row | DataError]]]:
    """Cut rows into blocks; those before a fault of the whole file come first, as theirs may explain it."""
    block: list[tuple[str, Row | DataError]] = []
    iterator = iter(rows)
    try:
        while True:
            block.extend(itertools.islice(iterator, size))  # which keeps those before an error
            yield block
            if len(block) < size:
                return
            block = []
    except DataError:
        yield block
        raise


def read_plain(
    rows: Sequence[Row | DataError], columns: Sequence[str], written: NumberFormat
) -> NDArray[np.float64] | None:  # (B, F)
    """Read the numbers of many rows at once, as most tables write them; None where ``number`` has to read each."""
    if written != PLAIN or not columns or not rows:
        return None
    try:
        texts: list[str] = list(map(itemgetter(*columns), rows))  # type: ignore[arg-type] # of errors
        if len(columns) > 1:
            texts = list(itertools.chain.from_iterable(texts))
        if "_" in "".join(texts):
            return None
        numbers = np.fromiter(map(float, texts), np.float64, len(texts)).reshape(len(rows), len(columns))
        return numbers if np.abs(numbers).max() < MOST_EXACT else None  # None for NaN too
    except (KeyError, TypeError, ValueError):
        return None


def _is_value(name: str) -> bool:
    """Whether a name in a header is rather a cell: the path of an image, or a number that no one would number by."""
    is_number = math.isfinite(_float(name)) and not name.isdecimal()
    return is_number or PurePath(name).suffix.lower() in (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".webp", ".bmp")


def _float(value: Any) -> float:  # noqa: ANN401 - a cell's content
    """NaN for what is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def say_once(printed: set[str], guess: str) -> None:  # printed: the texts that were printed; ``guess`` is added
    """Print how something in the file was understood, if it was not printed before."""
    if guess not in printed:
        printed.add(guess)
        say(guess)


def _encoding(path: Path) -> str:
    with open_regular(path) as file:
        if file.read(2) not in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-8-sig"
    say(f"{path} is read as UTF-16.")
    return "utf-16"


def _csv(file: Iterator[str], path: Path, quote: Quote) -> Iterator[tuple[int, Row | DataError]]:
    first = next(file, "")
    if first.strip().lower().startswith("sep="):  # a line of Excel's, which names the separator
        first = next(file, "")
    delimiter = find_delimiter(first)
    if delimiter != ",":
        say(f"{path} is read with cells separated by {_DELIMITERS[delimiter]}.")
    marks: dict[str, Any] = {"quoting": csv.QUOTE_NONE} if quote == "none" else {"quotechar": quote, "strict": True}
    reader, spanning = csv.reader(itertools.chain([first], file), delimiter=delimiter, **marks), list[int]()
    try:
        names = _trim_names(next(reader, []), path)
        before = reader.line_num
        for cells in reader:
            line = reader.line_num
            if line > before + 1 and any("\n" in text for text in cells):
                spanning.append(before + 1)
            before = line
            if len(cells) == len(names):
                yield line, dict(zip(names, cells, strict=True))
            elif cells:  # no empty line
                fault = f"should have {len(names)} cells, as the header has. It has {len(cells)}"
                mend = "put a text that holds the separator in quotes"
                if len(names) == 1:
                    mend = "if the first line is a title or a comment, delete it"
                elif len(cells) == len(names) + 1 and not cells[-1]:
                    mend = "leave out the separator at its end"
                yield line, DataError(f"{path}:{line}: {fault}; {mend}.")
        if spanning:
            more = f", and so do cells of {len(spanning) - 1} further rows" if len(spanning) > 1 else ""
            advice = "if its quote belongs to the text, rows are joined by mistake: give --quote none"
            say(f"{path}: a cell of line {spanning[0]} holds a line break{more}; {advice}.")
    except csv.Error as error:
        fault = f"is not CSV: {error}; if a quote belongs to the text, give --quote none"
        if "field limit" in str(error):
            fault = f"has a cell of more than {csv.field_size_limit():,} characters; is a quote left open in it"
            fault += " or above? Close it, shorten the text, or give --quote none where quotes belong to texts"
        raise DataError(f"{path}:{reader.line_num}: {fault}.") from None


def find_delimiter(header: str) -> str:
    """Find what separates the cells of a CSV file."""
    with contextlib.suppress(csv.Error):  # reading it says what is wrong
        for delimiter in _DELIMITERS:
            if len(next(csv.reader([header], delimiter=delimiter), ())) > 1:
                return delimiter
    return ","


def _trim_names(names: Sequence[str], path: Path) -> list[str]:
    trimmed = [name.strip() for name in names]
    if trimmed != list(names):
        say(f"{path} is read without the white space around the names of its columns.")
    if (twice := find_repeated(filter(None, trimmed))) is not None:
        raise DataError(f"{path}:1: the column {twice!r} is there twice; rename or delete one of them.")
    return trimmed


def _json(path: Path) -> Iterator[tuple[str, Row | DataError]]:
    """The objects of a list in a file of JSON."""
    entries = read_json(path, "rows", finite=False)
    if not isinstance(entries, list) or not entries:
        raise DataError(f"{path} should be a list of objects [{{...}}, ...], one for each row.")
    for position, row in enumerate(entries):
        where = f"{path}: entry {position}"
        yield where, row if isinstance(row, dict) else DataError(f"{where}: should be a JSON object {{...}}.")


def _jsonl(file: Iterator[str], path: Path) -> Iterator[tuple[int, Row | DataError]]:
    for line_number, line in enumerate(file, start=1):
        if line.strip():
            try:
                row = parse_json(line.encode(), finite=False)
            except ValueError as error:
                row = DataError(f"{path}:{line_number}: {error}.")
            if line_number == 1 and line.lstrip().startswith("["):
                raise DataError(f"{path} holds a list: name it .json, or write an object {{...}} in each line.")
            if not isinstance(row, dict | DataError):
                row = DataError(f"{path}:{line_number}: should be a JSON object {{...}}.")
            yield line_number, row
