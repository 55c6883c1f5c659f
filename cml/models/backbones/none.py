"""No backbone: the head takes the vectors themselves."""

from torch import nn

from cml.models.backbone import Backbone


def no_backbone(vector_size: int) -> Backbone:
    """No backbone: the head takes the standardised vectors themselves, so that the model is linear.

    Args:
        vector_size: F, the numbers of a vector.

    Returns:
        The backbone, which has no weights.
    """
    return Backbone(nn.Identity(), vector_size)
