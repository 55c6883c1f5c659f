"""What one metric gave for one ranker: a mean over queries with its interval."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

from cml.array_types import Float64
from cml.retrieval.metrics import LABEL_DISTANCE, MetricInfo, describe


@dataclass(frozen=True, eq=False)
class MetricResult:
    """One metric of one ranker.

    Attributes:
        name: The column: "label_distance@10", "score@10", "ndcg@100", "hit@5", "spearman_rho" ...
        per_query: (Q,) float64, NaN for a query without a value; empty if it was not saved.
        mean: Mean over the queries with a value; NaN if there are none.
        low: Lower end of the 95 % interval of the mean over queries; see ``mean_interval.py``.
        high: Upper end.
        undefined: Number of queries left out.
        own_info: Direction, unit and note, as the evaluation had them; None for what is registered under the name.
    """

    name: str
    per_query: Float64 = field(repr=False)
    mean: float
    low: float
    high: float
    undefined: int = 0
    own_info: MetricInfo | None = None

    @functools.cached_property
    def info(self) -> MetricInfo:
        """Direction, unit and note of the metric."""
        return self.own_info or describe(self.name)

    @property
    def higher_is_better(self) -> bool:
        """The direction of the metric."""
        return self.info.higher_is_better

    @property
    def is_label_distance(self) -> bool:
        """Whether it is in the unit of the label distance."""
        return self.info.unit == LABEL_DISTANCE

    def scale(self, factor: float) -> MetricResult:
        """Express a label distance in another unit.

        Args:
            factor: What label distances are multiplied by.

        Returns:
            The result in that unit; itself if it is no label distance.
        """
        if not self.is_label_distance:
            return self
        return replace(
            self,
            per_query=factor * self.per_query,
            mean=factor * self.mean,
            low=factor * self.low,
            high=factor * self.high,
        )

    def to_json(self, *, per_query: bool = False) -> dict[str, Any]:
        """Give the figures as JSON can hold them, NaN as null.

        Args:
            per_query: Add the values of all queries.

        Returns:
            Mean, interval and number of queries left out, by name.
        """
        values: dict[str, Any] = {key: none_if_nan(float(getattr(self, key))) for key in ("mean", "low", "high")}
        values["undefined"] = self.undefined
        if per_query:
            values["per_query"] = list(map(none_if_nan, self.per_query.tolist()))
        return values


def none_if_nan(value: float) -> float | None:
    """A number as JSON can hold it."""
    return None if math.isnan(value) else value


def nan_if_none(value: float | None) -> float:
    """A number as ``none_if_nan`` wrote it."""
    return math.nan if value is None else float(value)
