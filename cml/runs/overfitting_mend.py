"""What helps a training that overfitted: the one change of its options that has not been made yet."""

from cml.models.backbone import takes_vectors
from cml.training.config import TrainConfig


def suggest_mend(config: TrainConfig) -> str:
    """Suggest the change of the options that most probably helps against overfitting.

    Args:
        config: The options of the training that overfitted.

    Returns:
        A clause: freezing a backbone that was trained, then tuning the head, then more training items.
    """
    if not config.freeze_backbone and not takes_vectors(config.backbone):
        return "freeze the backbone (freeze_backbone)"
    if not config.tune:
        return "choose the head on held-out items (tune)"
    return "use more training items"
