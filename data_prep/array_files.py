"""Files of arrays: .npy, .npz, PyTorch's .pt, HDF5, safetensors, folders of .npy files. None of them is unpickled."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cml.console.messages import say
from cml.data_prep.hf_parquet import FREE, RATIO
from cml.errors import DataError, require_extra
from cml.storage.regular_file import map_array, open_regular

SUFFIXES = (".npy", ".npz", ".pt", ".pth", ".h5", ".hdf5", ".safetensors")
Columns = Mapping[str, Sequence[Any] | NDArray[Any]]
_FEW = 16  # arrays of one number a row; of more, each is rather the vector of an item


def load_columns(path: Path) -> Columns:
    """Load the arrays of a file as columns; vectors by the names of items become the columns id and vector."""
    arrays = {name: array for name, array in load_arrays(path).items() if array.ndim}
    if not arrays:
        raise DataError(f"{path} holds no array of rows.")
    shapes = {array.shape for array in arrays.values()}
    are_vectors = (
        len(shapes) == 1 and len(next(iter(shapes))) == 1 and all(a.dtype.kind in "fiu" for a in arrays.values())
    )
    are_named = len(arrays) > _FEW or (len(arrays) > 1 and all(any(c.isdigit() for c in name) for name in arrays))
    if are_vectors and (are_named or path.is_dir()):
        say(f"{path} is read as {len(arrays)} vectors by the names of their items.")
        return {"id": list(arrays), "vector": np.stack(list(arrays.values()))}
    if len({len(array) for array in arrays.values()}) > 1:
        shown = ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:8])
        raise DataError(f"{path} should hold arrays of one length, a row for each item. It holds {shown}.")
    texts = [name for name, array in arrays.items() if array.dtype.kind in "US"]
    columns: dict[str, Any] = {n: a.astype(str).tolist() if n in texts else a for n, a in arrays.items()}
    if len(texts) == 1:  # the only names
        columns.setdefault("file_name", columns[texts[0]])
    return columns


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Load the arrays of a file or folder by their names."""
    suffix = path.suffix.lower()
    try:
        if path.is_dir():
            return {file.stem: map_array(file) for file in sorted(path.glob("*.npy"))}
        if suffix == ".npy":
            return {path.stem: map_array(path)}
        with open_regular(path) as file:
            if zipfile.is_zipfile(file):
                with zipfile.ZipFile(file) as archive:
                    _check_size(path, sum(part.file_size for part in archive.infolist()))
            file.seek(0)
            if suffix == ".npz":
                with np.load(file, allow_pickle=False) as arrays:
                    return dict(arrays)
            return _load_hdf5(file, path) if suffix in (".h5", ".hdf5") else _load_tensors(file, path, suffix)
    except DataError:
        raise
    except Exception as error:  # each library has its own exceptions for damage
        why = " ".join(f"{type(error).__name__}: {error}".split())[:160]
        raise DataError(f"{path} cannot be read as plain arrays ({why}).") from None


def _load_hdf5(file: IO[bytes], path: Path) -> dict[str, NDArray[Any]]:
    with require_extra("hdf5", f"Reading {path}"):
        import h5py
    found: dict[str, NDArray[Any]] = {}

    def add(name: str, entry: object) -> None:  # links are not followed, neither out of the file nor within it
        if isinstance(entry, h5py.Dataset):
            if entry.external or entry.is_virtual:
                raise DataError(f"{path}: the array {name!r} lies in another file. Export it as plain arrays.")
            _check_size(path, entry.nbytes)
            texts = h5py.check_string_dtype(entry.dtype) is not None
            found[name] = np.asarray(entry.asstr()[...], str) if texts else np.asarray(entry[...])

    with h5py.File(file, "r") as store:
        store.visititems(add)
    return found


def _load_tensors(file: IO[bytes], path: Path, suffix: str) -> dict[str, NDArray[Any]]:
    import torch

    if suffix == ".safetensors":
        from safetensors.torch import load

        content: Any = load(file.read())
    else:
        content = torch.load(file, map_location="cpu", weights_only=True)
    named = content if isinstance(content, dict) else {"vector": content}
    tensors = {str(n): v.detach() if isinstance(v, torch.Tensor) else np.asarray(v) for n, v in named.items()}
    return {
        n: (v.float() if v.dtype == torch.bfloat16 else v).numpy() if isinstance(v, torch.Tensor) else v
        for n, v in tensors.items()
    }


def _check_size(path: Path, unpacked: int) -> None:
    limit = FREE + RATIO * path.stat().st_size
    if unpacked > limit:
        raise DataError(f"{path} unpacks to {unpacked:,} bytes; the limit for a file of its size is {limit:,}.")
