"""The calibration of an embedding by held-out items: what label distance an embedding distance means."""

from dataclasses import dataclass

import numpy as np

from cml.array_types import UInt64
from cml.console.messages import say
from cml.data.item_digests import digest_items, find_known
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import Embedder
from cml.retrieval.calibration import FEWEST_ITEMS, LEVEL, Calibration, calibrate_embeddings
from cml.training.run_learner import label_digest


@dataclass(frozen=True)
class KnownItems:
    """What is known of the training items, which do not calibrate."""

    digests: UInt64  # (M,) of their content
    labels: str | None = None  # a digest of their labels together; None if that is not known
    place: str = ""  # where the items are from, for messages: "" for items that are given in Python
    mend: str = "Give others."  # what to do where too few are left


def calibrate_items(
    model: Embedder,
    items: LabelledItems,  # N items; those that the model was trained on are left out
    gallery: LabelledItems | None,  # the items that will be searched; None if new items are searched among new items
    known: KnownItems,
    *,
    level: float = LEVEL,
    seed: int = 0,
    factor: float = 1.0,  # what converts label distances to ``unit``
    unit: str = "",
) -> Calibration:
    """Learn from held-out items what label distance an embedding distance means."""
    items = _leave_out_training_items(items, known)
    return calibrate_embeddings(
        model.embed(items.inputs, bar="embed"),
        items.labels,
        items.distance,
        None if gallery is None else model.embed(gallery.inputs, bar="embed"),
        None if gallery is None else gallery.labels,
        groups=items.groups,
        gallery_groups=None if gallery is None else gallery.groups,
        level=level,
        factor=factor,
        unit=unit,
        seed=seed,
    )


def _leave_out_training_items(items: LabelledItems, known: KnownItems) -> LabelledItems:
    """Leave out and count the items whose content is that of training items; refuse to calibrate by too few others."""
    is_known = find_known(digest_items(items.inputs), known.digests)
    if known.labels is not None and label_digest(items) == known.labels and not is_known.any():
        raise UserError(
            "A calibration needs items that the model was not trained on, but the labels are those of the training "
            "items. Give other items."
        )
    if not is_known.any():
        return items
    first, left = int(is_known.argmax()), int((~is_known).sum())
    what = f"queries of {known.place}" if known.place else "items"
    such = f"such as {items.ids[first]!r}" if known.place else f"the first is item {first}"
    counted = f"{is_known.sum()} of the {len(items)} {what} are training items, {such}"
    if left < FEWEST_ITEMS:
        raise UserError(
            f"A calibration needs at least {FEWEST_ITEMS} items that the model was not trained on. {counted}. "
            f"{known.mend}"
        )
    say(f"{counted}. They are left out, and {left} items are used for the calibration.")
    return items.subset(np.flatnonzero(~is_known))
