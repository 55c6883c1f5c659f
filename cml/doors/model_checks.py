"""What ``Model`` does with its items' labels: calibrate, audit, propose what to label next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cml.array_types import Int64
from cml.checks.audit_list import AuditList, audit_items
from cml.checks.calibrate_items import KnownItems, calibrate_items
from cml.checks.proposals import propose_items
from cml.data.image_sources import number_groups
from cml.doors.both_sides import BothSides
from cml.items.labelled_items import Presentation
from cml.items.names import align_by_name
from cml.retrieval.calibration import LEVEL, Calibration

if TYPE_CHECKING:
    from cml.doors.trained_model import TrainedModel


def calibrate(
    self: TrainedModel,
    inputs: Any,  # noqa: ANN401 - as cml.fit takes them
    labels: Any = None,  # noqa: ANN401
    gallery: Any = None,  # noqa: ANN401
    gallery_labels: Any = None,  # noqa: ANN401
    *,
    groups: Any = None,  # noqa: ANN401 - a sequence of any names
    gallery_groups: Any = None,  # noqa: ANN401
    image: str | None = None,
    label: str | None = None,
    level: float = LEVEL,
    seed: int = 0,
) -> Calibration:
    """Learn from held-out items what label distance an embedding distance means; ``save`` keeps it.

    Args:
        inputs: N items, of any kind that ``cml.fit`` takes. Those that the model was trained on are left out; of
            the others, give 150 or more.
        labels: A label for each of them; None where ``inputs`` holds them.
        gallery: The items that will be searched, which may have been trained on; None if new items are searched
            among new items.
        gallery_labels: A label for each of them.
        groups: A name or number for each item, such as its subject, where searches leave out the query's own.
        gallery_groups: The same for each gallery item.
        image: Name of the column of images, where images come as a data frame.
        label: Name of its column of labels.
        level: The share of label distances that the intervals should contain.
        seed: Random seed of the split of the items into two halves.

    Returns:
        The calibration: ``expect(distances)`` gives the label distance of hits with an interval.

    Raises:
        UserError: Fewer than 30 items that the model was not trained on, or labels that do not differ.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(400, 3))
        >>> model = cml.fit(rows[:200], rows[:200, 0], steps=50, sampler="random(batch_size=50)", quiet=True)
        >>> calibration = model.calibrate(rows[200:], rows[200:, 0])
        >>> _, distances = model.search(rows[:1], rows[200:], k=5)
        >>> expected, low, high = calibration.expect(distances)
        >>> bool((low <= expected).all() and (expected <= high).all())
        True
    """
    sides = BothSides(inputs, labels, gallery, gallery_labels, groups, gallery_groups)
    items, ranked = self.label_both(sides, image, label)
    known = KnownItems(self.training_items, self.run_config.made_of.get("labels"))
    self.calibration = calibration = calibrate_items(self, items, ranked, known, level=level, seed=seed)
    return calibration


def audit(
    self: TrainedModel,
    inputs: Any,  # noqa: ANN401 - as cml.fit takes them
    labels: Any = None,  # noqa: ANN401
    *,
    names: Sequence[str] | None = None,
    groups: Any = None,  # noqa: ANN401 - a sequence of any names
    image: str | None = None,
    label: str | None = None,
    seed: int = 0,
) -> AuditList:
    """Find the labels that disagree with those of similar items: perhaps wrong ones. See ``cml.checks.audit``.

    The model gives the label distance alone. Items are compared by features that do not depend on the labels: those
    of the published backbone, or vectors as they are standardised.

    Args:
        inputs: N items, 30 or more, also those of the training, of any kind that ``cml.fit`` takes.
        labels: A label for each of them; None where ``inputs`` holds them.
        names: A name for each; their numbers by default.
        groups: A name or number for each, such as its subject: whole groups are held out.
        image: Name of the column of images, where images come as a data frame.
        label: Name of its column of labels.
        seed: Random seed.

    Returns:
        The list: ``suspects`` names the items, the label most likely to be wrong first.

    Raises:
        UserError: Fewer than 30 items, labels that do not differ, or inputs without such features.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(200, 3))
        >>> labels = rows[:, 0].copy()
        >>> labels[17] += 9
        >>> model = cml.fit(rows, labels, steps=2, sampler="random(batch_size=50)", quiet=True)
        >>> model.audit(rows, labels).suspects[0]
        '17'
    """
    items = self.label_items(inputs, labels, image=image, label=label, ids=names)
    groups = align_by_name(inputs, groups, "groups")
    items = items if groups is None else replace(items, groups=number_groups(groups, len(items)))
    return audit_items(self, items, Presentation.plain(items, items.distance), seed=seed)


def propose(
    self: TrainedModel,
    pool: Any,  # noqa: ANN401 - as cml.fit takes them
    count: int,
    *,
    labelled: Any,  # noqa: ANN401
    groups: Any = None,  # noqa: ANN401 - a sequence of any names
) -> Int64:
    """Choose the items of a pool that are worth labelling next.

    Each is the item that is farthest from all labelled and all chosen ones (farthest-first traversal; Sener,
    Savarese: Active learning for convolutional neural networks, a core-set approach, ICLR 2018). As in ``audit``,
    items are compared by features that do not depend on the labels: in the trained embedding, the farthest items
    are often those that it has not learned to place.

    Args:
        pool: N images or vectors without labels, of any kind that ``cml.fit`` takes.
        count: How many to choose, 1 to N.
        labelled: The inputs that have labels, such as those of the training. Items of the pool that are among them
            are never chosen, so that there may be fewer than ``count``.
        groups: A name or number for each item of the pool, such as its video: of each, one item at most is chosen,
            and none of those that hold a labelled item.

    Returns:
        (count,) positions in the pool, the first item to label first.

    Raises:
        UserError: ``count`` is out of range, or the model does not take images or vectors, or not such.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(60, 3))
        >>> model = cml.fit(rows, rows[:, 0], steps=2, sampler="random(batch_size=30)", quiet=True)
        >>> model.propose([[0.0, 0.0, 0.0], [9.0, 0.0, 0.0]], 1, labelled=rows)
        array([1])
    """
    groups = align_by_name(pool, groups, "groups")
    numbers = None if groups is None else number_groups(groups, len(pool))
    return propose_items(self, pool, labelled, count, groups=numbers).items
