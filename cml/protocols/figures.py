"""What a protocol reports: figures with intervals, and the grouped jackknife that the intervals are from."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cml.array_types import Bools, Int64
from cml.retrieval.metric_result import none_for_nan
from cml.retrieval.text_table import align_columns

_COLUMNS = 80  # of a terminal
_BLOCKS = 20  # of units; each figure is computed once without each of them


@dataclass(frozen=True)
class Figure:
    """A figure and its 95 % interval.

    Attributes:
        value: The figure; NaN where these items do not have it.
        low: Lower end of the interval; NaN where it is not known.
        high: Upper end.

    Example:
        >>> str(Figure(0.5, 0.4, 0.6))
        '0.500 [0.400, 0.600]'
    """

    value: float
    low: float = math.nan
    high: float = math.nan

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "-"
        return f"{_short(self.value)}" + ("" if math.isnan(self.low) else f" [{_short(self.low)}, {_short(self.high)}]")


@dataclass(frozen=True)
class ProtocolResult:
    """The figures of a protocol.

    Attributes:
        protocol: The name of the protocol.
        figures: Row to name to figure: ``figures["probe"]["mae"]``.
        note: How the figures were measured, and what the intervals are over.

    Example:
        >>> result = ProtocolResult("regression", {"knn": {"mae": Figure(0.5)}}, "10 neighbours.")
        >>> print(result)
               mae
        knn  0.500
        <BLANKLINE>
        10 neighbours.
    """

    protocol: str
    figures: Mapping[str, Mapping[str, Figure]]
    note: str

    def __str__(self) -> str:
        names = list(dict.fromkeys(name for row in self.figures.values() for name in row))
        if len(self.figures) < len(names):  # as many lines as there are figures, so that the table is never wide
            grid = [["", *self.figures], *([name, *self._cells(name)] for name in names)]
        else:
            grid = [
                ["", *names],
                *([row, *(str(row_of.get(name, "-")) for name in names)] for row, row_of in self._rows()),
            ]
        return f"{align_columns(grid)}\n\n{textwrap.fill(self.note, _COLUMNS, break_on_hyphens=False)}"

    def _rows(self) -> list[tuple[str, Mapping[str, Figure]]]:
        return list(self.figures.items())

    def _cells(self, name: str) -> list[str]:
        return [str(row.get(name, "-")) for row in self.figures.values()]

    def to_json(self) -> dict[str, Any]:
        """Give the figures as JSON can hold them, NaN as null.

        Returns:
            The protocol, its figures by row and name, each [value, low, high], and the note.
        """
        figures = {
            row: {name: none_for_nan([one.value, one.low, one.high]) for name, one in of_row.items()}
            for row, of_row in self.figures.items()
        }
        return {"protocol": self.protocol, "figures": figures, "note": self.note}


def jackknife(
    measure: Callable[[Bools], Mapping[str, float]],
    units: int,
    *,
    seed: int,
    lowest: float = -math.inf,
    highest: float = math.inf,
) -> dict[str, Figure]:
    """Compute figures with 95 % intervals by a grouped jackknife (Shao and Tu, The Jackknife and Bootstrap, 1995).

    Units fall into blocks at random. The figures without each of the blocks spread as those of new draws do.

    Args:
        measure: Gives the figures by name of the units that are kept, (U,) booleans.
        units: U, how many units are drawn independently, such as items, groups or classes.
        seed: Random seed of the blocks.
        lowest: No figure is lower, so that intervals end there.
        highest: No figure is higher.

    Returns:
        Name to figure.

    Example:
        >>> import numpy as np
        >>> values = np.arange(40.0)
        >>> found = jackknife(lambda kept: {"mean": float(values[kept].mean())}, len(values), seed=0)
        >>> found["mean"].value, found["mean"].low < 19.5 < found["mean"].high
        (19.5, True)
    """
    return summarize([measure(kept) for kept in draw_parts(units, seed)], lowest=lowest, highest=highest)


def draw_parts(units: int, seed: int) -> Bools:
    """The units that are kept, (B + 1, U): first all of them, then all but one of B blocks at a time."""
    blocks = min(_BLOCKS, units)
    block_of: Int64 = np.random.default_rng(seed).permutation(units) % blocks
    return np.concatenate([np.ones((1, units), bool), block_of != np.arange(blocks)[:, None]])


def summarize(
    found: Sequence[Mapping[str, float]],  # of each row of ``draw_parts``
    *,
    lowest: float = -math.inf,
    highest: float = math.inf,
) -> dict[str, Figure]:
    """The figures of all units, with intervals from those without a block."""
    from scipy.stats import t

    blocks = len(found) - 1
    if blocks < 2:
        return {name: Figure(value) for name, value in found[0].items()}
    wide = float(t.ppf(0.975, blocks - 1))
    figures = {}
    for name, value in found[0].items():
        left = np.array([some[name] for some in found[1:]])
        half = wide * math.sqrt((blocks - 1) / blocks * float(np.square(left - left.mean()).sum()))
        low, high = float(max(lowest, value - half)), float(min(highest, value + half))
        figures[name] = Figure(value, low, high) if math.isfinite(half) else Figure(value)
    return figures


def _short(value: float) -> str:
    if isinstance(value, int):  # a count
        return f"{value:,}"
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:.4g}"
