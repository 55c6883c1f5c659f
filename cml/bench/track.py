"""The rules: equal trials on the validation part, all of them recorded, then final runs on the test part, once."""

import contextlib
import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from cml import plugins
from cml.bench.computing import (
    AT_ONCE,
    DaskComputing,
    Final,
    LocalComputing,
    build_result,
    measure_peak_memory,
    run_final,
    run_trials,
)
from cml.bench.fixed_rows import fixed_row_config, rank_fixed_row
from cml.bench.result import BenchTrial, Result, choose, describe_machine, read_result, result_path, write_result
from cml.bench.scores import Ranks
from cml.bench.sets import BenchSet, open_set
from cml.bench.suite import UNTRAINED, Method, Suite, declare_pretraining, track_folder
from cml.bench.suite import method as method_of
from cml.console.messages import say
from cml.errors import UserError
from cml.runs.search_space import with_settings
from cml.runs.trials import check_drawing
from cml.storage.provenance import as_json
from cml.storage.work_folder import FolderError, WorkFolder, work_folder
from cml.training.config import TrainConfig

_WAIT = 2.0  # seconds until a method that another process works on is looked at again


@dataclass(frozen=True)
class Plan:
    """What a call of ``run`` does: methods and sets of a suite, on a track with its backbone, into a folder."""

    suite: Suite
    track: str
    sets: Sequence[str]
    methods: Sequence[str]
    out: Path
    backbone: str = ""

    @property
    def config(self) -> TrainConfig:
        """The options that all methods share."""
        return self.suite.config(self.track, self.backbone)

    @property
    def track_folder(self) -> str:
        """The track as folders are called."""
        return track_folder(self.track, self.config.backbone)


def run(plan: Plan, scheduler: str = "") -> list[str]:
    """Run what is missing of a plan, here or by a Dask scheduler; returns why sets are left out."""
    hows = {name: method_of(name, plan.suite.version) for name in plan.methods}
    for name, method in itertools.product(plan.sets, hows):
        path = result_path(plan.out, plan.suite.version, name, plan.track_folder, method)
        changed = plugins.explain_changes(read_result(path).plugins) if path.exists() else ""
        if changed:
            raise UserError(f"{path}: {changed} Delete this file to run it again, or choose another folder by --out.")
        if hows[method] is not None and not path.exists():
            check_drawing()
    missing = []
    with contextlib.ExitStack() as held:
        computing: LocalComputing = LocalComputing()
        if scheduler:
            from cml.processes.dask_client import Workers

            computing = DaskComputing(held.enter_context(Workers(scheduler)), plan.suite.version)
        for name in plan.sets:
            try:
                data = open_set(name, plan.suite.version)
            except UserError as error:
                missing.append(f"{name} is left out: {error}")
                continue
            _run_all(plan, data, hows, computing)
    return missing


def _run_all(plan: Plan, data: BenchSet, hows: dict[str, Method | None], computing: LocalComputing) -> None:
    def make_result(method: str) -> bool:
        return _make_result(plan, data, method, hows[method], computing)

    waiting = [method for method, how in hows.items() if data.vectors is not None or not _asks_for_vectors(method, how)]
    while waiting:
        done = {method: make_result(method) for method in waiting if hows[method] is None}  # they share features
        learnt = [method for method in waiting if method not in done]
        done |= zip(learnt, computing.do_all(make_result, learnt), strict=True)
        if not any(done.values()):
            time.sleep(_WAIT)
        waiting = [method for method in waiting if not done[method]]


def _asks_for_vectors(method: str, how: Method | None) -> bool:
    """Whether a row is only of sets whose labels are vectors."""
    return method == "ridge" if how is None else how.vectors


def _make_result(plan: Plan, data: BenchSet, method: str, how: Method | None, computing: LocalComputing) -> bool:
    """Make a result, if it is not there yet; False where another process is at it."""
    path = result_path(plan.out, plan.suite.version, data.name, plan.track_folder, method)
    if path.exists():
        return True
    made_with = {
        "suite": asdict(plan.suite),
        "split": data.split,
        "data": data.data,
        "config": asdict(plan.config),
        "method": None if how is None else asdict(how),
        "plugins": plugins.required_plugins("" if how is None else how.loss, plan.config.backbone),
    }
    folder = plan.out / ".work" / plan.suite.version / data.name / plan.track_folder / path.stem
    with contextlib.ExitStack() as held:
        try:
            work = held.enter_context(work_folder(folder, made_with, f"{method} on {data.name}"))
        except UserError as error:
            if isinstance(error, FolderError):
                raise
            return False  # it is locked
        if not path.exists():
            if how is None:
                _write_rule(plan, data, method, path)
            else:
                _write_trained(plan, data, method, how, work, path, computing)
        work.discard()
    return True


def _write_rule(plan: Plan, data: BenchSet, method: str, path: Path) -> None:
    """The result of a row without settings; on track B those of features take the suite's published network."""
    config = fixed_row_config(plan.suite, plan.track, plan.backbone)
    ranks, seconds = rank_fixed_row(method, data, config)
    final = Final(ranks, seconds, "", measure_peak_memory(), describe_machine())
    write_result(path, _result(plan, data, method, config, [final]), ranks, data)


def _write_trained(
    plan: Plan, data: BenchSet, method: str, how: Method, work: WorkFolder, path: Path, computing: LocalComputing
) -> None:
    """All trials of a loss, then its final runs, then the result."""
    if work.difference != "":
        work.start_over()
    base, parts = how.options(plan.config, data.vectors), f"{how.loss} {plan.config.backbone}"
    trials = {trial.number: trial for trial in work.records(lambda record: msgspec.convert(record, BenchTrial))}
    every, at_once = range(plan.suite.trials), AT_ONCE[plan.track]
    blocks = [every[start : start + at_once] for start in range(0, len(every), at_once)]
    left = [numbers for numbers in blocks if not trials.keys() >= set(numbers)]
    settings = {number: how.settings(number, plan.track) for number in itertools.chain(*left)}
    calls = []
    for numbers in left:
        configs = [plan.suite.trial(plan.track, with_settings(base, settings[number])) for number in numbers]
        kept = computing.state_path(work.root / f"heads-{numbers[0]}-{len(numbers)}.safetensors")
        calls.append((plan.track, configs, kept))
    for block, scored_trials in computing.call_each(data, run_trials, calls, parts):
        for number, scored in zip(left[block], scored_trials, strict=True):
            if number not in trials:
                trials[number] = BenchTrial(number, settings[number], scored.score, scored.seconds, scored.failed)
                work.record(asdict(trials[number]))
    ordered = [trials[number] for number in range(plan.suite.trials)]
    config = base
    finals: list[Final] = []
    chosen = choose(ordered)
    if chosen is not None:
        config = with_settings(base, chosen.settings)
        seeds = range(1, plan.suite.seeds + 1)
        runs = [(plan.track, replace(config, seed=seed), len(trials), plan.suite.trials) for seed in seeds]
        numbered = dict(computing.call_each(data, run_final, runs, parts))
        finals = [numbered[number] for number in sorted(numbered)]
    failed = next((run.failed for run in finals or ordered if run.failed), "")
    result = replace(_result(plan, data, method, config, finals, ordered), failed=failed)
    ranks = None if failed else Ranks.concatenate(final.ranks for final in finals if final.ranks is not None)
    result = write_result(path, result, ranks, data)
    if not failed:
        say(f"{data.name} {plan.track_folder} {method}: {result.scores['score'].mean:.3f}")


def _result(
    plan: Plan, data: BenchSet, method: str, config: TrainConfig, finals: list[Final], trials: Sequence[BenchTrial] = ()
) -> Result:
    config = replace(config, label_distance=data.label_distance)
    options = {} if method in UNTRAINED else as_json(asdict(config))
    pretraining = declare_pretraining(options.get("weights", "none"))
    return build_result(data, plan.suite.version, plan.track_folder, method, pretraining, options, finals, trials)
