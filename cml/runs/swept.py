"""What a sweep found, as tables and as figures: every trial on held-out items, and what was chosen on the test set."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cml.reporting.metric_curves import Panel, write_metric_curves
from cml.retrieval import text_table
from cml.retrieval.comparison import Comparison, Interval, interval_text, over_seeds
from cml.runs.report import figure_metrics
from cml.runs.trials import Trial, Varied, titled, value_text

_HELD_OUT = "rank correlation, held out"
_MOST_CURVES = 8  # of the figure over steps, the best ones
_SPREAD = 0.5  # of the step between two listed values: what the trials of one are spread over
Points = dict[str, dict[float, Interval]]


@dataclass(frozen=True)
class Swept(Comparison):
    """What a sweep found: a comparison of what was chosen, or of everything in a study."""

    trials: Sequence[Trial]  # every run that was validated
    study: bool  # nothing was chosen

    def held_out(self) -> dict[str, Interval]:
        """What each trial reached: mean rank correlation on the held-out items, with a 95 % interval over its seeds."""
        scores: dict[str, list[float]] = {}
        for one in self.trials:
            scores.setdefault(one.title, []).append(1 - one.loss)
        return {name: over_seeds(found) for name, found in scores.items()}

    def trial_table(self) -> list[list[str]]:
        """Header and rows as text: what was tried, in that order."""
        lines = [["tried", _HELD_OUT, "seconds", ""]]
        for name, value in self.held_out().items():
            runs = [one for one in self.trials if one.title == name]
            known = [one.seconds for one in runs if one.seconds is not None]
            failed = next((one.failed for one in runs if one.failed), "")
            note = failed or ("chosen" if name in self.trained and not self.study else "")
            seconds = f"{sum(known) / len(known):.3g}" if known else ""
            lines.append([name, "" if failed else interval_text(value), seconds, note])
        return lines

    def notes(self) -> str:
        """What the figures are, and what they say."""
        how = (
            "A study: its figures of the test set are to look at, not to choose by."
            if self.study
            else "Chosen on items held out of the training set; of what was chosen alone the test set was evaluated."
        )
        return f"{how}\n{super().notes()}"

    def markdown(self) -> str:
        """Both tables as Markdown."""
        return f"{text_table.markdown(self.trial_table())}\n\n{super().markdown()}"

    def __str__(self) -> str:
        return f"{text_table.aligned(self.trial_table())}\n\n{super().__str__()}"

    def to_json(self) -> dict[str, Any]:
        """All figures, and every trial."""
        return {**super().to_json(), "study": self.study, "trials": [asdict(one) for one in self.trials]}


def write_sweep_pictures(
    swept: Swept, vary: Sequence[Varied], curves: Sequence[Mapping[int, float]], out: Path, *, drawn: bool
) -> None:
    """Write vary.png and convergence.png into ``out``; ``curves`` are step to rank correlation, of each trial."""
    done = [one for one in swept.trials if not one.failed]
    panels = [_scattered(swept, done, one) for one in vary] if drawn else _over_option(swept, done, vary)
    write_metric_curves(out / "vary.png", panels)
    write_metric_curves(out / "convergence.png", _convergence(swept, curves))


def _over_option(swept: Swept, done: Sequence[Trial], vary: Sequence[Varied]) -> list[Panel]:
    first, reached = vary[0], swept.held_out()
    measures = {_HELD_OUT: reached}
    if swept.study:
        rows = swept.rows()
        for name, label in figure_metrics(swept):
            measures[label] = {one.title: rows[one.title][name] for one in done}
    numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in first.values)
    listed = [] if numbers else [value_text(one) for one in first.values]
    panels = []
    for label, values in measures.items():
        points: Points = {}
        for one in done:
            value, rest = one.settings[first.name], {**one.settings}
            del rest[first.name]
            place: float = listed.index(value_text(value)) if listed else float(value)
            points.setdefault(titled(one.method, rest) or first.name, {})[place] = values[one.title]
        panels.append(Panel(points, label, first.name, tuple(listed)))
    return panels


def _scattered(swept: Swept, done: Sequence[Trial], option: Varied) -> Panel:
    """What drawn trials reached, over one option; the chosen ones by themselves."""
    points: Points = {}
    listed = [value_text(value) for value in option.values]
    for number, one in enumerate(done):
        value = one.settings[option.name]
        aside = _SPREAD * (number / len(done) - 0.5)  # or the trials of one listed value would hide each other
        at = listed.index(value_text(value)) + aside if listed else float(value)
        reached = 1 - one.loss
        name = "chosen" if one.title in swept.trained else one.method or "trials"
        points.setdefault(name, {})[at] = (reached, reached, reached)
    shown = dict(sorted(points.items(), key=lambda one: one[0] == "chosen"))
    return Panel(shown, _HELD_OUT, option.name, tuple(listed), option.log, joined=False)


def _convergence(swept: Swept, curves: Sequence[Mapping[int, float]]) -> list[Panel]:
    """The score over steps and over seconds: means over seeds, of the best trials."""
    reached = swept.held_out()
    over_steps: Points = {}
    over_seconds: Points = {}
    for name in sorted(reached, key=lambda name: -reached[name][0])[:_MOST_CURVES]:
        found = [(one, curve) for one, curve in zip(swept.trials, curves, strict=True) if one.title == name and curve]
        if not found:
            continue
        shared = sorted(set.intersection(*(set(curve) for _, curve in found)))
        means: dict[float, Interval] = {step: over_seeds([curve[step] for _, curve in found]) for step in shared}
        over_steps[name] = means
        if rates := [one.seconds / max(curve) for one, curve in found if one.seconds is not None]:
            over_seconds[name] = {step * statistics.fmean(rates): value for step, value in means.items()}
    panels = [Panel(over_steps, _HELD_OUT, "step")]
    return [*panels, Panel(over_seconds, _HELD_OUT, "seconds of training")] if over_seconds else panels
