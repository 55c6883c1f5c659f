"""Options that vary, as people write them; trials of them: how they are drawn, what they reached, which is best."""

import dataclasses
import itertools
import math
import re
import statistics
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np

from cml.errors import UserError, did_you_mean, extra_needed
from cml.registry import Choice
from cml.storage.atomic import write_json
from cml.storage.saved_options import read_record
from cml.training.config import TrainConfig, with_options

Settings = Mapping[str, Any]
"""What a trial sets: "dimension", or "loss.alpha" for what stands in the brackets of the loss, to its value."""
_CHOICES = ("loss", "sampler", "backbone")
_FIXED = {
    "label_distance": "it decides what is measured",
    "seed": "'seeds' says how many runs there are of each",
    "evaluate_every": "it decides what the trials are chosen by",
    "validation_share": "it decides what the trials are chosen by",
}
_RANGE = re.compile(r"(?P<low>[^,()'\"]+?)\.\.(?P<high>[^,()'\":]+)(?P<log>:log)?")
_PARTS = re.compile(r"""('[^']*'|"[^"]*"|[^'",()\[\]]|[()\[\],])""")


@dataclass(frozen=True)
class Varied:
    """An option that varies over values or over a range.

    Example:
        >>> Varied.parse("sampler.batch_size=30,60").values
        (30, 60)
        >>> Varied.parse("learning_rate=1e-5..1e-2:log")
        Varied(name='learning_rate', values=(), low=1e-05, high=0.01, log=True)
    """

    name: str  # an option of ``TrainConfig``, or one of a loss, sampler or backbone: ``loss.alpha``
    values: tuple[Any, ...] = ()  # where they are listed; else there is a range
    low: float = 0.0  # whole numbers alone are drawn where both ends are whole
    high: float = 0.0
    log: bool = False  # draw evenly on a logarithmic scale

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``option=value,value,..`` or ``option=low..high``, to which ``:log`` may be added."""
        name, equals, right = (part.strip() for part in text.partition("="))
        if not equals or not right:
            raise UserError(f"{text!r} should read option=value,value or option=low..high.")
        return cls.of(name, right)

    @classmethod
    def of(cls, name: str, values: str | Iterable[Any]) -> Self:
        """As ``parse``, of an option's name and its values, which may be a text."""
        name = name.replace("-", "_")
        option, dot, setting = name.partition(".")
        hints = typing.get_type_hints(TrainConfig)
        if option not in hints:
            raise UserError(f"There is no option {option!r} to vary.{did_you_mean(option, hints)}")
        if option in _FIXED:
            raise UserError(f"The option {option!r} cannot vary: {_FIXED[option]}.")
        if dot and (option not in _CHOICES or not setting):
            raise UserError(f"{name!r} cannot vary: only {', '.join(_CHOICES)} have options of their own.")
        kind = Any if dot else hints[option]
        if kind is not str and isinstance(values, str) and (found := _RANGE.fullmatch(values)):
            low, high = (_typed(name, found[end], kind) for end in ("low", "high"))
            if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
                raise UserError(f"The range {values!r} of {name!r} should be two numbers, the lower one first.")
            if found["log"] and low <= 0:
                raise UserError(f"The logarithmic range {values!r} of {name!r} should begin above 0.")
            return cls(name, (), low, high, bool(found["log"]))
        made = tuple(_typed(name, one, kind) for one in (_split(values) if isinstance(values, str) else values))
        if not made or len({value_text(one) for one in made}) < len(made):
            raise UserError(f"{name!r} should vary over different values. Got {values!r} instead.")
        return cls(name, made)

    @property
    def whole(self) -> bool:
        """Whether a range is of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def rounded(self, value: float) -> float:
        """A number of the range with three digits, or the end that it would leave the range by."""
        return value if self.whole else min(max(float(f"{value:.3g}"), self.low), self.high)

    @property
    def ends(self) -> tuple[Any, ...]:
        """All values, or both ends of the range."""
        return self.values or (self.low, self.high)


def space(vary: Iterable[str] | Mapping[str, str | Iterable[Any]]) -> tuple[Varied, ...]:
    """The options that vary: texts as the command line takes them, or names to values or to such a text."""
    found = tuple(itertools.starmap(Varied.of, vary.items()) if isinstance(vary, Mapping) else map(Varied.parse, vary))
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise UserError(f"Each option can vary once; give all its values together. Got {', '.join(names)}.")
    return found


def grid(varied: Sequence[Varied]) -> list[dict[str, Any]]:
    """All combinations of listed values, the last option's values next to each other."""
    for one in varied:
        if not one.values:
            raise UserError(f"{one.name!r} has a range, from which trials are drawn: say how many by 'trials'.")
    names = [one.name for one in varied]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(one.values for one in varied))]


def value_text(value: object) -> str:
    """A value as people write it: a square size as one number."""
    if isinstance(value, tuple | list):
        return str(value[0]) if len(set(value)) == 1 else "x".join(map(str, value))
    return str(value)


def _split(text: str) -> list[str]:
    """A text at its commas, but for those in brackets and quotes."""
    parts, depth = [""], 0
    for piece in _PARTS.findall(text):
        depth += (piece in "([") - (piece in ")]")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def _typed(name: str, value: object, kind: Any) -> Any:  # noqa: ANN401 - a type, and a value of it
    """A value of an option, which may be a text yet."""
    if isinstance(value, str) and kind is not str and typing.get_origin(kind) is not typing.Literal:
        value = Choice.parse(f"of(value={value})").settings["value"]
    if name == "image_size" and isinstance(value, int):
        value = (value, value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{name!r} cannot be {value!r}: {str(error).replace('`', '')}.") from None


@dataclass(frozen=True)
class Trial:
    """What one run of a trial reached."""

    settings: dict[str, Any]
    method: str = ""  # the loss or variant that it is a trial of; "" where there is one alone
    seed: int = 0
    score: float | None = None  # on validation data, lower is better; None where the run failed
    seconds: float | None = None  # that its training took, without what came before; None where nobody knows
    failed: str = ""  # why it failed

    @property
    def loss(self) -> float:
        """The score, infinite where the run failed: what a search makes small."""
        return math.inf if self.score is None else self.score

    @property
    def title(self) -> str:
        """Method and settings as people read them."""
        return titled(self.method, self.settings)


class TrialLog:
    """The trials in a JSON file, written anew, atomically, after each; those that it holds already are found."""

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
    """Draw the settings of a trial by its number, from 0, and by the trials before it: the first ten are at random.

    So a search that was cut off draws the same again; without ``done``, trials are drawn in any order by any process.
    Reference: Bergstra et al., Algorithms for Hyper-Parameter Optimization, NeurIPS 2011, as optuna has it.
    """
    with extra_needed("sweep", "Drawing trials"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    kinds = optuna.distributions
    distributions: dict[str, optuna.distributions.BaseDistribution] = {}
    for option in varied:
        if option.values:
            distributions[option.name] = kinds.CategoricalDistribution(range(len(option.values)))
        elif option.whole:
            distributions[option.name] = kinds.IntDistribution(int(option.low), int(option.high), log=option.log)
        else:
            distributions[option.name] = kinds.FloatDistribution(option.low, option.high, log=option.log)

    texts = {one.name: [value_text(value) for value in one.values] for one in varied}
    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=own))
    for one in done:
        params = {
            name: listed.index(value_text(one.settings[name])) if listed else one.settings[name]
            for name, listed in texts.items()
        }
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=one.loss))
    params = study.ask(distributions).params
    return {one.name: one.values[params[one.name]] if one.values else one.rounded(params[one.name]) for one in varied}


def search(
    varied: Sequence[Varied], count: int, run: Callable[[dict[str, Any]], Trial], *, seed: int = 0
) -> list[Trial]:
    """Draw and run so many trials, one after the other, each with the knowledge of those before it."""
    done: list[Trial] = []
    for number in range(count):
        done.append(run(drawn(varied, number, seed=seed, done=done)))
    return done


def best(trials: Sequence[Trial]) -> dict[str, Any]:
    """The settings whose runs scored best on average; of equal ones the first."""
    scores: dict[str, list[float]] = {}
    for one in trials:
        scores.setdefault(one.title, []).append(one.loss)
    found = min(trials, key=lambda one: statistics.fmean(scores[one.title]))
    if not math.isfinite(statistics.fmean(scores[found.title])):
        why = next(one.failed for one in trials if one.failed)
        raise UserError(f"No trial can be chosen, for a run of each failed: {why}")
    return found.settings


def with_settings(config: TrainConfig, settings: Settings) -> TrainConfig:
    """The options of a trial."""
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
