"""Whether features tell anything about labels: a regression of the labels against those of shuffled labels."""

from dataclasses import dataclass

import numpy as np

from cml.array_types import Float64, Floating
from cml.data.vectors import ComputedRows
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.retrieval.label_regression import draw_targets

ITEMS = 300  # at most
_FOLDS = 5
_SHUFFLES = 299
_CHANCE = 0.01
_STRENGTHS = (0.03, 0.3, 3.0)  # of the ridge, relative to the variance of all features together


@dataclass(frozen=True)
class LabelSignal:
    """What features tell about labels."""

    # share of the variance of held-out labels that a ridge regression explains; below 0 if it is worse than the mean
    # label
    explained: float
    # share of 300 labellings, the true one among them, that are predicted at least as well as the true one. Labels that
    # have nothing to do with the features give each value from 1/300 to 1 equally often
    share: float

    @property
    def is_clear(self) -> bool:
        """Whether chance would give such a signal in at most 1 of 100 cases."""
        return self.share <= _CHANCE


@dataclass(frozen=True)
class LabelSignals:
    """What training items tell about their labels."""

    features: LabelSignal  # the features of the frozen network, or the vectors
    # images of 8 x 8 pixels; None of vectors, and where a feature store takes the place of images
    pixels: LabelSignal | None


def find_label_signal(
    features: Floating | ComputedRows,  # (N, F), of which 300 items at most are looked at
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    *,
    seed: int = 0,
) -> LabelSignal:
    """Test whether features tell anything about labels.

    A ridge regression of the labels, or of their classical MDS, predicts each fifth of the items from the others. Its
    error is compared with the errors for shuffled labels, a permutation test: the best of three strengths counts for
    both.
    """
    rng = np.random.default_rng(seed)
    rows, targets = draw_targets(labels, distance, most=ITEMS, most_scaled=ITEMS, seed=seed)
    orders = np.stack([np.arange(len(rows)), *(rng.permutation(len(rows)) for _ in range(_SHUFFLES))])
    shuffled = np.moveaxis((targets - targets.mean(axis=0))[orders], 0, 1)  # (N, P, V)
    flat = shuffled.reshape(len(rows), -1)
    some = np.asarray(features[rows], np.float64)
    some = (some - some.mean(axis=0)) / np.maximum(some.std(axis=0), 1e-9)
    products = some @ some.T / some.shape[1]
    folds = np.array_split(rng.permutation(len(rows)), _FOLDS)
    errors: Float64 = np.full(len(orders), np.inf)
    for strength in _STRENGTHS:
        total = np.zeros(len(orders))
        for held_out in folds:
            trained = np.setdiff1d(np.arange(len(rows)), held_out)
            ridge = products[np.ix_(trained, trained)] + strength * np.eye(len(trained))
            predicted = products[np.ix_(held_out, trained)] @ np.linalg.solve(ridge, flat[trained])
            missed = (flat[held_out] - predicted).reshape(len(held_out), *shuffled.shape[1:])
            total += np.square(missed).sum(axis=(0, 2))
        errors = np.minimum(errors, total)
    share = float((errors <= errors[0] * (1 + 1e-12)).mean())
    return LabelSignal(float(1 - errors[0] / np.square(shuffled[:, 0]).sum()), share)
