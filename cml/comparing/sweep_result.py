"""The result of a sweep: a comparison of what was chosen, every trial on held-out items, and figures of both."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cml.comparing.report import list_figure_metrics
from cml.comparing.search_space import SearchDimension, settings_title, value_text
from cml.comparing.trials import Trial
from cml.reporting.metric_curves import Panel, write_metric_curves
from cml.retrieval import text_table
from cml.retrieval.comparison import Comparison, Interval, interval_text, over_seeds

HELD_OUT = "rank correlation, held out"
_MOST_CURVES = 8  # of the figure over steps, the best ones
_SPREAD = 0.5  # of the step between two listed values: the trials of a value are spread over it
Points = dict[str, dict[float, Interval]]


@dataclass(frozen=True)
class SweepResult(Comparison):
    """A comparison of what a sweep chose, or of every setting in a study, with the trials."""

    trials: Sequence[Trial]  # every run that was validated
    study: bool  # whether every setting was evaluated, and none chosen

    def held_out(self) -> dict[str, Interval]:
        """Mean rank correlation on the held-out items of every setting, with a 95 % interval over its seeds."""
        scores: dict[str, list[float]] = {}
        for trial in self.trials:
            scores.setdefault(trial.title, []).append(1 - trial.loss)
        return {title: over_seeds(values) for title, values in scores.items()}

    def trial_table(self) -> list[list[str]]:
        """Header and rows of a table of all settings, in the order in which they were trained."""
        lines = [["tried", HELD_OUT, "seconds", ""]]
        for title, value in self.held_out().items():
            runs = [trial for trial in self.trials if trial.title == title]
            times = [trial.seconds for trial in runs if trial.seconds is not None]
            failed = next((trial.failed for trial in runs if trial.failed), "")
            note = failed or ("chosen" if title in self.trained and not self.study else "")
            seconds = f"{sum(times) / len(times):.3g}" if times else ""
            lines.append([title, "" if failed else interval_text(value), seconds, note])
        return lines

    def notes(self) -> str:
        """An explanation of both tables, and the verdict."""
        choice = (
            "A study: its figures on the test set describe the settings; do not choose by them."
            if self.study
            else "Chosen on items held out of the training set; of what was chosen alone the test set was evaluated."
        )
        return f"{choice}\n{super().notes()}"

    def markdown(self) -> str:
        """Both tables as Markdown."""
        return f"{text_table.markdown(self.trial_table())}\n\n{super().markdown()}"

    def __str__(self) -> str:
        return f"{text_table.align_columns(self.trial_table())}\n\n{super().__str__()}"

    def to_json(self) -> dict[str, Any]:
        """All figures, and every trial."""
        return {**super().to_json(), "study": self.study, "trials": [asdict(trial) for trial in self.trials]}


def write_sweep_pictures(
    result: SweepResult,
    dimensions: Sequence[SearchDimension],
    curves: Sequence[Mapping[int, float]],
    out: Path,
    *,
    drawn: bool,
) -> None:
    """Write search_space.png and convergence.png into a folder."""
    trials = [trial for trial in result.trials if not trial.failed]
    if drawn:
        panels = [_drawn_trials_panel(result, trials, dimension) for dimension in dimensions]
    else:
        panels = _grid_panels(result, trials, dimensions)
    write_metric_curves(out / "search_space.png", panels)
    write_metric_curves(out / "convergence.png", _convergence_panels(result, curves))


def _grid_panels(result: SweepResult, trials: Sequence[Trial], dimensions: Sequence[SearchDimension]) -> list[Panel]:
    """Scores over the first option, a curve for each setting of the others; in a study also the metrics."""
    first, held_out = dimensions[0], result.held_out()
    scores = {HELD_OUT: held_out}
    if result.study:
        rows = result.rows()
        for name, label in list_figure_metrics(result):
            scores[label] = {trial.title: rows[trial.title][name] for trial in trials}
    is_numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in first.values)
    listed = [] if is_numeric else [value_text(value) for value in first.values]
    panels = []
    for label, values in scores.items():
        points: Points = {}
        for trial in trials:
            others = {name: value for name, value in trial.settings.items() if name != first.name}
            value = trial.settings[first.name]
            place: float = listed.index(value_text(value)) if listed else float(value)
            curve = settings_title(trial.method, others) or first.name
            points.setdefault(curve, {})[place] = values[trial.title]
        panels.append(Panel(points, label, first.name, tuple(listed)))
    return panels


def _drawn_trials_panel(result: SweepResult, trials: Sequence[Trial], dimension: SearchDimension) -> Panel:
    """Scores of drawn trials over one option; the chosen ones by themselves."""
    points: Points = {}
    listed = [value_text(value) for value in dimension.values]
    for number, trial in enumerate(trials):
        value = trial.settings[dimension.name]
        aside = _SPREAD * (number / len(trials) - 0.5)  # or the trials of one listed value would hide each other
        place = listed.index(value_text(value)) + aside if listed else float(value)
        score = 1 - trial.loss
        name = "chosen" if trial.title in result.trained else trial.method or "trials"
        points.setdefault(name, {})[place] = (score, score, score)
    chosen_last = dict(sorted(points.items(), key=lambda curve: curve[0] == "chosen"))
    return Panel(chosen_last, HELD_OUT, dimension.name, tuple(listed), dimension.log, joined=False)


def _convergence_panels(result: SweepResult, curves: Sequence[Mapping[int, float]]) -> list[Panel]:
    """The score over steps and over seconds: means over seeds, of the best settings."""
    held_out = result.held_out()
    over_steps: Points = {}
    over_seconds: Points = {}
    for title in sorted(held_out, key=lambda title: -held_out[title][0])[:_MOST_CURVES]:
        pairs = zip(result.trials, curves, strict=True)
        runs = [(trial, curve) for trial, curve in pairs if trial.title == title and curve]
        if not runs:
            continue
        shared_steps = sorted(set.intersection(*(set(curve) for _, curve in runs)))
        means: dict[float, Interval] = {step: over_seeds([curve[step] for _, curve in runs]) for step in shared_steps}
        over_steps[title] = means
        seconds_per_step = [trial.seconds / max(curve) for trial, curve in runs if trial.seconds is not None]
        if seconds_per_step:
            mean = statistics.fmean(seconds_per_step)
            over_seconds[title] = {step * mean: value for step, value in means.items()}
    panels = [Panel(over_steps, HELD_OUT, "step")]
    if over_seconds:
        panels.append(Panel(over_seconds, HELD_OUT, "seconds of training"))
    return panels
