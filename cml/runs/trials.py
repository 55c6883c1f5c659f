"""Trials: how they are drawn, what they reached, and which is best.

What a trial reached is its score on validation data, lower is better; no test set is looked at here. A trial is drawn
by number from a seed and the trials before it alone, so that a search that was cut off and started again draws the same
ones. Not for: what they are drawn from (varied.py) and training them (sweep.py).
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cml.errors import UserError, extra_needed
from cml.registry import Choice
from cml.runs.varied import Varied, value_text
from cml.storage.atomic import write_json
from cml.storage.saved_options import read_record
from cml.training.config import TrainConfig, with_options

Settings = Mapping[str, Any]
"""What a trial sets: "dimension", or "loss.alpha" for what stands in the brackets of the loss, to its value."""


@dataclass(frozen=True)
class Trial:
    """What one run of a trial reached.

    Attributes:
        settings: What it set.
        method: The loss or variant that it is a trial of; "" where there is one alone.
        seed: Of the run.
        score: On validation data, lower is better; None where the run failed.
        seconds: That its training took, without what came before; None where nobody knows.
        failed: Why it failed; "" where it did not.
    """

    settings: dict[str, Any]
    method: str = ""
    seed: int = 0
    score: float | None = None
    seconds: float | None = None
    failed: str = ""

    @property
    def loss(self) -> float:
        """The score, infinite where the run failed: what a search makes small."""
        return math.inf if self.score is None else self.score

    @property
    def title(self) -> str:
        """Method and settings as people read them."""
        return titled(self.method, self.settings)


class TrialLog:
    """The trials in a JSON file, written anew, atomically, after each.

    Args:
        path: The file; those that it holds already are found.

    Raises:
        DataError: the file holds something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        held = read_record(path, dict[str, list[Trial]], "trials", "Delete it to search anew.") if path.exists() else {}
        self._trials = held.get("trials", [])

    def find(self, method: str, settings: Settings, seed: int) -> Trial | None:
        """The trial of these settings and this seed, if it is done."""
        name = titled(method, settings)
        return next((one for one in self._trials if one.seed == seed and one.title == name), None)

    def add(self, trial: Trial) -> Trial:
        """Note a trial, in the place of an earlier one of the same settings and seed."""
        earlier = self.find(trial.method, trial.settings, trial.seed)
        self._trials = [*(one for one in self._trials if one is not earlier), trial]
        write_json(self._path, {"trials": [dataclasses.asdict(one) for one in self._trials]})
        return trial


def drawn(varied: Sequence[Varied], number: int, *, seed: int = 0, done: Sequence[Trial] = ()) -> dict[str, Any]:
    """Draw the settings of a trial by its number.

    Without ``done`` trials do not depend on each other: they can be drawn in any order, by any process. With the trials
    before it, the first ten are such ones too, and the others are drawn near those that went well.

    Args:
        varied: What to draw.
        number: Of the trial, from 0.
        seed: Of the search.
        done: The trials before it.

    Raises:
        UserError: optuna is not installed.

    Reference: Bergstra et al., Algorithms for Hyper-Parameter Optimization, NeurIPS 2011 (the tree-structured Parzen
    estimator, as optuna has it).
    """
    with extra_needed("sweep", "Drawing trials"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds = optuna.distributions
    distributions: dict[str, optuna.distributions.BaseDistribution] = {}
    for one in varied:
        if one.values:
            distributions[one.name] = kinds.CategoricalDistribution(range(len(one.values)))
        elif one.whole:
            distributions[one.name] = kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
        else:
            distributions[one.name] = kinds.FloatDistribution(one.low, one.high, log=one.log)

    def params_of(settings: Settings) -> dict[str, Any]:
        texts = {one.name: [value_text(value) for value in one.values] for one in varied}
        return {
            name: listed.index(value_text(settings[name])) if listed else settings[name]
            for name, listed in texts.items()
        }

    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=own))
    make = optuna.trial.create_trial
    study.add_trials(
        [make(params=params_of(one.settings), distributions=distributions, value=one.loss) for one in done]
    )
    params = study.ask(distributions).params
    return {one.name: one.values[params[one.name]] if one.values else one.rounded(params[one.name]) for one in varied}


def search(
    varied: Sequence[Varied], count: int, run: Callable[[dict[str, Any]], Trial], *, seed: int = 0
) -> list[Trial]:
    """Draw and run so many trials, one after the other, each with the knowledge of those before it.

    Args:
        varied: What to draw.
        count: Trials.
        run: Gives the trial of some settings.
        seed: Of the search.
    """
    done: list[Trial] = []
    for number in range(count):
        done.append(run(drawn(varied, number, seed=seed, done=done)))
    return done


def best(trials: Sequence[Trial]) -> dict[str, Any]:
    """The settings whose runs scored best on average; of equal ones the first.

    Raises:
        UserError: a run of every trial failed.
    """
    scores: dict[str, list[float]] = {}
    for one in trials:
        scores.setdefault(one.title, []).append(one.loss)
    found = min(trials, key=lambda one: statistics.fmean(scores[one.title]))
    if not math.isfinite(statistics.fmean(scores[found.title])):
        why = next(one.failed for one in trials if one.failed)
        raise UserError(f"No trial can be chosen, for a run of each failed: {why}")
    return found.settings


def with_settings(config: TrainConfig, settings: Settings) -> TrainConfig:
    """The options of a trial.

    Raises:
        UserError: a value that its option does not take.

    Example:
        >>> with_settings(TrainConfig(loss="cosent"), {"loss.scale": 4.0, "dimension": 16}).loss
        'cosent(scale=4.0)'
    """
    changes = {name: value for name, value in settings.items() if "." not in name}
    for name, value in settings.items():
        option, dot, setting = name.partition(".")
        if dot:
            choice = Choice.parse(changes.get(option, getattr(config, option)))
            changes[option] = str(Choice(choice.name, {**choice.settings, setting: value}))
    return with_options(config, changes)


def titled(method: str, settings: Settings) -> str:
    """A method and settings as people read them: ``proxy-anchor, dimension=16, loss.alpha=32``."""
    return ", ".join([*([method] if method else []), *(f"{name}={value_text(one)}" for name, one in settings.items())])
