"""The rows "random" and "oracle" of a table: a random ranking, and the ranking by the label distance itself."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Float64
from cml.retrieval.embedding_ranker import Ranker
from cml.retrieval.metrics.metric import Metric
from cml.retrieval.ranking import LabelBlock

RANDOM = "random"
"""The name of the row."""


def random_ranker(queries: int, gallery: int, seed: int = 0) -> Ranker:
    """Rank at random: the order of each query depends on ``seed`` and its number alone.

    Args:
        queries: Q.
        gallery: G.
        seed: Random seed.

    Returns:
        The ranker.

    Example:
        >>> random_ranker(2, 5)(slice(0, 2)).shape
        (2, 5)
    """
    draws = -(-gallery // 4)  # a step of Philox gives four numbers

    def scores(rows: slice) -> Float64:
        start, stop, _ = rows.indices(queries)
        stream = np.random.Philox(key=seed).advance(start * draws)
        return np.random.Generator(stream).random((stop - start, 4 * draws))[:, :gallery]

    return scores


ORACLE = "oracle"
"""The name of the row."""


def measure_oracle(
    metrics: Sequence[Metric],  # M metrics
    labels: LabelBlock,
    sampled: LabelBlock | None = None,  # those to a sample of the gallery
) -> Float64:  # (R, all columns of the metrics) float64
    """Measure the ranking of a block of queries by label distance."""
    return np.column_stack(
        [
            metric.measure_oracle(labels if sampled is None or metric.needs != "whole_ranking" else sampled)
            for metric in metrics
        ]
    )
