"""Parquet tables of labels."""

from collections.abc import Iterator
from pathlib import Path

from cml.data_prep.hf_parquet import ParquetTable
from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import Quote, Row
from cml.errors import DataError


class Parquet(Reader):
    """A .parquet file with a row for each item."""

    title = "a Parquet table"

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        return path.suffix.lower() == ".parquet"

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        table = ParquetTable(path)
        for position, row in enumerate(table.read(table.columns)):
            yield f"{path}, row {position}", row
