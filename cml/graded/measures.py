"""Measures of graded search, query by query, as trec_eval computes them.

A document without a grade counts as one of grade 0, but for ``bpref`` and ``judged``. A document is relevant if its
grade is above 0, or at least the setting ``grade``.

References: Järvelin, Kekäläinen: Cumulated gain-based evaluation of IR techniques, ACM TOIS 20, 2002 (nDCG); Burges et
al.: Learning to rank using gradient descent, ICML 2005 (exponential gains); Buckley, Voorhees: Retrieval evaluation
with incomplete information, SIGIR 2004 (bpref), in the form of trec_eval 9.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cml.array_types import Bools, Float64, Int64
from cml.errors import UserError, did_you_mean
from cml.option_types import convert_options
from cml.registry import Choice

MEASURES = ("ndcg@10", "precision@10", "recall@100", "map", "mrr", "bpref", "judged@10")
_CUT = re.compile(r"(?P<name>.*?)(?:@(?P<cut>\d+))?")


@dataclass(frozen=True)
class RankedGrades:
    """The grades of what was found for Q queries, and of all that was judged."""

    gains: Float64  # (Q, K) grades in order of rank, 0 where there is none
    known: Bools  # (Q, K) whether the document was judged
    found: Bools  # (Q, K) whether there is a document at all
    judged_rows: Int64  # (P,) the query of each judged pair, among the Q
    judged_gains: Float64  # (P,) its grade

    def ideal(self, size: int) -> Float64:  # (Q, size) the largest grades of each query, in order, 0 where fewer
        """Rank the judged documents of each query by their grades."""
        order = np.lexsort((-self.judged_gains, self.judged_rows))
        rows = self.judged_rows[order]
        places = np.arange(len(rows)) - np.searchsorted(rows, rows)
        ideal = np.zeros((len(self.gains), size))
        kept = places < size
        ideal[rows[kept], places[kept]] = self.judged_gains[order[kept]]
        return ideal

    def count(self, chosen: Bools) -> Int64:  # chosen (P,), (Q,) how many of each query
        """Count the judged documents of each query that are chosen."""
        return np.bincount(self.judged_rows[chosen], minlength=len(self.gains))


@dataclass(frozen=True)
class Measure:
    """The settings of a measure."""

    gains: Literal["linear", "exponential"] = "linear"  # what a grade g is worth to ``ndcg``: g, or 2^g - 1
    grade: float = 0.0  # the least grade of a relevant document, above 0; 0 for any grade above 0

    def __post_init__(self) -> None:
        convert_options(self)
        if not 0 <= self.grade < np.inf:
            raise UserError(f"The least 'grade' of a relevant document must be at least 0. Got {self.grade} instead.")

    def worth(self, grades: Float64) -> Float64:
        """What grades are worth; nothing below 0."""
        grades = np.maximum(grades, 0)
        return grades if self.gains == "linear" else np.exp2(grades) - 1

    def is_relevant(self, grades: Float64) -> Bools:
        """Whether grades are those of relevant documents."""
        return (grades > 0) & (grades >= self.grade)


def measure_queries(ranked: RankedGrades, name: str) -> Float64:
    """Compute a measure of each query, (Q,)."""
    compute, measure, cut = parse_measure(name)
    part = ranked
    if cut is not None:
        part = RankedGrades(
            ranked.gains[:, :cut], ranked.known[:, :cut], ranked.found[:, :cut], ranked.judged_rows, ranked.judged_gains
        )
    return compute(part, measure, cut)


def parse_measure(name: str) -> tuple[Compute, Measure, int | None]:
    """Read ``ndcg(gains=exponential)@10``: the function, its settings and the cut."""
    match = _CUT.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise UserError(f"A measure should read name@k, such as ndcg@10. Got {name!r} instead.")
    choice = Choice.parse(match["name"])
    if choice.name not in _MEASURES:
        raise UserError(
            f"There is no measure {choice.name!r}.{did_you_mean(choice.name, _MEASURES)} There are: "
            f"{', '.join(_MEASURES)}."
        )
    compute, settings, needs_cut = _MEASURES[choice.name]
    unknown = next((key for key in choice.settings if key not in settings), None)
    if unknown is not None:
        has = ", ".join(settings) or "none"
        raise UserError(f"The measure {choice.name!r} has no setting {unknown!r}. It has: {has}.")
    cut = None if match["cut"] is None else int(match["cut"])
    if cut == 0 or (cut is None and needs_cut):
        raise UserError(f"The measure {choice.name!r} needs a number of documents, as in {choice.name}@10.")
    return compute, Measure(**choice.settings), cut


def _ndcg(ranked: RankedGrades, measure: Measure, cut: int | None) -> Float64:
    size = int(np.bincount(ranked.judged_rows).max()) if cut is None else cut
    best = measure.worth(ranked.ideal(size))
    gained = measure.worth(ranked.gains)
    ideal = (best / np.log2(np.arange(2, 2 + size))).sum(axis=1)
    return _divide((gained / np.log2(np.arange(2, 2 + gained.shape[1]))).sum(axis=1), ideal)


def _precision(ranked: RankedGrades, measure: Measure, cut: int | None) -> Float64:
    assert cut is not None
    relevant: Float64 = measure.is_relevant(ranked.gains).sum(axis=1) / cut
    return relevant


def _recall(ranked: RankedGrades, measure: Measure, cut: int | None) -> Float64:
    relevant = ranked.count(measure.is_relevant(ranked.judged_gains))
    return _divide(measure.is_relevant(ranked.gains).sum(axis=1), relevant)


def _map(ranked: RankedGrades, measure: Measure, cut: int | None) -> Float64:
    is_relevant = measure.is_relevant(ranked.gains)
    precisions = is_relevant.cumsum(axis=1) / np.arange(1, 1 + is_relevant.shape[1])
    relevant = ranked.count(measure.is_relevant(ranked.judged_gains))
    return _divide(np.where(is_relevant, precisions, 0).sum(axis=1), relevant)


def _mrr(ranked: RankedGrades, measure: Measure, cut: int | None) -> Float64:
    is_relevant = measure.is_relevant(ranked.gains)
    return np.where(is_relevant.any(axis=1), 1 / (1 + is_relevant.argmax(axis=1)), 0.0)


def _bpref(ranked: RankedGrades, measure: Measure, cut: int | None) -> Float64:
    """Of judged documents alone: how few irrelevant ones come before the relevant ones."""
    is_relevant = measure.is_relevant(ranked.gains) & ranked.known
    is_bad = ranked.known & ~is_relevant & (ranked.gains >= 0)
    of_judged = measure.is_relevant(ranked.judged_gains)
    relevant, bad = ranked.count(of_judged), ranked.count(~of_judged & (ranked.judged_gains >= 0))
    most = np.minimum(relevant, bad)[:, None]
    before = np.minimum(is_bad.cumsum(axis=1), relevant[:, None])
    lost = np.divide(before, most, out=np.zeros(before.shape), where=most > 0)
    return _divide(np.where(is_relevant, 1 - lost, 0).sum(axis=1), relevant)


def _judged_share(ranked: RankedGrades, measure: Measure, cut: int | None) -> Float64:
    return _divide(ranked.known.sum(axis=1), ranked.found.sum(axis=1))


def _divide(above: Any, below: Any) -> Float64:  # noqa: ANN401 - arrays (Q,) of numbers
    above = np.asarray(above, np.float64)
    ratio: Float64 = np.divide(above, below, out=np.zeros(above.shape), where=np.asarray(below) > 0)
    return ratio


Compute = Callable[[RankedGrades, Measure, int | None], Float64]

# the function, its settings, and whether it needs a cut
_MEASURES: dict[str, tuple[Compute, tuple[str, ...], bool]] = {
    "ndcg": (_ndcg, ("gains",), False),
    "precision": (_precision, ("grade",), True),
    "recall": (_recall, ("grade",), False),
    "map": (_map, ("grade",), False),
    "mrr": (_mrr, ("grade",), False),
    "bpref": (_bpref, ("grade",), False),
    "judged": (_judged_share, (), False),
}
