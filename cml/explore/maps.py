"""Maps: items as points of the plane, from their embeddings or from their label distances to some landmarks."""

import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.console.progress_bar import ProgressBar
from cml.errors import UserError, install_hint

Float32 = NDArray[np.float32]

_FEATURES = 50  # dimensions that t-SNE and UMAP are given


def landmark_mds(to_landmarks: Float32, landmarks: NDArray[np.int64], dimensions: int) -> Float32:
    """Points whose distances are near the given ones: classical scaling of the landmarks, the others placed by it.

    ``to_landmarks`` are the distances (N, m) of every item to the landmarks (m,); infinite ones count as the middle
    one. The points (N, dimensions) have the widest first, and 0 in those that are not filled. Memory is O(N m). De
    Silva and Tenenbaum, Sparse multidimensional scaling using landmark points, 2004.
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
    """t-SNE of points (N, D) by openTSNE, with a progress bar: (N, 2)."""
    from openTSNE import TSNE

    with ProgressBar(total=750, desc="t-SNE", unit="step") as bar:
        fitted = TSNE(
            perplexity=min(30.0, max(1.0, (len(points) - 1) / 3)),
            random_state=seed,
            callbacks=lambda *_: bar.update(50) and None,
            callbacks_every_iters=50,
        ).fit(_few(points))
    return np.asarray(fitted, np.float32)


def umap(points: NDArray[Any], seed: int) -> Float32:
    """UMAP of points (N, D) by umap-learn: (N, 2)."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on threads and on graphs in parts, of which the user need not know
        from umap import UMAP

        made = UMAP(n_neighbors=min(15, len(points) - 1), random_state=seed, init="pca").fit_transform(_few(points))
    return np.asarray(made, np.float32)


MAPS: Mapping[str, tuple[str, str, Callable[[NDArray[Any], int], Float32]]] = {
    "pca": ("PCA", "", lambda points, seed: principal(points, 2)),
    "tsne": ("t-SNE", "openTSNE", tsne),
    "umap": ("UMAP", "umap", umap),
}  # name of a map to its title, the module that it needs and what makes it


def known_maps(names: tuple[str, ...]) -> tuple[str, ...]:
    """The maps of these names, or those of ``pca`` and ``tsne`` that can be made here where there are none."""
    for name in names:
        if name not in MAPS:
            raise UserError(f"Unknown map {name!r}. Known: {', '.join(MAPS)}.")
        if not _installed(name):
            raise UserError(f"The map {name!r} needs a package that is not installed: {install_hint('explore')}.")
    return tuple(dict.fromkeys(names)) or tuple(name for name in ("pca", "tsne") if _installed(name))


def turned_to(points: NDArray[Any], target: NDArray[Any]) -> Float32:
    """A map (N, 2) turned, mirrored, centred and scaled to another's size, to lie as near as it can to it."""
    ours, theirs = (each - each.mean(axis=0, dtype=np.float64) for each in (points, target))
    u, s, vt = np.linalg.svd(ours.T @ theirs)  # of the orthogonal Procrustes problem
    size = np.square(ours).sum()
    if size > 0 and s.sum() > 0:
        ours = np.sqrt(np.square(theirs).sum() / size) * ours @ (u @ vt)
    return np.asarray(ours, np.float32)


def _installed(name: str) -> bool:
    module = MAPS[name][1]
    return not module or importlib.util.find_spec(module) is not None


def _few(points: NDArray[Any]) -> Float32:
    return principal(points, min(_FEATURES, points.shape[1]))
