"""Judged triplets, as people give them: an anchor, the item that is nearer to it, the one that is farther, by whom."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from cml.array_types import Bools, Float64, Int64
from cml.data.judgement_columns import JudgementColumns, as_columns, describe_items_without_judgement, number_items
from cml.data.judgement_questions import (
    ItemLabels,
    TripletQuestions,
    choose_questions,
    estimate_triplet_ceiling,
    find_questions,
)
from cml.data.pair_judgements import CONTRADICTED
from cml.data.triplet_forms import KNOWN, read_form
from cml.errors import DataError, UserError

_NAMES = ("anchor", "nearer", "farther", "count", "rater")


class _Rows(NamedTuple):
    """J rows of a table of triplets."""

    triplets: Int64  # (J, 3)
    counts: Int64  # (J,)
    raters: NDArray[np.str_] | None  # (J,), "" where none is named

    def subset(self, chosen: Bools) -> _Rows:
        raters = None if self.raters is None else self.raters[chosen]
        return _Rows(self.triplets[chosen], self.counts[chosen], raters)


class TripletJudgements(ItemLabels):
    """Judged triplets of N items, as their labels: ``cml.fit(x, TripletJudgements(frame, items=len(x)))``.

    A triplet may be there several times, and may contradict another one: the loss ``logistic-triplet`` learns which
    share of them is wrong. As a sequence it holds the label of each item, which the label distance ``judged-triplets``
    reads. ``hold_out`` splits it into judgements to train on and judgements to test on.

    Args:
        rows: A data frame, a mapping or a list of records with the columns ``anchor``, ``nearer`` and ``farther``, and
            optional ``count`` (a whole number of at least 1) and ``rater``, which may be missing in some rows. Or an
            array (J, 3) or (J, 4) of numbers: anchor, nearer, farther, count. Tables of other forms are recognised by
            the names of their columns, and ``remarks`` says how they are read: a reference, two options, and a response
            or votes; or three items and the choice of the odd one out, which gives two triplets.
        items: The names of the N items in order, as the rows name them; or N, for rows that name items by their
            numbers from 0; None for N as large as the largest number needs.
        places: What each row is called in messages, such as "triplets.csv:7"; None for its number.
        faults: Gets what is wrong with a row, which is then left out; None raises it.

    Attributes:
        triplets: (T, 3) anchor, nearer and farther item of each different triplet.
        counts: (T,) how often it was judged so.
        questions: (Q, 3) the items of each question, "which of two is nearer to the anchor": anchor and the two others,
            the lower number first.
        remarks: What should be known of the judgements: columns that are not read, items that are left out,
            contradictions.
        ceiling: The share of judgements that an embedding can agree with at most, by repeated ones, a mean over
            anchors: 1 - e where two judgements of one question agree with probability (1 - e)^2 + e^2. None where fewer
            than 10 questions are repeated.
        raters: Rater to the share of their judgements that agree with the majority of the others', where raters are
            named and share questions with others.

    Raises:
        UserError: A column is missing, or no row is left.
        DataError: A row names an unknown item or one item twice, or has another count.

    Example:
        >>> rows = {"anchor": ["a", "a"], "nearer": ["b", "b"], "farther": ["c", "c"]}
        >>> judged = TripletJudgements(rows, ["a", "b", "c"])
        >>> judged[0], judged[1]
        (['0', '1 2 2'], ['1'])
    """

    label_distance = "judged-triplets"

    def __init__(
        self,
        rows: Any,  # noqa: ANN401 - the kinds listed above
        items: Sequence[Any] | int | None = None,
        *,
        places: Sequence[str] | None = None,
        faults: list[DataError] | None = None,
    ) -> None:
        remarks: list[str] = []
        named = as_columns(rows)
        if named and not set(_NAMES[:3]) <= named.keys() and (found := read_form(named)) is not None:
            rows, remarks = found.columns, [found.remark]
            places = [f"row {row} of the judged triplets" if places is None else places[row] for row in found.sources]
        table = JudgementColumns(rows, _NAMES, 3, "the judged triplets", places, faults, spelled=KNOWN)
        numbers = number_items(items, [table[name] for name in _NAMES[:3]])
        whole = np.stack([table.items(name, numbers) for name in _NAMES[:3]], axis=1)
        anchor, nearer, farther = whole.T
        twice = (anchor == nearer) | (anchor == farther) | (nearer == farther)
        for row in np.flatnonzero(twice & (whole >= 0).all(axis=1)).tolist():
            names = ", ".join(str(table[name][row]) for name in _NAMES[:3])
            table.refuse(row, f"names one item twice ({names}); anchor, nearer and farther should be three items.")
        counts = np.ones(len(whole))
        if "count" in table:
            counts = table.numbers("count", "a whole number of at least 1", lambda value: value >= 1 and value % 1 == 0)
        kept = np.flatnonzero(table.kept)
        if not len(kept):
            raise UserError("No judged triplet is left.")
        raters = table.raters()
        raters = None if raters is None else raters[kept]
        self._numbers, self._unread = numbers, remarks + table.remarks
        self._collect(_Rows(whole[kept], counts[kept].astype(np.int64), raters))

    def _collect(self, rows: _Rows) -> None:
        """Set what follows from rows."""
        self._rows = rows
        self.triplets: Int64
        self.triplets, place = np.unique(rows.triplets, axis=0, return_inverse=True)
        self.counts: Int64 = np.bincount(place.ravel(), rows.counts).astype(np.int64)
        asked = find_questions(*rows.triplets.T)
        self.questions: Int64 = asked.questions
        self.remarks = self._unread + describe_items_without_judgement(
            self._numbers, set(self.triplets.ravel().tolist())
        )
        votes = asked.count_votes(rows.counts)
        self.remarks += _describe_contradictions(votes)
        self.ceiling = estimate_triplet_ceiling(votes, self.questions[:, 0])
        self.raters = {}
        if rows.raters is not None:
            self.raters = _compare_raters(asked, rows.counts, votes, rows.raters)
        super().__init__(self._make_labels())

    def hold_out(self, test_fraction: float = 0.3, *, seed: int = 0) -> tuple[Self, Self]:
        """Split the judgements by question: all answers to one question, whoever gave them, go to one side.

        Both sides are about the same N items. Agreement with the test side measures how well an embedding predicts new
        judgements of items that it was trained on, not of new items.

        Args:
            test_fraction: Fraction of the questions that the test side has.
            seed: Random seed.

        Returns:
            The judgements to train on, and those to test on.

        Raises:
            UserError: The fraction is out of range, there are fewer than 20 questions, or a side would have none.

        Example:
            >>> rows = {"anchor": [0] * 30, "nearer": [1] * 30, "farther": range(2, 32)}
            >>> TripletJudgements(rows).hold_out()
            (TripletJudgements(21 judgements of 32 items), TripletJudgements(9 judgements of 32 items))
        """
        is_held = choose_questions(len(self.questions), test_fraction, seed, "triplets")
        return self.select(~is_held), self.select(is_held)

    def select(self, chosen: Bools) -> Self:
        """Take the judgements of some questions alone.

        Args:
            chosen: (Q,) True for the ``questions`` to take, one at least.

        Returns:
            Their judgements, which are about the same N items.
        """
        place = find_questions(*self._rows.triplets.T).place
        selected = copy.copy(self)
        selected._collect(self._rows.subset(chosen[place]))
        return selected

    def _make_labels(self) -> list[list[str]]:
        labels = [[str(item)] for item in range(len(self._numbers))]
        for (anchor, nearer, farther), count in zip(self.triplets.tolist(), self.counts.tolist(), strict=True):
            labels[anchor].append(f"{nearer} {farther}" if count == 1 else f"{nearer} {farther} {count}")
        return labels

    def __repr__(self) -> str:
        return f"TripletJudgements({int(self.counts.sum()):,} judgements of {len(self._numbers):,} items)"


def _describe_contradictions(votes: Float64) -> list[str]:
    """Say which share of the judgements of repeated questions contradicts the majority."""
    repeated = votes[votes.sum(axis=1) > 1]
    if not len(repeated):
        return []
    share = float(repeated.min(axis=1).sum() / repeated.sum())
    if share <= CONTRADICTED:
        return []
    return [
        f"{share:.0%} of the judgements of {len(repeated)} triplets that were judged several times contradict the "
        "majority; all are kept, and the loss learns the share that is wrong"
    ]


def _compare_raters(
    asked: TripletQuestions, counts: Int64, votes: Float64, raters: NDArray[np.str_]
) -> dict[str, float]:
    """The share of each rater's judgements that agree with the majority of the others'; ties are left out."""
    agreement = {}
    for rater in np.unique(raters[raters != ""]).tolist():
        mine = asked.count_votes(counts * (raters == rater))
        others = votes - mine
        lead = others[:, 0] - others[:, 1]
        decided = lead != 0
        total = mine[decided].sum()
        if total:
            agreeing = np.where(lead[decided] > 0, mine[decided, 0], mine[decided, 1]).sum()
            agreement[rater] = float(agreeing / total)
    return agreement
