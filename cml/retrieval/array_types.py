"""Types of the arrays that retrieval works on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Int64 = NDArray[np.int64]
