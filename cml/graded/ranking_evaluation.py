"""How good a ranking is, query by query, and how it differs from another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cml.array_types import Float64
from cml.errors import UserError
from cml.retrieval.mean_interval import LEVEL, estimate_means, mean_intervals
from cml.retrieval.text_table import align_columns

_FEW = 0.5  # share of the first documents with a grade below which a remark is printed


@dataclass(frozen=True, eq=False)
class RankingEvaluation:
    """Measures of a ranking by query, of ``Ranking.evaluate``.

    Attributes:
        queries: The names of the Q queries that have a grade.
        measures: The names of the M measures.
        values: (Q, M) the measures of each query.

    Example:
        >>> import numpy as np
        >>> RankingEvaluation(("a", "b"), ("mrr",), np.array([[1.0], [0.5]])).means
        {'mrr': 0.75}
    """

    queries: tuple[str, ...]
    measures: tuple[str, ...]
    values: Float64

    @property
    def means(self) -> dict[str, float]:
        """Measure to its mean over queries."""
        return dict(zip(self.measures, self.values.mean(axis=0).tolist(), strict=True))

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Measure to the 95 % interval of its mean, over queries; NaN for one query."""
        ends = mean_intervals(self.values)
        return {name: (float(low), float(high)) for name, (low, high) in zip(self.measures, ends, strict=True)}

    def compare(self, other: RankingEvaluation) -> RankingDifference:
        """Take the differences to another ranking of the same queries, query by query.

        Args:
            other: The evaluation that is subtracted; it may list the queries in another order.

        Returns:
            The differences, this ranking less the other one, whose ``intervals`` are those of paired queries and whose
            ``verdict`` says whether one ranking is better.

        Raises:
            UserError: The other has other queries or measures.

        Example:
            >>> import numpy as np
            >>> one = RankingEvaluation(("a", "b"), ("mrr",), np.array([[1.0], [0.5]]))
            >>> one.compare(RankingEvaluation(("b", "a"), ("mrr",), np.array([[0.25], [1.0]]))).means
            {'mrr': 0.125}
        """
        if set(self.queries) != set(other.queries) or self.measures != other.measures:
            raise UserError("Two rankings are compared by the same measures of the same queries, by the same grades.")
        rows = {query: row for row, query in enumerate(other.queries)}
        theirs = other.values[[rows[query] for query in self.queries]]
        return RankingDifference(self.queries, self.measures, self.values - theirs)

    @property
    def remarks(self) -> list[str]:
        """What to know of the figures: that few of the first 10 documents have a grade."""
        share = self.means.get("judged@10", 1.0)
        if share >= _FEW:
            return []
        return [
            f"Only {share:.0%} of the first 10 documents have a grade. The others count as not relevant, as in "
            "trec_eval; where so few are judged, lists of judged documents alone compare systems more fairly (Sakai "
            "2007): --condensed, in Python Ranking.condense."
        ]

    def __str__(self) -> str:
        """A table of means and intervals, and remarks."""
        return "\n".join([self.table(), *self.remarks])

    def table(self, title: str = "") -> str:
        """A table of means and intervals.

        Args:
            title: The head of the column of means; by default "mean of Q queries".

        Returns:
            Text of several lines, a measure a line.
        """
        title, intervals = title or f"mean of {len(self.queries):,} queries", self.intervals
        rows = [[name, f"{mean:.4f}", describe_interval(intervals[name])] for name, mean in self.means.items()]
        return align_columns([["measure", title, "95 % interval"], *rows])


class RankingDifference(RankingEvaluation):
    """The measures of one ranking less those of another, query by query, of ``RankingEvaluation.compare``.

    Example:
        >>> import numpy as np
        >>> one = RankingEvaluation(("a", "b"), ("mrr",), np.array([[1.0], [0.75]]))
        >>> difference = one.compare(RankingEvaluation(("a", "b"), ("mrr",), np.array([[0.5], [0.0]])))
        >>> difference.verdict
        'not shown'
    """

    @property
    def verdict(self) -> str:
        """Whether the first ranking is "better" or "worse" by the first measure, or a difference is "not shown"."""
        return _judge(*self.intervals[self.measures[0]])

    @property
    def remarks(self) -> list[str]:
        """The verdict in a sentence."""
        return [f"The first ranking against the second: {self.describe()}."]

    def describe(
        self,
        choices: int = 1,  # differences among which this one was chosen by the same queries
    ) -> str:
        """The difference of the first measure, an interval that holds for all choices (Bonferroni), and the verdict."""
        level = 1 - (1 - LEVEL) / choices
        low, high = estimate_means(self.values[None, :, :1]).intervals(level)[0].tolist()
        interval = "" if np.isnan(low) else f" ({low:+.4f} to {high:+.4f})"
        return f"{self.means[self.measures[0]]:+.4f}{interval}: {_judge(low, high)}"

    def __str__(self) -> str:
        """A table of the differences, and the verdict."""
        return "\n".join([self.table(f"first less second, {len(self.queries):,} queries"), *self.remarks])


def _judge(low: float, high: float) -> Literal["better", "worse", "not shown"]:
    """What an interval says of a difference."""
    return "better" if low > 0 else "worse" if high < 0 else "not shown"


def describe_interval(ends: tuple[float, float]) -> str:
    """The ends of an interval; nothing where there is none, as of one query."""
    return "" if np.isnan(ends[0]) else f"{ends[0]:.4f} to {ends[1]:.4f}"
