"""Which items a run holds out for validation."""

from dataclasses import dataclass

import numpy as np

from cml.array_types import Bools, Int64
from cml.errors import UserError
from cml.items import LabelledItems
from cml.training.config import TrainConfig

FEWEST_HELD_OUT = 8  # rankings of fewer items say little
MOST_HELD_OUT = 1000  # all pairs of them are compared


@dataclass(frozen=True)
class HoldOut:
    """Holds the last items out, so that neighbouring video frames stay together; of groups the last items' groups."""

    config: TrainConfig  # the options of the run, which say how many

    def __call__(
        self,
        items: LabelledItems,  # N items
    ) -> slice | Int64:
        """Choose the items to hold out; none if the run is not validated."""
        trained = count_trained_items(self.config, len(items))
        if items.groups is None or trained == len(items):
            return slice(trained, len(items))
        is_held_out = _last_groups(items.groups, len(items) - trained)
        if (~is_held_out).sum() < FEWEST_HELD_OUT:
            raise UserError(
                f"'groups' leaves {(~is_held_out).sum()} of {len(items)} items to train on where whole groups are held "
                f"out for validation; at least {FEWEST_HELD_OUT} are needed. Set evaluate_every to 0, or make the "
                "groups smaller."
            )
        return np.flatnonzero(is_held_out)


def _last_groups(groups: Int64, count: int) -> Bools:
    """Which items (N,) belong to the last groups, of as few as have at least ``count`` items together."""
    names, last, sizes = np.unique(groups[::-1], return_index=True, return_counts=True)  # of the reversed order
    order = np.argsort(last)
    needed = int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1
    return np.isin(groups, names[order[:needed]])


def count_trained_items(
    config: TrainConfig,
    items: int,  # N, all items
) -> int:
    """Count the items that are trained on, and not held out for validation."""
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
