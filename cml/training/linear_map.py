"""Embeddings of features that are made of linear maps: one, or several that are joined."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cml.array_types import Float32
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
