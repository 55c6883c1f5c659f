"""A sweep: trains with options that vary, chooses on held-out training items, and compares what was chosen.

The result is a comparison of what was chosen, with every trial on held-out items, and figures of both.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cml import losses, sampling
from cml.comparing.report import list_figure_metrics, write_report
from cml.comparing.rows import PlannedRun, Row, is_finished, plan_runs, with_batch_size_of
from cml.comparing.search_space import (
    SearchDimension,
    Settings,
    corners,
    grid,
    settings_title,
    value_text,
    with_settings,
)
from cml.comparing.train_comparison import CompareOptions, check_labels, run_comparison, write_tables
from cml.comparing.trials import Trial, TrialLog, best_settings, search
from cml.console.messages import resume_hint, say
from cml.data.prepared import PreparedDataset
from cml.doors.train import train_task
from cml.doors.training_run import with_tracker
from cml.errors import UserError
from cml.option_types import check_options
from cml.reporting.metric_curves import Panel, write_metric_curves
from cml.retrieval import text_table
from cml.retrieval.comparison import Comparison, Interval, interval_text, over_seeds
from cml.storage.safe_paths import check_no_link
from cml.task import Task
from cml.training import run_folder
from cml.training.callbacks import Callback, State
from cml.training.config import TrainConfig
from cml.training.learner import Place
from cml.training.metrics_log import METRICS, read_metrics

TRIALS = "trials.json"
_VALIDATIONS = 10  # per run, unless ``evaluate_every`` says otherwise


@resume_hint()
def run_sweep(
    task: Task,
    dataset: PreparedDataset,
    rows: Sequence[Row],
    out: Path,
    search_space: Sequence[SearchDimension],
    options: CompareOptions,
    *,
    dimension: int,
    trials: int = 0,
    study: bool = False,
    seed: int = 0,
) -> SweepResult:
    """Train rows with options that vary, choose on held-out training items, and compare what was chosen.

    The test set is evaluated once, and only for what was chosen; a study has the figures of everything. Every trial is
    a run folder, and trials.json lists them, so that a sweep that was cut off resumes. docs/results/proxy_anchor.md has
    published studies.
    """
    options = check_options(options)
    if trials and study:
        raise UserError("A study is of all combinations: leave 'trials' out, or 'study'.")
    if any(row.name for row in rows) and any(varying.name == "loss" for varying in search_space):
        raise UserError("Vary the loss, or name variants and losses, not both.")
    if trials < 0:
        raise UserError(f"'trials' must be at least 0. Got {trials} instead.")
    settings = corners(search_space) if trials else grid(search_space)
    runs_per_row = trials or len(settings) * options.seeds
    runs = _TrialRuns(task, dataset, out, options, dimension, total=len(rows) * runs_per_row)
    configs = [trial_options(row.options, values) for row in rows for values in settings]
    for config in configs:  # refuse before the first run what a loss or sampler does not take
        losses.get(config.loss)
        sampling.get(config.sampler)
    check_labels(task, dataset, configs)

    chosen: list[Row] = []
    for row in rows:
        if trials:
            row_trials = search(search_space, trials, functools.partial(runs.run, row), seed=seed)
        else:
            row_trials = [runs.run(row, values, number) for values in settings for number in range(options.seeds)]
        if study:
            failed = {trial.title for trial in row_trials if trial.failed}
            kept = [values for values in settings if settings_title(row.name, values) not in failed]
        else:
            kept = [best_settings(row_trials)]
        chosen += [trial_row(row, values) for values in kept]

    compared = run_comparison(task, dataset, chosen, out, options, dimension=dimension)
    figures = {option.name: getattr(compared.comparison, option.name) for option in fields(Comparison)}
    result = SweepResult(**figures, trials=runs.done, study=study)
    write_tables(result, compared.row_folders, out)
    curves = [runs.validation_curve(trial) for trial in runs.done]
    write_sweep_pictures(result, search_space, curves, out, drawn=trials > 0)
    varying_names = ", ".join(varying.name for varying in search_space)
    write_report(result, compared.runs, out, title=f"{dataset.info.name}: {varying_names}")
    return result


def trial_row(row: Row, settings: Settings) -> Row:
    """The row of a comparison that trains with the settings of a trial."""
    return Row(settings_title(row.name, settings), trial_options(row.options, settings))


def trial_options(config: TrainConfig, settings: Settings) -> TrainConfig:
    """The options of a trial, which is validated ten times unless ``evaluate_every`` says otherwise."""
    options = with_settings(config, settings)
    options = replace(options, sampler=with_batch_size_of(options.sampler, config.sampler))
    if not options.evaluate_every:
        options = replace(options, evaluate_every=max(1, options.steps // _VALIDATIONS))
    if options.evaluate_every > options.steps:
        got = f"Got {options.evaluate_every} and {options.steps} instead."
        raise UserError(f"A sweep chooses by validation: 'evaluate_every' must be at most 'steps'. {got}")
    return options


@dataclass
class _TrialRuns:
    """The runs of a sweep: each is trained unless it is finished, and written to trials.json."""

    task: Task
    dataset: PreparedDataset
    out: Path
    options: CompareOptions
    dimension: int
    total: int
    done: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._log = TrialLog(self.out / TRIALS)
        self._runs: list[PlannedRun] = []  # beside ``done``

    def run(self, row: Row, settings: Settings, seed: int = 0) -> Trial:
        """Train a trial, unless it is finished."""
        run = self._plan(trial_row(row, settings), seed)
        trial = self._train_trial(run, Trial(dict(settings), row.name, seed))
        self._runs.append(run)
        self.done.append(trial)
        return trial

    def _train_trial(self, run: PlannedRun, trial: Trial) -> Trial:
        """Train the run of a trial, unless its log holds the score."""
        known = self._log.find(trial.method, trial.settings, trial.seed)
        check_no_link(self.out, *run.folder.relative_to(self.out).parts)
        is_done = known is not None and self._is_done(run, known)
        if known is not None and is_done:
            return known
        say(f"{len(self.done) + 1}/{self.total} {trial.title}, seed {trial.seed}")
        clock = _StepClock()
        callbacks = with_tracker([clock], self.options.tracker)
        try:
            trained = train_task(
                self.task, self.dataset, run.options, Place(run.folder, resume=True, callbacks=callbacks)
            )
        except FloatingPointError as error:
            return self._log.add(replace(trial, failed=str(error)))
        scores = [record["validation"] for record in trained.metrics if "validation" in record]
        per_step = clock.seconds_per_step
        seconds = None if per_step is None else per_step * trained.metrics[-1]["step"]
        return self._log.add(replace(trial, score=min(scores), seconds=seconds))

    def _is_done(self, run: PlannedRun, known: Trial) -> bool:
        """Whether a trial in the log need not be trained again."""
        if is_finished(run, self.dataset):
            return True
        # what failed in its first steps leaves no folder that says of what code: it is tried again
        if not known.failed or not (run.folder / "config.json").exists():
            return False
        run_folder.check_same(run.folder, run.options, self.dataset.fingerprint, self.dataset.made_of)
        return True

    def _plan(self, row: Row, seed: int) -> PlannedRun:
        return plan_runs([row], self.out, self.options.seeds, [self.dimension], reserved=self.task.variants)[seed]

    def validation_curve(self, trial: Trial) -> Mapping[int, float]:
        """Step to rank correlation on the held-out items; empty for a trial that failed."""
        if trial.failed:
            return {}
        run = self._runs[self.done.index(trial)]
        records = read_metrics(run.folder / METRICS)
        return {record["step"]: 1 - record["validation"] for record in records if "validation" in record}


class _StepClock(Callback):
    """Measures a step, with its validation; of a run that was cut off, in the part that this process trained."""

    def __init__(self) -> None:
        self._steps, self._start, self._end = 0, 0.0, 0.0

    @property
    def seconds_per_step(self) -> float | None:
        """Mean time of a step; None if there was none."""
        return (self._end - self._start) / self._steps if self._steps else None

    def on_begin(self, config: TrainConfig, run: Path | None, /) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def on_step(self, state: State, /) -> None:
        """Count a step."""
        self._steps, self._end = self._steps + 1, time.perf_counter()

    def on_validate(self, state: State, /) -> None:
        """Add the time of a validation."""
        self._end = time.perf_counter()


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
