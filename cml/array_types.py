"""The types of NumPy arrays in annotations, each named after its dtype; docstrings and comments state the shapes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]  # the plural sets it apart from ``bool``

UInt8 = NDArray[np.uint8]
UInt16 = NDArray[np.uint16]
UInt64 = NDArray[np.uint64]

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Integer = NDArray[np.integer[Any]]  # signed or unsigned, of any size

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Floating = NDArray[np.floating[Any]]  # of any precision
