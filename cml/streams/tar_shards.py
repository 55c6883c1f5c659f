"""Tar files in the form of WebDataset, read from start to end: what each item holds, by the names of its members."""

import io
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from cml.data_prep.hf_tar import read_samples

KEY = "__key__"  # the field that names an item, as the library webdataset calls it


def read_shard(path: Path) -> Iterator[dict[str, Any]]:
    """Read the items of a tar file; the entries of a JSON object are fields ``json.NAME`` of their own."""
    for sample in read_samples(path, {"npy": parse_array}, key_column=KEY):
        item: dict[str, Any] = {KEY: f"{path.name}: {sample.pop(KEY)}"}
        for name, value in sample.items():
            if name.rpartition(".")[2] in ("json", "jsn") and isinstance(value, dict):
                item |= {f"{name}.{entry}": content for entry, content in value.items()}
            else:
                item[name] = value
        yield item


def without_marks(item: Any) -> Any:  # noqa: ANN401 - an item of any kind
    """An item without the fields that say where it comes from, such as ``__key__``; images as their bytes."""
    if not isinstance(item, Mapping):
        return item
    return {name: encoded_image(value) for name, value in item.items() if not str(name).startswith("__")}


def encoded_image(value: Any) -> Any:  # noqa: ANN401
    """The bytes of an image file that Hugging Face has not decoded; any other value as it is."""
    is_file = isinstance(value, Mapping) and value.keys() == {"bytes", "path"}
    return (value["bytes"] or value["path"]) if is_file else value


def parse_array(content: bytes) -> NDArray[Any]:
    """Read the content of a .npy file; a ValueError says what is wrong."""
    file = io.BytesIO(content)
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"its format is of version {version}, which holds no plain numbers")
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read_header(file)
    count, start = math.prod(shape), file.tell()
    if dtype.kind not in "fiub":
        raise ValueError(f"it holds {dtype}, and not plain numbers")
    if len(content) - start != count * dtype.itemsize:
        raise ValueError(f"it holds {len(content) - start:,} bytes, and its header says {count * dtype.itemsize:,}")
    return np.frombuffer(content, dtype, count, start).reshape(shape, order="F" if is_fortran else "C").copy()
