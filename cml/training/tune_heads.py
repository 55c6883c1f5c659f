"""The heads that tuning trains: three starts and some losses and rates, all at once on the same batches."""

import itertools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from cml import losses
from cml.array_types import Float32, Float64, Int64
from cml.distances.known_pairs import KnownPairs
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.training.head_losses import HeadLosses
from cml.training.linear_map import LinearMap
from cml.training.training_targets import TrainingTargets

STARTS = ("pca", "standardised", "uncentred")
LOSSES = ("log-ratio", "h-ap")
RATES = (3e-3,)
STOPS = (50, 100, 200, 300)  # steps after which a head may be stopped
HEAD_DIMENSION = 64
_BATCH, _DECAY = 64, 1e-4
_PAIRS = 256  # of a batch, where few pairs are known
_COMPONENTS = 256
FITTED = 5000  # items that a rotation is fitted to
_FIRST_LENGTH = 0.3  # of an embedding at the identity start, a root mean square per dimension


class Rotation(NamedTuple):
    """The principal components of features, scaled or as they are.

    Attributes:
        mean: (F,).
        scale: (F,), what the centred features are divided by.
        axes: (F, K), orthonormal, the largest component first.
        spread: (K,) standard deviations along the axes.
    """

    mean: Float64
    scale: Float64
    axes: Float64
    spread: Float64

    def rotate(self, features: Float32) -> Float32:
        """Coordinates (N, K) of features (N, F)."""
        weight = (self.axes / self.scale[:, None]).astype(np.float32)
        return features @ weight - (self.mean @ (self.axes / self.scale[:, None])).astype(np.float32)

    def compose(self, weight: Float64, bias: Float64, *, normalize: bool) -> LinearMap:
        """Compose the rotation with a linear map of the coordinates.

        Args:
            weight: (D, K).
            bias: (D,).
            normalize: Whether embeddings are L2-normalised.

        Returns:
            The linear map of the features.
        """
        whole = (weight @ self.axes.T) / self.scale
        return LinearMap(whole.astype(np.float32), (bias - whole @ self.mean).astype(np.float32), normalize)


def fit_rotation(features: Float32, *, standardize: bool, components: int = _COMPONENTS) -> Rotation:
    """Find the principal components of features.

    Args:
        features: (N, F).
        standardize: Whether each feature is divided by its standard deviation first.
        components: K at most; fewer where features or items are fewer.

    Returns:
        The rotation. Components without spread are left out, but for one.
    """
    from scipy.linalg import eigh

    rows = features
    if len(rows) > FITTED:
        rows = rows[np.random.default_rng(0).choice(len(rows), FITTED, replace=False)]
    mean, std = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    scale = replace_zero_deviations(std) if standardize else np.ones_like(std)
    centred = ((rows - mean) / scale).astype(np.float32)
    tall = len(rows) >= centred.shape[1]
    gram = (centred.T @ centred if tall else centred @ centred.T).astype(np.float64)
    kept = min(components, len(gram))
    values, vectors = eigh(gram, subset_by_index=(len(gram) - kept, len(gram) - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    used = max(1, int((values > 1e-6 * values[0]).sum()))
    lengths = np.sqrt(np.maximum(values[:used], np.finfo(np.float64).tiny))
    axes = vectors[:, :used] if tall else centred.T.astype(np.float64) @ vectors[:, :used] / lengths
    return Rotation(mean, scale, axes, lengths / np.sqrt(len(rows)))


def replace_zero_deviations(deviations: Float64) -> Float64:
    """Replace the standard deviations of constant features, by which nothing can be divided.

    Args:
        deviations: (F,) standard deviations of features.

    Returns:
        (F,), where those below a millionth of the largest are the largest, so that noise of rounding stays small.
    """
    return np.where(deviations > 1e-6 * deviations.max(), deviations, deviations.max())


class TrainedHead(NamedTuple):
    """What a head was made of: start, loss and learning rate, and the step at which it was stopped."""

    start: str
    loss: str
    rate: float
    step: int

    def __str__(self) -> str:
        features = {"pca": "PCA"}.get(self.start, self.start)
        rate = "" if self.rate == RATES[0] else f", rate {self.rate:g}"
        return f"{self.loss} from {features} features{rate}, {self.step} steps"


def _fit_rotations(features: Float32) -> dict[str, Rotation]:
    """The rotation of each start, by its name.

    A head that is L2-normalised compares angles: about the mean of the features where they are centred, and about their
    origin where they are not. Seen from a distant origin, angles are like differences, so that it also tells how far an
    item is from the mean. Features of drawn people need that: log-ratio scores .06 with centring and .22 without.
    """
    pca = fit_rotation(features, standardize=False)
    return {
        "pca": pca,
        "standardised": fit_rotation(features, standardize=True),
        "uncentred": pca._replace(mean=np.zeros_like(pca.mean)),
    }


def check_tuned_losses(loss_names: Sequence[str]) -> None:
    """Refuse losses that tuning cannot train heads by.

    Args:
        loss_names: Losses in command-line syntax, such as ``cosent(scale=2.0)``.

    Raises:
        UserError: A loss is unknown, or takes no label distances.
    """
    for name in loss_names:
        loss = losses.registry.make(name)
        if loss.labels != "label distances":
            raise UserError(f"'tune_losses' takes losses of label distances. Got {name!r}, which takes {loss.labels}.")


def train_tuned_heads(
    features: Float32,
    labels: Labels,
    distance: LabelDistance,
    *,
    loss_names: Sequence[str] = LOSSES,
    rates: Sequence[float] = RATES,
    seed: int = 0,
) -> dict[TrainedHead, LinearMap]:
    """Train a head from each start with each loss and rate, and take it at several steps.

    Args:
        features: (N, F).
        labels: N encoded labels.
        distance: The label distance that encoded them.
        loss_names: Losses over label distances, in command-line syntax.
        rates: Learning rates.
        seed: Random seed.

    Returns:
        The heads as they are after each of ``STOPS``. Those of a loss that cannot be made of the labels, or that fails,
        are left out.
    """
    generator = np.random.default_rng(seed)
    by_start = _fit_rotations(features)
    rotations = [by_start[start] for start in STARTS]
    targets = TrainingTargets(distance, labels, seed=seed)
    known = distance.known_pairs(labels) if distance.is_partial else None
    fitted = [_fit_loss(name, targets) for name in loss_names]
    # the order of heads: rates, starts, losses
    kinds = list(itertools.product(rates, range(len(STARTS)), range(len(fitted))))
    head_losses = HeadLosses([fitted[loss] for _, _, loss in kinds])
    rows = [torch.from_numpy(rotation.rotate(features)) for rotation in rotations]  # (N, K) each
    widths = [block.shape[1] for block in rows]
    inputs = torch.stack([functional.pad(block, (0, max(widths) - block.shape[1])) for block in rows])  # (S, N, K)
    dimension = min(HEAD_DIMENSION, *widths)
    first = [
        first_weight(start, rotation, dimension, max(widths), generator)
        for start, rotation in zip(STARTS, rotations, strict=True)
    ]
    start_of_head = torch.tensor([start for _, start, _ in kinds])
    share = len(STARTS) * len(fitted)  # heads of a rate
    weights = [torch.stack([first[start] for _, start, _ in kinds[:share]]) for _ in rates]  # (H / R, K, D) each
    optimizer = torch.optim.AdamW([{"params": [weight]} for weight in weights], weight_decay=_DECAY)
    heads: dict[TrainedHead, LinearMap] = {}
    for step in range(max(STOPS)):
        batch = _draw_batch(len(features), known, generator)
        some = labels[batch]
        block = torch.from_numpy(np.ascontiguousarray(distance.pairwise(some, some), np.float32))
        taken = inputs[:, torch.from_numpy(batch)][start_of_head]  # (H, B, K)
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of anchors without a term
            slopes = head_losses.slopes(torch.bmm(taken, torch.cat(weights)), block, None)
        gradients = torch.split(torch.bmm(taken.transpose(1, 2), slopes), share)
        for weight, gradient, group, rate in zip(weights, gradients, optimizer.param_groups, rates, strict=True):
            weight.grad = gradient
            group["lr"] = rate * 0.5 * (1 + np.cos(np.pi * step / max(STOPS)))
        optimizer.step()
        if step + 1 in STOPS:
            trained = torch.cat(weights)
            for head, (rate, start, loss) in enumerate(kinds):
                made_by = fitted[loss]
                if head_losses.failed[head] or isinstance(made_by, str):
                    continue
                name = TrainedHead(STARTS[start], loss_names[loss], rate, step + 1)
                head_weight = trained[head, : widths[start]].T.double().numpy()
                heads[name] = rotations[start].compose(head_weight, np.zeros(dimension), normalize=made_by.normalize)
    return heads


def _draw_batch(items: int, known: KnownPairs | None, generator: np.random.Generator) -> Int64:
    """The items of a batch: some of all, or those of some known pairs where few pairs are known."""
    if known is None or not len(known.first):
        return generator.choice(items, min(_BATCH, items), replace=False)
    drawn = generator.choice(len(known.first), min(_PAIRS, len(known.first)), replace=False)
    return np.unique(np.concatenate([known.first[drawn], known.second[drawn]]))


def _fit_loss(name: str, targets: TrainingTargets) -> Loss | str:
    """A loss with its constants, or why these labels do not suit it."""
    loss = losses.registry.make(name)
    try:
        loss.prepare(loss.target(targets), dimension=HEAD_DIMENSION)
    except UserError as error:
        return str(error)
    return loss


def first_weight(
    start: str, rotation: Rotation, dimension: int, width: int, generator: np.random.Generator
) -> torch.Tensor:
    """Make the weight that a head starts from.

    Args:
        start: ``pca`` or ``uncentred``, the first components as they are; ``standardised``, normal random numbers.
        rotation: The rotation to coordinates of the features.
        dimension: D.
        width: K, at least the number of coordinates.
        generator: Draws random weights.

    Returns:
        (K, D), 0 for coordinates that the rotation does not have. If there are fewer coordinates than D, the last
        dimensions of ``pca`` and ``uncentred`` are 0, and stay so.
    """
    used = rotation.axes.shape[1]
    weight = np.zeros((width, dimension))
    if start != "standardised":  # the first components as they are, in a common unit
        kept = min(dimension, used)
        weight[np.arange(kept), np.arange(kept)] = 1
        spread = np.sqrt(np.square(rotation.spread[:kept]).sum())
        weight *= _FIRST_LENGTH * np.sqrt(kept) / max(spread, np.finfo(np.float64).tiny)
    else:
        weight[:used] = generator.normal(0, np.sqrt(2 / dimension), (used, dimension))
    return torch.from_numpy(weight.astype(np.float32))
