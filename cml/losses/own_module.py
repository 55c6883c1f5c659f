"""A torch module of the user's own as a loss. Not for: a loss that is to have a name (``cml.losses.register``)."""

from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import About, Loss


class OwnModule(LabelDistanceLoss):
    """Calls ``module(embeddings (B, D), label_distances (A, B))``, whose first A items are the anchors.

    Its parameters are trained at the head's learning rate.

    Args:
        module: The module. If it has a true attribute ``normalize``, it L2-normalises embeddings itself, and so does
            the trained model.
    """

    about = About(cost="the module's", source="the user", when="A loss that is being tried out.")

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.normalize = bool(getattr(module, "normalize", False))

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The module's value.

        Raises:
            UserError: the module fails, or gives no scalar that gradients can flow from.
        """
        shapes = f"embeddings {tuple(embeddings.shape)} and label distances {tuple(label_distances.shape)}"
        try:
            value = self.module(embeddings, label_distances)
        except (RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"The loss {type(self.module).__name__} failed on {shapes}: {error}") from error
        if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
            got = f"a tensor {tuple(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
            raise UserError(
                f"The loss {type(self.module).__name__} must return a scalar tensor for {shapes}. Got {got} instead."
            )
        return value


def as_loss(loss: nn.Module) -> Loss:
    """A loss of cml as it is, any other module as one over label distances."""
    if not isinstance(loss, nn.Module):
        raise UserError(
            "The 'loss' must be a text such as 'log-ratio' or a torch module that takes embeddings (B, D) and label "
            f"distances (A, B). Got {type(loss).__name__} instead."
        )
    return loss if isinstance(loss, Loss) else OwnModule(loss)
