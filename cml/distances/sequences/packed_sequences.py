"""Sequences of unequal length as arrays: padded to the longest, with their lengths."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.array_types import Float64, Int64
from cml.data.tensor_array import tensor_array
from cml.distances.labels import LARGEST, LabelError, Labels, short
from cml.errors import UserError

_FORM = "should be a sequence of numbers (T,) or of vectors (T, F), T at least 1"


def pack_sequences(labels: Sequence[Any]) -> Labels:
    """Check and pack N sequences: arrays ``steps`` (N, T, F) float64, 0 behind the end, and ``lengths`` (N,)."""
    rows = [_read_sequence(label, position) for position, label in enumerate(labels)]
    width = rows[0].shape[1]
    lengths = np.array([len(row) for row in rows], np.int64)
    steps = np.zeros((len(rows), int(lengths.max()), width))
    for position, row in enumerate(rows):
        if row.shape[1] != width:
            raise LabelError(position, f"has {row.shape[1]} numbers a step, the first has {width}.")
        steps[position, : len(row)] = row
    return Labels({"steps": steps, "lengths": lengths})


def _read_sequence(label: Any, position: int) -> Float64:  # noqa: ANN401 - checked here
    try:
        row = tensor_array(label) if hasattr(label, "detach") else np.asarray(label)
    except ValueError:  # steps of different widths
        row = np.asarray(None)
    if row.ndim not in (1, 2) or row.dtype.kind not in "fiub" or not row.size:
        raise LabelError(position, f"{_FORM}. Got {short(label)} instead.")
    row = row.reshape(len(row), -1).astype(np.float64)
    bad = np.argwhere(~(np.abs(row) < LARGEST))  # NaN too
    if len(bad):
        step, place = bad[0].tolist()
        raise LabelError(position, f"holds {row[step, place]:g} at step {step} where a finite number should be.")
    return row


def check_same_width(a: Labels, b: Labels) -> None:
    """Check that the steps of two sides have as many numbers."""
    own, theirs = a.arrays["steps"].shape[2], b.arrays["steps"].shape[2]
    if own != theirs:
        raise UserError(f"The sequences of the two sides have {own} and {theirs} numbers a step.")


def check_band(band: int, lengths: Int64, others: Int64) -> None:
    """Refuse a band that is narrower than lengths differ: no path would end in it."""
    least, most = min(lengths.min(), others.min()), max(lengths.max(), others.max())
    if most - least > band:
        raise UserError(
            f"The band of {band} steps is narrower than the lengths of sequences differ, {least} to {most}: set 'band' "
            f"to at least {most - least}, or to 0 for none."
        )
