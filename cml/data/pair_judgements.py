"""Judged pairs, as people give them: which two items, how far apart they are, how sure, by whom."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float64, Int64
from cml.data.judgement_columns import JudgementColumns, describe_items_without_judgement, number_items
from cml.data.judgement_questions import ItemLabels, choose_questions, estimate_pair_ceiling
from cml.errors import DataError, UserError

CONTRADICTED = 0.2  # share of the repeated judgements from which contradictions are said
_SHARED = 3  # pairs that a rater has to share with others


class _Rows(NamedTuple):
    """J rows of a table of pairs."""

    pairs: Int64  # (J, 2), the lower number first
    values: Float64  # (J,) distances
    weights: Float64  # (J,)
    raters: NDArray[np.str_] | None  # (J,), "" where none is named

    def subset(self, chosen: Bools) -> _Rows:
        raters = None if self.raters is None else self.raters[chosen]
        return _Rows(self.pairs[chosen], self.values[chosen], self.weights[chosen], raters)


class PairJudgements(ItemLabels):
    """Judged pairs of N items, as their labels: ``cml.fit(x, PairJudgements(frame, items=len(x)))``.

    Few of all pairs need to be judged. A pair that was judged several times has the weighted mean of its distances, and
    the sum of their weights. As a sequence it holds the label of each item, which the label distance ``judged-pairs``
    reads. ``hold_out`` splits it into judgements to train on and judgements to test on.

    Args:
        rows: A data frame, a mapping or a list of records with the columns ``item``, ``other`` and either ``distance``
            (at least 0) or ``similarity`` (any number, of which the largest stands for distance 0); optional ``weight``
            (above 0) and ``rater``, which may be missing in some rows. Or an array (J, 3) or (J, 4): item, other,
            distance, weight.
        items: The names of the N items in order, as the rows name them; or N, for rows that name items by their
            numbers from 0; None for N as large as the largest number needs.
        places: What each row is called in messages, such as "pairs.csv:7"; None for its number.
        faults: Gets what is wrong with a row, which is then left out; None raises it.

    Attributes:
        first: (P,) number of the first item of each different pair, the lower one.
        second: (P,) that of the other.
        distances: (P,) distance.
        weights: (P,) weight.
        remarks: What should be known of the judgements: columns that are not read, items that are left out,
            contradictions.
        ceiling: The largest rank correlation that an embedding can have with the distances, by repeated judgements:
            the root of their reliability, which is that of two random halves by Spearman and Brown's formula. None
            where fewer than 10 pairs are repeated.
        raters: Rater to Spearman's rho of their judgements with the mean of the others', where raters are named and
            share at least 3 pairs with others.

    Raises:
        UserError: A column is missing, or no row is left.
        DataError: A row names an unknown item, pairs an item with itself, or has another distance or weight.

    Example:
        >>> rows = {"item": ["a", "b", "a"], "other": ["b", "c", "b"], "distance": [1, 4, 2]}
        >>> judged = PairJudgements(rows, ["a", "b", "c"])
        >>> judged[0], judged[2]
        (['0', '1 1.5 2 1 2'], ['2', '1 4'])
    """

    label_distance = "judged-pairs"

    def __init__(
        self,
        rows: Any,  # noqa: ANN401 - the kinds listed above
        items: Sequence[Any] | int | None = None,
        *,
        places: Sequence[str] | None = None,
        faults: list[DataError] | None = None,
    ) -> None:
        names = ("item", "other", "distance", "weight", "rater")
        is_similarity = _has_column(rows, "similarity")
        if is_similarity and _has_column(rows, "distance"):
            raise UserError("The judged pairs should have a distance or a similarity. Got both columns; leave one out.")
        if is_similarity:
            names = ("item", "other", "similarity", "weight", "rater")
        table = JudgementColumns(
            rows, names, 3, "the judged pairs", places, faults, spelled="item, other, and distance or similarity"
        )
        numbers = number_items(items, [table["item"], table["other"]])
        one, other = (table.items(name, numbers) for name in names[:2])
        for row in np.flatnonzero((one == other) & (one >= 0)).tolist():
            table.refuse(row, f"pairs {table['item'][row]!r} with itself; delete it.")
        if is_similarity:
            values = table.numbers("similarity", "a finite number", lambda _: True)
        else:
            values = table.numbers("distance", "a number of at least 0", lambda number: number >= 0)
        weights = np.ones(len(values))
        if "weight" in table:
            weights = table.numbers("weight", "a number above 0", lambda number: number > 0)
        kept = np.flatnonzero(table.kept)
        if not len(kept):
            raise UserError("No judged pair is left.")
        if is_similarity:
            values = values[kept].max() - values
        low, high = np.minimum(one, other)[kept], np.maximum(one, other)[kept]
        raters = table.raters()
        raters = None if raters is None else raters[kept]
        self._numbers, self._unread = numbers, table.remarks
        self._collect(_Rows(np.stack([low, high], axis=1), values[kept], weights[kept], raters))

    def _collect(self, rows: _Rows) -> None:
        """Set what follows from rows."""
        self._rows = rows
        questions, pair = np.unique(rows.pairs, axis=0, return_inverse=True)
        pair = pair.ravel()
        self.first, self.second = questions.T
        self.weights: Float64 = np.bincount(pair, rows.weights).astype(np.float64)
        self.distances: Float64 = np.bincount(pair, rows.weights * rows.values) / self.weights
        self.remarks = self._unread + describe_items_without_judgement(self._numbers, set(questions.ravel().tolist()))
        self.remarks += _describe_contradictions(pair, rows.values)
        self.ceiling = estimate_pair_ceiling(pair, rows.values)
        self.raters = {} if rows.raters is None else _compare_raters(pair, rows.values, rows.raters)
        super().__init__(self._make_labels(pair, rows.values))

    @property
    def questions(self) -> Int64:
        """(P, 2) the two items of each different pair."""
        return np.stack([self.first, self.second], axis=1)

    def hold_out(self, test_fraction: float = 0.3, *, seed: int = 0) -> tuple[Self, Self]:
        """Split the judgements by pair: all judgements of one pair, in either order, go to one side.

        Both sides are about the same N items, and similarities stay on one scale. Agreement with the test side measures
        how well an embedding predicts new judgements of items that it was trained on, not of new items.

        Args:
            test_fraction: Fraction of the different pairs that the test side has.
            seed: Random seed.

        Returns:
            The judgements to train on, and those to test on.

        Raises:
            UserError: The fraction is out of range, there are fewer than 20 pairs, or a side would have none.

        Example:
            >>> rows = {"item": [0] * 30, "other": range(1, 31), "distance": range(30)}
            >>> PairJudgements(rows).hold_out()
            (PairJudgements(21 pairs of 31 items), PairJudgements(9 pairs of 31 items))
        """
        is_held = choose_questions(len(self.first), test_fraction, seed, "pairs")
        return self.select(~is_held), self.select(is_held)

    def select(self, chosen: Bools) -> Self:
        """Take the judgements of some pairs alone.

        Args:
            chosen: (P,) True for the ``questions`` to take, one at least.

        Returns:
            Their judgements, which are about the same N items.
        """
        _, pair = np.unique(self._rows.pairs, axis=0, return_inverse=True)
        selected = copy.copy(self)
        selected._collect(self._rows.subset(chosen[pair.ravel()]))
        return selected

    def _make_labels(self, pair: Int64, values: Float64) -> list[list[str]]:
        labels = [[str(item)] for item in range(len(self._numbers))]
        is_repeated = np.bincount(pair) > 1
        order = np.argsort(pair, kind="stable")
        each = np.split(values[order], np.cumsum(np.bincount(pair))[:-1])
        columns = (self.first, self.second, self.distances, self.weights, is_repeated)
        rows = zip(*(column.tolist() for column in columns), each, strict=True)
        for first, second, distance, weight, is_several, judged in rows:
            rest = f"{distance:.9g}" if weight == 1 and not is_several else f"{distance:.9g} {weight:.9g}"
            # the single judgements, for the ceiling, are in one of the two labels
            single = "".join(f" {value:.9g}" for value in judged.tolist()) if is_several else ""
            labels[first].append(f"{second} {rest}{single}")
            labels[second].append(f"{first} {rest}")
        return labels

    def __repr__(self) -> str:
        return f"PairJudgements({len(self.first):,} pairs of {len(self._numbers):,} items)"


def _has_column(rows: Any, name: str) -> bool:  # noqa: ANN401 - rows of any kind
    if isinstance(rows, list | tuple):  # of records
        return any(isinstance(row, Mapping) and name in row for row in rows)
    return name in list(getattr(rows, "columns", rows if isinstance(rows, Mapping) else ()))


def _describe_contradictions(pair: Int64, values: Float64) -> list[str]:
    """Say how many judgements of one pair are further apart than those of two pairs usually are."""
    counts = np.bincount(pair)
    again = counts[pair] > 1
    if not again.any():
        return []
    most, least = np.full(len(counts), -np.inf), np.full(len(counts), np.inf)
    np.maximum.at(most, pair, values)
    np.minimum.at(least, pair, values)
    repeated = counts > 1
    apart = (most - least)[repeated] > values.std()
    share = float(apart.mean())
    if share <= CONTRADICTED:
        return []
    return [
        f"{share:.0%} of the {int(repeated.sum())} pairs that were judged several times have judgements further apart "
        f"than the standard deviation of all, {values.std():.3g}; their mean is taken"
    ]


def _compare_raters(pair: Int64, values: Float64, raters: NDArray[np.str_]) -> dict[str, float]:
    """Spearman's rho of each rater's judgements with the mean of the others'."""
    from scipy.stats import spearmanr

    totals, counts = np.bincount(pair, values), np.bincount(pair)
    agreement = {}
    for rater in np.unique(raters[raters != ""]).tolist():
        own = raters == rater
        own_totals = np.bincount(pair[own], values[own], len(counts))
        own_counts = np.bincount(pair[own], minlength=len(counts))
        shared = (own_counts > 0) & (counts > own_counts)
        if shared.sum() < _SHARED:
            continue
        mine = own_totals[shared] / own_counts[shared]
        theirs = (totals - own_totals)[shared] / (counts - own_counts)[shared]
        if np.ptp(mine) > 0 and np.ptp(theirs) > 0:
            agreement[rater] = float(spearmanr(mine, theirs)[0])
    return agreement
