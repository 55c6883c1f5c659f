"""The weights of training items, as ``sample_weight`` gives them."""

from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.data.image_sources import as_array, as_list
from cml.errors import UserError


def read_weights(weights: Any, count: int) -> Float64:  # noqa: ANN401 - a sequence of numbers
    """Read the weights of items.

    Args:
        weights: A number of at least 0 for each item.
        count: N, the number of items.

    Returns:
        (N,) the weights.

    Raises:
        UserError: There is not one for each item, or one is no such number; or all are 0.
    """
    array = as_array(weights)
    try:
        values = np.asarray(as_list(weights) if array is None else array, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"'sample_weight' must hold a number for each item. Got {weights!r:.80} instead.") from None
    if values.shape != (count,):
        raise UserError(
            f"'sample_weight' must hold a number for each of the {count} items. Got the shape {values.shape} instead."
        )
    is_bad = ~(np.isfinite(values) & (values >= 0))
    if is_bad.any():
        item = int(np.argmax(is_bad))
        raise UserError(f"'sample_weight' must be finite and at least 0. Got {values[item]:g} for item {item} instead.")
    if not values.any():
        raise UserError("'sample_weight' is 0 for all items, so none would be trained on: give some a weight above 0.")
    return values
