"""A sweep: trains with options that vary, chooses on held-out training items, and compares what was chosen."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from cml import losses, sampling
from cml.comparing.planned_runs import PlannedRun, is_finished, plan_runs
from cml.comparing.report import write_report
from cml.comparing.rows import Row, with_batch_size_of
from cml.comparing.search_space import SearchDimension, Settings, corners, grid, settings_title, with_settings
from cml.comparing.sweep_result import SweepResult, write_sweep_pictures
from cml.comparing.train_comparison import CompareOptions, check_labels, run_comparison, write_tables
from cml.comparing.trials import Trial, TrialLog, best_settings, search
from cml.console.messages import resume_hint, say
from cml.data.prepared import PreparedDataset
from cml.doors.train import train_task
from cml.doors.training_run import with_tracker
from cml.errors import UserError
from cml.option_types import check_options
from cml.retrieval.comparison import Comparison
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
