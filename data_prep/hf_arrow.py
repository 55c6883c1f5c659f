"""Arrow files as the library ``datasets`` saves them to disk, from strangers: read in batches, within their size."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.data_prep.hf_parquet import FREE, RATIO, describe_columns, stored_image
from cml.errors import DataError, require_extra
from cml.storage.regular_file import open_regular


class ArrowTable:
    """The columns of an Arrow file, and its rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with require_extra("parquet", "An Arrow file"):
            from pyarrow import ipc
        self._ipc = ipc
        try:
            with open_regular(path) as file, ipc.open_stream(file) as stream:
                schema = stream.schema
        except Exception as error:  # pyarrow raises half a dozen types for a damaged file
            raise self._damage_error(error) from None
        self.columns, self.images, self.class_names = describe_columns(schema)

    def read(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        """Read the rows."""
        limit, unpacked = FREE + RATIO * self.path.stat().st_size, 0
        try:
            with open_regular(self.path) as file, self._ipc.open_stream(file) as stream:
                for batch in stream:
                    unpacked += batch.nbytes
                    if unpacked > limit:
                        raise DataError(f"{self.path} unpacks to more than {limit:,} bytes.")
                    for row in batch.select(list(columns)).to_pylist():
                        yield {**row, **{name: stored_image(row[name]) for name in columns if name in self.images}}
        except (DataError, GeneratorExit):
            raise
        except Exception as error:
            raise self._damage_error(error) from None

    def _damage_error(self, error: Exception) -> DataError:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return DataError(f"{self.path} cannot be read as Arrow ({why}). Save it again.")
