"""Maps: items as points of the plane, from their embeddings or from their label distances to some landmarks."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float32, Int64
from cml.console.progress_bar import ProgressBar
from cml.errors import UserError, install_hint

_FEATURES = 50  # dimensions that t-SNE and UMAP are given


def landmark_mds(
    to_landmarks: Float32,  # (N, m) distances of every item to the landmarks; infinite ones count as the median
    landmarks: Int64,  # (m,) items
    dimensions: int,
) -> Float32:
    """Place items by their distances to landmarks: classical scaling of the landmarks, then the others by it.

    Returns points (N, dimensions) whose distances are near the given ones, widest dimension first, 0 in dimensions that
    the distances do not need. Memory is O(N m).

    Reference: de Silva and Tenenbaum, Sparse multidimensional scaling using landmark points, 2004.
    """
    from scipy.linalg import eigh

    known = np.isfinite(to_landmarks)
    middle = np.median(to_landmarks[known]) if known.any() else 0.0
    squared = np.square(np.where(known, to_landmarks, middle), dtype=np.float64)  # (N, m)
    among = squared[landmarks]  # (m, m)
    among = (among + among.T) / 2
    mean = among.mean(axis=0)  # (m,)
    centred = -0.5 * (among - mean - mean[:, None] + mean.mean())
    m = len(landmarks)
    values, vectors = eigh(centred, subset_by_index=(max(0, m - dimensions), m - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    filled = values > 1e-9 * max(values[0], 1e-300)
    roots = np.where(filled, np.sqrt(np.where(filled, values, 1.0)), np.inf)
    points = np.zeros((len(squared), dimensions), np.float32)
    points[:, : len(values)] = (-0.5 * (squared - mean)) @ (vectors / roots)
    return points


def principal(points: NDArray[Any], dimensions: int) -> Float32:
    """The first principal components (N, dimensions) of points (N, D); 0 beyond D."""
    centred = points - points.mean(axis=0, dtype=np.float64)
    _, vectors = np.linalg.eigh(centred.T @ centred)  # (D, D), the widest last
    components = np.zeros((len(points), dimensions), np.float32)
    components[:, : points.shape[1]] = centred @ vectors[:, ::-1][:, :dimensions]
    return components


def tsne(points: NDArray[Any], seed: int) -> Float32:
    """t-SNE map (N, 2) of points (N, D) by openTSNE, with a progress bar and a random seed."""
    from openTSNE import TSNE

    with ProgressBar(total=750, desc="t-SNE", unit="step") as bar:
        embedding = TSNE(
            perplexity=min(30.0, max(1.0, (len(points) - 1) / 3)),
            random_state=seed,
            callbacks=lambda *_: bar.update(50) and None,
            callbacks_every_iters=50,
        ).fit(_reduce_dimensions(points))
    return np.asarray(embedding, np.float32)


def umap(points: NDArray[Any], seed: int) -> Float32:
    """UMAP map (N, 2) of points (N, D) by umap-learn, with a random seed."""
    import warnings

    import torch

    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on threads and on graphs in parts, which the user cannot change
        from umap import UMAP

        mapper = UMAP(n_neighbors=min(15, len(points) - 1), random_state=seed, init="pca")
        try:
            embedding = mapper.fit_transform(_reduce_dimensions(points))
        finally:  # umap-learn sets all cores, for torch too, which then computes other digits
            torch.set_num_threads(threads)
    return np.asarray(embedding, np.float32)


@dataclass(frozen=True)
class MapKind:
    """A way to draw a map."""

    title: str  # title in the page's list of maps
    package: str  # module that it needs; "" for none
    draw: Callable[[NDArray[Any], int], Float32]  # points (N, D) and a random seed to the map (N, 2)


MAPS: Mapping[str, MapKind] = {
    "pca": MapKind("PCA", "", lambda points, seed: principal(points, 2)),
    "tsne": MapKind("t-SNE", "openTSNE", tsne),
    "umap": MapKind("UMAP", "umap", umap),
}


def check_maps(
    names: tuple[str, ...],  # names of ``MAPS``; none for ``pca`` and, if its package is installed, ``tsne``
) -> tuple[str, ...]:  # the names, each once
    """Check names of maps."""
    for name in names:
        if name not in MAPS:
            raise UserError(f"Unknown map {name!r}. Known: {', '.join(MAPS)}.")
        if not _is_available(name):
            raise UserError(f"The map {name!r} needs a package that is not installed: {install_hint('explore')}.")
    return tuple(dict.fromkeys(names)) or tuple(name for name in ("pca", "tsne") if _is_available(name))


def align_map(points: NDArray[Any], target: NDArray[Any]) -> Float32:
    """Rotate, mirror, centre and scale a map (N, 2), so that it is as near to another (N, 2) as possible."""
    source, reference = (each - each.mean(axis=0, dtype=np.float64) for each in (points, target))
    u, singular_values, vt = np.linalg.svd(source.T @ reference)  # of the orthogonal Procrustes problem
    size = np.square(source).sum()
    if size > 0 and singular_values.sum() > 0:
        source = np.sqrt(np.square(reference).sum() / size) * source @ (u @ vt)
    return np.asarray(source, np.float32)


def _is_available(name: str) -> bool:
    package = MAPS[name].package
    return not package or importlib.util.find_spec(package) is not None


def _reduce_dimensions(points: NDArray[Any]) -> Float32:
    """The first principal components, as many as t-SNE and UMAP are given: at least the two that they start from."""
    return principal(points, min(_FEATURES, max(2, points.shape[1])))
