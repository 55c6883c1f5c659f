"""The rules: equal trials on the validation part, all of them recorded, then final runs on the test part, once.

A method on a set is one piece of work in a folder of its own, with a journal and a lock: a process that was killed
loses at most one trial, and several processes take different pieces. Not for: how embeddings are made (fitted.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from cml import plugins
from cml.bench.fitted import AT_ONCE, Fitted, fit, frozen, label_mds
from cml.bench.result import BenchTrial, Result, config_digest, made_on, place, read_result, write_result
from cml.bench.scores import FIRST, Ranks
from cml.bench.sets import BenchSet, open_set
from cml.bench.suite import Method, Suite
from cml.bench.suite import method as method_of
from cml.command_line.options import say
from cml.distances.label_distance import Float32
from cml.errors import UserError
from cml.retrieval.evaluation import Ranker
from cml.retrieval.metrics import retrieved_distances
from cml.retrieval.rankers import embedding_ranker, random_ranker
from cml.runs.trials import with_settings
from cml.storage.made_with import as_json
from cml.storage.work_folder import FolderError, WorkFolder, work_folder
from cml.training.config import TrainConfig

_WAIT = 2.0  # seconds until a method that another process works on is looked at again
_UNTRAINED = ("oracle", "random")


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
    def place(self) -> str:
        """The track as folders are called."""
        return f"{self.track}-{self.config.backbone.replace('/', '-')}"


def run(plan: Plan) -> list[str]:
    """Run what is missing of a plan; the sets that cannot be had here, each with the reason.

    Raises:
        UserError: the folder of results cannot be written, or a result in it was made with other code of a plugin.
    """
    missing, hows = [], {one: method_of(one) for one in plan.methods}
    for name, method in itertools.product(plan.sets, hows):
        path = place(plan.out, plan.suite.version, name, plan.place, method)
        if path.exists() and (changed := plugins.changed(read_result(path).plugins)):
            raise UserError(f"{path}: {changed} Delete this file to run it again, or choose another folder by --out.")
    for name in plan.sets:
        try:
            data = open_set(name, plan.suite.version)
        except UserError as error:
            missing.append(f"{name} is left out: {error}")
            continue
        waiting = [one for one, how in hows.items() if data.vectors is not None or how is None or not how.vectors]
        while waiting:
            left = [one for one in waiting if not _worked(plan, data, one, hows[one])]
            if left == waiting:
                time.sleep(_WAIT)
            waiting = left
    return missing


def _worked(plan: Plan, data: BenchSet, method: str, how: Method | None) -> bool:
    """Make a result, if it is not there yet; False where another process is at it."""
    path = place(plan.out, plan.suite.version, data.name, plan.place, method)
    if path.exists():
        return True
    made_with = {
        "suite": dataclasses.asdict(plan.suite),
        "split": data.split,
        "data": data.data,
        "config": dataclasses.asdict(plan.config),
        "method": None if how is None else dataclasses.asdict(how),
        "plugins": plugins.needed("" if how is None else how.loss, plan.config.backbone),
    }
    folder = plan.out / ".work" / plan.suite.version / data.name / plan.place / path.stem
    with contextlib.ExitStack() as held:
        try:
            work = held.enter_context(work_folder(folder, made_with, f"{method} on {data.name}"))
        except FolderError:
            raise
        except UserError:  # it is locked
            return False
        if not path.exists():
            if how is None:
                _write_rule(plan, data, method, path)
            else:
                _write_learnt(plan, data, method, how, work, path)
        work.discard()
    return True


def _write_rule(plan: Plan, data: BenchSet, method: str, path: Path) -> None:
    """The result of a row without settings; on track B those of features take the suite's published network."""
    query, gallery = data.test(0, 0)
    config = plan.config if plan.config.weights != "none" else plan.suite.heads
    fitted = label_mds(data, config) if method == "label-mds" else frozen(data, config)
    if method == "oracle":
        ranker: Ranker = data.test_distances.__getitem__
    elif method == "random":
        ranker = random_ranker(len(query), len(gallery))
    else:
        ranker = embedding_ranker(fitted.embed(query), fitted.embed(gallery))
    result = _result(plan, data, method, config, [fitted])
    write_result(path, result, Ranks.of([ranker], len(query), len(gallery)), data)


def _write_learnt(plan: Plan, data: BenchSet, method: str, how: Method, work: WorkFolder, path: Path) -> None:
    """All trials of a loss, then its final runs, then the result."""
    if work.difference != "":
        work.start_over()
    trials = {one.number: one for one in work.records(lambda record: msgspec.convert(record, BenchTrial))}
    base = replace(plan.config, loss=how.loss)
    if how.vectors and data.vectors is not None:  # the label is what it predicts
        base = replace(base, dimension=data.vectors.shape[1])
    for start in range(0, plan.suite.trials, AT_ONCE[plan.track]):
        numbers = range(start, min(start + AT_ONCE[plan.track], plan.suite.trials))
        if trials.keys() >= set(numbers):
            continue
        settings = [how.settings(number) for number in numbers]
        kept = work.root / f"heads-{start}-{len(numbers)}.safetensors"
        fitted = fit(plan.track, data, [with_settings(base, one) for one in settings], kept)
        for number, one, found in zip(numbers, settings, fitted, strict=True):
            if number in trials:
                continue
            score = None if found.failed else validated(found.embed(data.validation), data.validation_distances)
            trials[number] = BenchTrial(number, one, score, round(found.seconds, 3), found.failed)
            work.record(dataclasses.asdict(trials[number]))
    ordered = [trials[number] for number in range(plan.suite.trials)]
    chosen = choose(ordered)
    if chosen is None:
        write_result(
            path, replace(_result(plan, data, method, base, [], ordered), failed=ordered[0].failed), None, data
        )
        return
    query, gallery = data.test(len(trials), plan.suite.trials)
    config = with_settings(base, chosen.settings)
    finals = [fit(plan.track, data, [replace(config, seed=seed)])[0] for seed in range(1, plan.suite.seeds + 1)]
    result = replace(_result(plan, data, method, config, finals, ordered), chosen=chosen.number)
    if reason := next((one.failed for one in finals if one.failed), ""):
        write_result(path, replace(result, failed=reason), None, data)
        return
    rankers = [embedding_ranker(one.embed(query), one.embed(gallery)) for one in finals]
    result = write_result(path, result, Ranks.of(rankers, len(query), len(gallery)), data)
    say(f"{data.name} {plan.place} {method}: {result.scores['score'].mean:.3f}")


def choose(trials: Sequence[BenchTrial]) -> BenchTrial | None:
    """The trial with the best score on validation, of equal ones the first; None where all failed."""
    scored = [one for one in trials if one.score is not None]
    return max(scored, key=lambda one: (one.score, -one.number)) if scored else None


def validated(embeddings: Float32, distances: Float32) -> float:
    """The normalised score of items (V, D), each searched among all others, of label distances (V, V)."""
    found = embedding_ranker(embeddings, embeddings)(slice(0, len(distances)))
    np.fill_diagonal(found, np.inf)
    some = (retrieved_distances(distances, found, FIRST), retrieved_distances(distances, distances, FIRST), distances)
    ours, best, chance = (float(one.mean(where=np.isfinite(one), dtype=np.float64)) for one in some)
    return round((chance - ours) / (chance - best), 6)


def _result(
    plan: Plan,
    data: BenchSet,
    method: str,
    config: TrainConfig,
    finals: Sequence[Fitted],
    trials: Sequence[BenchTrial] = (),
) -> Result:
    config = replace(config, label_distance=data.label_distance)
    options = {} if method in _UNTRAINED else as_json(dataclasses.asdict(config))
    weights = options.get("weights", "none")
    seconds = [one.seconds for one in finals]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    return Result(
        suite=plan.suite.version,
        set=data.name,
        track=plan.place,
        method=method,
        kind=data.spec.kind,
        split=data.split,
        data=data.data,
        pretraining="ImageNet-1k, classes" if weights == "imagenet" else weights,
        config=options,
        config_sha256=config_digest(options),
        trials=list(trials),
        chosen=None,
        seconds={
            "run": round(sum(seconds) / max(len(seconds), 1), 3),
            "trials": round(sum(one.seconds for one in trials), 3),
        },
        memory_mb=round(peak),
        unit=data.report[1],
        plugins=plugins.needed(options.get("loss", ""), options.get("backbone", "")),
        **made_on(),
    )
