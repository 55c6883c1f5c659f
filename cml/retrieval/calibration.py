"""What an embedding distance means: the label distance to expect at it, with an interval, from items held out.

The expectation is an isotonic regression, so that it never falls as the embedding distance grows. Nearer than most
pairs it is a straight line, for the first hits in a gallery larger than that of the calibration lie there, and the
nearest pair of all, whose labels are alike by chance, would decide on them. The interval is split conformal (Romano,
Patterson and Candes, NeurIPS 2019): monotone quantiles are fitted to half of the items, and widened by what the other
half, third by third of the embedding distances, needs. The pairs of an item depend on each other, so items are split,
never pairs, and the correction for a finite sample counts items (Dunn, Wasserman and Ramdas, JASA 118, 2023).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cml.array_types import Bools, Float32, Float64, Int64
from cml.distances.label_distance import LabelDistance, listed_distances
from cml.distances.labels import Labels
from cml.errors import UserError, holds_controls
from cml.retrieval.other_groups import find_other_groups
from cml.retrieval.search import nearest_embeddings, nearest_others
from cml.retrieval.text_table import align_columns

FEWEST_ITEMS = 30
ENOUGH_ITEMS = 150  # from which on the coverage is near the level in each draw, not on average alone
HITS = 10  # of each item, that the interval of hits is calibrated by
LEVEL = 0.9
_MOST_SEARCHED = 2000  # items whose hits are looked at
_MOST_PAIRED = 1000  # items that are paired with each other, or with as many of the gallery
_KNOTS = 64
_MOST_BINS, _FEWEST_IN_BIN = 40, 40
_FEWEST_IN_THIRD = 30  # pairs; otherwise the margin of all is taken
_NEAR, _FEWEST_NEAR, _MOST_NEAR = 1 / 4, 100, 2000  # the share of pairs, and their number, that the line is drawn by
_MUCH_LARGER = 2  # times the items that were searched, beyond which a gallery has nearer hits
_SURELY = 2  # standard errors
_LISTED = 6  # embedding distances in a table
_FEW_VALUES = 20  # label distances that are so few make intervals too wide


class Expectation(NamedTuple):
    """What label distances to expect, in the unit of the calibration."""

    expected: Float64  # their mean, of the shape of the embedding distances
    low: Float64  # the lower ends of the intervals
    high: Float64  # the upper ends


@dataclass(frozen=True)
class ExpectedDistance:
    """The label distance to expect at each embedding distance."""

    # K embedding distances, ascending; between them, and beyond the ends, lie straight lines and constants
    knots: tuple[float, ...]
    expected: tuple[float, ...]  # the mean label distance at each
    low: tuple[float, ...]  # a low quantile there
    high: tuple[float, ...]  # a high quantile there
    edges: tuple[float, float]  # the two embedding distances between the thirds of the pairs
    margins: tuple[float, float, float]  # what widens the quantiles in each third; below 0, it narrows them

    def __post_init__(self) -> None:
        sizes = {len(self.knots), len(self.expected), len(self.low), len(self.high)}
        if sizes != {len(self.knots)} or not self.knots or np.any(np.diff(self.knots) < 0):
            raise UserError("A calibration needs as many numbers as knots, which ascend.")

    def __repr__(self) -> str:
        return f"ExpectedDistance({len(self.knots)} knots from {self.knots[0]:.4f} to {self.knots[-1]:.4f})"

    def __call__(self, distances: Float32 | Float64) -> Expectation:
        """Look up embedding distances of any shape."""
        rows = np.asarray(distances, np.float64)
        expected, low, high = (np.interp(rows, self.knots, values) for values in (self.expected, self.low, self.high))
        margin = np.asarray(self.margins)[np.searchsorted(self.edges, rows)]
        return Expectation(expected, np.clip(low - margin, 0, expected), np.maximum(high + margin, expected))


@dataclass(frozen=True)
class Calibration:
    """What the embedding distances of a model mean, for pairs of any items and for the first hits of a search."""

    pairs: ExpectedDistance  # for any pair of items
    # for the first hits of a query, whose label distances differ from those of other pairs as far apart
    hits: ExpectedDistance
    level: float  # the nominal share of label distances in the intervals
    unit: str  # the unit of label distances
    items: int  # the number of items that it was calibrated by
    gallery: int  # the number of items that they were searched among; 0 if they were searched among each other
    values: int  # different label distances among the pairs, 1,000 at most
    width: float  # the mean width of the intervals of pairs
    hit_width: float  # that of hits
    marginal_width: float  # the width of the interval that is the same for all pairs

    def __post_init__(self) -> None:
        if not 0.5 < self.level < 1 or self.items < 1 or self.gallery < 0 or self.values < 1:
            raise UserError(
                "A calibration has a level above 0.5 and below 1, and numbers of items, gallery and values. "
                f"Got {self.level}, {self.items}, {self.gallery} and {self.values} instead."
            )
        if holds_controls(self.unit):
            raise UserError(f"The unit of a calibration must be printable text. Got {self.unit!r} instead.")

    def __repr__(self) -> str:
        return "\n".join([*self.lines(), self.table()])

    def expect(self, distances: Float32 | Float64) -> Expectation:
        """Tell what label distances to expect of the hits of a search."""
        rows = np.asarray(distances, np.float64)
        near, far = self.hits(rows), self.pairs(rows)
        is_far = rows > self.hits.knots[-1]
        expected = np.where(is_far, np.maximum(far.expected, self.hits.expected[-1]), near.expected)
        low, high = np.where(is_far, far.low, near.low), np.where(is_far, far.high, near.high)
        return Expectation(expected, np.minimum(low, expected), np.maximum(high, expected))

    def radius(
        self,
        label_distance: float,  # in the unit of the calibration
    ) -> float:  # the embedding distance; below 0 if even at 0 more is expected
        """Find the largest embedding distance of hits whose expected label distance is no larger than a given one."""
        knots = np.unique([0.0, *self.hits.knots, *(knot for knot in self.pairs.knots if knot > self.hits.knots[-1])])
        # between the hits and the pairs the expectation jumps, or stays until that of the pairs is higher
        further = [np.nextafter(self.hits.knots[-1], np.inf)]
        higher = int(np.searchsorted(self.pairs.expected, self.hits.expected[-1], side="right"))
        if 0 < higher < len(self.pairs.knots):
            around = slice(higher - 1, higher + 1)
            reached = np.interp(self.hits.expected[-1], self.pairs.expected[around], self.pairs.knots[around])
            further.append(np.nextafter(max(reached, further[0]), 0))
        knots = np.sort(np.append(knots, further))
        expected = self.expect(knots).expected
        last = int(np.searchsorted(expected, label_distance, side="right")) - 1
        if last < 0:
            return -1.0
        if last == len(knots) - 1:
            return float("inf")
        share = (label_distance - expected[last]) / (expected[last + 1] - expected[last])
        return float(knots[last] + share * (knots[last + 1] - knots[last]))

    def lines(self) -> list[str]:  # a few lines
        """Say what was calibrated, how wide the intervals are, and what to beware of."""
        among = f"among {self.gallery} others" if self.gallery else "among each other"
        return [
            f"calibrated by {self.items} items, searched {among}; {self.level:.0%} intervals.",
            f"interval of a hit: {self.hit_width:.3g} {self.unit} wide on average; of any pair: {self.width:.3g}; the "
            f"same for all pairs, without an embedding: {self.marginal_width:.3g}.",
        ]

    def table(self) -> str:
        """Write what a few embedding distances of hits mean, from the nearest to the farthest that was calibrated."""
        distances = np.quantile(self.hits.knots[1:] or self.hits.knots, np.linspace(0, 1, _LISTED))
        rows = zip(distances.tolist(), *(part.tolist() for part in self.expect(distances)), strict=True)
        cells = [[f"{near:.4f}", f"{mean:.3g}", f"{low:.3g} to {high:.3g}"] for near, mean, low, high in rows]
        head = ["embedding distance of a hit", f"expected {self.unit}", f"interval of {self.level:.0%}"]
        return align_columns([head, *cells])

    def caution_of(self, gallery: int) -> str:
        """Caution against a gallery that is much larger than the one of the calibration; "" of any other."""
        known = self.gallery or self.items
        if gallery <= _MUCH_LARGER * known:
            return ""
        return (
            f"The model was calibrated in a gallery of {known:,} items, and this one has {gallery:,}. Its first hits "
            "are nearer to the query than any hit of the calibration, so their expected label distances are "
            "extrapolated, and their intervals are less reliable. Calibrate among about as many items: cml calibrate "
            "RUN --gallery train, or model.calibrate with a gallery in Python."
        )

    def cautions(self) -> list[str]:  # a sentence each; none if there are enough items and label distances
        """Say what to beware of."""
        cautions = []
        if self.items < ENOUGH_ITEMS:
            cautions.append(
                f"The calibration has {self.items} items. With fewer than {ENOUGH_ITEMS}, the intervals hold "
                f"{self.level:.0%} on average over draws of items, but for one draw often 5 % more or less. Give more "
                "items if you can."
            )
        if self.values < _FEW_VALUES:
            cautions.append(
                f"There are only {self.values} different label distances. An interval ends at one of them, so that it "
                f"holds more than {self.level:.0%}."
            )
        return cautions


_Halves = tuple[Int64, Int64]  # the items of each half, in random order


class _Embedded(NamedTuple):
    """Items with their embeddings (N, D), encoded labels and numbers of groups (N,)."""

    embeddings: Float32
    labels: Labels
    groups: Int64 | None


class _Pairs(NamedTuple):
    """P comparable pairs of items."""

    embedding_distances: Float64  # (P,)
    label_distances: Float64  # (P,)
    items: Int64  # (P,), the query that each pair belongs to

    def of(self, items: Int64) -> "_Pairs":
        """The pairs that belong to some queries."""
        is_theirs = np.isin(self.items, items)
        return _Pairs(self.embedding_distances[is_theirs], self.label_distances[is_theirs], self.items[is_theirs])


def calibrate_embeddings(
    query: Float32,  # (N, D) embeddings of items that the model was not trained on
    labels: Labels,
    distance: LabelDistance,
    gallery: Float32 | None = None,  # (G, D) embeddings of the items that queries are searched among
    gallery_labels: Labels | None = None,
    *,
    groups: Int64 | None = None,  # (N,) numbers of groups, whose items are searched among those of other groups alone
    gallery_groups: Int64 | None = None,  # (G,) numbers of the same groups
    level: float = LEVEL,
    factor: float = 1.0,  # factor that converts label distances to ``unit``
    unit: str = "",  # their unit; that of the label distance when not given
    seed: int = 0,
) -> Calibration:
    """Learn from held-out items what label distance an embedding distance means."""
    if not isinstance(level, float | int | np.floating) or not 0.5 < level < 1:
        raise UserError(f"'level' must be above 0.5 and below 1. Got {level!r} instead.")
    if len(query) < FEWEST_ITEMS:
        raise UserError(
            f"A calibration needs at least {FEWEST_ITEMS} held-out items, better {ENOUGH_ITEMS}. "
            f"Got {len(query)} instead."
        )
    if gallery is not None and len(gallery) < HITS:
        raise UserError(f"A calibration needs at least {HITS} items to search among. Got {len(gallery)} instead.")
    halves = _split(len(query), groups, seed)
    queries = _Embedded(query, labels, groups)
    searched = None
    if gallery is not None and gallery_labels is not None:
        searched = _Embedded(gallery, gallery_labels, gallery_groups)
    pairs = _scale(_pair_items(queries, searched, distance, halves, seed), factor)
    hits = _scale(_find_hits(queries, searched, distance, halves), factor)
    _check_pairs(pairs)
    _check_pairs(hits, of="hits")
    fitted, hit_fitted = _fit(pairs, halves, level), _fit(hits, halves, level)
    tail = (1 - level) / 2
    calibration = Calibration(
        fitted,
        hit_fitted,
        level=level,
        unit=unit or distance.unit,
        items=len(query),
        gallery=0 if searched is None else len(searched.embeddings),
        values=min(1000, len(np.unique(pairs.label_distances))),
        width=_mean_width(fitted, pairs),
        hit_width=_mean_width(hit_fitted, hits),
        marginal_width=float(np.subtract(*np.quantile(pairs.label_distances, [1 - tail, tail]))),
    )
    for caution in calibration.cautions():
        warnings.warn(caution, stacklevel=3)
    return calibration


def _split(items: int, groups: Int64 | None, seed: int) -> _Halves:
    """Split items at random into two halves, groups as a whole."""
    rng = np.random.default_rng(seed)
    if groups is None:
        order = rng.permutation(items)
        return order[: items // 2], order[items // 2 :]
    names, sizes = np.unique(groups, return_counts=True)
    drawn = rng.permutation(len(names))
    is_first = np.isin(groups, names[drawn[np.cumsum(sizes[drawn]) <= max(items // 2, sizes[drawn[0]])]])
    if len(names) < 2:
        raise UserError("A calibration needs items of two groups at least. Got one group instead.")
    return rng.permutation(np.flatnonzero(is_first)), rng.permutation(np.flatnonzero(~is_first))


def _pair_items(
    queries: _Embedded, gallery: _Embedded | None, distance: LabelDistance, halves: _Halves, seed: int
) -> _Pairs:
    """Pair queries with each other within each half, so that no item is in both; or with items of the gallery."""
    parts = []
    for half in halves:
        rows = np.sort(half[: _MOST_PAIRED // 2])
        if gallery is None:
            parts.append(_all_pairs(queries, rows, queries, rows, distance, same_items=True))
        else:
            drawn = np.random.default_rng(seed).permutation(len(gallery.embeddings))[: _MOST_PAIRED // 2]
            parts.append(_all_pairs(queries, rows, gallery, np.sort(drawn), distance))
    return _Pairs(*map(np.concatenate, zip(*parts, strict=True)))


def _all_pairs(
    queries: _Embedded,
    rows: Int64,
    gallery: _Embedded,
    columns: Int64,
    distance: LabelDistance,
    *,
    same_items: bool = False,
) -> _Pairs:
    """All comparable pairs of some queries and some items of the gallery."""
    a, b = (side.embeddings[items].astype(np.float64) for side, items in ((queries, rows), (gallery, columns)))
    squared = np.square(a).sum(axis=1)[:, None] + np.square(b).sum(axis=1) - 2 * a @ b.T
    label_distances = distance.pairwise(queries.labels[rows], gallery.labels[columns])
    is_used = np.isfinite(label_distances)
    if same_items:
        is_used &= ~np.eye(len(rows), dtype=bool)
    if queries.groups is not None and gallery.groups is not None:
        is_used &= queries.groups[rows][:, None] != gallery.groups[columns]
    return _select_pairs(np.sqrt(np.maximum(squared, 0)), label_distances, rows, is_used)


def _find_hits(queries: _Embedded, gallery: _Embedded | None, distance: LabelDistance, halves: _Halves) -> _Pairs:
    """The first hits of each query."""
    rows = np.sort(np.concatenate([half[: _MOST_SEARCHED // 2] for half in halves]))
    is_theirs: Any = True
    own, theirs = queries.groups, (queries if gallery is None else gallery).groups
    if own is not None and theirs is not None:
        ranked = (queries if gallery is None else gallery).embeddings
        embedding_distances, positions, is_theirs = find_other_groups(
            queries.embeddings[rows], ranked, min(HITS, len(ranked)), own[rows], theirs
        )
    elif gallery is None:
        embedding_distances, positions = nearest_others(queries.embeddings, rows, HITS)
    else:
        embedding_distances, positions = nearest_embeddings(queries.embeddings[rows], gallery.embeddings, HITS)
    searched = queries if gallery is None else gallery
    label_distances = listed_distances(distance, queries.labels[rows], searched.labels, positions)
    return _select_pairs(embedding_distances, label_distances, rows, np.isfinite(label_distances) & is_theirs)


def _select_pairs(
    embedding_distances: Float32 | Float64, label_distances: Float32, rows: Int64, is_used: Bools
) -> _Pairs:
    """The used pairs of two blocks of distances (R, C), whose rows are queries."""
    items = np.broadcast_to(rows[:, None], label_distances.shape)
    return _Pairs(
        embedding_distances[is_used].astype(np.float64), label_distances[is_used].astype(np.float64), items[is_used]
    )


def _scale(pairs: _Pairs, factor: float) -> _Pairs:
    return pairs._replace(label_distances=factor * pairs.label_distances)


def _check_pairs(pairs: _Pairs, of: str = "pairs") -> None:
    if len(pairs.label_distances) < FEWEST_ITEMS:
        raise UserError(
            f"A calibration needs labels that can be compared: of the {of}, {len(pairs.label_distances)} can. Give "
            "more items."
        )
    if of == "pairs" and pairs.label_distances.min() == pairs.label_distances.max():
        raise UserError(
            f"A calibration needs label distances that differ, and all are {pairs.label_distances[0]:g}. Give others."
        )
    if of == "pairs" and pairs.embedding_distances.min() == pairs.embedding_distances.max():
        raise UserError("A calibration needs embeddings that differ: all distances between them are equal.")


def _fit(pairs: _Pairs, halves: _Halves, level: float) -> ExpectedDistance:
    """Fit expectation and quantiles, and widen the quantiles by what the second half of the items needs."""
    first, second = (pairs.of(half) for half in halves)
    knots = np.unique([0.0, *np.quantile(pairs.embedding_distances, np.linspace(0, 1, _KNOTS))])
    mean = _fit_mean(pairs, knots)
    tail = (1 - level) / 2
    low, high = (_fit_quantile(first, quantile, knots) for quantile in (tail, 1 - tail))
    edges = np.quantile(pairs.embedding_distances, [1 / 3, 2 / 3])
    ends = np.interp(second.embedding_distances, knots, low), np.interp(second.embedding_distances, knots, high)
    excess = np.maximum(ends[0] - second.label_distances, second.label_distances - ends[1])
    share = min(1.0, level * (1 + 1 / max(1, len(np.unique(second.items)))))
    third = np.searchsorted(edges, second.embedding_distances)
    by_third = [excess[third == number] for number in range(3)]
    margins = [float(np.quantile(part if len(part) >= _FEWEST_IN_THIRD else excess, share)) for part in by_third]
    return ExpectedDistance(
        knots=tuple(knots.tolist()),
        expected=tuple(mean.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        edges=(float(edges[0]), float(edges[1])),
        margins=(margins[0], margins[1], margins[2]),
    )


def _fit_mean(pairs: _Pairs, knots: Float64) -> Float64:
    """The mean label distance (K,) at knots: monotone, and no more than the trend of the nearest pairs near to 0."""
    mean = _fit_monotone(pairs, np.mean, knots)
    count = int(np.clip(_NEAR * len(pairs.embedding_distances), _FEWEST_NEAR, _MOST_NEAR))
    near = np.argsort(pairs.embedding_distances, kind="stable")[:count]
    x, y = pairs.embedding_distances[near], pairs.label_distances[near]
    spread = np.square(x - x.mean()).sum()
    slope = float((x - x.mean()) @ (y - y.mean()) / spread) if spread > 0 else 0.0
    # as steep as it surely is: hits may be much nearer than these, and unrelated labels have some slope by chance
    residual = y - y.mean() - slope * (x - x.mean())
    error = np.sqrt(np.square(residual).mean() / spread) if spread > 0 else 0.0
    slope = max(0.0, slope - _SURELY * float(error))
    at = knots <= np.median(x[:_FEWEST_IN_BIN])
    mean[at] = np.clip(y.mean() + slope * (knots[at] - x.mean()), 0, mean[at])
    return mean


def _fit_quantile(pairs: _Pairs, quantile: float, knots: Float64) -> Float64:
    """A quantile (K,) of the label distances at knots that never falls."""
    return _fit_monotone(pairs, lambda part: np.quantile(part, quantile), knots)


def _fit_monotone(pairs: _Pairs, summarize: Callable[[Float64], Any], knots: Float64) -> Float64:
    """What bins of pairs, by embedding distance, have of label distances, made monotone and read at knots (K,)."""
    from sklearn.isotonic import IsotonicRegression

    bins = int(np.clip(len(pairs.embedding_distances) // _FEWEST_IN_BIN, 1, _MOST_BINS))
    ranks = np.argsort(pairs.embedding_distances, kind="stable")
    parts: Sequence[Int64] = np.array_split(ranks, bins)
    centres = np.array([np.median(pairs.embedding_distances[part]) for part in parts])
    values = np.array([summarize(pairs.label_distances[part]) for part in parts])
    fitted: Float64 = IsotonicRegression(out_of_bounds="clip").fit(centres, values).predict(knots)
    return fitted


def _mean_width(fitted: ExpectedDistance, pairs: _Pairs) -> float:
    _, low, high = fitted(pairs.embedding_distances)
    return float((high - low).mean())
