"""Metrics over K, or over the embedding's dimension, as a figure with one panel per metric and a common legend."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.array_types import Float64
from cml.errors import UserError
from cml.reporting.figure import COLORS, MARKS, QUIET, any_script, dress, new_figure, save_figure
from cml.reporting.visible_text import visible_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Style = dict[str, Any]

Interval = tuple[float, float, float]  # value, lower end, upper end
Curves = Mapping[str, Mapping[float, Interval]]

_DOTS = 200  # an inch
_COLUMN = 3.4  # inches of a paper's column
_LONGEST = 40  # letters of a name
_LEGEND_LETTER, _LEGEND_MARK = 0.078, 0.7  # inches that a letter of a legend takes, and its mark with the gaps
_MANY = 60  # with more bars a method has them only at some x, so that all are visible
_DODGE = 0.12  # share of the step between two x over which the methods' points spread
# a reference farther away than this share of the compared methods' span is named, not drawn
_REACH, _REACH_OF_FRAMES = 3.0, 0.35
_BARS = 4.0  # share of the span that interval bars may add to the axis on each side: two seeds can make them endless
_FRAMES: Mapping[str, Any] = {"oracle": (0, (5, 2)), "random": (0, (1, 1.6))}
_FEATURES, _REGRESSION = (0, (6, 1.5, 1, 1.5)), (0, (3, 1, 1, 1, 1, 1))  # dashes of the other references


@dataclass(frozen=True)
class Panel:
    """One metric; its x axis is logarithmic if the x form a geometric sequence (16, 32, 64, 128)."""

    curves: Curves  # method to {x: (value, lower end, upper end)}; values that are not finite leave a gap
    ylabel: str  # the metric, with its unit
    xlabel: str = "K"
    ticks: Sequence[str] = ()  # names of the x 0, 1, ... if they are not numbers
    log: bool = False  # the x axis is logarithmic in any case
    joined: bool = True  # draw lines between points


def write_metric_curves(
    path: Path,
    panels: Sequence[Panel],
    *,
    # names of reference methods, which are drawn in grey and without bars
    quiet: Collection[str] = ("oracle", "random"),
    title: str = "",
) -> None:
    """Draw metrics side by side, one line per method, with the intervals as bars.

    An SVG and a PDF for papers are written next to the PNG, with panels of 3.4 inches (a column) and 8 point letters.
    """
    if not panels:
        raise UserError("There is nothing to draw: no panel was given.")
    for panel in panels:
        if not panel.curves:
            raise UserError("There is nothing to draw: no method was given.")
        empty = [method for method, points in panel.curves.items() if not points]
        if empty:
            raise UserError(f"The method {empty[0]!r} has no values to draw.")
        if not any(math.isfinite(point[0]) for points in panel.curves.values() for point in points.values()):
            raise UserError("There is nothing to draw: no method has a finite value.")
    methods = list(dict.fromkeys(itertools.chain.from_iterable(panel.curves for panel in panels)))
    loud = [method for method in methods if method not in quiet]
    styles = {method: _style(method, loud.index(method) if method in loud else None) for method in methods}

    from matplotlib import rc_context

    save_figure(_figure(panels, styles, loud, title, 5.2), path)
    with rc_context({"font.size": 8}):
        figure = _figure(panels, styles, loud, title, _COLUMN)
        for kind in (".svg", ".pdf"):
            save_figure(figure, path.with_suffix(kind))
            figure.set_layout_engine("none")  # the PDF is laid out as the SVG is


def _figure(
    panels: Sequence[Panel], styles: Mapping[str, Style], loud: Sequence[str], title: str, wide: float
) -> Figure:
    """The panels, each ``wide`` inches wide, and the legend below them."""
    methods, width, letters = list(styles), wide * len(panels), 0.8 if wide < 4 else 1.0
    columns = _columns(methods, width / letters)
    figure = new_figure(width, 0.77 * wide + 0.22 * letters * -(-len(methods) // columns), dots=_DOTS)
    axes = figure.subplots(1, len(panels), squeeze=False)[0]
    with any_script():
        drawn: set[str] = set()
        for axis, panel in zip(axes, panels, strict=True):
            drawn |= _draw(axis, panel, styles, [method for method in loud if method in panel.curves])
        methods = [method for method in methods if method in drawn]
        if title:
            figure.suptitle(visible_text(title), x=0.01, ha="left", fontsize=11, parse_math=False)
        from matplotlib.lines import Line2D

        handles = [Line2D([], [], **styles[method]) for method in methods]
        # the names go in afterwards: the legend would leave out one that begins with an underscore
        numbers = [str(place) for place in range(len(methods))]
        columns = _columns(methods, width / letters)
        legend = figure.legend(handles, numbers, loc="outside lower center", ncols=columns, frameon=False)
        for text, method in zip(legend.get_texts(), methods, strict=True):
            text.set_parse_math(False)
            text.set_text(visible_text(method, _LONGEST))
    return figure


def _columns(methods: Sequence[str], width: float) -> int:
    """Columns of a legend of ``width`` inches: as many as its names leave room for, up to 4."""
    longest = [min(len(visible_text(method, _LONGEST)), _LONGEST) for method in methods]
    for count in (4, 3, 2):
        parts = [part for part in np.array_split(longest, count) if len(part)]  # as matplotlib fills them
        if sum(_LEGEND_LETTER * int(part.max()) + _LEGEND_MARK for part in parts) <= width:
            return count
    return 1


def _style(method: str, place: int | None) -> Style:
    """The look of the method at a ``place`` among those compared, or of a reference."""
    if place is None:
        dashes = _FRAMES.get(method, _REGRESSION if method.startswith("ridge") else _FEATURES)
        return {"color": QUIET, "linestyle": dashes, "linewidth": 1.3}
    return {
        "color": COLORS[place % len(COLORS)],
        "linestyle": ((0, ()), (0, (5, 1)), (0, (3, 1, 1, 1)))[place // len(COLORS) % 3],
        "marker": MARKS[place % len(MARKS)],
        "markersize": 5.0 if place == 0 else 4.0,
        "linewidth": 2.2 if place == 0 else 1.3,
    }


def _draw(axis: Axes, panel: Panel, styles: Mapping[str, Style], loud: Sequence[str]) -> set[str]:
    """Draw lines, bars, ticks and limits of one panel; returns the methods that are not only named at its edge."""
    places = sorted({at for points in panel.curves.values() for at in points})
    geometric = not panel.ticks and _geometric(places)
    if geometric or panel.log:
        axis.set_xscale("log")
    least, most = low, high = _span([panel.curves[method] for method in loud], list(panel.curves.values()))
    far: list[tuple[str, float, float]] = []
    has_bars = any(lower < upper for method in loud for _, lower, upper in panel.curves[method].values())
    every = 1 if len(places) * len(loud) <= _MANY else max(1, -(-len(loud) // 2))
    for method in sorted(panel.curves, key=lambda name: name in _FRAMES):  # the frames last: what is drawn decides
        points = panel.curves[method]
        x = np.array(sorted(points), np.float64)
        lines = np.array([points[at] for at in sorted(points)], np.float64).T
        value, lower, upper = np.where(np.isfinite(lines), lines, np.nan)
        if method in loud:
            place = loud.index(method)
            axis.errorbar(
                _dodge(x, place, len(loud), geometric) if every == 1 and has_bars else x,
                value,
                yerr=np.nan_to_num([value - np.fmin(lower, value), np.fmax(upper, value) - value]),
                errorevery=(min(place % every, len(x) - 1), every),
                elinewidth=1.0,
                zorder=3 - 0.01 * place,
                **(styles[method] if panel.joined else {**styles[method], "linestyle": "none"}),
            )
            continue
        known = value[np.isfinite(value)]
        if not len(known):
            continue
        bottom, top = float(known.min()), float(known.max())
        reach = (_REACH_OF_FRAMES if method in _FRAMES else _REACH) * (high - low)
        if loud and not least - reach <= bottom <= top <= most + reach:
            far.append((method, bottom, top))
            continue
        least, most = min(least, bottom), max(most, top)
        if len(x) == 1:  # a line through one point would not be seen
            axis.axhline(value[0], zorder=1.5, **styles[method])
        else:
            axis.plot(x, value, zorder=1.5, **styles[method])
    dress(axis, ylabel=panel.ylabel)
    axis.set_xlabel(visible_text(panel.xlabel), parse_math=False)
    if len(places) == 1:
        axis.set_xlim(places[0] - 1, places[0] + 1)
    if panel.ticks:
        names = [visible_text(name, _LONGEST) for name in panel.ticks]
        axis.set_xticks(range(len(names)), names, rotation=20 if max(map(len, names)) > 8 else 0, parse_math=False)
    elif panel.joined and (geometric or len(places) <= 12) and all(float(place).is_integer() for place in places):
        axis.set_xticks(places, [f"{place:g}" for place in places])
        axis.minorticks_off()
    room = 0.06 * (most - least) or 0.05 * abs(most) or 1.0
    for above, edge, align in ((True, 0.985, "top"), (False, 0.015, "bottom")):
        notes = [_note(*note, above=above) for note in far if (note[2] > high) is above]
        least, most = (least, most + 1.2 * room * len(notes)) if above else (least - 1.2 * room * len(notes), most)
        if notes:
            look: Style = {"color": QUIET, "fontsize": "small", "va": align, "ha": "right", "zorder": 5}
            look["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
            axis.text(0.985, edge, "\n".join(notes), transform=axis.transAxes, parse_math=False, **look)
    axis.set_ylim(least - room, most + room)
    return set(panel.curves) - {method for method, *_ in far}


def _span(loud: Sequence[Mapping[float, Interval]], every: Sequence[Mapping[float, Interval]]) -> tuple[float, float]:
    """The range of the axis: all values, and intervals as far as they do not compress the values."""
    points = _finite_points(loud) or _finite_points(every)
    low, high = min(point[0] for point in points), max(point[0] for point in points)
    reach = _BARS * (high - low) if high > low else math.inf
    least = min([low, *(point[1] for point in points if math.isfinite(point[1]))])
    most = max([high, *(point[2] for point in points if math.isfinite(point[2]))])
    return max(least, low - reach), min(most, high + reach)


def _finite_points(curves: Sequence[Mapping[float, Interval]]) -> list[Interval]:
    return [point for curve in curves for point in curve.values() if math.isfinite(point[0])]


def _note(method: str, low: float, high: float, *, above: bool) -> str:
    figures = f"{low:.3g}" if f"{low:.3g}" == f"{high:.3g}" else f"{low:.3g} to {high:.3g}"
    return f"{'↑' if above else '↓'} {visible_text(method, 40)} {figures}"


def _dodge(x: Float64, place: int, count: int, geometric: bool) -> Float64:
    """``x`` moved a little aside, by the method's place among ``count``."""
    part = _DODGE * ((place + 0.5) / count - 0.5)
    if geometric:
        return np.asarray(float(x[1] / x[0] if len(x) > 1 else 2.0) ** part * x)
    return x + part * float(np.diff(x).min() if len(x) > 1 else 1.0)


def _geometric(places: Sequence[float]) -> bool:
    ratios = [b / a for a, b in itertools.pairwise(places) if a > 0]
    return len(ratios) >= 2 and len(ratios) == len(places) - 1 and max(ratios) < 1.01 * min(ratios)
