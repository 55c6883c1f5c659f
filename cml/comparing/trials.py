"""Trials of a search space: how they are drawn, what they reached, which is the best."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cml.comparing.search_space import SearchDimension, Settings, settings_title, value_text
from cml.errors import UserError, require_extra
from cml.storage.json_file import write_json
from cml.storage.saved_options import read_record

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


@dataclass(frozen=True)
class Trial:
    """The result of one training run with settings of a search space."""

    settings: dict[str, Any]  # option to value
    method: str = ""  # the loss or variant that it is a trial of; "" where there is only one
    seed: int = 0  # random seed of the run
    score: float | None = None  # score on held-out training items, lower is better; None if the run failed
    seconds: float | None = None  # time that its training took, without the start; None if unknown
    failed: str = ""  # why the run failed; "" if it did not

    @property
    def loss(self) -> float:
        """The score that a search minimises: infinite if the run failed."""
        return math.inf if self.score is None else self.score

    @property
    def title(self) -> str:
        """Method and settings as people read them."""
        return settings_title(self.method, self.settings)


class TrialLog:
    """The trials in a JSON file, which is written anew, atomically, after each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trials: list[Trial] = []
        if path.exists():
            record = read_record(path, dict[str, list[Trial]], "trials", "Delete it to search anew.")
            self._trials = record.get("trials", [])

    def find(
        self,
        method: str,  # its loss or variant, "" where there is only one
        settings: Settings,
        seed: int,
    ) -> Trial | None:
        """Find a finished trial."""
        title = settings_title(method, settings)
        return next((trial for trial in self._trials if trial.seed == seed and trial.title == title), None)

    def add(self, trial: Trial) -> Trial:
        """Write a trial to the file, in place of an earlier one of the same settings and seed; returns it."""
        earlier = self.find(trial.method, trial.settings, trial.seed)
        self._trials = [*(other for other in self._trials if other is not earlier), trial]
        write_json(self._path, {"trials": [dataclasses.asdict(each) for each in self._trials]})
        return trial


def check_drawing() -> None:
    """Check that trials can be drawn, before anything is trained for them."""
    with require_extra("sweep", "Drawing trials"):
        import optuna  # noqa: F401


def draw_settings(
    dimensions: Sequence[SearchDimension], number: int, *, seed: int = 0, done: Sequence[Trial] = ()
) -> dict[str, Any]:
    """Draw the settings of a trial by a tree-structured Parzen estimator; the first ten are random.

    They depend only on the trial's number and on the trials before it, so that a search that was cut off draws the same
    again. Without ``done``, trials can be drawn in any order by any process.

    Reference: Bergstra et al., Algorithms for Hyper-Parameter Optimization, NeurIPS 2011, as optuna implements it.
    """
    check_drawing()
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    distributions = {dimension.name: _distribution(dimension) for dimension in dimensions}
    texts = {dimension.name: [value_text(value) for value in dimension.values] for dimension in dimensions}
    trial_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=trial_seed))
    for trial in done:
        params = {
            name: listed.index(value_text(trial.settings[name])) if listed else trial.settings[name]
            for name, listed in texts.items()
        }
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=trial.loss))
    params = study.ask(distributions).params
    return {
        dimension.name: (
            dimension.values[params[dimension.name]] if dimension.values else dimension.round(params[dimension.name])
        )
        for dimension in dimensions
    }


def _distribution(dimension: SearchDimension) -> "BaseDistribution":
    """What optuna draws an option from; listed values are drawn by their places."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dimension.values:
        return CategoricalDistribution(range(len(dimension.values)))
    if dimension.is_whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)


def search(
    dimensions: Sequence[SearchDimension], count: int, run: Callable[[dict[str, Any]], Trial], *, seed: int = 0
) -> list[Trial]:
    """Draw and run trials one after the other, each with the knowledge of those before it."""
    done: list[Trial] = []
    for number in range(count):
        done.append(run(draw_settings(dimensions, number, seed=seed, done=done)))
    return done


def best_settings(trials: Sequence[Trial]) -> dict[str, Any]:
    """Choose the settings whose runs scored best on average; the first of equal ones."""
    scores: dict[str, list[float]] = {}
    for trial in trials:
        scores.setdefault(trial.title, []).append(trial.loss)
    best = min(trials, key=lambda trial: statistics.fmean(scores[trial.title]))
    if not math.isfinite(statistics.fmean(scores[best.title])):
        reason = next(trial.failed for trial in trials if trial.failed)
        raise UserError(f"No trial can be chosen, because a run of each failed: {reason}")
    return best.settings
