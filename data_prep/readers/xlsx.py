"""The first sheet of an Excel workbook, with the names of the columns in its first row."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from cml.console.messages import say
from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import Quote, Row
from cml.errors import DataError, require_extra
from cml.storage.json_file import find_repeated
from cml.storage.regular_file import open_regular

_LARGEST = 1 << 30  # bytes of an unpacked part; a few kilobytes can unpack to terabytes


class Xlsx(Reader):
    """An .xlsx file, read with the extra 'xlsx' (openpyxl)."""

    title = "the first sheet of a workbook"

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        return path.suffix.lower() == ".xlsx"

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        with require_extra("xlsx", f"Reading {path}"):
            import openpyxl
        try:
            with open_regular(path) as file:
                with zipfile.ZipFile(file) as archive:
                    if any(part.file_size > _LARGEST for part in archive.infolist()):
                        raise DataError(f"{path} unpacks to more than {_LARGEST >> 30} GB. Save it as CSV.")
                file.seek(0)
                sheet, *others = openpyxl.load_workbook(file, read_only=True, data_only=True).worksheets
                if others:
                    say(f"{path}: the sheet {sheet.title!r} is read, and not the other {len(others)}.")
                rows = sheet.iter_rows(values_only=True)
                names = ["" if name is None else str(name).strip() for name in next(rows, ())]
                if (twice := find_repeated(filter(None, names))) is not None:
                    raise DataError(f"{path}:1: the column {twice!r} is there twice; rename or delete one of them.")
                for line, cells in enumerate(rows, start=2):
                    if any(cell is not None for cell in cells):
                        yield f"{path}:{line}", dict(zip(names, cells, strict=False))
        except DataError:
            raise
        except Exception as error:  # on a broken file openpyxl raises whatever that leads it to
            raise DataError(f"{path} is not a workbook of Excel: {error!r:.120}. Save it again, or as CSV.") from None
