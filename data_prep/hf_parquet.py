"""Parquet files from strangers: their sizes are checked before they are read, and read a few rows at a time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cml.data.prepared_writer import BadItems
from cml.errors import DataError, require_extra
from cml.storage.regular_file import open_regular

RATIO, FREE = 100, 256 << 20  # bytes decoded for one of the file, beyond what is free; images do not pack at all
_BATCH, _MOST_ROWS = 64 << 20, 8192  # bytes and rows that are decoded at a time


class ParquetTable:
    """The columns of a Parquet file, and its rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with require_extra("parquet", "A Parquet file"):
            from pyarrow import parquet
        self._parquet = parquet
        try:
            with open_regular(path) as file:
                self._size = path.stat().st_size
                self._metadata = parquet.read_metadata(file)
                schema = self._metadata.schema.to_arrow_schema()
        except Exception as error:  # pyarrow raises half a dozen types for a damaged file
            raise self._damage_error(error) from None
        groups = [self._metadata.row_group(group) for group in range(self._metadata.num_row_groups)]
        sizes = [group.column(place).total_uncompressed_size for group in groups for place in range(group.num_columns)]
        self._check_size(sum(sizes))
        self._largest = max(sizes, default=0)
        self.columns, self.images, self.class_names = describe_columns(schema)

    def read(self, columns: Sequence[str]) -> Iterator[Mapping[str, Any] | BadItems]:
        """Read the rows.

        Returns each row; for a group of rows without any image, an error that counts them.
        """
        images = [name for name in columns if name in self.images]
        for batch in self.read_batches(columns):
            if isinstance(batch, BadItems):
                yield batch
                continue
            for row in batch.to_pylist():
                yield {**row, **{name: stored_image(row[name]) for name in images}}

    def read_batches(
        self, columns: Sequence[str]
    ) -> Iterator[Any]:  # record batches of pyarrow; for a group of rows without any image, an error that counts them
        """Read the rows in batches."""
        rows = max(1, min(_MOST_ROWS, _BATCH // max(1, self._largest)))
        images = [name for name in columns if name in self.images]
        unpacked = 0
        try:
            with open_regular(self.path) as stream, self._parquet.ParquetFile(stream) as file:
                for group in range(self._metadata.num_row_groups):
                    if images and (count := self._count_empty(group, images)):
                        yield BadItems(f"{self.path} has {count:,} rows without an image.", count)
                        continue
                    for batch in file.iter_batches(rows, [group], list(columns), use_threads=False):
                        unpacked += batch.nbytes
                        self._check_size(unpacked)
                        yield batch
        except (DataError, GeneratorExit):
            raise
        except Exception as error:
            raise self._damage_error(error) from None

    def _count_empty(self, group: int, images: Sequence[str]) -> int:
        """Number of rows of a group in which no image is, by the counts that the file holds; 0 where one may be."""
        about = self._metadata.row_group(group)
        for place in range(about.num_columns):
            column = about.column(place)
            if column.path_in_schema.partition(".")[0] not in images:
                continue
            counts = column.statistics
            if counts is None or not counts.has_null_count or counts.null_count < column.num_values:
                return 0
        return int(about.num_rows)

    def _check_size(self, unpacked: int) -> None:
        limit = FREE + RATIO * self._size
        if unpacked > limit:
            rule = f"the limit for a file of its size ({self._size:,}) is {limit:,}"
            raise DataError(f"{self.path} unpacks to {unpacked:,} bytes or more; {rule}.")

    def _damage_error(self, error: Exception) -> DataError:
        why = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        return DataError(f"{self.path} cannot be read as Parquet ({why}). Fetch it again.")


def describe_columns(schema: Any) -> tuple[list[str], list[str], dict[str, list[str]]]:  # noqa: ANN401 - of pyarrow
    """The names of the columns, of those that may hold images, and of the classes of those that are class numbers."""
    import pyarrow as pa

    features = _declared_features(schema.metadata or {})
    images = [  # bytes and path, bytes alone, or what the file declares to be images
        name
        for name, kind in zip(schema.names, schema.types, strict=True)
        if (pa.types.is_struct(kind) and {field.name for field in kind} == {"bytes", "path"})
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or features.get(name, {}).get("_type") == "Image"
    ]
    class_names: dict[str, list[str]] = {
        name: feature["names"]
        for name, feature in features.items()
        if feature.get("_type") == "ClassLabel" and _is_texts(feature.get("names"))
    }
    return list(schema.names), images, class_names


def _declared_features(metadata: Mapping[bytes, bytes]) -> dict[str, dict[str, Any]]:
    """What the library ``datasets`` has noted of the columns: the type of each, and the names of classes."""
    try:
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        return {str(name): feature for name, feature in features.items() if isinstance(feature, dict)}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def stored_image(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - of a stranger's file
    """An image as a row holds it: bytes and path, or one of them."""
    if isinstance(value, bytes):
        return {"bytes": value, "path": None}
    return value if isinstance(value, Mapping) else {"bytes": None, "path": value}
