"""worst_decile@K: the mean label distance in that tenth of the labels where it is largest."""

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Float64, Floating
from cml.retrieval.metrics.all_queries import AllQueriesMetric, QueryTable, QueryValues
from cml.retrieval.metrics.metric import LABEL_DISTANCE, MetricInfo

PARTS = 10
_FEWEST = 10  # queries of a part; the mean of fewer says little
_FEWEST_QUERIES = 100  # in all


class WorstDecile(AllQueriesMetric):
    """Mean label distance of the first K items in the worst tenth of the labels, from 100 queries on."""

    info = MetricInfo(
        higher_is_better=False,
        unit=LABEL_DISTANCE,
        note="label_distance in the worst tenth of the labels",
        shown="never",
        compared=False,
        lowest=0,
    )

    def choose_ks(self) -> tuple[int, ...]:
        """None for class labels, which have no tenths."""
        return () if self.options.recall_ks and not self.options.recall_within else super().choose_ks()

    def measure_queries(self, table: QueryTable) -> QueryValues | None:
        """The values in the worst part, of each ranker its own; None for fewer than 100 queries."""
        ours = table.columns[f"label_distance@{table.k}"]
        if ours.shape[1] < _FEWEST_QUERIES:
            return None
        parts = label_parts(table.label_vectors, table.best)
        return QueryValues(np.array([in_worst_part(row, parts) for row in ours]))


def label_parts(
    vectors: Floating | None,  # (Q, V) labels as vectors, None where they are none
    best: Float64,  # (Q,) mean label distance of the K nearest; NaN goes last
) -> NDArray[np.intp]:  # (Q,) integers
    """The tenth that each query's label belongs to, 0..9.

    Labels of one number: ten equally wide parts of the range of the queries' labels, so that rare labels count as much
    as common ones (balanced errors of imbalanced regression: Yang et al., Delving into Deep Imbalanced Regression, ICML
    2021; Ren et al., Balanced MSE, CVPR 2022). Other labels have no range: the queries in the order of the distance of
    their nearest labels, the rarest last, in ten parts of equal numbers.
    """
    if vectors is not None and vectors.shape[1] == 1:
        numbers = vectors[:, 0].astype(np.float64)
        width = (numbers.max() - numbers.min()) or 1.0
        share = (numbers - numbers.min()) / width
        return np.asarray(np.minimum(PARTS * share, PARTS - 1), np.intp)
    parts = np.empty(len(best), np.intp)
    parts[np.argsort(best, kind="stable")] = np.arange(len(best)) * PARTS // len(best)
    return parts


def in_worst_part(
    ours: Float64,  # (Q,) values
    parts: NDArray[np.intp],  # (Q,) the part of each query; parts of fewer than 10 queries do not count
) -> Float64:  # (Q,) ``ours`` in the worst part, NaN elsewhere
    """Keep the values of the part with the largest mean."""
    members = [np.isfinite(ours) & (parts == part) for part in range(PARTS)]
    usable = [part for part in members if part.sum() >= _FEWEST]
    worst = max(usable, key=lambda part: float(ours[part].mean()), default=np.zeros(len(ours), bool))
    return np.where(worst, ours, np.nan)
