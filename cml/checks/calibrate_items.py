"""The calibration of an embedding by held-out items: what label distance an embedding distance means."""

from dataclasses import dataclass

from cml.array_types import UInt64
from cml.data.item_digests import digest_items, find_known
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import Embedder
from cml.retrieval.calibration import LEVEL, Calibration, calibrate_embeddings
from cml.training.run_learner import label_digest


@dataclass(frozen=True)
class KnownItems:
    """What is known of the training items, which must not calibrate."""

    digests: UInt64  # (M,) of their content
    labels: str | None = None  # a digest of their labels together; None if that is not known
    place: str = ""  # where the items are from, for messages: "" for items that are given in Python
    mend: str = "Leave them out."  # what to do about them


def calibrate_items(
    model: Embedder,
    items: LabelledItems,  # N items that it was not trained on
    gallery: LabelledItems | None,  # the items that will be searched; None if new items are searched among new items
    known: KnownItems,
    *,
    level: float = LEVEL,
    seed: int = 0,
    factor: float = 1.0,  # what converts label distances to ``unit``
    unit: str = "",
) -> Calibration:
    """Learn from held-out items what label distance an embedding distance means."""
    _refuse_training_items(items, known)
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
