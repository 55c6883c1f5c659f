"""The images and labels that a run trains on, and the part of them that is held out for validation."""

from dataclasses import dataclass, replace
from typing import Self

from cml.data.images import Images
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.training.config import TrainConfig
from cml.training.frozen_backbone import Features

FEWEST_HELD_OUT = 8  # rankings of fewer items say little
MOST_HELD_OUT = 1000  # all pairs of them are compared


@dataclass(frozen=True)
class TrainingData:
    """Images and their labels, in the same order.

    Attributes:
        images: N images, or their features by a frozen backbone.
        labels: N encoded labels.
        distance: The label distance that encoded them.
        mirrored_labels: Labels of the mirrored images; needed if images are mirrored one by one.
    """

    images: Images | Features
    labels: Labels
    distance: LabelDistance
    mirrored_labels: Labels | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, items: slice) -> Self:
        """Take a part of the items.

        Args:
            items: Which items.

        Returns:
            Their images and labels.
        """
        mirrored = None if self.mirrored_labels is None else self.mirrored_labels[items]
        return replace(self, images=self.images.subset(items), labels=self.labels[items], mirrored_labels=mirrored)

    def split_validation(self, config: TrainConfig) -> tuple[Self, Self]:
        """Split off the items for validation: the last ones, so that neighbouring video frames stay together.

        Args:
            config: The options of the run.

        Returns:
            The items to train on, and those to validate on, none if the run is not validated.

        Raises:
            UserError: There are too few items for both.
        """
        trained = count_trained_items(config, len(self))
        return self.subset(slice(0, trained)), self.subset(slice(trained, len(self)))


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
