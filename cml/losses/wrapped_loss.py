"""A torch module of the user's own as a loss. To give a loss a name, use ``cml.losses.register`` instead."""

from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.label_distance_loss import LabelDistanceLoss
from cml.losses.loss import Loss, LossInfo
from cml.losses.pml import PmlPairLoss
from cml.processes.memory import is_out_of_memory


class WrappedLoss(LabelDistanceLoss):
    """Call ``module(embeddings (B, D), label_distances (A, B))``, whose first A items are the anchors.

    The module's parameters are trained at the head's learning rate.

    Example:
        >>> import torch
        >>> class Stress(torch.nn.Module):
        ...     def forward(self, embeddings, label_distances):
        ...         return (torch.cdist(embeddings, embeddings) - label_distances).square().mean()
        >>> points = torch.tensor([[0.0], [1.0]])
        >>> WrappedLoss(Stress())(points, torch.cdist(points, points)).item()
        0.0
    """

    info = LossInfo(cost="the module's", source="the user", when="A loss that is being tried out.")

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.normalize = bool(getattr(module, "normalize", False))

    def forward(self, embeddings: Tensor, label_distances: Tensor) -> Tensor:
        """The module's value."""
        name = type(self.module).__name__
        shapes = f"embeddings {tuple(embeddings.shape)} and label distances {tuple(label_distances.shape)}"
        try:
            value = self.module(embeddings, label_distances)
        except (RuntimeError, TypeError, ValueError) as error:
            if is_out_of_memory(error):
                raise
            raise UserError(f"The loss {name} failed on {shapes}: {error}") from error
        if not isinstance(value, Tensor) or value.ndim or not value.is_floating_point():
            got = f"a tensor {tuple(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
            raise UserError(f"The loss {name} must return a scalar tensor for {shapes}. Got {got} instead.")
        return value


def as_loss(loss: nn.Module) -> Loss:
    """Wrap a module as a loss over label distances, unless it is a loss of cml or of pytorch-metric-learning.

    Returns the loss.
    """
    if not isinstance(loss, nn.Module):
        raise UserError(
            "The 'loss' must be a string such as 'log-ratio' or a torch module that takes embeddings (B, D) and label "
            f"distances (A, B). Got {type(loss).__name__} instead."
        )
    if isinstance(loss, Loss):
        return loss
    is_of_library = any(kind.__module__.startswith("pytorch_metric_learning.") for kind in type(loss).__mro__)
    return PmlPairLoss(loss) if is_of_library else WrappedLoss(loss)
