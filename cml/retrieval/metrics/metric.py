"""The base class of the metrics of retrieval, and what a table needs to know of one."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from cml.array_types import Float32, Float64
from cml.errors import UserError

if TYPE_CHECKING:
    from cml.retrieval.evaluate_options import EvaluateOptions
    from cml.retrieval.item_influences import Effects
    from cml.retrieval.ranking import LabelBlock, Ranking

Needs = Literal["top_k", "whole_ranking", "classes", "all_queries", "pairs"]

_ROUNDING = 1e-9  # by which a mean may leave the range of its values

LABEL_DISTANCE = "label distance"
"""The ``unit`` of a metric that is measured in the unit of the label distance."""


@dataclass(frozen=True)
class MetricInfo:
    """What tables, verdicts and comparisons know of a metric.

    Attributes:
        higher_is_better: The direction of the metric.
        unit: Its unit; ``LABEL_DISTANCE`` for that of the label distance, "" for a plain number.
        note: What it is, for the note below a table. ``{unit}``, ``{gain}``, ``{hit_neighbors}`` and ``{relevant}``
            stand for what the evaluation says of them.
        shown: At which K a table shows it by default.
        compared: Whether the table of a comparison shows it.
        compared_ks: The K at which the table of a comparison shows it; the largest where none is given.
        lowest: No ranking has a lower value. Of a metric in the unit of the label distance it is 0 or minus infinity,
            because a report may use another unit.
        highest: No ranking has a higher value; of a label distance infinity, for the same reason.
        whole_ranking: Whether it takes whole rankings, those of a large gallery on a sample; ``Metric.needs`` sets it.

    Example:
        >>> MetricInfo(higher_is_better=True, note="the share of hits").higher_is_better
        True
    """

    higher_is_better: bool = True
    unit: str = ""
    note: str = ""
    shown: Literal["largest_k", "every_k", "never"] = "largest_k"
    compared: bool = True
    compared_ks: tuple[int, ...] = ()
    lowest: float = -math.inf
    highest: float = math.inf
    whole_ranking: bool = False

    def clip_intervals(self, mean: ArrayLike, ends: ArrayLike) -> Float64:
        """Cut intervals of means to the values that the metric can have, which covers as often.

        Args:
            mean: Means (...). If one is not in the range itself, the data do not keep to it, and that end stays.
            ends: (..., 2) lower and upper ends of the intervals; NaN stays.

        Returns:
            (..., 2) float64, the ends.

        Example:
            >>> MetricInfo(lowest=0, highest=1).clip_intervals(0.9, [0.75, 1.05]).tolist()
            [0.75, 1.0]
        """
        mean, clipped = np.asarray(mean), np.array(ends, np.float64)
        low, high = clipped[..., 0], clipped[..., 1]
        np.maximum(low, np.minimum(self.lowest, mean), out=low, where=mean >= self.lowest - _ROUNDING)
        np.minimum(high, np.maximum(self.highest, mean), out=high, where=mean <= self.highest + _ROUNDING)
        return clipped

    def half_width(self, mean: float, low: float, high: float) -> float:
        """The number behind "±" of an interval: half of its width, or the longer side of one that was cut.

        Args:
            mean: The mean.
            low: Lower end of the interval.
            high: Upper end.

        Returns:
            The number, at least 0.
        """
        is_cut = low < high and (low <= self.lowest or high >= self.highest)
        return max(mean - low, high - mean) if is_cut else (high - low) / 2


class Metric:
    """A metric of rankings, measured for each query; its mean over the queries is the figure.

    Subclasses set ``info`` and implement ``measure``. ``cml.retrieval.metrics.register`` gives them a name.

    Attributes:
        name: The name in the registry. A column is called ``name``, or ``name@K`` for each of ``ks``.
        info: Direction, unit and note.
        needs: What it is measured on: the first K items of a ranking ("top_k"), all items ("whole_ranking"), items of
            the query's class ("classes"), all queries together ("all_queries"), or pairs of items ("pairs").
        default_ks: The K that it is measured at, as far as they are at most a quarter of the gallery; none for a metric
            without a K.
        ks: The K of this evaluation.

    Args:
        options: The options of the evaluation.
        gallery: Number of items that a query ranks.

    Example:
        >>> from cml.retrieval import EvaluateOptions
        >>> class Nearest(Metric):  # a metric of one's own: the label distance of the first item
        ...     info = MetricInfo(unit=LABEL_DISTANCE, lowest=0)
        ...
        ...     def measure(self, ranking):
        ...         return ranking.retrieved[:, 0].astype(float)
        >>> Nearest(EvaluateOptions(), gallery=20).ks
        ()
    """

    name: str = ""
    info: ClassVar[MetricInfo] = MetricInfo()
    needs: ClassVar[Needs] = "top_k"
    default_ks: ClassVar[tuple[int, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.info = replace(cls.info, whole_ranking=cls.needs == "whole_ranking")

    def __init__(self, options: EvaluateOptions, gallery: int) -> None:
        self.options = options
        self.gallery = gallery
        self.ks = self.choose_ks()

    def choose_ks(self) -> tuple[int, ...]:
        """The K of this evaluation, by default ``default_ks`` cut to the gallery."""
        return cut_ks(self.default_ks, self.gallery)

    @property
    def columns(self) -> list[str]:
        """The names of the columns that ``measure`` returns; none if it is not measured in this evaluation."""
        if not self.default_ks:
            return [self.name]
        return [f"{self.name}@{k}" for k in self.ks]

    def measure(self, ranking: Ranking) -> Float64:
        """Measure the rankings of a block of queries by one ranker.

        Args:
            ranking: The rankings of R queries.

        Returns:
            (R,) or (R, columns) float64; NaN for a query for which the metric does not exist.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement measure().")

    def effects(self, ranking: Ranking) -> Effects | None:
        """Compute how each gallery item changes the values, so that intervals count it as they count a query.

        A metric of the first K items looks at ``ranking.retrieved`` and ``ranking.items``, which hold the item behind
        the list too. A metric of the whole ranking is asked for some of the queries, at most 128.

        Args:
            ranking: The rankings of R queries.

        Returns:
            The effects; None, the default, for intervals over queries alone, given the gallery, which tables then say.
        """
        return None

    def oracle_effects(self, labels: LabelBlock) -> Effects | None:
        """Compute the effects on what ``measure_oracle`` measures; override it where the value is known.

        Args:
            labels: The label distances of R queries.

        Returns:
            The effects; None where no item changes a value, or where ``effects`` are not known either.
        """
        return self.effects(labels.oracle)

    def measure_oracle(self, labels: LabelBlock) -> Float64:
        """Measure the ranking by label distance, the best there is; override it where the value is known.

        Args:
            labels: The label distances of R queries.

        Returns:
            (R,) or (R, columns) float64, as ``measure`` returns it.
        """
        return self.measure(labels.oracle)

    def measure_random(self, ranking: Ranking) -> Float64:
        """Measure a random ranking; override it where the expectation over all orders is known.

        Args:
            ranking: Random rankings of R queries, one of each.

        Returns:
            (R,) or (R, columns) float64, as ``measure`` returns it.
        """
        return self.measure(ranking)

    def random_effects(self, ranking: Ranking) -> Effects | None:
        """Compute the effects on what ``measure_random`` measures; override it together with that.

        Args:
            ranking: Random rankings of R queries, one of each.

        Returns:
            The effects; None where no item changes a value, or where ``effects`` are not known either.
        """
        return self.effects(ranking)

    def depth(self, labels: LabelBlock) -> int:
        """How many of the first items of each ranking ``measure`` looks at.

        Args:
            labels: The label distances of a block of queries.

        Returns:
            The number.
        """
        return max(self.ks, default=1)

    def nearest_depth(self, labels: LabelBlock) -> int:
        """How many of the nearest items by label distance ``measure`` looks at.

        Args:
            labels: The label distances of a block of queries.

        Returns:
            The number.
        """
        return self.depth(labels)


def largest_k(gallery: int) -> int:
    """The largest K at which rankings of a gallery of that size differ: a quarter of it.

    Example:
        >>> largest_k(100), largest_k(3)
        (25, 1)
    """
    return max(1, gallery // 4)


def cut_ks(ks: Sequence[int], gallery: int) -> tuple[int, ...]:
    """The K that are at most ``largest_k`` of the gallery, or that alone where all are larger.

    Example:
        >>> cut_ks((1, 5, 10), 24), cut_ks((10, 20), 24)
        ((1, 5), (6,))
    """
    most = largest_k(gallery)
    return tuple(k for k in ks if k <= most) or ((most,) if ks else ())


def check_ks(name: str, ks: Sequence[int], default: Sequence[int], gallery: int) -> tuple[int, ...]:
    """The K of an option: the default is cut to the gallery, others have to fit it."""
    if gallery and tuple(ks) == tuple(default):
        return cut_ks(ks, gallery)
    if any(not 1 <= k <= gallery for k in ks) or len(set(ks)) != len(ks):
        raise UserError(
            f"Every K of {name!r} must be at least 1 and at most the gallery's {gallery} items, none of them "
            f"twice. Got {list(ks)} instead."
        )
    return tuple(ks)


def columns_of(ks: Sequence[int], values: Float32 | Float64) -> list[int]:
    """The column of each K in ``values``, in which column 0 is K = 1."""
    if not len(ks) or any(not 1 <= k <= values.shape[1] for k in ks):
        raise UserError(f"Every K must be at least 1 and at most {values.shape[1]}. Got {list(ks)} instead.")
    return [k - 1 for k in ks]


def over_relevant(total: Float64, relevant: Float64) -> Float64:
    """Totals (R,) divided by the number of relevant items (R,); NaN where there is none."""
    return np.where(relevant > 0, total / np.maximum(relevant, 1), np.nan)


def family(column: str) -> str:
    """The registered name of the metric that a column belongs to.

    Example:
        >>> family("ndcg@10"), family("map@r"), family("h_ap")
        ('ndcg', 'map_at_r', 'h_ap')
    """
    match = re.fullmatch(r"(.+)@\d+", column)
    return match[1] if match else column.replace("@", "_at_")
