"""The row "oracle" of a table: the ranking by the label distance itself, the best that any embedding can reach."""

from collections.abc import Sequence

import numpy as np

from cml.array_types import Float64
from cml.retrieval.metrics.metric import Metric
from cml.retrieval.ranking import LabelBlock

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
