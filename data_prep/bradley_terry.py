"""Scores of items by the comparisons that they won, by the model of Bradley and Terry (Biometrika 1952)."""

import numpy as np

from cml.array_types import Float64, Int64

_PRIOR = 0.1  # of a comparison that each item has won and lost against the average, so that no score is infinite
_STEPS = 100  # of Newton's method
_MOST_DENSE = 2000  # items whose information is inverted as a whole


def score_items(
    pairs: Int64, won: Float64, count: int
) -> tuple[Float64, Float64]:  # (C, 2) items, (C,) won by the first
    """Fit the scores of Bradley and Terry (1952) with mean 0, (N,), and their standard errors, by Newton's method.

    Of many items the errors are those with the scores of all others known, which are smaller.
    """
    from scipy import sparse
    from scipy.sparse.linalg import cg

    scores, first, second = np.zeros(count), pairs[:, 0], pairs[:, 1]
    for _ in range(_STEPS):
        expected, own = 1 / (1 + np.exp(scores[second] - scores[first])), 1 / (1 + np.exp(-scores))
        left = won - expected
        slope: Float64 = np.subtract(
            np.bincount(first, left, count), np.bincount(second, left, count), dtype=np.float64
        )
        slope += _PRIOR * (1 - 2 * own)
        weights = expected * (1 - expected)
        rows, columns = np.concatenate([first, second]), np.concatenate([second, first])
        coupled = sparse.csr_array((np.tile(weights, 2), (rows, columns)), shape=(count, count))
        diagonal = coupled.sum(axis=1) + 2 * _PRIOR * own * (1 - own)
        information = sparse.diags_array(diagonal) - coupled
        is_small = count <= _MOST_DENSE
        step = np.linalg.solve(information.toarray(), slope) if is_small else cg(information, slope, rtol=1e-8)[0]
        scores += np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-10:
            break
    variances = np.diag(np.linalg.inv(information.toarray())) if is_small else 1 / diagonal
    return scores - scores.mean(), np.sqrt(variances)
