"""The loss of a run as PNG, with the validation metric below it, and histograms of label distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cml.array_types import Float32, Float64
from cml.errors import UserError
from cml.reporting.figure import COLORS, INK, dress, new_figure, save_figure
from cml.reporting.visible_text import visible_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_MOST_POINTS = 2000  # of the raw loss; a longer run is drawn as the range of each of this many stretches
BARS = 80  # of a histogram
TAIL = 0.0005  # the smallest distances, left out on its logarithmic axis: they would take half of it
_LOG_RANGE = 20.0  # a loss that falls by more than this factor gets a logarithmic axis


def write_curves(
    path: Path,
    # records with ``step`` and an entry named ``loss`` or ``validation``; the last record of a step counts
    metrics: Sequence[Mapping[str, float]],
    *,
    title: str = "",
    loss: str = "loss",
    validation: str = "validation",
    validation_label: str = "validation",
) -> None:
    """Draw the loss of a run as PNG, raw and smoothed, and below it the validation metric if it was measured."""
    steps, losses = _series(metrics, loss)
    marks, values = _series(metrics, validation)
    panels = [name for name, series in ((loss, losses), (validation_label, values)) if np.isfinite(series).any()]
    if not panels:
        raise UserError(f"There is nothing to draw: no record holds a finite {loss!r} or {validation!r}.")
    figure = new_figure(8, 4.5 if len(panels) == 1 else 6)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=[3, 2][: len(panels)])[:, 0]
    if panels[0] == loss and np.isfinite(losses).any():
        _draw_loss(axes[0], steps, losses)
    if np.isfinite(values).any():
        axes[-1].plot(marks, values, color=COLORS[1], marker="o", markersize=3.5, linewidth=1.5)
    for axis, name in zip(axes, panels, strict=True):
        dress(axis, ylabel=name)
    axes[0].set_title(visible_text(title), loc="left", fontsize=11, parse_math=False)
    axes[-1].set_xlabel("step")
    axes[-1].xaxis.get_major_locator().set_params(integer=True)
    save_figure(figure, path)


def compute_moving_mean(values: Float64, window: int) -> Float64:
    """Centred moving mean of the finite ones among ``window`` values, an odd number or the next; NaN of none."""
    half = window // 2
    finite = np.isfinite(values)
    totals = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    at = np.arange(len(values))
    start, stop = np.maximum(at - half, 0), np.minimum(at + half + 1, len(values))
    number = counts[stop] - counts[start]
    mean = (totals[stop] - totals[start]) / np.maximum(number, 1)
    return np.where(number > 0, mean, np.nan)


def _series(metrics: Sequence[Mapping[str, float]], name: str) -> tuple[Float64, Float64]:
    last: dict[float, float] = {}
    for number, record in enumerate(metrics):
        if record.get(name) is None:
            continue
        for entry in ("step", name):
            if not isinstance(record.get(entry), int | float):
                raise UserError(f"Record {number} of the metrics needs a number {entry!r}. Got {record.get(entry)!r}.")
        last[record["step"]] = record[name]
    steps = sorted(last)
    return np.array(steps, np.float64), np.array([last[step] for step in steps], np.float64)


def _draw_loss(axis: Axes, steps: Float64, losses: Float64) -> None:
    n = len(losses)
    losses = np.where(np.isfinite(losses), losses, np.nan)
    color, faint = COLORS[0], "#9cc3de"
    smooth = compute_moving_mean(losses, max(1, n // 25))
    if n > _MOST_POINTS:
        edges = np.linspace(0, n, _MOST_POINTS + 1).astype(int)[:-1]
        low, high = np.fmin.reduceat(losses, edges), np.fmax.reduceat(losses, edges)
        axis.fill_between(steps[edges], low, high, color=faint, linewidth=0, label="range of the steps")
        axis.plot(steps[edges], smooth[edges], color=color, linewidth=1.8, label="moving mean")
    elif n >= 50:
        axis.plot(steps, losses, color=faint, linewidth=0.8, label="each record")
        axis.plot(steps, smooth, color=color, linewidth=1.8, label="moving mean")
    else:
        axis.plot(steps, losses, color=color, linewidth=1.6, marker="o", markersize=3)
    if n >= 50:
        axis.legend(frameon=False, fontsize=9)
    finite = losses[np.isfinite(losses)]
    trend = smooth[np.isfinite(smooth)]
    if finite.min() > 0 and trend.max() > _LOG_RANGE * trend.min():
        from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_locator(NullLocator())
        axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def write_histogram(
    path: Path,
    distances: Float32,  # (P,) label distances. The title counts infinite ones, which are not drawn
    *,
    unit: str,
    quantiles: Mapping[float, float],  # share of the pairs (0..1) to the distance that is marked with it
    title: str = "",
) -> None:
    """Draw the distribution of label distances, on a linear and on a logarithmic axis."""
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
        top = 1.16 * axis.get_ylim()[1]
        axis.set_ylim(0, top)
        marked = sorted((share, value) for share, value in quantiles.items() if low <= value <= high)
        for number, (share, value) in enumerate(marked):  # names in steps, so that close ones do not overlap
            axis.axvline(value, color=COLORS[1], linewidth=1, linestyle=(0, (4, 2)))
            height = top * (0.985 - 0.05 * (number % 3))
            axis.text(value, height, f" {share:.0%}", color=COLORS[1], fontsize=8, va="top", ha="left")
    left.set_xlabel(visible_text(f"label distance, {unit}"), parse_math=False)
    right.set_xlabel(visible_text(f"label distance, {unit}, logarithmic"), parse_math=False)
    counts = f"{(distances == 0).mean():.2%} at 0, {np.isinf(distances).mean():.2%} infinite"
    above = visible_text(f"{title}{', ' if title else ''}{len(distances):,} pairs: {counts}")
    figure.suptitle(above, x=0.01, ha="left", fontsize=11, color=INK, parse_math=False)
    save_figure(figure, path)
