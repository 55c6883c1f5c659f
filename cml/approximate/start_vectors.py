"""The vectors that an approximation starts from, in the form whose distances follow the label distances best."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cml.array_types import Float32, Int64
from cml.errors import UserError
from cml.retrieval.feature_forms import normalize_rows
from cml.training.linear_map import LinearMap
from cml.training.pair_map import PairMap


@dataclass(frozen=True, eq=False)
class StartVectors:
    """Vectors before anything is learned."""

    rows: Float32  # (N, F) vectors, rotated so that the directions of largest spread come first
    factor: Float32  # (F,) by which the user's vectors are multiplied, less ``shift``; 0 for constant columns
    shift: Float32  # (F,)
    turn: Float32  # (F, F) of the rotation that follows, after the L2 normalisation if there is one
    normalize: bool  # whether they are compared after L2 normalisation

    def embed(self, learned: PairMap | None = None) -> Float32:
        """Embed the items: (N, F), by a map of the first columns that was learned, or none."""
        return (learned or PairMap.identity()).apply(self.rows, normalize=self.normalize)

    def join(self, learned: PairMap) -> LinearMap:
        """Join a linear map of the first columns to the map from the user's vectors."""
        weight = self.turn.copy()
        weight[: len(learned.weight)] = learned.weight @ weight[: len(learned.weight)]
        weight *= self.factor
        return LinearMap(weight, -weight @ self.shift, self.normalize)


def choose_start(
    vectors: Float32,  # (N, F)
    pairs: Int64,  # (P, 2) items
    distances: Float32,  # (P,) their label distances; infinite ones are left out
) -> StartVectors:
    """Choose the form of vectors whose distances have the highest rank correlation with some label distances.

    The forms are: as they are, centred and L2-normalised, L2-normalised, and the first two with columns of unit spread.
    """
    from scipy.stats import spearmanr  # which takes a second to import

    mean, spread = vectors.mean(axis=0), vectors.std(axis=0)
    inverse = np.where(spread > 0, 1 / np.where(spread > 0, spread, 1), 0).astype(np.float32)
    same, nothing = np.ones_like(inverse), np.zeros_like(mean)
    forms = [(same, nothing, False), (same, mean, True), (same, nothing, True)]
    forms += [(inverse, mean, False), (inverse, mean, True)]
    known = np.isfinite(distances)
    first, second = pairs[known].T
    scores = []
    for factor, shift, normalize in forms:
        rows = (vectors - shift) * factor
        rows = normalize_rows(rows) if normalize else rows
        apart = np.square(rows[first] - rows[second]).sum(axis=1)
        is_flat = len(apart) < 2 or np.ptp(apart) == 0 or np.ptp(distances[known]) == 0
        scores.append(-1.0 if is_flat else float(spearmanr(apart, distances[known])[0]))
    factor, shift, normalize = forms[int(np.argmax(scores))]
    return _rotate(vectors, factor, shift, normalize=normalize)


def _rotate(vectors: Float32, factor: Float32, shift: Float32, *, normalize: bool) -> StartVectors:
    """Scale vectors and rotate them to the axes of their spread."""
    rows = (vectors - shift) * factor
    compared = normalize_rows(rows) if normalize else rows
    centred = (compared - compared.mean(axis=0)).astype(np.float64)
    _, axes = np.linalg.eigh(centred.T @ centred)
    turn = axes[:, ::-1].T  # (F, F)
    size = 1.0 if normalize else float(np.sqrt(len(rows) / (np.square(centred).sum() or 1)))
    turn = (size * turn).astype(np.float32)
    # L2-normalised already where they are compared so: lengths carry nothing
    return StartVectors((compared @ turn.T).astype(np.float32), factor, shift, turn, normalize)


def check_vectors(
    vectors: Any,  # noqa: ANN401 - (N, F) numbers, an array or a tensor
    items: int,  # N
) -> Float32:  # (N, F) float32
    """Check the vectors that a user gives."""
    try:
        rows = np.asarray(vectors.detach().cpu() if hasattr(vectors, "detach") else vectors)
    except (ValueError, TypeError):
        rows = np.empty(0, object)
    if rows.ndim != 2 or not rows.size or rows.dtype.kind not in "fiub":
        got = f"{rows.dtype} of shape {rows.shape}" if rows.size else type(vectors).__name__
        raise UserError(f"'vectors' should be an array (N, F) of numbers, a row for each item. Got {got} instead.")
    if len(rows) != items:
        raise UserError(f"There are {items:,} labels, but {len(rows):,} vectors: give a row for each item.")
    with np.errstate(over="ignore"):
        rows = np.ascontiguousarray(rows, np.float32)
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise UserError(f"The vectors hold {rows[row, column]:g} at row {row}, column {column}; fill it in first.")
    if (rows == rows[0]).all():
        raise UserError("All vectors are equal, so that none is nearest to another; give vectors that differ.")
    return rows
