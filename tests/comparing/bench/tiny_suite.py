"""A suite of seconds beside the published ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cml.comparing.bench.run import Plan
from cml.comparing.bench.suite import SUITES, VERSION, Suite
from cml.tuning import heads, splits

HEADS = replace(
    SUITES[VERSION].heads,
    backbone="small-cnn",
    weights="none",
    image_size=(16, 16),
    steps=3,
    dimension=4,
    sampler="random(batch_size=20)",
    device="cpu",
)
TINY = Suite("tiny", 60, 60, 20, 12, 44, 3, 2, HEADS, replace(HEADS, freeze_backbone=False), 2)
METHODS = ("rkd-distance", "cosent")
ROWS = ("oracle", "random", "frozen", "label-mds")  # ridge and tune are tested on vectors
SET = "digits"
TRACK = "A-small-cnn"


def install() -> None:
    """Make the suite known to this process, and ``tune`` quick."""
    SUITES["tiny"] = TINY  # type: ignore[index]
    heads.STOPS, splits.MOST_SPLITS = (5, 10), 4  # type: ignore[assignment, misc]


def plan(out: Path, *losses: str, letter: str = "A", rows: tuple[str, ...] = ROWS) -> Plan:
    """A plan of the rows without trials and some losses on the digits."""
    return Plan(SUITES["tiny"], letter, [SET], [*rows, *(losses or METHODS)], out)


def at(out: Path, method: str, letter: str = "A") -> Path:
    """The file of a result."""
    return out / "tiny" / SET / f"{letter}-small-cnn" / f"{method}.json"
