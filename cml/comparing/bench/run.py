"""The rules: equal trials on the validation part, all of them recorded, then final runs on the test part, once.

Several processes share the work: each takes the results that no other one is at.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cml import plugins
from cml.comparing.bench.bench_set import BenchSet
from cml.comparing.bench.methods import Method, find_method, find_plugins
from cml.comparing.bench.result import (
    Result,
    build_result,
    choose,
    decode_trial,
    read_result,
    result_path,
    write_result,
)
from cml.comparing.bench.sets import open_set
from cml.comparing.bench.suite import Suite, track_folder
from cml.comparing.bench.trials import Final, Trial, fixed_row_config, run_final, run_fixed_row, run_trial
from cml.comparing.search_space import with_settings
from cml.comparing.trials import check_drawing
from cml.console.messages import say
from cml.errors import UserError
from cml.storage.saved_options import as_json
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

    def path(self, name: str, method: str) -> Path:
        """The file of the result of a method on a set."""
        return result_path(self.out, self.suite.version, name, self.track_folder, method)


def run(plan: Plan) -> list[str]:
    """Run what is missing of a plan; returns why sets are left out."""
    methods = {name: find_method(name) for name in plan.methods}
    for name, method in itertools.product(plan.sets, methods):
        path = plan.path(name, method)
        changed = plugins.explain_changes(read_result(path).plugins) if path.exists() else ""
        if changed:
            raise UserError(f"{path}: {changed} Delete this file to run it again, or choose another folder by --out.")
        if methods[method] is not None and not path.exists():
            check_drawing()
    left_out = []
    for name in plan.sets:
        try:
            data = open_set(name, plan.suite.version)
        except UserError as error:
            left_out.append(f"{name} is left out: {error}")
            continue
        _run_set(plan, data, methods)
    return left_out


def _run_set(plan: Plan, data: BenchSet, methods: Mapping[str, Method | None]) -> None:
    """Make all results of a set; those that another process works on are looked at again until they are there."""
    waiting = [name for name, how in methods.items() if _suits(name, how, data)]
    while waiting:
        done = {name: _make_result(plan, data, methods, name) for name in waiting}
        waiting = [name for name in waiting if not done[name]]
        if waiting and not any(done.values()):
            time.sleep(_WAIT)


def _suits(name: str, method: Method | None, data: BenchSet) -> bool:
    """Whether a set has the labels that a row needs: vectors, or distances between all of them."""
    if name == "label-mds":
        return data.distance.is_symmetric and not data.distance.is_partial
    needs_vectors = name == "ridge" if method is None else method.vectors
    return data.vectors is not None or not needs_vectors


def _make_result(plan: Plan, data: BenchSet, methods: Mapping[str, Method | None], name: str) -> bool:
    """Make a result, if it is not there yet; False where another process is at it."""
    path, method = plan.path(data.name, name), methods[name]
    if path.exists():
        return True
    made_with = {
        "suite": asdict(plan.suite),
        "split": data.split,
        "data": data.data,
        "config": asdict(plan.config),
        "method": None if method is None else asdict(method),
        "plugins": find_plugins("" if method is None else method.loss, plan.config.backbone),
    }
    folder = plan.out / ".work" / plan.suite.version / data.name / plan.track_folder / path.stem
    with contextlib.ExitStack() as held:
        try:
            work = held.enter_context(work_folder(folder, made_with, f"{name} on {data.name}"))
        except UserError as error:
            if isinstance(error, FolderError):
                raise
            return False  # it is locked
        if not path.exists():
            result = compute_result(plan, data, name, work)
            write_result(path, result)
            if method is not None and not result.failed:
                say(f"{data.name} {plan.track_folder} {name}: {result.mean():.3f}")
        work.discard()
    return True


def compute_result(
    plan: Plan,
    data: BenchSet,
    name: str,
    work: WorkFolder | None = None,  # folder whose journal holds the trials that are done; None keeps none
    settings: Mapping[str, Any] | None = None,
) -> Result:
    """Run a row on a set: all trials of a loss, then its final runs with the settings of the best."""
    parts: dict[str, Any] = {"suite": plan.suite.version, "track": plan.track_folder, "method": name}
    parts["backbone"] = plan.config.backbone
    method = find_method(name)
    if method is None:
        config = fixed_row_config(plan.suite, plan.track, plan.backbone, name)
        final = run_fixed_row(name, data, config or plan.suite.heads)
        options = {} if config is None else as_json(asdict(config))
        return build_result(data, **parts, options=options, settings={}, trials=[], finals=[final])
    base = method.options(data.spec.suit(replace(plan.config, label_distance=data.label_distance)), data.vectors)
    trials = _run_trials(plan, data, method, base, work)
    chosen = choose(trials)
    if settings is None and chosen is not None:
        settings = method.settings(chosen.number, plan.track)
    finals: list[Final] = []
    config = base
    if settings is not None:
        config = with_settings(base, settings)
        seeds = range(1, plan.suite.seeds + 1)
        finals = [run_final(data, replace(config, seed=seed), len(trials), plan.suite.trials) for seed in seeds]
    options = as_json(asdict(config))
    return build_result(data, **parts, options=options, settings=dict(settings or {}), trials=trials, finals=finals)


def _run_trials(plan: Plan, data: BenchSet, method: Method, base: TrainConfig, work: WorkFolder | None) -> list[Trial]:
    """Run the trials of a loss that are not in the journal yet."""
    trials: dict[int, Trial] = {}
    if work is not None:
        if work.difference != "":
            work.start_over()
        trials = {trial.number: trial for trial in work.records(decode_trial)}
    for number in range(plan.suite.trials):
        if number not in trials:
            options = with_settings(base, method.settings(number, plan.track))
            trials[number] = run_trial(data, plan.suite.trial(plan.track, options), number)
            if work is not None:
                work.record(asdict(trials[number]))
    return [trials[number] for number in range(plan.suite.trials)]
