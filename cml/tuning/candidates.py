"""The embeddings of features that tuning chooses among."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Float32
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.retrieval.feature_forms import name_forms
from cml.retrieval.label_regression import draw_targets, fit_ridge_weights
from cml.training.linear_map import LinearMap, fit_rotation, replace_zero_deviations
from cml.tuning.heads import LOSSES, RATES, train_tuned_heads

FROZEN = name_forms("frozen features")
PCA, RIDGE = "PCA", "ridge"
_SCALED = 1000  # items whose label distances to each other are scaled
_REGRESSED = 5000  # items that a regression is fitted to


def frozen_maps(
    features: Float32,  # (N, F), whose standard deviations standardise
) -> dict[str, LinearMap]:
    """The features themselves: as they are, L2-normalised, and standardised."""
    size = features.shape[1]
    same, zeros = np.eye(size, dtype=np.float32), np.zeros(size, np.float32)
    mean, std = features.mean(axis=0, dtype=np.float64), features.std(axis=0, dtype=np.float64)
    scale = replace_zero_deviations(std)
    scaled = LinearMap(np.diag(1 / scale).astype(np.float32), (-mean / scale).astype(np.float32))
    return dict(zip(FROZEN, [LinearMap(same, zeros), LinearMap(same, zeros, normalize=True), scaled], strict=True))


def fit_candidates(
    features: Float32,  # (N, F)
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    dimension: int,
    *,
    losses: Sequence[str] = LOSSES,
    rates: Sequence[float] = RATES,
    seed: int = 0,
) -> dict[str, LinearMap]:  # the maps by name
    """Fit every embedding to some items, but for the features themselves."""
    heads = train_tuned_heads(features, labels, distance, loss_names=losses, rates=rates, seed=seed)
    rotation = fit_rotation(features, standardize=False, components=dimension)
    axes = rotation.axes.shape[1]
    maps = {PCA: rotation.compose(np.eye(axes), np.zeros(axes), normalize=False)}
    if not distance.is_partial:  # whose labels have neither vectors nor an MDS
        maps[RIDGE] = fit_label_ridge(features, labels, distance, seed=seed)
    return {**maps, **{str(name): head for name, head in heads.items()}}


def fit_label_ridge(
    features: Float32,  # (N, F)
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    *,
    seed: int = 0,
) -> LinearMap:
    """Regress the labels, or their classical MDS where they are no vectors, on the features."""
    rows, targets = draw_targets(labels, distance, most=_REGRESSED, most_scaled=_SCALED, seed=seed)
    weight, bias = fit_ridge_weights(features[rows].astype(np.float64), targets)
    return LinearMap(weight.astype(np.float32), bias.astype(np.float32))
