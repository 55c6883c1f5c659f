"""The heads that tuning trains: three starts and some losses and rates, all at once on the same batches."""

import itertools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.nn import functional

from cml import losses
from cml.array_types import Float32, Int64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import KnownPairs
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.training.head_losses import HeadLosses
from cml.training.linear_map import LinearMap, Rotation, first_weight, fit_rotation
from cml.training.training_targets import TrainingTargets

STARTS = ("pca", "standardised", "uncentred")
LOSSES = ("log-ratio", "h-ap")
RATES = (3e-3,)
STOPS = (50, 100, 200, 300)  # steps after which a head may be stopped
HEAD_DIMENSION = 64
_BATCH, _DECAY = 64, 1e-4
_PAIRS = 256  # of a batch, where few pairs are known


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
    """Refuse losses that tuning cannot train heads by."""
    for name in loss_names:
        loss = losses.registry.make(name)
        if loss.labels != "label distances":
            raise UserError(f"'tune_losses' takes losses of label distances. Got {name!r}, which takes {loss.labels}.")


def train_tuned_heads(
    features: Float32,  # (N, F)
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    *,
    loss_names: Sequence[str] = LOSSES,
    rates: Sequence[float] = RATES,
    seed: int = 0,
) -> dict[TrainedHead, LinearMap]:
    """Train a head from each start with each loss and rate, and take it at several steps."""
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
