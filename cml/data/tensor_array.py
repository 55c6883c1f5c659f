"""Tensors as arrays, without importing torch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def tensor_array(
    tensor: Any,  # noqa: ANN401 - a torch tensor
) -> NDArray[Any]:
    """Convert a tensor on any device.

    Returns its numbers; float32 for bfloat16, which NumPy does not have.
    """
    plain = tensor.detach().cpu()
    return np.asarray((plain.float() if str(plain.dtype) == "torch.bfloat16" else plain).numpy())
