"""Rows of a sparse matrix of scipy or torch, made dense a batch at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError


def is_sparse(source: Any) -> bool:  # noqa: ANN401 - anything
    """Tell whether inputs are a sparse matrix of scipy, or a sparse tensor."""
    return hasattr(source, "tocsr") or (hasattr(source, "layout") and "sparse" in str(source.layout))


class SparseRows:
    """N rows of F numbers as an array (N, F), of which each part becomes dense when it is read."""

    ndim = 2
    dtype: np.dtype[np.float32] = np.dtype(np.float32)

    def __init__(self, source: Any) -> None:  # noqa: ANN401 - a sparse matrix or tensor (N, F)
        if not hasattr(source, "tocsr"):
            source = _matrix_of_tensor(source)
        self._rows = source.tocsr()
        if self._rows.ndim != 2 or self._rows.dtype.kind not in "fiub":
            raise UserError(
                f"Sparse rows must be a matrix (N, F) of real numbers. Got {self._rows.shape}, {self._rows.dtype}."
            )
        self.shape: tuple[int, int] = self._rows.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - as NumPy's
        """Take rows as a dense array, one number, or of a slice a part that stays sparse."""
        if isinstance(index, tuple):
            return np.float32(self._rows[index])
        if isinstance(index, slice):
            return type(self)(self._rows[index])
        dense: NDArray[Any] = self._rows[index].toarray()
        return dense.astype(np.float32, copy=False)

    def __array__(self, dtype: np.dtype[Any] | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Make all rows dense, as ``numpy.asarray`` asks for."""
        return np.asarray(self._rows.toarray(), dtype or self.dtype)


def _matrix_of_tensor(tensor: Any) -> Any:  # noqa: ANN401
    """A sparse tensor as a matrix of scipy."""
    from scipy.sparse import coo_matrix

    if tensor.ndim != 2:
        raise UserError(f"Sparse rows must be a matrix (N, F). Got a tensor of shape {tuple(tensor.shape)}.")
    whole = tensor.detach().to_sparse_coo().coalesce().cpu()
    rows, columns = whole.indices().numpy()
    return coo_matrix((whole.values().numpy(), (rows, columns)), shape=tuple(whole.shape))
