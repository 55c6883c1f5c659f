"""Losses with options that vary: trained on a part of the training set, chosen on the rest of it, then compared.

Of what is chosen alone the test set is evaluated, once; a study, which is for looking at and not for choosing, has the
figures of everything. Every trial is a run folder, and trials.json lists them: a sweep that was cut off goes on where
it was. Not for: drawing trials (trials.py), the comparison of what was chosen (compare.py).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml import losses, sampling
from cml.command_line.options import going_on, say
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.retrieval.comparison import Comparison
from cml.runs.comparison import check_labels, check_variants, run_comparison, write_tables
from cml.runs.planned import Planned, finished, planned, varied
from cml.runs.report import write_report
from cml.runs.sweep_pictures import write_sweep_pictures
from cml.runs.swept import Swept
from cml.runs.train import train_task
from cml.runs.trials import Settings, Trial, TrialLog, best, search, titled, with_settings
from cml.runs.varied import Varied, grid
from cml.storage.safe_paths import check_no_link
from cml.task import Task
from cml.training import run_folder
from cml.training.callbacks import Callback, State, with_tracker
from cml.training.config import TrainConfig
from cml.training.metrics_log import METRICS, read_metrics

if TYPE_CHECKING:
    from cml.trackers import Tracker

TRIALS = "trials.json"
_VALIDATIONS = 10  # of a run, where nobody says how often


@going_on()
def run_sweep(
    task: Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    vary: Sequence[Varied],
    variants: Sequence[str] = (),
    *,
    trials: int = 0,
    seeds: int = 3,
    study: bool = False,
    recall_within: float = 0.0,
    tracker: str | Tracker | None = None,
) -> Swept:
    """Train with options that vary, choose on held-out training items, and compare what was chosen.

    Every loss is tuned by itself, with as many trials as the others. Of a grid every cell has all seeds, and their mean
    is compared; a drawn trial has seed 0 alone, and what is chosen gets the others. Trials are validated ten times a
    run unless ``evaluate_every`` says otherwise, and keep their best weights.

    The published studies of Proxy-Anchor are a command each, whatever the loss:
    ``cml compare classes --data DATA --out OUT --study --losses proxy-anchor`` and

    - ``--vary loss.alpha=8,16,32,64 --vary loss.delta=0,0.1,0.2,0.4``: its two constants;
    - ``--vary sampler.batch_size=30,60,90,120,150,180``: the size of batches;
    - ``--vary dimension=32,64,128,256,512,1024``: the size of the embedding;
    - ``--vary backbone=googlenet,resnet50``: the network;
    - ``--vary image_size=224,256,324,448``: the size of images.

    Args:
        task: The task.
        dataset: Its prepared dataset.
        config: Options that all share; its seed draws the trials.
        out: Folder; finished runs found there are kept and not trained again.
        vary: The options that vary.
        variants: Names among ``task.variants``; the recipe alone where there are none.
        trials: Settings to draw for each variant; 0 for all combinations.
        seeds: Runs of a cell, and of what is chosen.
        study: Evaluate all combinations and choose none.
        recall_within: See ``evaluate_run``.
        tracker: An experiment tracker that follows every run.

    Raises:
        UserError: an option that does not fit, or a run in ``out`` with other options or on another dataset.

    Reference: Kim et al., Proxy Anchor Loss for Deep Metric Learning, CVPR 2020 (section 4.4, figures 4 to 6).
    """
    check_variants(task, variants)
    if trials and study:
        raise UserError("A study is of all combinations: leave 'trials' out, or 'study'.")
    if variants and any(one.name == "loss" for one in vary):
        raise UserError("Vary the loss, or name variants and losses, not both.")
    if seeds < 1 or trials < 0:
        raise UserError(f"'seeds' must be at least 1, 'trials' at least 0. Got {seeds} and {trials} instead.")
    rows = list(variants) or [""]
    runs = _Runs(task, dataset, config, out, seeds, tracker)
    settings = _ends(vary) if trials else grid(vary)
    runs.check([runs.options(row, one) for row in rows for one in settings])
    runs.total = len(rows) * (trials or len(settings) * seeds)
    chosen: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if trials:
            own = search(vary, trials, functools.partial(runs.run, row), seed=config.seed)
        else:
            own = [runs.run(row, one, seed) for one in settings for seed in range(seeds)]
        failed = {one.title for one in own if one.failed}
        taken = [one for one in settings if titled(row, one) not in failed] if study else [best(own)]
        chosen |= {titled(row, one): runs.changes(row, one) for one in taken}
    compared = run_comparison(
        replace(task, variants=chosen), dataset, config, out, seeds=seeds, recall_within=recall_within, tracker=tracker
    )
    figures = {one.name: getattr(compared.comparison, one.name) for one in fields(Comparison)}
    swept = Swept(**figures, trials=runs.done, study=study)
    write_tables(swept, out)
    write_sweep_pictures(swept, vary, [runs.curve(one) for one in runs.done], out, drawn=trials > 0)
    write_report(swept, compared.plan, out, title=f"{dataset.info.name}: {', '.join(one.name for one in vary)}")
    return swept


class _Runs:
    """The runs of a sweep: each is trained where it is not finished, and noted in trials.json."""

    def __init__(
        self,
        task: Task,
        dataset: PreparedDataset,
        config: TrainConfig,
        out: Path,
        seeds: int,
        tracker: str | Tracker | None,
    ) -> None:
        self._task, self._dataset, self._config, self._out = task, dataset, config, out
        self._seeds, self._tracker, self._log = seeds, tracker, TrialLog(out / TRIALS)
        self.done: list[Trial] = []
        self.total = 0

    def options(self, row: str, settings: Settings) -> TrainConfig:
        """The options of a trial."""
        base = varied(self._config, self._task.variants[row]) if row else self._config
        options = with_settings(base, settings)
        if not options.evaluate_every:
            options = replace(options, evaluate_every=max(1, options.steps // _VALIDATIONS))
        if options.evaluate_every > options.steps:
            raise UserError(
                "A sweep chooses by validation: 'evaluate_every' must be at most 'steps'. "
                f"Got {options.evaluate_every} and {options.steps} instead."
            )
        return options

    def changes(self, row: str, settings: Settings) -> Mapping[str, Any]:
        """A trial as a variant of the task."""
        return {name: value for name, value in vars(self.options(row, settings)).items() if name != "seed"}

    def check(self, some: Sequence[TrainConfig]) -> None:
        """Refuse before the first run what a loss or sampler does not take, or has no labels for."""
        for options in some:
            losses.get(options.loss)
            sampling.get(options.sampler)
        check_labels(self._task, self._dataset, some)

    def run(self, row: str, settings: Settings, seed: int = 0) -> Trial:
        """The trial of these settings and this seed, trained if it is not done."""
        trial = self._run(Trial(dict(settings), row, seed))
        self.done.append(trial)
        return trial

    def _run(self, trial: Trial) -> Trial:
        one, known = self._planned(trial), self._log.find(trial.method, trial.settings, trial.seed)
        check_no_link(self._out, *one.folder.relative_to(self._out).parts)
        if known and finished(one, self._dataset):
            return known
        # what failed in its first steps leaves no folder that says of what code: it is tried again
        if known and known.failed and (one.folder / "config.json").exists():
            run_folder.check_same(one.folder, one.options, self._dataset.fingerprint, self._dataset.made_of)
            return known
        say(f"{len(self.done) + 1}/{self.total} {trial.title}, seed {trial.seed}")
        clock = _Clock()
        try:
            trained = train_task(
                self._task,
                self._dataset,
                one.options,
                one.folder,
                resume=True,
                callbacks=with_tracker([clock], self._tracker),
            )
        except FloatingPointError as error:
            return self._log.add(replace(trial, failed=str(error)))
        scores = [record["validation"] for record in trained.metrics if "validation" in record]
        seconds = clock.per_step * trained.metrics[-1]["step"] if clock.steps else None
        return self._log.add(replace(trial, score=min(scores), seconds=seconds))

    def _planned(self, trial: Trial) -> Planned:
        task = replace(self._task, variants={trial.title: self.changes(trial.method, trial.settings)})
        return planned(task, self._config, self._out, [trial.title], self._seeds, [self._config.dimension])[trial.seed]

    def curve(self, trial: Trial) -> Mapping[int, float]:
        """Step to rank correlation on the held-out items."""
        log = self._planned(trial).folder / METRICS
        records = [] if trial.failed else read_metrics(log)
        return {one["step"]: 1 - one["validation"] for one in records if "validation" in one}


class _Clock(Callback):
    """How long a step takes, validation included; of a run that was cut off, in the part that this process trained."""

    def __init__(self) -> None:
        self.steps, self._began, self._now = 0, 0.0, 0.0

    @property
    def per_step(self) -> float:
        """Seconds."""
        return (self._now - self._began) / self.steps

    def on_begin(self, config: TrainConfig, run: Path | None, /) -> None:
        """Training begins."""
        self._began = time.perf_counter()

    def on_step(self, state: State, /) -> None:
        """A step is done."""
        self.steps, self._now = self.steps + 1, time.perf_counter()

    def on_validate(self, state: State, /) -> None:
        """The run was validated."""
        self._now = time.perf_counter()


def _ends(vary: Sequence[Varied]) -> list[dict[str, Any]]:
    """Settings in which every listed value, and both ends of every range, stand at least once."""
    count = max(len(one.ends) for one in vary)
    return [{one.name: one.ends[min(number, len(one.ends) - 1)] for one in vary} for number in range(count)]
