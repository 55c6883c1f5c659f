"""Labels that are numbers or vectors of numbers: checked and packed for the label distances that take them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64
from cml.data.columns import Numbers
from cml.distances.labels import LabelError, refuse, short
from cml.errors import UserError

LARGEST = 1e18  # a label's length up to which squared distances fit into float32


def pack_vectors(
    labels: Sequence[Any],
    form: str = "",  # what a label should be, as in "[latitude, longitude]"; "" for any length
) -> Float64:  # (N, D) float64; of numbers D is 1
    """Check numbers or equally long lists of numbers, and pack them."""
    values: object = np.asarray(labels) if isinstance(labels, Numbers) else labels
    if isinstance(values, np.ndarray) and values.ndim in (1, 2) and values.dtype.kind in "fiub":
        vectors = values.reshape(len(values), -1).astype(np.float64)
    else:
        rows = [_numbers(label, position) for position, label in enumerate(labels)]
        for position, row in enumerate(rows):
            if len(row) != len(rows[0]):
                count = f"{len(row)} number{'s' if len(row) != 1 else ''}"
                raise LabelError(position, f"has {count}, the first has {len(rows[0])}.")
        vectors = np.stack(rows)
    if vectors.shape[1] == 0:
        raise LabelError(0, "is an empty list; it should hold at least one number.")
    bad = np.argwhere(~np.isfinite(vectors))
    if len(bad):
        position, place = bad[0]
        raise LabelError(int(position), f"holds {vectors[position, place]} where a finite number should be.")
    with np.errstate(over="ignore"):
        far = np.linalg.norm(vectors, axis=1) > LARGEST
    refuse(far, f"has a length above {LARGEST:g}, whose square float32 cannot hold; rescale it.")
    if form and vectors.shape[1] != form.count(",") + 1:
        raise LabelError(0, f"should be {form}. It has {vectors.shape[1]} numbers instead.")
    return vectors


def check_same_length(a: NDArray[Any], b: NDArray[Any]) -> None:  # a (A, D), b (B, D)
    """Check that packed vectors of two sides have the same length."""
    if a.shape[1] != b.shape[1]:
        raise UserError(f"The labels of the two sides differ in length: {a.shape[1]} numbers against {b.shape[1]}.")


def _numbers(label: Any, position: int) -> Float64:  # noqa: ANN401 - checked here
    try:
        row = np.asarray(label)
    except ValueError:  # lists of different lengths inside one label
        row = np.asarray(None)
    if row.dtype.kind not in "fiub" or row.ndim > 1:
        raise LabelError(position, f"should be a number or a list of numbers. Got {short(label)} instead.")
    return np.atleast_1d(row).astype(np.float64)
