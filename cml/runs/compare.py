"""``cml.compare``: several losses compared as they are, or with options that vary."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from cml import losses as all_losses
from cml import sampling, tasks
from cml.console.messages import say
from cml.console.resume_hint import resume_hint
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.retrieval.comparison import Comparison
from cml.runs import comparison
from cml.runs.report import write_report
from cml.runs.swept import Swept, write_sweep_pictures
from cml.runs.train import options_for, train_task
from cml.runs.trials import Settings, Trial, TrialLog, Varied, best, grid, search, space, titled, with_settings
from cml.storage.safe_paths import check_no_link
from cml.task import Task
from cml.trackers import Tracker
from cml.training import run_folder
from cml.training.callbacks import Callback, State, with_tracker
from cml.training.config import TrainConfig
from cml.training.metrics_log import METRICS, read_metrics

TRIALS = "trials.json"
_VALIDATIONS = 10  # of a run, where nobody says how often


def compare(
    task: str | Task,
    data: Path | str | PreparedDataset,
    out: Path | str,
    *,
    variants: Sequence[str] | None = None,
    losses: Sequence[str] = (),
    seeds: int = 3,
    dimensions: Sequence[int] = (),
    cut: bool = False,
    recall_within: float = 0.0,
    vary: Sequence[str] | Mapping[str, str | Sequence[Any]] = (),
    trials: int = 0,
    study: bool = False,
    tracker: str | Tracker | None = None,
    config: TrainConfig | None = None,
    **options: Any,  # noqa: ANN401 - the fields of TrainConfig
) -> Comparison:
    """Train several losses with one network and budget, several seeds each, and compare what they retrieve.

    With ``vary`` each of them is tuned by itself on held-out training items, with as many trials as the others. Of a
    grid every cell has all seeds, and their mean is compared; a drawn trial has seed 0 alone, and what is chosen gets
    the others. Trials are validated ten times a run unless ``evaluate_every`` says otherwise, and keep their best
    weights.

    The runs, comparison.json, table.md, gallery.html and the figures lie in ``out``. A finished run found there is not
    trained again.

    Args:
        task: The task, or its name: "value", "pose", ..
        data: The prepared dataset or its folder.
        out: Folder of the comparison.
        variants: Names among the task's variants; all of them when neither they nor ``losses`` are given.
        losses: Losses to compare, each as the command line takes it: a row each, after the variants.
        seeds: Runs a row, with seeds 0, 1, ..; intervals over seeds need at least 2.
        dimensions: Further dimensions of the embedding to train every row at.
        cut: At these also cut the embedding of ``dimension`` to its first numbers: one model for all sizes, which the
            loss ``matryoshka`` is made for, beside those trained for each.
        recall_within: See ``cml.Run.evaluate``.
        vary: Options that vary, to their values, or to a range such as "1e-5..1e-2:log": the names of ``TrainConfig``,
            or such as "loss.alpha". Without variants and losses the recipe alone is trained.
        trials: Settings drawn from what varies; 0 takes all combinations.
        study: Evaluate all combinations instead of the one that validation chooses.
        tracker: An experiment tracker that follows every run.
        config: All options of training; the task's recipe when not given.
        **options: Any option of ``TrainConfig`` by its name; it goes before that of ``config``.

    Returns:
        The figures, with ``rows()``, ``markdown()`` and ``to_pandas()``; with ``vary`` also ``trials``.

    Raises:
        UserError: unknown variant, loss or option, or a run in ``out`` with other options or on another dataset.

    Example:
        >>> found = cml.compare("value", "data/mine", "runs/losses", losses=["log-ratio", "cosent(scale=2.0)"],
        ...                     seeds=1, freeze_backbone=True, steps=20, sampler="random(batch_size=16)")
        >>> list(found.rows())
        ['log-ratio', 'cosent(scale=2.0)', 'frozen efficientnet-lite0', 'random', 'oracle']
    """
    task = tasks.get(task) if isinstance(task, str) else task
    dataset = data if isinstance(data, PreparedDataset) else PreparedDataset.open(data)
    if "loss" in options:
        raise UserError("In a comparison the rows set the loss: leave 'loss' out and choose variants and losses.")
    for loss in losses:
        all_losses.get(loss)
    task = replace(task, variants={**task.variants, **{loss: {"loss": loss} for loss in losses}})
    rows = [*(variants or ()), *(loss for loss in losses if loss not in (variants or ()))]
    chosen = options_for(task, config, options)
    shared: dict[str, Any] = {"seeds": seeds, "recall_within": recall_within, "tracker": tracker}
    if not vary:
        if trials or study:
            raise UserError("Say what varies: 'trials' and 'study' are of the settings that 'vary' names.")
        shared |= {"variants": rows or None, "dimensions": dimensions, "cut": cut}
        return comparison.run_comparison(task, dataset, chosen, Path(out), **shared).comparison
    if dimensions or cut:
        raise UserError("Give all dimensions by 'vary': vary dimension=16,32,64.")
    return run_sweep(task, dataset, chosen, Path(out), space(vary), rows, trials=trials, study=study, **shared)


@resume_hint()
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

    Of what is chosen alone the test set is evaluated, once; a study has the figures of everything. Every trial is a run
    folder, and trials.json lists them: a sweep that was cut off goes on where it was. The seed of ``config`` draws the
    trials; without variants the recipe alone is trained. docs/results/proxy_anchor.md has published studies.
    """
    comparison.check_variants(task, variants)
    if trials and study:
        raise UserError("A study is of all combinations: leave 'trials' out, or 'study'.")
    if variants and any(one.name == "loss" for one in vary):
        raise UserError("Vary the loss, or name variants and losses, not both.")
    if seeds < 1 or trials < 0:
        raise UserError(f"'seeds' must be at least 1, 'trials' at least 0. Got {seeds} and {trials} instead.")
    rows = list(variants) or [""]
    settings = _ends(vary) if trials else grid(vary)
    runs = _Runs(task, dataset, config, out, seeds, tracker, total=len(rows) * (trials or len(settings) * seeds))
    every = [runs.options(row, one) for row in rows for one in settings]
    for options in every:  # refuse before the first run what a loss or sampler does not take
        all_losses.get(options.loss)
        sampling.get(options.sampler)
    comparison.check_labels(task, dataset, every)
    chosen: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if trials:
            own = search(vary, trials, functools.partial(runs.run, row), seed=config.seed)
        else:
            own = [runs.run(row, one, seed) for one in settings for seed in range(seeds)]
        failed = {one.title for one in own if one.failed}
        taken = [one for one in settings if titled(row, one) not in failed] if study else [best(own)]
        chosen |= {titled(row, one): runs.changes(row, one) for one in taken}
    how: dict[str, Any] = {"seeds": seeds, "recall_within": recall_within, "tracker": tracker}
    compared = comparison.run_comparison(replace(task, variants=chosen), dataset, config, out, **how)
    figures = {one.name: getattr(compared.comparison, one.name) for one in fields(Comparison)}
    swept = Swept(**figures, trials=runs.done, study=study)
    comparison.write_tables(swept, out)
    write_sweep_pictures(swept, vary, [runs.curve(one) for one in runs.done], out, drawn=trials > 0)
    write_report(swept, compared.runs, out, title=f"{dataset.info.name}: {', '.join(one.name for one in vary)}")
    return swept


@dataclass
class _Runs:
    """The runs of a sweep: each is trained where it is not finished, and noted in trials.json."""

    task: Task
    dataset: PreparedDataset
    config: TrainConfig
    out: Path
    seeds: int
    tracker: str | Tracker | None
    total: int
    done: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._log = TrialLog(self.out / TRIALS)

    def options(self, row: str, settings: Settings) -> TrainConfig:
        """The options of a trial."""
        base = comparison.varied(self.config, self.task.variants[row]) if row else self.config
        options = with_settings(base, settings)
        if not options.evaluate_every:
            options = replace(options, evaluate_every=max(1, options.steps // _VALIDATIONS))
        if options.evaluate_every > options.steps:
            got = f"Got {options.evaluate_every} and {options.steps} instead."
            raise UserError(f"A sweep chooses by validation: 'evaluate_every' must be at most 'steps'. {got}")
        return options

    def changes(self, row: str, settings: Settings) -> Mapping[str, Any]:
        """A trial as a variant of the task."""
        return {name: value for name, value in vars(self.options(row, settings)).items() if name != "seed"}

    def run(self, row: str, settings: Settings, seed: int = 0) -> Trial:
        """The trial of these settings and this seed, trained if it is not done."""
        self.done.append(self._run(Trial(dict(settings), row, seed)))
        return self.done[-1]

    def _run(self, trial: Trial) -> Trial:
        one, known = self._planned(trial), self._log.find(trial.method, trial.settings, trial.seed)
        check_no_link(self.out, *one.folder.relative_to(self.out).parts)
        if known and comparison.finished(one, self.dataset):
            return known
        # what failed in its first steps leaves no folder that says of what code: it is tried again
        if known and known.failed and (one.folder / "config.json").exists():
            run_folder.check_same(one.folder, one.options, self.dataset.fingerprint, self.dataset.made_of)
            return known
        say(f"{len(self.done) + 1}/{self.total} {trial.title}, seed {trial.seed}")
        clock = _Clock()
        try:
            watched = with_tracker([clock], self.tracker)
            trained = train_task(self.task, self.dataset, one.options, one.folder, resume=True, callbacks=watched)
        except FloatingPointError as error:
            return self._log.add(replace(trial, failed=str(error)))
        scores = [record["validation"] for record in trained.metrics if "validation" in record]
        per_step = (clock.now - clock.began) / clock.steps if clock.steps else None
        seconds = None if per_step is None else per_step * trained.metrics[-1]["step"]
        return self._log.add(replace(trial, score=min(scores), seconds=seconds))

    def _planned(self, trial: Trial) -> comparison.Planned:
        task = replace(self.task, variants={trial.title: self.changes(trial.method, trial.settings)})
        runs = comparison.planned(task, self.config, self.out, [trial.title], self.seeds, [self.config.dimension])
        return runs[trial.seed]

    def curve(self, trial: Trial) -> Mapping[int, float]:
        """Step to rank correlation on the held-out items."""
        records = [] if trial.failed else read_metrics(self._planned(trial).folder / METRICS)
        return {one["step"]: 1 - one["validation"] for one in records if "validation" in one}


class _Clock(Callback):
    """How long a step takes, validation included; of a run that was cut off, in the part that this process trained."""

    def __init__(self) -> None:
        self.steps, self.began, self.now = 0, 0.0, 0.0

    def on_begin(self, config: TrainConfig, run: Path | None, /) -> None:
        self.began = time.perf_counter()

    def on_step(self, state: State, /) -> None:
        self.steps, self.now = self.steps + 1, time.perf_counter()

    def on_validate(self, state: State, /) -> None:
        self.now = time.perf_counter()


def _ends(vary: Sequence[Varied]) -> list[dict[str, Any]]:
    """Settings in which every listed value, and both ends of every range, stand at least once."""
    count = max(len(one.ends) for one in vary)
    return [{one.name: one.ends[min(number, len(one.ends) - 1)] for one in vary} for number in range(count)]
