"""How many labels are wrong: an estimate that can be 0, with an interval.

Each label, as a vector, is predicted without itself, by a regression or by the labels of neighbours. Its residual is
measured by the upper quartile of those of similar items. Correct labels are taken to have residuals whose tail is that
of Student's t with 2.5 degrees of freedom, raised to the power that fits their median and upper quartile, which few
wrong labels hardly move. Residuals beyond what that tail explains are errors.

No residual tells what kind of error it comes from, and kinds differ in how many of their errors stay within the spread.
So five kinds are planted in all labels: exchanged, noisy, constant, halved and mirrored ones. The lower end of the
interval supposes that every error was seen. The upper end is the largest number that the residuals allow for one of
the kinds (Blanchard, Lee and Scott, JMLR 11, 2010), and the estimate takes their mean.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from cml.array_types import Float64, Int64

KINDS = ("exchanged", "noise", "constant", "halved", "mirrored")
# shares of correct labels beyond a cut, from those of few errors in many labels to those of many
_BEYOND = np.array([0.03, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0003])
_FREEDOM = 2.5  # degrees: a tail that is heavier than those of most labels, so that it explains rather too much
_LEAST_POWER = 0.5  # of residuals that are all alike, such as those of few values
_UNSURE = 1.0  # over the root of N: how far the power may be off, which is added
_LEAST_RESIDUAL = 0.05  # of the spread of the labels: closer to its prediction, no label is taken for better
_LEAST_SCALE = 1.0  # times the median residual, for items whose neighbours are predicted well by chance
_QUANTILE = 0.75  # of the residuals of similar items
_LEAST_SEEN = 0.1  # of the errors: a smaller share says too little of the others
_TAIL = 0.005  # beyond each end of the interval, at each of the tails that it is the closest of
_AVERAGED = 10  # neighbours that predict a label
_ROWS = 4096


class WrongLabels(NamedTuple):
    """How many labels are wrong."""

    estimate: float  # 0 where the spread of correct labels explains all residuals
    low: float  # a whole number
    high: float


def average_neighbors(
    targets: Float64,  # (N, V) labels as vectors
    neighbors: Int64,  # (N, K) the nearest others, the nearest first
) -> Float64:  # (N, V)
    """Predict labels by the mean of those of the nearest others."""
    parts = np.array_split(neighbors[:, :_AVERAGED], max(1, len(neighbors) // _ROWS))
    return np.concatenate([targets[part].mean(axis=1) for part in parts])


def count_wrong(
    targets: Float64,  # (N, V) labels as vectors
    predictions: Mapping[str, Float64],  # (N, V) of each label by other items, from several predictors
    similar: Int64,  # (N, K) similar items of each
    *,
    seed: int = 0,
) -> WrongLabels:
    """Estimate how many labels are farther from their predictions than those of similar items explain."""
    spread = float(np.sqrt(np.square(targets - targets.mean(axis=0)).sum(axis=1).mean()))
    residuals = {name: _residual(targets, predicted, spread) for name, predicted in predictions.items()}
    best = min(residuals, key=lambda name: float(np.median(residuals[name])))
    predicted, residual = predictions[best], residuals[best]
    least = _LEAST_SCALE * float(np.median(residual))
    scales = np.maximum(np.quantile(residual[similar], _QUANTILE, axis=1), least)
    scaled = residual / scales
    rng = np.random.default_rng([seed, 2])
    planted = [_residual(_plant(kind, targets, rng), predicted, spread) / scales for kind in KINDS]
    return _compare(scaled, planted)


def _residual(targets: Float64, predicted: Float64, spread: float) -> Float64:
    residual: Float64 = np.maximum(np.linalg.norm(targets - predicted, axis=1), _LEAST_RESIDUAL * spread)
    return residual


def _plant(kind: str, targets: Float64, rng: np.random.Generator) -> Float64:
    """Make every label wrong in one way."""
    match kind:
        case "exchanged":
            return targets[rng.permutation(len(targets))]
        case "noise":
            noisy: Float64 = targets + rng.normal(size=targets.shape) * targets.std(axis=0)
            return noisy
        case "constant":
            return np.broadcast_to(np.median(targets, axis=0), targets.shape)
        case "halved":
            return targets / 2
        case _:
            mirrored: Float64 = 2 * targets.mean(axis=0) - targets
            return mirrored


def _cuts(scaled: Float64) -> Float64:
    """The residuals beyond which each share of correct labels is expected to lie."""
    from scipy.special import stdtrit

    median, quartile = np.quantile(scaled, [0.5, 0.75])
    center, upper = -stdtrit(_FREEDOM, [0.25, 0.125])
    fitted = max(_LEAST_POWER, float(np.log(quartile / median) / np.log(upper / center)))
    power = fitted + _UNSURE / np.sqrt(len(scaled))
    cuts: Float64 = median * (-stdtrit(_FREEDOM, _BEYOND / 2) / center) ** power
    return cuts


def _compare(
    scaled: Float64,  # (N,) residuals of the labels as they are
    planted: list[Float64],  # (N,) of the labels if all were wrong, by each kind of error
) -> WrongLabels:
    """Count the residuals that no correct label explains."""
    from scipy.special import gammaincinv

    count, cuts = len(scaled), _cuts(scaled)
    beyond = _count_beyond(scaled, cuts)
    excess = beyond - count * _BEYOND
    fewest = np.where(beyond > 0, gammaincinv(np.maximum(beyond, 1), _TAIL), 0) - count * _BEYOND
    low = float(np.ceil(max(0.0, float(fewest.max()))))  # labels are whole ones

    # the most errors of each kind that no tail of the residuals contradicts
    tails = np.concatenate([cuts, np.sort(scaled)[:: max(1, count // 100)]])
    most = gammaincinv(_count_beyond(scaled, tails) + 1, 1 - _TAIL)
    high = low
    for errors in planted:
        shares = _count_beyond(errors, tails) / count
        high = max(high, float(np.min(most[shares > 0] / shares[shares > 0], initial=count)))

    plainest = int(excess.argmax())
    seen = float(np.mean([(errors >= cuts[plainest]).mean() for errors in planted]))
    estimate = max(0.0, float(excess[plainest])) / max(seen, _LEAST_SEEN)
    return WrongLabels(min(max(estimate, low), high), low, high)


def _count_beyond(values: Float64, cuts: Float64) -> Int64:
    """How many values are at least each cut."""
    below = np.searchsorted(np.sort(values), cuts, side="left")
    return (len(values) - below).astype(np.int64)
