"""No backbone: the head takes the vectors themselves."""

from torch import nn

from cml.models.backbone import Backbone
from cml.settings import check_whole


def no_backbone(vector_size: int) -> Backbone:
    """No backbone: the head takes the standardised vectors themselves, so that the model is linear.

    Args:
        vector_size: F, the numbers of a vector.

    Returns:
        The backbone, which has no weights.

    Raises:
        UserError: The size is no whole number of at least 1.
    """
    return Backbone(nn.Identity(), check_whole("vector_size", vector_size))
