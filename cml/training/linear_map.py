"""Features of linear maps: their principal components, the weight that a head on them starts from, and joined heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from cml.array_types import Float32, Float64
from cml.retrieval.feature_forms import normalize_rows

_FITTED = 5000  # items that an average is fitted to


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A linear map of features, L2-normalised or not."""

    weight: Float32  # (D, F)
    bias: Float32  # (D,)
    normalize: bool = False  # whether its embeddings are L2-normalised

    @property
    def dimension(self) -> int:
        """D, the number of dimensions of its embeddings."""
        return len(self.weight)

    def embed(
        self,
        features: Float32,  # (N, F)
    ) -> Float32:  # (N, D), L2-normalised if the map says so; a row of zeros stays as it is
        """Embed features."""
        rows: Float32 = features @ self.weight.T + self.bias
        return normalize_rows(rows) if self.normalize else rows


@dataclass(frozen=True, eq=False)
class JoinedMaps:
    """A linear map of several embeddings side by side."""

    parts: Sequence[LinearMap]  # the embeddings, of E dimensions together
    weight: Float32  # (D, E)
    bias: Float32  # (D,)

    @property
    def dimension(self) -> int:
        """D, the number of dimensions of its embeddings."""
        return len(self.weight)

    def embed(self, features: Float32) -> Float32:
        """Embed features (N, F) as (N, D)."""
        joined = np.concatenate([part.embed(features) for part in self.parts], axis=1)
        embeddings: Float32 = joined @ self.weight.T + self.bias
        return embeddings


def average_maps(
    maps: Sequence[LinearMap],
    features: Float32,  # (N, F) training features, of which 5,000 at most decide on unit and components
    dimension: int,  # D at most; fewer where the embeddings have fewer together
) -> JoinedMaps:
    """Average embeddings: their squared distances, of which each has the same mean, are added.

    The embeddings lie side by side, in a common unit, and are reduced to their principal components.
    """
    from scipy.linalg import eigh

    if len(features) > _FITTED:
        features = features[np.random.default_rng(0).choice(len(features), _FITTED, replace=False)]
    embedded = [part.embed(features).astype(np.float64) for part in maps]
    spreads = [rows.var(axis=0).sum() for rows in embedded]  # half of the mean squared distance
    scales = np.concatenate(
        [np.full(part.dimension, 1 / np.sqrt(spread or 1.0)) for part, spread in zip(maps, spreads, strict=True)]
    )
    joined = np.concatenate(embedded, axis=1) * scales
    mean = joined.mean(axis=0)
    size, dimension = joined.shape[1], min(dimension, joined.shape[1])
    _, axes = eigh((joined - mean).T @ (joined - mean), subset_by_index=(size - dimension, size - 1))
    kept = axes[:, ::-1].T  # (D, E)
    return JoinedMaps(tuple(maps), (kept * scales).astype(np.float32), (-kept @ mean).astype(np.float32))


_COMPONENTS = 256
FITTED = 5000  # items that a rotation is fitted to
_FIRST_LENGTH = 0.3  # of an embedding at the identity start, a root mean square per dimension


class Rotation(NamedTuple):
    """The principal components of features, scaled or as they are."""

    mean: Float64  # (F,)
    scale: Float64  # (F,), what the centred features are divided by
    axes: Float64  # (F, K), orthonormal, the largest component first
    spread: Float64  # (K,) standard deviations along the axes

    def rotate(self, features: Float32) -> Float32:
        """Coordinates (N, K) of features (N, F)."""
        weight = (self.axes / self.scale[:, None]).astype(np.float32)
        return features @ weight - (self.mean @ (self.axes / self.scale[:, None])).astype(np.float32)

    def compose(
        self,
        weight: Float64,  # (D, K)
        bias: Float64,  # (D,)
        *,
        normalize: bool,
    ) -> LinearMap:
        """Compose the rotation with a linear map of the coordinates."""
        whole = (weight @ self.axes.T) / self.scale
        return LinearMap(whole.astype(np.float32), (bias - whole @ self.mean).astype(np.float32), normalize)


def fit_rotation(
    features: Float32,  # (N, F)
    *,
    standardize: bool,
    components: int = _COMPONENTS,  # K at most; fewer where features or items are fewer
) -> Rotation:
    """Find the principal components of features."""
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


def replace_zero_deviations(
    deviations: Float64,  # (F,) standard deviations of features
) -> Float64:  # (F,), where those below a millionth of the largest are the largest
    """Replace the standard deviations of constant features, by which nothing can be divided."""
    return np.where(deviations > 1e-6 * deviations.max(), deviations, deviations.max())


def first_weight(
    start: str,
    rotation: Rotation,
    dimension: int,  # D
    width: int,  # K, at least the number of coordinates
    generator: np.random.Generator,
) -> torch.Tensor:  # (K, D), 0 for coordinates that the rotation does not have
    """Make the weight that a head starts from."""
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
