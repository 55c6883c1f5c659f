"""The inputs and labels that a run trains on, and the part of them that is held out for validation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from cml.array_types import Bools, Float64, Int64
from cml.data.inputs import Inputs
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.training.config import TrainConfig

FEWEST_HELD_OUT = 8  # rankings of fewer items say little
MOST_HELD_OUT = 1000  # all pairs of them are compared


@dataclass(frozen=True)
class TrainingData:
    """Inputs and their labels, in the same order.

    Attributes:
        inputs: N inputs, or their features by a frozen backbone.
        labels: N encoded labels.
        distance: The label distance that encoded them.
        mirrored_labels: Labels of the mirrored images; needed if images are mirrored one by one.
        groups: (N,) numbers of groups, such as subjects, that validation keeps together; None for none.
        weights: (N,) how often each item is an anchor relative to the others, above 0; None for all alike.
        validation: Items of the user's own to validate on; None to hold some of these out.
        positions: (N,) the positions of the items in the data that the user gave; None for 0 to N - 1.
        plain_labels: The labels as the user gave them, by these positions, for a function that augments both.
    """

    inputs: Inputs
    labels: Labels
    distance: LabelDistance
    mirrored_labels: Labels | None = None
    groups: Int64 | None = None
    weights: Float64 | None = None
    validation: Self | None = None
    positions: Int64 | None = None
    plain_labels: Sequence[Any] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, items: slice | Int64) -> Self:
        """Take a part of the items.

        Args:
            items: Which items.

        Returns:
            Their inputs and labels.
        """
        return replace(
            self,
            inputs=self.inputs.subset(items),
            labels=self.labels[items],
            mirrored_labels=None if self.mirrored_labels is None else self.mirrored_labels[items],
            groups=None if self.groups is None else self.groups[items],
            weights=None if self.weights is None else self.weights[items],
            positions=(np.arange(len(self)) if self.positions is None else self.positions)[items],
        )

    def given_positions(self, items: Int64) -> Int64:
        """Find the positions of some items in the data that the user gave.

        Args:
            items: Which items.

        Returns:
            Their positions.
        """
        return items if self.positions is None else self.positions[items]

    def split_validation(self, config: TrainConfig) -> tuple[Self, Self]:
        """Split off the items for validation: the last ones, so that neighbouring video frames stay together.

        With groups, these are the groups of the last items, whole.

        Args:
            config: The options of the run.

        Returns:
            The items to train on, and those to validate on, none if the run is not validated.

        Raises:
            UserError: There are too few items for both.
        """
        if self.validation is not None:
            return self, self.validation
        trained = count_trained_items(config, len(self))
        if self.groups is None or trained == len(self):
            return self.subset(slice(0, trained)), self.subset(slice(trained, len(self)))
        is_held_out = _last_groups(self.groups, len(self) - trained)
        if (~is_held_out).sum() < FEWEST_HELD_OUT:
            raise UserError(
                f"'groups' leaves {(~is_held_out).sum()} of {len(self)} items to train on where whole groups are held "
                f"out for validation; at least {FEWEST_HELD_OUT} are needed. Set evaluate_every to 0, or make the "
                "groups smaller."
            )
        return self.subset(np.flatnonzero(~is_held_out)), self.subset(np.flatnonzero(is_held_out))


def _last_groups(groups: Int64, count: int) -> Bools:
    """Which items (N,) belong to the last groups, of as few as have at least ``count`` items together."""
    names, last, sizes = np.unique(groups[::-1], return_index=True, return_counts=True)  # of the reversed order
    order = np.argsort(last)
    needed = int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1
    return np.isin(groups, names[order[:needed]])


def count_trained_items(config: TrainConfig, items: int) -> int:
    """Count the items that are trained on, and not held out for validation.

    Args:
        config: The options of the run.
        items: N, all items.

    Returns:
        How many are trained on.

    Raises:
        UserError: There are too few items for both.
    """
    if not config.evaluate_every:
        return items
    share = round(config.validation_fraction * items)
    held_out = min(MOST_HELD_OUT, max(FEWEST_HELD_OUT, share))
    if items - held_out < FEWEST_HELD_OUT:
        raise UserError(
            f"{items} training items are too few to hold {held_out} of them out for validation: at least "
            f"{FEWEST_HELD_OUT} must be left to train on. Set evaluate_every to 0."
        )
    return items - held_out
