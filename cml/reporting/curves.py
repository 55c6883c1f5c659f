"""Curves as PNG: the loss of a run, and metrics over K with their intervals.

Figures are made without pyplot, so nothing global changes: no backend, no open figures, no settings. Not for: the
numbers in the curves, which training and evaluation make.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from cml.errors import UserError
from cml.files import atomic_file
from cml.reporting.visible_text import visible_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Float64 = NDArray[np.float64]

DOTS = 150  # an inch
# Okabe and Ito's colours without yellow, which paper does not show; order and marks keep them apart in grey print too
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKS = ("o", "s", "^", "D", "v", "P", "X")
_QUIET = "#6b6760"
_MOST_POINTS = 2000  # of the raw loss; a longer run is drawn as the range of each of this many stretches
_LOG_RANGE = 20.0  # a loss that falls by more than this factor gets a logarithmic axis


def write_curves(
    path: Path,
    metrics: Sequence[Mapping[str, float]],
    *,
    title: str = "",
    loss: str = "loss",
    validation: str = "validation",
    validation_label: str = "validation",
) -> None:
    """Draw the loss of a run, raw and smoothed, and below it the validation metric where there is one.

    Args:
        path: The PNG.
        metrics: Records of a run's metrics file: ``step`` and ``loss``, or ``step`` and ``validation``, other entries
            left aside. Of records of the same step the last one counts, as after a resumed run. Values that are not
            finite leave a gap.
        title: Above the curves.
        loss: Name of the loss in the records.
        validation: Name of the validation metric in the records.
        validation_label: What its axis is called.

    Raises:
        UserError: no record holds a finite loss or a finite validation metric.
    """
    steps, losses = _series(metrics, loss)
    marks, values = _series(metrics, validation)
    panels = [name for name, found in ((loss, losses), (validation_label, values)) if np.isfinite(found).any()]
    if not panels:
        raise UserError(f"There is nothing to draw: no record holds a finite {loss!r} or {validation!r}.")
    figure = _figure(8, 4.5 if len(panels) == 1 else 6)
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=[3, 2][: len(panels)])[:, 0]
    if panels[0] == loss and np.isfinite(losses).any():
        _draw_loss(axes[0], steps, losses)
    if np.isfinite(values).any():
        axes[-1].plot(marks, values, color=COLORS[1], marker="o", markersize=3.5, linewidth=1.5)
    for axis, name in zip(axes, panels, strict=True):
        _dress(axis, ylabel=name)
    axes[0].set_title(visible_text(title), loc="left", fontsize=11, parse_math=False)
    axes[-1].set_xlabel("step")
    _save(figure, path)


def write_metric_curves(
    path: Path,
    curves: Mapping[str, Mapping[int, tuple[float, float, float]]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    quiet: Collection[str] = ("oracle", "random"),
) -> None:
    """Draw a metric over K (or over another whole number), one line a method, with its interval as a band.

    Args:
        path: The PNG.
        curves: Method to {x: (value, lower end, upper end)}. Values that are not finite leave a gap.
        xlabel: Below the axis. The axis is logarithmic where the x form a geometric row (16, 32, 64, 128).
        ylabel: Beside the axis, with the unit.
        title: Above the curves.
        quiet: Methods drawn as dashed grey lines: the frame of reference, not competitors.

    Raises:
        UserError: no method, a method without values, or no finite value at all.
    """
    if not curves:
        raise UserError("There is nothing to draw: no method was given.")
    empty = [method for method, points in curves.items() if not points]
    if empty:
        raise UserError(f"The method {empty[0]!r} has no values to draw.")
    if not any(math.isfinite(point[0]) for points in curves.values() for point in points.values()):
        raise UserError("There is nothing to draw: no method has a finite value.")
    figure = _figure(7.5, 4.5)
    axis: Axes = figure.subplots()
    labels = []
    loud = 0
    dashes: tuple[int, tuple[float, ...]]
    for method, points in curves.items():
        x = np.array(sorted(points), np.float64)
        value, low, high = np.array([points[at] for at in sorted(points)], np.float64).T
        value, low, high = (np.where(np.isfinite(line), line, np.nan) for line in (value, low, high))
        if method in quiet:
            color, dashes, mark, below = _QUIET, (0, (4, 2)) if method == "oracle" else (0, (1, 1.5)), "", 1
        else:
            color, mark, below = COLORS[loud % len(COLORS)], MARKS[loud % len(MARKS)], 2
            dashes = ((0, ()), (0, (5, 1)), (0, (3, 1, 1, 1)))[loud // len(COLORS) % 3]
            loud += 1
        axis.fill_between(x, low, high, color=color, alpha=0.15, linewidth=0, zorder=below)
        axis.plot(x, value, color=color, linestyle=dashes, marker=mark, markersize=4, linewidth=1.6, zorder=below + 0.5)
        ends = np.flatnonzero(np.isfinite(value))
        if len(ends):
            labels.append((visible_text(method, 40), color, float(x[ends[-1]]), float(value[ends[-1]])))
    _dress(axis, ylabel=ylabel)
    axis.set_xlabel(visible_text(xlabel), parse_math=False)
    axis.set_title(visible_text(title), loc="left", fontsize=11, parse_math=False)
    _place_ticks(axis, sorted({at for points in curves.values() for at in points}))
    with _any_script():
        _label_lines(figure, axis, labels)
    _save(figure, path)


def smoothed(values: Float64, window: int) -> Float64:
    """Centred moving mean over ``window`` values, shorter at both ends; values that are not finite are left out.

    Args:
        values: (N,).
        window: At least 1; an even one counts as the next odd one.

    Returns:
        (N,), NaN where a window holds no finite value.
    """
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
    smooth = smoothed(losses, max(1, n // 25))
    if n > _MOST_POINTS:
        edges = np.linspace(0, n, _MOST_POINTS + 1).astype(int)[:-1]
        low = np.fmin.reduceat(losses, edges)
        high = np.fmax.reduceat(losses, edges)
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


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=DOTS, facecolor="white", layout="constrained")


def _dress(axis: Axes, *, ylabel: str) -> None:
    axis.set_facecolor("white")
    axis.set_ylabel(visible_text(ylabel), parse_math=False)
    axis.spines[["top", "right"]].set_visible(False)
    axis.spines[["left", "bottom"]].set_color("#b8b2a8")
    axis.tick_params(colors=_QUIET, labelcolor="#1d1c1a")
    axis.grid(True, color="#ebe7e0", linewidth=0.8)
    axis.set_axisbelow(True)


def _place_ticks(axis: Axes, places: Sequence[int]) -> None:
    """Ticks at the values themselves, on a logarithmic axis if they form a geometric row."""
    ratios = [b / a for a, b in itertools.pairwise(places) if a > 0]
    geometric = len(ratios) >= 2 and len(ratios) == len(places) - 1 and max(ratios) < 1.01 * min(ratios)
    if geometric:
        axis.set_xscale("log")
    if geometric or len(places) <= 12:
        axis.set_xticks(places, [str(place) for place in places])
        axis.minorticks_off()


def _label_lines(figure: Figure, axis: Axes, labels: Sequence[tuple[str, str, float, float]]) -> None:
    """Write each method's name at the right end of its line, pushed apart where lines end close together."""
    _, top = figure.get_size_inches() * figure.dpi
    least = 11 * figure.dpi / 72  # pixels between two names
    figure.draw_without_rendering()  # places the axes
    spots = sorted(
        ((float(axis.transData.transform((x, y))[1]), text, color, x, y) for text, color, x, y in labels),
        key=lambda spot: spot[0],
    )
    heights = spread([spot[0] for spot in spots], least, 0.0, float(top))
    right = max(x for _, _, x, _ in labels)
    for height, (at, text, color, _, y) in zip(heights, spots, strict=True):
        axis.annotate(
            text,
            xy=(right, y),
            xytext=(10, (height - at) * 72 / figure.dpi),
            textcoords="offset points",
            color=color,
            fontsize=10,
            va="center",
            annotation_clip=False,
            parse_math=False,
        )


def spread(places: Sequence[float], least: float, low: float, high: float) -> list[float]:
    """Move rising ``places`` as little as may be (least squares) so that neighbours are ``least`` apart.

    The result lies in ``low`` .. ``high`` if there is room for it, else it leaves that range upwards.
    """
    from scipy.optimize import isotonic_regression

    offsets = least * np.arange(len(places))  # places apart by ``least`` are places - offsets that rise
    rising = isotonic_regression(np.asarray(places, np.float64) - offsets).x
    bounded = np.clip(rising, low, max(low, high - offsets[-1]))  # clipped, it is the optimum within the bounds
    return [float(place) for place in bounded + offsets]


def _save(figure: Figure, path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with atomic_file(path) as temporary, _any_script():
        options: dict[str, Any] = {"format": "png", "metadata": {"Software": None}}  # the same curve, the same bytes
        FigureCanvasAgg(figure).figure.savefig(temporary, **options)


@contextlib.contextmanager
def _any_script() -> Iterator[None]:
    """A name in a script that the font lacks is drawn as boxes, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*[Gg]lyph .* missing from", category=UserWarning)
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support", category=UserWarning)
        yield
