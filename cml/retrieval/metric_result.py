"""What one metric gave for one ranker: a mean over queries with its interval."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from cml.array_types import Float64
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.metrics import LABEL_DISTANCE, MetricInfo, describe

Over = Literal["items", "groups", "queries"]
GIVEN_GALLERY = ", given this gallery"  # ends what is said of an interval in which gallery items do not count


@dataclass(frozen=True, eq=False)
class MetricResult:
    """One metric of one ranker.

    Attributes:
        name: The column: "label_distance@10", "score@10", "ndcg@100", "hit@5", "spearman_rho" ...
        per_query: (Q,) float64, NaN for a query without a value; empty if it was not saved.
        mean: Mean over the queries with a value; NaN if there are none.
        low: Lower end of the 95 % interval of the mean; see ``mean_interval.py``.
        high: Upper end.
        undefined: Number of queries left out.
        own_info: Direction, unit and note, as the evaluation had them; None for what is registered under the name.
        over: What the interval is over: "items", each as a query, in the gallery or as both; "groups" of them, where
            these are known; or "queries", given the gallery.
        given_gallery: The 95 % interval given the gallery, where that has items of its own and they count in the other.
        influences: What each item does to the mean, of shape (); None if it was not saved.

    Example:
        >>> import numpy as np
        >>> MetricResult("ndcg@10", np.array([0.5, 0.7]), mean=0.6, low=0.4, high=0.8).higher_is_better
        True
    """

    name: str
    per_query: Float64 = field(repr=False)
    mean: float
    low: float
    high: float
    undefined: int = 0
    own_info: MetricInfo | None = None
    over: Over = "queries"
    given_gallery: tuple[float, float] | None = None
    influences: ItemInfluences | None = field(default=None, repr=False)

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

    def minus(self, other: MetricResult) -> ItemInfluences | None:
        """What items do to the difference of two results.

        Args:
            other: The result that is subtracted.

        Returns:
            The influences; None where they are not known of both.
        """
        ours, theirs = self.influences, other.influences
        if ours is None or theirs is None or "queries" in (self.over, other.over) or not ours.fits(theirs):
            return None
        return ours - theirs

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
            given_gallery=self.given_gallery and (factor * self.given_gallery[0], factor * self.given_gallery[1]),
            influences=None if self.influences is None else self.influences * factor,
        )

    def to_json(self, *, per_query: bool = False) -> dict[str, Any]:
        """Give the figures as JSON can hold them, NaN as null.

        Args:
            per_query: Add the values of all queries, and the influences of all items.

        Returns:
            Mean, interval and number of queries left out, by name.
        """
        figures = [float(self.mean), float(self.low), float(self.high), *(self.given_gallery or ())]
        mean, low, high, *given_gallery = none_for_nan(figures)
        values: dict[str, Any] = {"mean": mean, "low": low, "high": high}
        values |= {"undefined": self.undefined, "over": self.over}
        if given_gallery:
            values["given_gallery"] = given_gallery
        if per_query:
            values["per_query"] = none_for_nan(self.per_query.tolist())
            if self.influences is not None and self.over != "queries" and math.isfinite(self.mean):
                values["influences"] = self.influences.to_json()
        return values


def drawn_items(results: Iterable[MetricResult]) -> tuple[str, str]:
    """What the intervals of a table are over, and a sentence on those that are over queries where others are not."""
    names: set[str] = set()
    over_queries: dict[str, None] = {}
    drawn = "items"
    for result in results:
        if result.over == "groups":
            drawn = "groups of items"
        names.add(result.name)
        if result.over == "queries" and not math.isnan(result.low):
            over_queries[result.name] = None
    if over_queries and len(over_queries) == len(names):
        return f"queries{GIVEN_GALLERY}", ""
    return drawn, f"Intervals over queries{GIVEN_GALLERY}: {', '.join(over_queries)}." if over_queries else ""


def none_for_nan(values: Iterable[float]) -> list[float | None]:
    """Numbers as JSON can hold them."""
    return [None if math.isnan(value) else value for value in values]


def nan_if_none(value: float | None) -> float:
    """A number as ``none_for_nan`` wrote it."""
    return math.nan if value is None else float(value)
