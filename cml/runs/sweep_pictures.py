"""The figures of a sweep: what was reached over the options that vary, and over steps and seconds.

Not for: how they are drawn (cml.reporting), the figures in them (sweep.py).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml.reporting.metric_curves import Panel, write_metric_curves
from cml.retrieval.comparison import Interval, over_seeds
from cml.runs.pictures import figure_metrics
from cml.runs.trials import Trial, titled
from cml.runs.varied import Varied, value_text

if TYPE_CHECKING:
    from cml.runs.swept import Swept

_HELD_OUT = "rank correlation, held out"
_MOST_CURVES = 8  # of the figure over steps, the best ones
_SPREAD = 0.5  # of the step between two listed values: what the trials of one are spread over


def write_sweep_pictures(
    swept: Swept, vary: Sequence[Varied], curves: Sequence[Mapping[int, float]], out: Path, *, drawn: bool
) -> None:
    """Write vary.png and convergence.png into ``out``.

    Args:
        swept: What was found.
        vary: The options that varied.
        curves: Of each of its trials, step to rank correlation on held-out items.
        out: Folder.
        drawn: Whether the trials were drawn, or are all combinations.
    """
    done = [one for one in swept.trials if not one.failed]
    panels = [_scattered(swept, done, one) for one in vary] if drawn else _over_option(swept, done, vary)
    write_metric_curves(out / "vary.png", panels)
    write_metric_curves(out / "convergence.png", _convergence(swept, curves))


def _over_option(swept: Swept, done: Sequence[Trial], vary: Sequence[Varied]) -> list[Panel]:
    """Metrics over the first option, a line for each combination of the others."""
    first, reached = vary[0], swept.held_out()
    measures = {_HELD_OUT: reached}
    if swept.study:
        rows = swept.rows()
        for name, label in figure_metrics(swept):
            measures[label] = {one.title: rows[one.title][name] for one in done}
    names = {one.title: _line(one, first.name) for one in done}
    places = {one.title: _place(first, one.settings[first.name]) for one in done}
    ticks = () if _numbers(first) else tuple(map(value_text, first.values))
    panels = []
    for label, values in measures.items():
        points: dict[str, dict[float, Interval]] = {}
        for title, name in names.items():
            points.setdefault(name, {})[places[title]] = values[title]
        panels.append(Panel(points, label, first.name, ticks))
    return panels


def _line(trial: Trial, first: str) -> str:
    rest = {name: value for name, value in trial.settings.items() if name != first}
    return titled(trial.method, rest) or first


def _scattered(swept: Swept, done: Sequence[Trial], option: Varied) -> Panel:
    """What drawn trials reached, over one option; the chosen ones by themselves."""
    points: dict[str, dict[float, Interval]] = {}
    for number, one in enumerate(done):
        value, listed = one.settings[option.name], [value_text(value) for value in option.values]
        aside = _SPREAD * (number / len(done) - 0.5)  # or the trials of one listed value would hide each other
        at = listed.index(value_text(value)) + aside if listed else float(value)
        reached = 1 - one.loss
        name = "chosen" if one.title in swept.trained else one.method or "trials"
        points.setdefault(name, {})[at] = (reached, reached, reached)
    order = sorted(points, key=lambda name: name == "chosen")
    ticks = tuple(map(value_text, option.values))
    return Panel({name: points[name] for name in order}, _HELD_OUT, option.name, ticks, option.log, joined=False)


def _convergence(swept: Swept, curves: Sequence[Mapping[int, float]]) -> list[Panel]:
    """The score over steps and over seconds: means over seeds, of the best trials."""
    reached = swept.held_out()
    best = sorted(reached, key=lambda name: -reached[name][0])[:_MOST_CURVES]
    over_steps: dict[str, dict[float, Interval]] = {}
    over_seconds: dict[str, dict[float, Interval]] = {}
    for name in best:
        found = [(one, curve) for one, curve in zip(swept.trials, curves, strict=True) if one.title == name and curve]
        if not found:
            continue
        shared = sorted(set.intersection(*(set(curve) for _, curve in found)))
        means: dict[float, Interval] = {step: over_seeds([curve[step] for _, curve in found]) for step in shared}
        over_steps[name] = means
        rates = [one.seconds / max(curve) for one, curve in found if one.seconds is not None]
        if rates:
            over_seconds[name] = {step * statistics.fmean(rates): value for step, value in means.items()}
    panels = [Panel(over_steps, _HELD_OUT, "step")]
    return [*panels, Panel(over_seconds, _HELD_OUT, "seconds of training")] if over_seconds else panels


def _numbers(option: Varied) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in option.values)


def _place(option: Varied, value: Any) -> float:  # noqa: ANN401 - of any option
    """Where a value stands on the axis: itself, or its number among those listed."""
    listed = [value_text(one) for one in option.values]
    return float(listed.index(value_text(value))) if listed and not _numbers(option) else float(value)
