"""Verdicts in one sentence: whether a method is better than its references, and whether the data can show it."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cml.retrieval.mean_interval import mean_intervals
from cml.retrieval.results import Evaluation

FEW_QUERIES = 100  # the interval of a mean over them is +- 0.2 standard deviations; fewer show only large differences
_FALLEN = 0.1  # a training loss below this share of its first values: the training set was memorised or fitted well


def with_verdict(evaluation: Evaluation, row: str, losses: Sequence[float] = (), *, mend: str = "") -> Evaluation:
    """Return an evaluation with a verdict on one of its rows.

    Args:
        evaluation: The evaluation.
        row: The row of the trained embedding.
        losses: Training losses of its steps, which show overfitting; none if they are unknown.
        mend: What would help against overfitting, given how the embedding was trained, as a clause; "" if unknown.

    Returns:
        The evaluation with the verdict.
    """
    name = main_metric(list(evaluation.rows[row]))
    ours = evaluation.rows[row][name]
    better, rest = [], []
    for other, metrics in evaluation.rows.items():
        if other in (row, "oracle") or other.startswith(f"{row}, "):  # cut to its first numbers
            continue
        # how much better ours is, query by query
        gain = (ours.per_query - metrics[name].per_query) * (1 if ours.higher_is_better else -1)
        low, high = mean_intervals(gain[:, None])[0].tolist()
        against = f"{ours.mean:.3g} against {metrics[name].mean:.3g} in {name}"
        sentence = f"{other} ({against}; 95 % interval of the paired gain {low:.3g} to {high:.3g})"
        if low > 0:
            better.append(sentence)
        else:
            rest.append(f"{'worse than' if high < 0 else 'not better than'} {sentence}")
    parts = [*rest, *([f"better than {' and '.join(better)}"] if better else [])]
    if not parts:
        return evaluation
    first, last = (np.mean(losses[:10]), np.mean(losses[-10:])) if losses else (1.0, 1.0)
    if rest and last < _FALLEN * first:
        parts.insert(0, f"overfitted (the training loss fell from {first:.3g} to {last:.3g})")
        parts.extend([mend] if mend else [])
    if evaluation.queries < FEW_QUERIES:
        unclear = any("not better" in text for text in rest)
        few = "too few to show small differences" if unclear else "few: the size of the difference is uncertain"
        parts.append(f"{evaluation.queries} queries are {few}")
    return replace(evaluation, verdict=f"Verdict: {'; '.join(parts)}.")


def main_metric(names: Sequence[str]) -> str:
    """The metric that verdicts look at: MAP@R of classes, else label_distance at the largest K up to 10."""
    distances = [name for name in names if name.startswith("label_distance@")]
    return next((name for name in ("map@r", "label_distance@10") if name in names), (distances or list(names))[-1])


def size_verdict(queries: int, others: int, mend: str = "") -> str:
    """Say that there are too few queries to show small differences.

    Args:
        queries: Number of queries.
        others: Number of items among which each is searched.
        mend: A sentence that says how to get more queries.

    Returns:
        The verdict; "" if the queries are enough.
    """
    if others < 1:
        searched = "1 query has" if queries == 1 else f"{queries} queries have"
        return f"Verdict: {searched} no items to be searched among, so that nothing can be measured. {mend}".rstrip()
    if queries >= FEW_QUERIES:
        return ""
    return (
        f"Verdict: {queries} queries, each among {others} items, can only show large differences: the 95 % interval of "
        f"a mean over them is ± {1.96 / math.sqrt(queries):.1f} standard deviations. {mend}".rstrip()
    )
