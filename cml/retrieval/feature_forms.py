"""The forms in which features are compared without training: as they are, L2-normalised, and standardised.

No form is the best of all features. A trained embedding is compared with the best one, so that it is not called better
than the features where it is only better than a badly scaled copy of them.
"""

from collections.abc import Mapping

import numpy as np

from cml.array_types import Float32
from cml.data.vectors import ComputedRows
from cml.retrieval.metric_result import MetricResult


def name_forms(noun: str) -> tuple[str, str, str]:
    """Name the forms of features."""
    return noun, f"{noun}, L2-normalised", f"{noun}, standardised"


VECTOR_ROWS = name_forms("vectors")  # of an evaluation
STANDARDISED = VECTOR_ROWS[2]


def find_best_form(
    rows: Mapping[str, Mapping[str, MetricResult]], metric: str
) -> str | None:  # the name of the row; None if the evaluation has no rows of vectors
    """Find the form of vectors that retrieves best."""
    results = {name: rows[name][metric] for name in VECTOR_ROWS if name in rows}
    if not results:
        return None
    return max(results, key=lambda name: results[name].mean * (1 if results[name].higher_is_better else -1))


def normalize_rows(
    rows: Float32,  # (N, F)
) -> Float32:  # (N, F); a row of zeros stays as it is
    """Divide each row by its L2 norm."""
    lengths: Float32 = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return rows / lengths


class NormalizedRows(ComputedRows):
    """Rows divided by their L2 norms, which are computed as they are read."""

    def __init__(self, source: Float32 | ComputedRows) -> None:
        super().__init__(source.shape, lambda part: normalize_rows(source[part]))
        self.source = source  # the rows as they are


class StandardizedRows(ComputedRows):
    """Rows less the mean of each column and divided by its standard deviation, which are computed as they are read."""

    def __init__(self, source: Float32 | ComputedRows, mean: Float32, std: Float32) -> None:
        super().__init__(source.shape, lambda part: (source[part] - mean) / std)
        self.source, self.mean, self.std = source, mean, std
