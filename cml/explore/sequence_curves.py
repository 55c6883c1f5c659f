"""The sequences that the explorer's page plots and aligns: labels of ``dtw`` and ``frechet``, or a part of them."""

from dataclasses import dataclass

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.distances.circular import Circular
from cml.distances.combined import KNOWN, Combined, select_part
from cml.distances.euclidean import Euclidean
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.sequences.alignment import Alignment

_MOST_NUMBERS = 2_000_000  # of all sequences together; more would make the page slow


@dataclass(frozen=True)
class SequenceCurves:
    """N sequences, and how the label distance aligns two of them."""

    steps: Float32  # (S, F) the steps of all, one sequence after another
    ends: Int64  # (N,) where each ends; an item without a sequence ends where it begins
    band: int  # steps that an alignment may leave the diagonal; 0 for any number
    open_ends: int
    is_sum: bool
    period: float  # after which a number of a step repeats; 0 for none


def find_sequence_curves(distance: LabelDistance, labels: Labels) -> SequenceCurves | None:
    """Find the first part of labels that is a sequence of numbers, vectors or angles; None if none is, or all are long.

    Steps of other label distances have no curve.
    """
    if isinstance(distance, Combined):
        for place, part in enumerate(distance.parts.values()):
            known = labels.arrays.get(f"{KNOWN}{place}", np.ones(len(labels), bool))
            if isinstance(part, Alignment):
                return _read(part, select_part(labels, place), known)
        return None
    return _read(distance, labels, np.ones(len(labels), bool)) if isinstance(distance, Alignment) else None


def _read(distance: Alignment, labels: Labels, known: Bools) -> SequenceCurves | None:
    base = distance.base
    period = float(base.period) if isinstance(base, Circular) else 0.0
    steps = labels.arrays.get("step.phases" if period else "steps")  # (N, T, F)
    lengths = np.where(known, labels.arrays["lengths"], 0)
    if steps is None or not (period or base == Euclidean()) or lengths.sum() * steps.shape[2] > _MOST_NUMBERS:
        return None
    filled = steps[np.arange(steps.shape[1]) < lengths[:, None]]  # (S, F)
    shown = filled.astype(np.float32)
    return SequenceCurves(shown, np.cumsum(lengths), distance.band, distance.open_ends, distance.is_sum, period)
