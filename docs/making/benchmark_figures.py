"""Figures of the published benchmark that sentences on pages state."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from making.result_tables import IMAGES, VECTORS, load_board

PARTS: dict[str, Callable[[Sequence[float]], float]] = {
    "defaults": lambda scores: scores[0],
    "median": statistics.median,
    "best": max,
}


def tuned_methods(track: str) -> list[str]:
    """List the methods of a track that have trials."""
    board = load_board(track)
    return [method for method in board.ranks if any(result.trials for result in board.results[method].values())]


def trial_mean(track: str, method: str, part: str, sets: Sequence[str]) -> float:
    """Average the validation score of a method's trials over sets.

    Args:
        track: The track with its backbone.
        method: The method.
        part: "defaults" for the first trial, "median" or "best".
        sets: Names of sets. A trial that failed counts as 0.
    """
    row = load_board(track).results[method]
    return statistics.mean(PARTS[part](row[name].trial_scores) for name in sets)


def leading_methods(track: str, part: str, sets: Sequence[str]) -> list[str]:
    """Order the methods of a track by their mean score over sets, the best first.

    Args:
        track: The track with its backbone.
        part: "defaults", "median" or "best".
        sets: Names of sets.
    """
    return sorted(tuned_methods(track), key=lambda method: -trial_mean(track, method, part, sets))


def count_within(track: str, part: str, sets: Sequence[str], gap: float) -> int:
    """Count the methods whose mean score is at most a gap below the best one, which counts too.

    Args:
        track: The track with its backbone.
        part: "defaults", "median" or "best".
        sets: Names of sets.
        gap: The largest difference of scores.
    """
    scores = [trial_mean(track, method, part, sets) for method in tuned_methods(track)]
    return sum(max(scores) - score <= gap for score in scores)


def count_best(track: str, method: str) -> int:
    """Count the sets on which a method is the best or does not differ from the best significantly.

    Args:
        track: The track with its backbone.
        method: The method.
    """
    return sum(best == method for best, _ in load_board(track).best)


def count_behind(track: str, method: str, name: str) -> int:
    """Count the tuned methods that are significantly behind a method on a set.

    Args:
        track: The track with its backbone.
        method: The method.
        name: Name of the set.
    """
    header, *rows = load_board(track).against(method)[0]
    column = header.index(name)
    tuned = tuned_methods(track)
    return sum(row[0] in tuned and row[column].startswith("-") and row[column].endswith("*") for row in rows)


def difference(track: str, method: str, other: str, name: str) -> list[float]:
    """Return the score of a method minus that of another on a set, and half of its 95 % interval.

    Args:
        track: The track with its backbone.
        method: The method.
        other: The other method.
        name: Name of the set.
    """
    header, *rows = load_board(track).against(other)[0]
    text = next(row for row in rows if row[0] == method)[header.index(name)]
    return [float(number) for number in text.rstrip("*").split(" ± ")]


def total_minutes(track: str) -> float:
    """Add up the time of all trials and final runs of a track, in minutes of one process."""
    seconds = [
        result.seconds["trials"] + result.seconds["run"] * max(len(result.query_scores), 1)
        for row in load_board(track).results.values()
        for result in row.values()
    ]
    return sum(seconds) / 60


NAMES: dict[str, Any] = {
    "board": load_board,
    "tuned_methods": tuned_methods,
    "trial_mean": trial_mean,
    "leading_methods": leading_methods,
    "count_within": count_within,
    "count_best": count_best,
    "count_behind": count_behind,
    "difference": difference,
    "total_minutes": total_minutes,
    "IMAGES": IMAGES,
    "VECTORS": VECTORS,
}
