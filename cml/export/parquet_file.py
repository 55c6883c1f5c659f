"""Embeddings as a Parquet file for vector databases (the extra ``parquet``): id, vector and label."""

from typing import Any

from cml.errors import require_extra
from cml.export.embedding_folder import EmbeddingFolder
from cml.storage.atomic import atomic_file

with require_extra("parquet", "Parquet"):
    import pyarrow as pa
    from pyarrow import parquet


def write_parquet(embedded: EmbeddingFolder) -> None:
    """Write embeddings.parquet into a folder of embeddings.

    Its columns are id, a text; vector, D float32; label, int64, float64 or a text, null where it is missing.

    Args:
        embedded: The folder of embeddings.
    """
    ids: list[str] = []
    labels: list[Any] = []
    for item in embedded.items():
        ids.append(item.pop("item_id").encode("utf-8", "backslashreplace").decode())  # it may be no Unicode
        labels.append(next((value for name, value in item.items() if name not in ("file_name", "role")), None))
    kinds = {type(label) for label in labels} - {type(None)}
    whole = kinds == {int} and all(abs(label or 0) < 1 << 63 for label in labels)
    number = (pa.int64(), int) if whole else (pa.float64(), float)
    kind, of_kind = (pa.string(), str) if str in kinds or not kinds else number
    size = embedded.embeddings.shape[1]
    schema = pa.schema({"id": pa.string(), "vector": pa.list_(pa.float32(), size), "label": kind})
    path = embedded.folder / "embeddings.parquet"
    with atomic_file(path) as temporary, parquet.ParquetWriter(temporary, schema) as file:
        for part in (slice(start, start + 4096) for start in range(0, len(ids), 4096)):
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(embedded.embeddings[part].reshape(-1)), size)
            known = [None if label is None else of_kind(label) for label in labels[part]]
            file.write_batch(pa.record_batch([pa.array(ids[part]), vectors, pa.array(known, kind)], schema))
