"""The n-pair loss: a softmax in which each anchor should pick its positive from those of all classes."""

from torch import Tensor

from cml.errors import UserError
from cml.losses.loss import LossInfo
from cml.losses.pairs import is_transformed
from cml.losses.pml import PmlPairLoss, pml
from cml.settings import check_flag, check_number


class NPairLoss(PmlPairLoss):
    """A softmax over the positives of all classes, in which each anchor should pick its own.

    With one pair (a_i, p_i) of each class in the batch that has two items or more, the mean over pairs of

        log( 1 + sum_{j != i} exp( f_{a_i} . f_{p_j} - f_{a_i} . f_{p_i} ) )

    The library takes the first pair of each class, so a batch should hold two items of many classes
    (``per-class(per_class=2)``). Nothing bounds the length of the embeddings: the paper adds their squared length, cml
    ``regularization`` times their mean length.

    Inputs: embeddings (B, D), class numbers (B,) int64.

    Relations: ``proxy-nca`` is a softmax over one learnt proxy per class in place of the positives of the batch.

    Args:
        regularization: At least 0. Weight of the embeddings' mean length.
        normalize: Whether to L2-normalise the embeddings first; the paper does not.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> points, classes = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 0, 1, 1])
        >>> round(NPairLoss()(points, classes).item(), 4)  # log(1 + 1/e)
        0.3133

    Reference:
        Sohn: Improved Deep Metric Learning with Multi-class N-pair Loss Objective, NeurIPS 2016.
    """

    info = LossInfo(
        cost="O(C^2)",
        source="Sohn, NeurIPS 2016",
        when="Many classes with few items each, in batches of two items per class.",
    )
    needs_classes = True

    def __init__(self, regularization: float = 0.0, normalize: bool = False) -> None:
        check_number("regularization", regularization, least=0)
        distance = pml("distances").DotProductSimilarity(normalize_embeddings=check_flag("normalize", normalize))
        if regularization:
            inner = pml("losses").NPairsLoss(
                distance=distance,
                embedding_regularizer=pml("regularizers").LpRegularizer(),
                embedding_reg_weight=regularization,
            )
        else:
            inner = pml("losses").NPairsLoss(distance=distance)
        super().__init__(inner)
        self.regularization = regularization

    def value(self, embeddings: Tensor, classes: Tensor) -> Tensor:
        """The library's value of a batch (B, D), (B,); refused inside a transform of ``torch.func``."""
        if is_transformed(embeddings):
            raise UserError(
                "The loss 'n-pair' does not run inside a transform of torch.func, as pytorch-metric-learning picks its "
                "pairs by NumPy. Use torch.autograd, with create_graph=True for second derivatives."
            )
        return super().value(embeddings, classes)
