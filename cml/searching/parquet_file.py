"""Embeddings as a Parquet file for vector databases (the extra ``parquet``): id, vector, label and further columns."""

from collections.abc import Sequence
from typing import Any

from cml.data.image_list import COLUMNS
from cml.errors import require_extra
from cml.searching.embedding_folder import EmbeddingFolder, flatten_columns
from cml.storage.atomic import atomic_file

with require_extra("parquet", "Parquet"):
    import pyarrow as pa
    from pyarrow import parquet


_NAMES = ("id", "vector", "label")


def write_parquet(embedded: EmbeddingFolder) -> None:
    """Write embeddings.parquet into a folder of embeddings.

    Its columns are id, a text; vector, D float32; label, int64, float64 or a text, null where it is missing; and the
    further columns of a dataset, numbers or texts likewise.
    """
    ids: list[str] = []
    labels: list[Any] = []
    further: list[dict[str, Any]] = []
    for item in embedded.items():
        ids.append(_as_unicode(item.pop("item_id")))
        further.append(flatten_columns({COLUMNS: item.pop(COLUMNS, None)}, _NAMES))
        labels.append(next((value for name, value in item.items() if name not in ("file_name", "role")), None))
    columns = {"label": _as_column(labels)}
    for name in dict.fromkeys(name for row in further for name in row):
        columns[_as_unicode(name)] = _as_column([row.get(name) for row in further])
    size = embedded.embeddings.shape[1]
    kinds = {name: column.type for name, column in columns.items()}
    schema = pa.schema({"id": pa.string(), "vector": pa.list_(pa.float32(), size), **kinds})
    path = embedded.folder / "embeddings.parquet"
    with atomic_file(path) as temporary, parquet.ParquetWriter(temporary, schema) as file:
        for part in (slice(start, start + 4096) for start in range(0, len(ids), 4096)):
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(embedded.embeddings[part].reshape(-1)), size)
            parts = [column[part] for column in columns.values()]
            file.write_batch(pa.record_batch([pa.array(ids[part]), vectors, *parts], schema))


def _as_column(values: Sequence[Any]) -> "pa.Array":
    """Labels, or the cells of a further column, as whole numbers, numbers or texts; null where one is missing."""
    kinds = {type(value) for value in values} - {type(None)}
    is_whole = kinds == {int} and all(abs(value or 0) < 1 << 63 for value in values)
    number = (pa.int64(), int) if is_whole else (pa.float64(), float)
    kind, of_kind = (pa.string(), _as_unicode) if str in kinds or not kinds else number
    return pa.array([None if value is None else of_kind(value) for value in values], kind)


def _as_unicode(value: Any) -> str:  # noqa: ANN401 - a text, or a number among texts
    return str(value).encode("utf-8", "backslashreplace").decode()  # names of files may be no Unicode
