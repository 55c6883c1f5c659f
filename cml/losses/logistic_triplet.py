"""Logistic triplet loss: judged orders of two distances, by the logarithm of their ratio, with a learned flip rate."""

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from cml.errors import UserError
from cml.losses.loss import LabelSource, Loss, LossInfo
from cml.losses.pairs import check_matrix, embedding_points
from cml.settings import check_above_zero, check_flag

_FIRST_FLIP_LOGIT = -2.0  # a flip rate of 6 %
_FASTER = 10.0  # one number moves as far as it has to in the steps in which a head learns


class LogisticTripletLoss(Loss):
    r"""Likelihood of judged triplets, of which a share that is learned was judged the wrong way round.

    A triplet says that an anchor is nearer to one item than to another. With D the squared Euclidean distance of
    embeddings, the loss is the mean over triplets of

        -log( e + (1 - 2 e) sigmoid(x) ),   x = 2 s log( (D_far + eps) / (D_near + eps) ).

    The scale s says how sure judgements of a given ratio are. The flip rate e, at most 1/2, is the share of judgements
    that are wrong whatever the ratio: their loss is bounded by -log e, so that few wrong triplets do not decide where
    an item lies. Both are learned with the network. The loss is invariant to rotating, shifting and, up to eps, scaling
    the embeddings.

    Inputs: embeddings (B, D), triplets (T, 4): rows of anchor, nearer and farther item, and how often they were judged
    so.

    Relations: ``dense-triplet`` takes orders from label distances that are known for all items; ``triplet`` takes
    classes. With e = 0 and s = (d + 1) / 4, x is that of t-STE up to its offset.

    Args:
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances, above 0.

    Attributes:
        scale: s, a tensor (); 1 before training.
        flip_rate: e, a tensor (); about 0.06 before training.

    Raises:
        UserError: a setting is out of range.

    Example:
        >>> import torch
        >>> loss = LogisticTripletLoss()
        >>> value = loss(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[0, 1, 2, 1]]))  # 3^4 to 1
        >>> value.item() < -torch.log(1 - loss.flip_rate).item() + 0.02
        True

    Reference:
        van der Maaten, Weinberger: Stochastic triplet embedding, MLSP 2012, whose kernel is nearly a logarithm of
        ratios. The flip rate is that of logistic regression with label noise: Bootkrajang, Kaban, ECML 2012.
    """

    labels = "triplets"
    info = LossInfo(
        cost="O(T)",
        source="cml, after van der Maaten and Weinberger, MLSP 2012",
        when="Labels are judged triplets: this item is nearer to that one than to the other.",
    )
    missing = "a judged triplet within the batch"

    def __init__(self, normalize: bool = False, eps: float = 1e-4) -> None:
        super().__init__()
        self.normalize = check_flag("normalize", normalize)
        self.eps = check_above_zero("eps", eps)
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.flip_logit = nn.Parameter(torch.tensor(_FIRST_FLIP_LOGIT / _FASTER))

    @property
    def scale(self) -> Tensor:
        """S."""
        return self.log_scale.exp()

    @property
    def flip_rate(self) -> Tensor:
        """E."""
        return 0.5 * torch.sigmoid(_FASTER * self.flip_logit)

    def describe_labels(self) -> str:
        """Say how many judgements are wrong, by what was learned."""
        return (
            f"The loss has learned a flip_rate of {self.flip_rate.item():.3f}, the share of judgements that are wrong "
            f"whatever the ratio of distances, and a scale of {self.scale.item():.2f}."
        )

    def target(self, batch: LabelSource) -> Tensor:
        """The triplets of a batch, or of a training set."""
        return torch.from_numpy(batch.triplets())

    def prepare(
        self, target: Tensor, *, dimension: int, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """Check that there are triplets; nothing has to be found."""
        if not len(target):
            raise UserError("The loss 'logistic-triplet' needs triplets of three training items. Got none instead.")

    def forward(self, embeddings: Tensor, triplets: Tensor) -> Tensor:
        """Compute the loss of a batch.

        Args:
            embeddings: (B, D) floating point.
            triplets: (T, 3) int64, rows of the batch: anchor, nearer, farther; or (T, 4) with how often each was said.

        Returns:
            A scalar; 0 with a warning if the batch has no triplet.

        Raises:
            UserError: a shape or type does not fit, or a number is no row of the batch.
        """
        self._check_triplets(embeddings, triplets)
        look = self.may_check_numbers(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            points = embedding_points(embeddings, normalize=self.normalize, look=look)
            anchors, nearer, farther = triplets[:, 0], triplets[:, 1], triplets[:, 2]
            near = (points[anchors] - points[nearer]).square().sum(dim=1)
            far = (points[anchors] - points[farther]).square().sum(dim=1)
            margins = 2 * self.scale * ((far + self.eps).log() - (near + self.eps).log())  # x, (T,)
            counts = triplets[:, 3] if triplets.shape[1] == 4 else torch.ones_like(anchors)
            values = _negative_log_likelihood(margins, self.flip_rate)
            loss = (values * counts).sum() / counts.sum().clamp(min=1)
        is_anchor = torch.zeros(len(embeddings), dtype=torch.int64, device=triplets.device)
        self.count_skipped(is_anchor.index_fill_(0, anchors, 1))
        if not len(triplets):
            text = f"No anchor of the batch has {self.missing}: its loss is 0 and contributes no gradient."
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        return loss

    def _check_triplets(self, embeddings: Tensor, triplets: Tensor) -> None:
        check_matrix("embeddings", embeddings)
        if triplets.ndim != 2 or triplets.shape[1] not in (3, 4) or triplets.is_floating_point():
            got = f"Got shape {tuple(triplets.shape)}, {triplets.dtype} instead."
            raise UserError(
                f"The 'triplets' must be whole numbers (T, 3), anchor, nearer and farther, or (T, 4). {got}"
            )
        rows = triplets[:, :3]
        known = not len(rows) or not self.may_check_numbers(embeddings)
        if not known and not 0 <= int(rows.min()) <= int(rows.max()) < len(embeddings):
            got = f"Got {int(rows.min())} to {int(rows.max())} instead."
            raise UserError(f"The 'triplets' must name rows of the {len(embeddings)} embeddings. {got}")


def _negative_log_likelihood(margins: Tensor, flip_rate: Tensor) -> Tensor:
    """-log(e + (1 - 2 e) sigmoid(x)) of margins x (T,), which keeps its digits where the sigmoid underflows."""
    # e + (1 - 2e) / (1 + exp(-x)) = (1 - e + e exp(-x)) / (1 + exp(-x))
    rate = flip_rate.to(margins)
    return functional.softplus(-margins) - torch.logaddexp((-rate).log1p(), rate.log() - margins)
