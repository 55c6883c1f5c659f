"""A histogram of label distances as PNG, on a linear and on a logarithmic axis, with marked quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError
from cml.reporting.figure import COLORS, INK, dress, new_figure, save_figure
from cml.reporting.visible_text import visible_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BARS = 80
TAIL = 0.0005  # the smallest distances, left out on the logarithmic axis: they would take half of it


def write_histogram(
    path: Path, distances: NDArray[np.float32], *, unit: str, quantiles: Mapping[float, float], title: str = ""
) -> None:
    """Draw the distribution of label distances.

    The left axis is linear, the right one logarithmic, as for ratios of label distances. The title gives the shares of
    zero and infinite distances. Zeros are in the first bar on the left; infinite ones have no bar. The ``quantiles``,
    share to distance, are marked and named.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    positive = distances[np.isfinite(distances) & (distances > 0)].astype(np.float64)
    if len(positive) == 0:
        raise UserError("There is nothing to draw: no label distance is above 0 and finite.")
    low, high = float(np.quantile(positive, TAIL)), float(positive.max())
    if high <= 1.001 * low:
        low, high = low / 1.5, high * 1.5
    figure = new_figure(10, 4.2)
    left, right = figure.subplots(1, 2)
    finite = distances[np.isfinite(distances)].astype(np.float64)
    for axis, drawn, edges in (
        (left, finite, np.linspace(0, high, BARS + 1)),
        (right, positive, np.geomspace(low, high, BARS + 1)),
    ):
        axis.hist(drawn, edges, color=COLORS[0], weights=np.full(len(drawn), 100 / len(distances)))
    right.set_xscale("log")
    # ticks as plain numbers: at powers of ten, or evenly spaced if the range has too few of them
    powers = LogLocator(subs=(1,) if high / low > 300 else (1, 2, 5), numticks=8)
    right.xaxis.set_major_locator(powers if high / low > 8 else MaxNLocator(7, steps=[1, 2, 5, 10]))
    right.xaxis.set_minor_locator(NullLocator())
    right.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    right.set_xlim(low, high)
    for axis in (left, right):
        dress(axis, ylabel="share of pairs, %")
        axis.set_ylim(0, 1.16 * axis.get_ylim()[1])
        _mark(axis, {share: value for share, value in quantiles.items() if low <= value <= high})
    left.set_xlabel(visible_text(f"label distance, {unit}"), parse_math=False)
    right.set_xlabel(visible_text(f"label distance, {unit}, logarithmic"), parse_math=False)
    counts = f"{(distances == 0).mean():.2%} at 0, {np.isinf(distances).mean():.2%} infinite"
    above = visible_text(f"{title}{', ' if title else ''}{len(distances):,} pairs: {counts}")
    figure.suptitle(above, x=0.01, ha="left", fontsize=11, color=INK, parse_math=False)
    save_figure(figure, path)


def _mark(axis: Axes, quantiles: Mapping[float, float]) -> None:
    """A line at each quantile with its name at the top, in steps, so that close ones do not overlap."""
    top = axis.get_ylim()[1]
    for number, (share, value) in enumerate(sorted(quantiles.items())):
        axis.axvline(value, color=COLORS[1], linewidth=1, linestyle=(0, (4, 2)))
        height = top * (0.985 - 0.05 * (number % 3))
        axis.text(value, height, f" {share:.0%}", color=COLORS[1], fontsize=8, va="top", ha="left")
