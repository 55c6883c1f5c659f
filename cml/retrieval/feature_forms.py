"""The forms in which features are compared without training: as they are, L2-normalised, and standardised.

No form is the best of all features. A trained embedding is compared with the best one, so that it is not called better
than the features where it is only better than a badly scaled copy of them.
"""

from collections.abc import Mapping

import numpy as np

from cml.array_types import Float32
from cml.data.computed_rows import ComputedRows
from cml.retrieval.metric_result import MetricResult


def name_forms(noun: str) -> tuple[str, str, str]:
    """Name the forms of features.

    Args:
        noun: What the features are called as they are, such as "vectors".

    Returns:
        The names of the features as they are, L2-normalised, and standardised.
    """
    return noun, f"{noun}, L2-normalised", f"{noun}, standardised"


VECTOR_ROWS = name_forms("vectors")  # of an evaluation
STANDARDISED = VECTOR_ROWS[2]


def find_best_form(rows: Mapping[str, Mapping[str, MetricResult]], metric: str) -> str | None:
    """Find the form of vectors that retrieves best.

    Args:
        rows: The rows of an evaluation.
        metric: The metric that decides.

    Returns:
        The name of the row; None if the evaluation has no rows of vectors.
    """
    results = {name: rows[name][metric] for name in VECTOR_ROWS if name in rows}
    if not results:
        return None
    return max(results, key=lambda name: results[name].mean * (1 if results[name].higher_is_better else -1))


def normalize_rows(rows: Float32) -> Float32:
    """Divide each row by its L2 norm.

    Args:
        rows: (N, F).

    Returns:
        (N, F); a row of zeros stays as it is.
    """
    lengths: Float32 = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return rows / lengths


def normalize_in_parts(rows: Float32 | ComputedRows) -> Float32 | ComputedRows:
    """Divide each row by its L2 norm; of rows that are computed as they are read, also as they are read.

    Args:
        rows: (N, F).

    Returns:
        (N, F), as ``normalize_rows`` gives them.
    """
    if not isinstance(rows, ComputedRows):
        return normalize_rows(rows)
    return ComputedRows(rows.shape, lambda part: normalize_rows(rows[part]))
