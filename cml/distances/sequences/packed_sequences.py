"""Sequences of unequal length as arrays: padded to the longest, with their lengths."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.data.tensor_array import tensor_array
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LARGEST, LabelError, Labels, short
from cml.errors import UserError

_FORM = "should be a sequence of numbers (T,) or of vectors (T, F), T at least 1"
_STEP = "step."
_PLACES = 32  # at which a sequence is resampled


def read_text_steps(labels: Sequence[Any]) -> Sequence[Any]:
    """Sequences whose steps are texts of numbers, as datasets hold sequences of unequal length, as numbers."""
    if not (isinstance(labels, Sequence) and labels and isinstance(labels[0], list | tuple)):
        return labels
    return [_read_texts(label, position) for position, label in enumerate(labels)]


def _read_texts(label: Any, position: int) -> Any:  # noqa: ANN401 - a label of any form
    if not isinstance(label, list | tuple) or not label or not all(isinstance(step, str) for step in label):
        return label
    try:
        steps = [[float(number) for number in step.split()] for step in label]
    except ValueError:
        raise LabelError(position, f"{_FORM}. Got {short(label)} instead.") from None
    return [step[0] if len(step) == 1 else step for step in steps]


def pack_sequences(labels: Sequence[Any]) -> Labels:
    """Check and pack N sequences: arrays ``steps`` (N, T, F) float64, 0 behind the end, and ``lengths`` (N,)."""
    rows = [_read_sequence(label, position) for position, label in enumerate(labels)]
    width = rows[0].shape[1]
    lengths = np.array([len(row) for row in rows], np.int64)
    steps = np.zeros((len(rows), int(lengths.max()), width))
    for position, row in enumerate(rows):
        if row.shape[1] != width:
            raise LabelError(
                position, f"has {row.shape[1]} numbers a step, the first has {width}; give as many in every sequence."
            )
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
        raise LabelError(
            position, f"holds {row[step, place]:g} at step {step} where a finite number should be; fill it in."
        )
    return row


def check_same_width(a: Labels, b: Labels) -> None:
    """Check that the steps of two sides have as many numbers."""
    own, theirs = a.arrays["steps"].shape[2], b.arrays["steps"].shape[2]
    if own != theirs:
        raise UserError(f"The sequences of the two sides have {own} and {theirs} numbers a step.")


def check_lengths(band: int, open_ends: int, lengths: Int64) -> None:
    """Refuse the longest or shortest of some sequences, if a band or open ends cannot be kept."""
    least, most = int(lengths.argmin()), int(lengths.argmax())
    differ = int(lengths[most] - lengths[least])
    if band and differ > band + open_ends:
        raise LabelError(
            most,
            f"has {lengths[most]} steps and label {least} has {lengths[least]}: the band of {band} steps is narrower "
            f"than their lengths differ. Set 'band' to at least {differ - open_ends}, or to 0 for none.",
        )
    if open_ends >= lengths[least]:
        raise LabelError(
            least,
            f"has {_count(int(lengths[least]))}, all of which open ends of {open_ends} could leave out: set "
            f"'open_ends' to at most {lengths[least] - 1}.",
        )


def _count(steps: int) -> str:
    return "1 step" if steps == 1 else f"{steps} steps"


def check_band(band: int, open_ends: int, lengths: Int64, others: Int64) -> None:
    """Refuse a band that is narrower than lengths differ: no path would end in it."""
    least, most = min(lengths.min(), others.min()), max(lengths.max(), others.max())
    if band and most - least > band + open_ends:
        raise UserError(
            f"The band of {band} steps is narrower than the lengths of sequences differ, {least} to {most}: set 'band' "
            f"to at least {most - least - open_ends}, or to 0 for none."
        )


def check_open_ends(open_ends: int, lengths: Int64, others: Int64) -> None:
    """Refuse open ends that could leave out a whole sequence."""
    least = min(lengths.min(), others.min())
    if open_ends >= least:
        raise UserError(
            f"Open ends of {open_ends} steps could leave out the shortest sequence, of {least}: set 'open_ends' to at "
            f"most {least - 1}."
        )


def pack_steps(labels: Sequence[Any], base: LabelDistance) -> Labels:
    """Check and pack N sequences of labels of a base: its arrays as ``step.name`` (N, T, ..), and ``lengths`` (N,)."""
    for position, label in enumerate(labels):
        if not isinstance(label, list | tuple | np.ndarray) or len(label) == 0:
            fault = f"should be a sequence of one or more {base.name} labels. Got {short(label)} instead."
            raise LabelError(position, fault)
    lengths = np.array([len(label) for label in labels], np.int64)
    starts = np.cumsum(lengths) - lengths
    try:
        steps = base.encode([step for label in labels for step in label])
    except LabelError as error:
        position = int(np.searchsorted(starts, error.position, side="right")) - 1
        raise LabelError(position, f"step {error.position - int(starts[position])} {error.fault}") from None
    # shorter sequences repeat their last step
    slots = starts[:, None] + np.minimum(np.arange(lengths.max()), lengths[:, None] - 1)  # (N, T)
    return Labels({"lengths": lengths, **{_STEP + name: array[slots] for name, array in steps.arrays.items()}})


def unpack_steps(labels: Labels) -> Labels:
    """All steps of N sequences of ``pack_steps``, one after another."""
    arrays = {name.removeprefix(_STEP): array for name, array in labels.arrays.items() if name != "lengths"}
    filled = np.arange(next(iter(arrays.values())).shape[1]) < labels.arrays["lengths"][:, None]  # (N, T)
    return Labels({name: array[filled] for name, array in arrays.items()})


def resample_sequences(labels: Labels) -> Float32:
    """Sequences of ``pack_sequences`` at equally many places: equally far apart in time, and along the way.

    An alignment changes the time of steps, but hardly where they lie along the way. (N, 2 * ``_PLACES`` * F).
    """
    rows = []
    for track, length in zip(labels.arrays["steps"], labels.arrays["lengths"].tolist(), strict=True):
        steps = track[:length]
        time = np.arange(float(length))
        way = np.concatenate([[0.0], np.linalg.norm(np.diff(steps, axis=0), axis=1).cumsum()])
        for along in (time, way if way[-1] > 0 else time):
            places = np.linspace(0, along[-1], _PLACES)
            rows += [np.interp(places, along, column) for column in steps.T]
    return np.concatenate(rows).reshape(len(labels), -1).astype(np.float32)
