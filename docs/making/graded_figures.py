"""What grades are worth beside grades that are cut to relevant or not: tests/benchmarks/graded_search."""

from __future__ import annotations

from typing import Any

from making.records import Cells
from making.result_tables import load

SETS = ("drawn", "captions")
LOSSES = ("lambda-ndcg(temperature=0.2)", "cosent")
MEASURE = "ndcg@10"


def graded_set(name: str, record: str = "graded_search") -> dict[str, Any]:
    """Look up the figures of a set: means, differences, and how many queries and documents."""
    (file,) = load(record).values.values()
    found: dict[str, Any] = file[name]
    return found


def graded_difference(
    name: str, loss: str, other: str, part: str = "difference", record: str = "graded_search"
) -> float:
    """Look up how much better graded training is than "frozen", the best cut of the "same loss", or of "any"."""
    return float(graded_set(name, record)["differences"][f"{loss}, {other}"][part])


def graded_table(record: str = "graded_search") -> Cells:
    """Make the table of nDCG@10 and the difference from the best cut: header and rows."""
    rows = []
    for name in SETS:
        means = {row: values[MEASURE] for row, values in graded_set(name, record)["means"].items()}
        for loss in LOSSES:
            cut = max(value for row, value in means.items() if row.startswith(f"{loss}, at least"))
            ends = (graded_difference(name, loss, "same loss", part, record) for part in ("difference", "low", "high"))
            difference, low, high = (f"{value:+.4f}" for value in ends)
            numbers = [f"{value:.4f}" for value in (means["frozen"], means[f"{loss}, graded"], cut)]
            rows.append([name, f"`{loss}`", *numbers, f"{difference} ({low} to {high})"])
    return [["set", "loss", "untrained", "grades", "best cut", "grades less best cut"], *rows]


NAMES = {"graded_set": graded_set, "graded_difference": graded_difference}
"""What expressions on pages may call."""
