"""The calibration of an embedding by held-out items: what label distance an embedding distance means."""

from dataclasses import dataclass

from cml.array_types import UInt64
from cml.data.item_digests import digest_items, find_known
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.embedder import Embedder
from cml.retrieval.calibration import LEVEL, Calibration, calibrate_embeddings
from cml.training.run_learner import label_digest


@dataclass(frozen=True)
class KnownItems:
    """What is known of the training items, which must not calibrate.

    Attributes:
        digests: (M,) of their content.
        labels: A digest of their labels together; None if that is not known.
        place: Where the items are from, for messages: "" for items that are given in Python.
        mend: What to do about them.
    """

    digests: UInt64
    labels: str | None = None
    place: str = ""
    mend: str = "Leave them out."


def calibrate_items(
    model: Embedder,
    items: LabelledItems,
    gallery: LabelledItems | None,
    known: KnownItems,
    *,
    level: float = LEVEL,
    seed: int = 0,
    factor: float = 1.0,
    unit: str = "",
) -> Calibration:
    """Learn from held-out items what label distance an embedding distance means.

    Args:
        model: Embeds the items.
        items: N items that it was not trained on.
        gallery: The items that will be searched; None if new items are searched among new items.
        known: What is known of the training items.
        level: The share of label distances that the intervals are to hold.
        seed: Random seed of the split of the items into two halves.
        factor: What converts label distances to ``unit``.
        unit: Unit of the calibration; that of the label distance when not given.

    Returns:
        The calibration.

    Raises:
        UserError: Items that the model was trained on, fewer than 30 items, or labels that do not differ.
    """
    _refuse_training_items(items, known)
    return calibrate_embeddings(
        model.embed(items.inputs, bar="embed"),
        items.labels,
        items.distance,
        None if gallery is None else model.embed(gallery.inputs, bar="embed"),
        None if gallery is None else gallery.labels,
        level=level,
        factor=factor,
        unit=unit,
        seed=seed,
    )


def _refuse_training_items(items: LabelledItems, known: KnownItems) -> None:
    """Refuse items whose content, or whose labels together, are those of training items."""
    is_known = find_known(digest_items(items.inputs), known.digests)
    if is_known.any():
        first = int(is_known.argmax())
        if known.place:
            found = f"{len(items)} queries of {known.place} are training items, such as {items.ids[first]!r}"
        else:
            found = f"{len(items)} items are training items, the first is item {first}"
        raise UserError(
            f"A calibration needs items that the model was not trained on. {is_known.sum()} of the {found}. "
            f"{known.mend}"
        )
    if known.labels is not None and label_digest(items) == known.labels:
        raise UserError(
            "A calibration needs items that the model was not trained on, but the labels are those of the training "
            "items. Give other items."
        )
