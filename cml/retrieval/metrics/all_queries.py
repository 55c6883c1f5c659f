"""Metrics of all queries together, which no mean over queries gives: they are computed from measured columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cml.array_types import Float64, Floating
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.metrics.metric import Metric

SCORE_K = 10
"""score@K and worst_decile@K take this K, or the largest that was measured below it."""


@dataclass(frozen=True)
class QueryTable:
    """What was measured of Q queries."""

    columns: Mapping[str, Float64]  # column name -> (N, Q) values of N rankers
    # (N, Q) mean label distance of the first ``k`` items that can be compared with the query. Where all can, it is that
    # of the first ``k``
    comparable: Float64
    chance: Float64  # (Q,) mean label distance of a random ranking, in expectation
    best: Float64  # (Q,) mean label distance of the ``k`` nearest items
    # what items do to the means of these: "comparable", of shape (N,), "chance" and "best", ()
    influences: Mapping[str, ItemInfluences]
    k: int  # the K of ``best``; 0 if no label distance was measured
    label_vectors: Floating | None  # (Q, V) labels as vectors; None where they are none


@dataclass(frozen=True)
class QueryValues:
    """A metric of all queries: values whose mean is the metric, and its intervals."""

    per_query: Float64  # (N, Q) values of N rankers; NaN for a query that does not count
    # (N,) what items do to it; None for intervals over queries alone, given the gallery
    influences: ItemInfluences | None = None


class AllQueriesMetric(Metric):
    """Base of the metrics that are computed from the columns of others, once all queries were measured."""

    needs = "all_queries"

    def choose_ks(self) -> tuple[int, ...]:
        """The largest K of the label distance up to ``SCORE_K``."""
        from cml.retrieval.metrics.label_distance import LabelDistanceAtK

        ks = [k for k in LabelDistanceAtK(self.options, self.gallery).ks if k <= SCORE_K]
        return (max(ks),) if ks else ()

    @property
    def columns(self) -> list[str]:
        """``name@K``, or none where no label distance is measured."""
        return [f"{self.name}@{k}" for k in self.ks]

    def measure_queries(self, table: QueryTable) -> QueryValues | None:  # a value for each ranker and query
        """Compute the metric of every ranker; None if these queries do not have it."""
        raise NotImplementedError(f"{type(self).__name__} does not implement measure_queries().")
