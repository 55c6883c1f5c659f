"""Judged triplets, as people give them: an anchor, the item that is nearer to it, the one that is farther, by whom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cml.data.item_labels import ItemLabels
from cml.data.judgement_columns import JudgementColumns, describe_unjudged, number_items
from cml.data.pair_judgements import CONTRADICTED
from cml.errors import DataError, UserError

Int64 = NDArray[np.int64]
_NAMES = ("anchor", "nearer", "farther", "count", "rater")
_FEWEST = 10  # repeated questions from which a ceiling means something


class TripletJudgements(ItemLabels):
    """Judged triplets of N items, as their labels: ``cml.fit(x, TripletJudgements(frame, items=len(x)))``.

    A triplet may be there several times, and may contradict another one: the loss ``logistic-triplet`` learns which
    share of them is wrong. As a sequence it holds the label of each item, which the label distance ``judged-triplets``
    reads.

    Args:
        rows: A data frame or a mapping with the columns ``anchor``, ``nearer`` and ``farther``, and optional ``count``
            (a whole number of at least 1) and ``rater``. Or an array (J, 3) or (J, 4) of numbers: anchor, nearer,
            farther, count.
        items: The names of the N items in order, as the rows name them; or N, for rows that name items by their
            numbers from 0; None for N as large as the largest number needs.
        places: What each row is called in messages, such as "triplets.csv:7"; None for its number.
        faults: Gets what is wrong with a row, which is then left out; None raises it.

    Attributes:
        triplets: (T, 3) anchor, nearer and farther item of each different triplet.
        counts: (T,) how often it was judged so.
        remarks: What should be known of the judgements: items that are left out, contradictions.
        ceiling: The share of judgements that an embedding can agree with at most, by repeated ones: 1 - e where two
            judgements of one question agree with probability (1 - e)^2 + e^2. None where fewer than 10 questions are
            repeated.
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
        table = JudgementColumns(rows, _NAMES, 3, "the judged triplets", places, faults)
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
        whole, each = whole[kept], counts[kept].astype(np.int64)
        self._count = len(numbers)
        self.triplets: Int64
        self.triplets, place = np.unique(whole, axis=0, return_inverse=True)
        self.counts: Int64 = np.bincount(place.ravel(), each).astype(np.int64)
        self.remarks = describe_unjudged(numbers, set(self.triplets.ravel().tolist()))
        question, is_swapped = _as_questions(whole)
        sides = [np.bincount(question, each * side) for side in (~is_swapped, is_swapped)]
        votes = np.stack(sides, axis=1).astype(np.float64)  # (Q, 2)
        self.remarks += _describe_contradictions(votes)
        self.ceiling = _compute_ceiling(votes)
        by = np.array([str(rater) for rater in table["rater"]])[kept] if "rater" in table else None
        self.raters = {} if by is None else _compare_raters(question, is_swapped, each, votes, by)
        super().__init__(self._make_labels())

    @property
    def parties(self) -> Int64:
        """(T, 3) the three items of each different triplet."""
        return self.triplets

    def _make_labels(self) -> list[list[str]]:
        labels = [[str(item)] for item in range(self._count)]
        for (anchor, nearer, farther), count in zip(self.triplets.tolist(), self.counts.tolist(), strict=True):
            labels[anchor].append(f"{nearer} {farther}" if count == 1 else f"{nearer} {farther} {count}")
        return labels

    def __repr__(self) -> str:
        return f"TripletJudgements({int(self.counts.sum()):,} judgements of {self._count:,} items)"


def _as_questions(triplets: Int64) -> tuple[Int64, NDArray[np.bool_]]:
    """Which question each triplet answers, "is i or j nearer to a", i < j, and whether the answer is j."""
    anchor, nearer, farther = triplets.T
    questions = np.stack([anchor, np.minimum(nearer, farther), np.maximum(nearer, farther)], axis=1)
    _, question = np.unique(questions, axis=0, return_inverse=True)
    return question.ravel(), nearer > farther


def _describe_contradictions(votes: NDArray[np.float64]) -> list[str]:
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


def _compute_ceiling(votes: NDArray[np.float64]) -> float | None:
    """1 - e of the flip rate e by which judgements of one question agree as often as they do."""
    total = votes.sum(axis=1)
    repeated = total > 1
    if repeated.sum() < _FEWEST:
        return None
    agreeing = (votes * (votes - 1)).sum(axis=1)[repeated]
    pairs = (total * (total - 1))[repeated]
    return float((1 + np.sqrt(max(0.0, 2 * (agreeing / pairs).mean() - 1))) / 2)


def _compare_raters(
    question: Int64, is_swapped: NDArray[np.bool_], counts: Int64, votes: NDArray[np.float64], raters: NDArray[np.str_]
) -> dict[str, float]:
    """The share of each rater's judgements that agree with the majority of the others'; ties are left out."""
    agreement = {}
    for rater in np.unique(raters).tolist():
        own = raters == rater
        mine = np.stack(
            [np.bincount(question[own], (counts * side)[own], len(votes)) for side in (~is_swapped, is_swapped)], axis=1
        )
        others = votes - mine
        lead = others[:, 0] - others[:, 1]
        decided = lead != 0
        total = mine[decided].sum()
        if total:
            agreeing = np.where(lead[decided] > 0, mine[decided, 0], mine[decided, 1]).sum()
            agreement[rater] = float(agreeing / total)
    return agreement
