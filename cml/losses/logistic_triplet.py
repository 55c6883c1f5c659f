"""Logistic triplet loss: judged orders of two distances, by the logarithm of their ratio, with a learned flip rate."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from cml.errors import UserError
from cml.losses.closed_form import check_no_vmap
from cml.losses.embedding_checks import check_matrix, embedding_points
from cml.losses.loss import LabelSource, Loss, LossInfo
from cml.losses.row_mean import RowMean, warn_without_terms
from cml.settings import check_above_zero, check_flag

_FIRST_FLIP_LOGIT = -2.0  # a flip rate of 6 %
_FASTER = 10.0  # one number moves as far as it has to in the steps in which a head learns


def logistic_triplet_loss(
    embeddings: Tensor,
    triplets: Tensor,
    *,
    scale: Tensor | float,
    flip_rate: Tensor | float,
    normalize: bool = False,
    eps: float = 1e-4,
) -> Tensor:
    """The logistic triplet loss as a function; ``LogisticTripletLoss`` has the formula.

    Args:
        embeddings: (B, D) floating point.
        triplets: (T, 3) whole numbers, rows of the embeddings: anchor, nearer, farther; or (T, 4) with how often each
            was judged so.
        scale: s, above 0, a number or a tensor.
        flip_rate: e, from 0 to 1/2, a number or a tensor.
        normalize: Whether to L2-normalise the embeddings first.
        eps: Added to the squared embedding distances, above 0.

    Returns:
        A scalar; 0 with a warning if there is no triplet.

    Raises:
        UserError: a tensor has another shape or type, a row is not that of an embedding, or eps is out of range.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0], [1.0], [3.0]])
        >>> value = logistic_triplet_loss(points, torch.tensor([[0, 1, 2]]), scale=1, flip_rate=0)
        >>> f"{value:.4f}"  # -log 81 / (1 + 81), of 3^4 to 1
        '0.0123'
    """
    mean = _triplet_mean(embeddings, triplets, scale, flip_rate, normalize, check_above_zero("eps", eps))
    return warn_without_terms(mean, LogisticTripletLoss.missing)


def _triplet_mean(
    embeddings: Tensor, triplets: Tensor, scale: Tensor | float, flip_rate: Tensor | float, normalize: bool, eps: float
) -> RowMean:
    """The loss, and 1 for each item of the batch that is an anchor of a triplet."""
    _check_triplets(embeddings, triplets)
    with torch.autocast(embeddings.device.type, enabled=False):
        points = embedding_points(embeddings, normalize=normalize)
        anchors, nearer, farther = triplets[:, 0], triplets[:, 1], triplets[:, 2]
        near = (points[anchors] - points[nearer]).square().sum(dim=1)
        far = (points[anchors] - points[farther]).square().sum(dim=1)
        margins = 2 * scale * ((far + eps).log() - (near + eps).log())  # (T,)
        counts = triplets[:, 3] if triplets.shape[1] == 4 else torch.ones_like(anchors)
        values = _negative_log_likelihood(margins, flip_rate)
        loss = (values * counts).sum() / counts.sum().clamp(min=1)
    is_anchor = torch.zeros(len(embeddings), dtype=torch.int64, device=triplets.device).index_fill_(0, anchors, 1)
    return RowMean(loss, is_anchor)


def _negative_log_likelihood(margins: Tensor, flip_rate: Tensor | float) -> Tensor:
    """-log(e + (1 - 2 e) sigmoid(x)) of margins x (T,), which keeps its digits where the sigmoid underflows."""
    if not isinstance(flip_rate, Tensor) and flip_rate == 0:
        return functional.softplus(-margins)
    # e + (1 - 2e) / (1 + exp(-x)) = (1 - e + e exp(-x)) / (1 + exp(-x))
    rate = torch.as_tensor(flip_rate, dtype=margins.dtype, device=margins.device)
    return functional.softplus(-margins) - torch.logaddexp((-rate).log1p(), rate.log() - margins)


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
        >>> value = loss(torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[0, 1, 2, 1]]))
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

    def describe_learned(self) -> str:
        """Say how many judgements are wrong, by what was learned."""
        return (
            f"The loss has learned a flip_rate of {self.flip_rate.item():.3f}, the share of judgements that are wrong "
            f"whatever the ratio of distances, and a scale of {self.scale.item():.2f}."
        )

    def target(self, batch: LabelSource) -> Tensor:
        """The triplets of a batch, or of a training set.

        Args:
            batch: The labels.

        Returns:
            (T, 4) int64: rows of anchor, nearer and farther item, and the count.

        Raises:
            UserError: the labels are no triplets.
        """
        return torch.from_numpy(batch.triplets())

    def prepare(
        self, target: Tensor, *, dimension: int, names: Sequence[str] = (), generator: torch.Generator | None = None
    ) -> None:
        """Check that there are triplets; nothing has to be found.

        Args:
            target: (T, 4) triplets of the training items.
            dimension: Not used.
            names: Not used.
            generator: Not used.

        Raises:
            UserError: there is no triplet.
        """
        if not len(target):
            raise UserError("The loss 'logistic-triplet' needs triplets of three training items. Got none instead.")

    def forward(self, embeddings: Tensor, triplets: Tensor) -> Tensor:
        """The loss of a batch; 0 with a warning if it has no triplet.

        Args:
            embeddings: (B, D) floating point. Computed with in at least float32, also under autocast.
            triplets: (T, 4) or (T, 3) whole numbers; see ``logistic_triplet_loss``.

        Returns:
            A scalar.

        Raises:
            UserError: a tensor has another shape or type, or a row is not that of an embedding.
        """
        mean = _triplet_mean(embeddings, triplets, self.scale, self.flip_rate, self.normalize, self.eps)
        self.count_skipped(mean.counts)
        return warn_without_terms(mean, self.missing)


def _check_triplets(embeddings: Tensor, triplets: Tensor) -> None:
    check_no_vmap("embeddings", embeddings)
    check_matrix("embeddings", embeddings)
    if triplets.ndim != 2 or triplets.shape[1] not in (3, 4) or triplets.is_floating_point():
        got = f"Got shape {tuple(triplets.shape)}, {triplets.dtype} instead."
        raise UserError(f"The 'triplets' must be whole numbers (T, 3), anchor, nearer and farther, or (T, 4). {got}")
    rows = triplets[:, :3]
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(embeddings):
        got = f"Got {int(rows.min())} to {int(rows.max())} instead."
        raise UserError(f"The 'triplets' must name rows of the {len(embeddings)} embeddings. {got}")
