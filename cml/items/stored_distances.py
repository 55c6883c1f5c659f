"""Costly label distances of few items, such as those of captions, replaced by the matrix of all of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cml.distances.jobs.stored_matrix import MOST_ITEMS, replace_costly_distance
from cml.distances.labels import Labels
from cml.items.labelled_items import LabelledItems


@dataclass(frozen=True)
class DistanceDemand:
    """How many label distances a learner will ask for."""

    blocks: int  # blocks of distances, one a step
    rows: int  # rows and columns of a block
    all_pairs: bool = False  # whether a search for neighbours will ask for all pairs


def store_costly_distances(
    items: LabelledItems,
    validation: LabelledItems | None,  # items to validate on
    demand: DistanceDemand,
    *,
    quiet: bool = False,
) -> tuple[LabelledItems, LabelledItems | None]:
    """Replace a costly label distance by the matrix of all its distances, where that is worth its cost."""
    parts = [items.labels, items.mirrored_labels, None if validation is None else validation.labels]
    given = [part for part in parts if part is not None]
    if sum(map(len, given)) > MOST_ITEMS:
        return items, validation
    distance, labels = replace_costly_distance(
        items.distance, _join(given), blocks=demand.blocks, rows=demand.rows, all_pairs=demand.all_pairs, quiet=quiet
    )
    if distance is items.distance:
        return items, validation
    ends = np.cumsum([0 if part is None else len(part) for part in parts]).tolist()
    own, mirrored, held_out = (labels[start:end] for start, end in zip([0, *ends], ends, strict=False))
    items = replace(
        items, labels=own, distance=distance, mirrored_labels=None if items.mirrored_labels is None else mirrored
    )
    return items, None if validation is None else replace(validation, labels=held_out, distance=distance)


def _join(parts: Sequence[Labels]) -> Labels:
    """Join labels that were encoded together."""
    if len(parts) == 1:
        return parts[0]
    return Labels({name: np.concatenate([part.arrays[name] for part in parts]) for name in parts[0].arrays})
