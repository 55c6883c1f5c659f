"""Queries that are held out of a training on grades, to validate it: their documents stay in the training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cml.array_types import Bools, Int64
from cml.errors import UserError
from cml.graded.grades import Grades
from cml.training.config import TrainConfig
from cml.training.stages import FEWEST_HELD_OUT, MOST_HELD_OUT, count_trained_items, last_groups


@dataclass(frozen=True)
class HeldOutQueries:
    """Which items train and which validate; items are the Q queries, then the D documents."""

    trained: Int64  # other queries, and all documents
    validating: Int64  # the held-out queries, and the documents that they are ranked among
    queries: int  # how many of them validate
    which: str  # how they were chosen, in words; "" for given ones

    def describe(self, grades: Grades) -> str:
        """Say in a sentence what validates."""
        documents = f"{len(self.validating) - self.queries:,} documents"
        if not self.which:
            return f"validation ranks {documents} for {self.queries:,} of the queries given for it by nDCG@10."
        return (
            f"validation holds out {self.queries:,} of {len(grades.queries):,} queries, {self.which}, and ranks "
            f"{documents} for them by nDCG@10."
        )


def hold_queries_out(
    grades: Grades,
    groups: Int64 | None,  # (Q,) the group of each query; None for none
    config: TrainConfig,  # the options that say how many, and the seed
) -> HeldOutQueries:
    """Hold queries out, with documents that were judged for them, and others where these count as grade 0.

    At most ``MOST_HELD_OUT`` queries and documents validate, as they are embedded and compared in each validation.
    """
    count = len(grades.queries)
    trained = count_trained_items(config, count, "queries")
    order = np.random.default_rng(config.seed).permutation(count)
    held_out = order[trained:]
    if groups is not None:
        held_out = order[last_groups(groups, count - trained)[order]]
        if count - len(held_out) < FEWEST_HELD_OUT:
            raise UserError(
                f"'groups' leaves {count - len(held_out)} of {count} queries to train on where whole groups are held "
                f"out for validation; at least {FEWEST_HELD_OUT} are needed. Set evaluate_every to 0, or make the "
                "groups smaller."
            )
    return _validate(grades, held_out, "whole groups" if groups is not None else "drawn at random", config.seed)


def hold_last_out(
    grades: Grades,
    count: int,  # how many of the last queries were given to validate
    seed: int,
) -> HeldOutQueries:
    """Hold out the queries that were given to validate, which are the last ones."""
    if count < FEWEST_HELD_OUT:
        raise UserError(f"'validation' must have at least {FEWEST_HELD_OUT} queries. Got {count} instead.")
    first = len(grades.queries) - count
    return _validate(grades, first + np.random.default_rng(seed).permutation(count), "", seed)


def _validate(
    grades: Grades,
    held_out: Int64,  # (V,) the queries, in the order in which they are taken until there are enough
    which: str,
    seed: int,
) -> HeldOutQueries:
    """Choose the documents for held-out queries."""
    count = len(grades.queries)
    is_held_out = np.zeros(count, bool)
    is_held_out[held_out] = True
    ranked = _choose_documents(grades, held_out)
    room = MOST_HELD_OUT - ranked.sum()
    if grades.unjudged == "zero" and room > 0:
        others = np.flatnonzero(~ranked[count:]) + count
        ranked[np.random.default_rng(seed).permutation(others)[:room]] = True
    return HeldOutQueries(
        np.flatnonzero(np.append(~is_held_out, np.ones(len(grades.documents), bool))),
        np.flatnonzero(ranked),
        int(ranked[:count].sum()),
        which,
    )


def _choose_documents(grades: Grades, held_out: Int64) -> Bools:  # (Q + D,)
    """Mark held-out queries, in order, with their judged documents, until there are enough of both."""
    count = len(grades.queries)
    starts = np.searchsorted(grades.rows, np.arange(count + 1))
    chosen = np.zeros(count + len(grades.documents), bool)
    for place, row in enumerate(held_out.tolist()):
        documents = grades.columns[starts[row] : starts[row + 1]] + count
        if place >= FEWEST_HELD_OUT and chosen.sum() + 1 + (~chosen[documents]).sum() > MOST_HELD_OUT:
            break
        chosen[row] = chosen[documents] = True
    return chosen
