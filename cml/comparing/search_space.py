"""Options that vary, as people write them: ``dimension=16,32``, ``learning_rate=1e-5..1e-2:log``; and their grid."""

import itertools
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec

from cml.errors import UserError, did_you_mean
from cml.registry import Choice
from cml.training.config import TrainConfig, with_options

Settings = Mapping[str, Any]
"""Values of the options that vary: "dimension", or "loss.alpha" for a setting in the brackets of the loss."""
SearchSpace = Sequence[str] | Mapping[str, str | Sequence[Any]]
"""Options that vary, as ``cml.compare`` takes them: texts, or names to values or to such a text."""
_CHOICES = ("loss", "sampler", "backbone")
_FIXED = {
    "label_distance": "it decides what is measured",
    "seed": "'seeds' says how many runs there are of each",
    "evaluate_every": "it decides what the trials are chosen by",
    "validation_fraction": "it decides what the trials are chosen by",
}
_RANGE = re.compile(r"(?P<low>[^,()'\"]+?)\.\.(?P<high>[^,()'\":]+)(?P<log>:log)?")
_PARTS = re.compile(r"""('[^']*'|"[^"]*"|[^'",()\[\]]|[()\[\],])""")


@dataclass(frozen=True)
class SearchDimension:
    """An option that varies over values or over a range.

    Example:
        >>> SearchDimension.parse("sampler.batch_size=30,60").values
        (30, 60)
        >>> SearchDimension.parse("learning_rate=1e-5..1e-2:log")
        SearchDimension(name='learning_rate', values=(), low=1e-05, high=0.01, log=True)
    """

    name: str  # an option of ``TrainConfig``, or one of a loss, sampler or backbone: ``loss.alpha``
    values: tuple[Any, ...] = ()  # the values, where they are listed; empty where there is a range
    low: float = 0.0  # lowest value of the range. If both ends are whole numbers, only whole numbers are drawn
    high: float = 0.0  # highest value of the range
    log: bool = False  # draw evenly on a logarithmic scale

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``option=value,value,...`` or ``option=low..high``, to which ``:log`` may be added."""
        name, equals, right = (part.strip() for part in text.partition("="))
        if not equals or not right:
            raise UserError(f"{text!r} should read option=value,value or option=low..high.")
        return cls.of(name, right)

    @classmethod
    def of(cls, name: str, values: str | Iterable[Any]) -> Self:
        """Build a dimension from an option's name and its values."""
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
        if kind is not str and isinstance(values, str):
            bounds = _RANGE.fullmatch(values)
            if bounds:
                return cls._of_range(name, bounds, kind)
        texts = _split(values) if isinstance(values, str) else values
        typed = tuple(_as_type(name, value, kind) for value in texts)
        if not typed or len({value_text(value) for value in typed}) < len(typed):
            raise UserError(f"{name!r} should vary over different values. Got {values!r} instead.")
        return cls(name, typed)

    @classmethod
    def _of_range(cls, name: str, bounds: re.Match[str], kind: Any) -> Self:  # noqa: ANN401 - a type
        low, high = (_as_type(name, bounds[end], kind) for end in ("low", "high"))
        if not isinstance(low, int | float) or not isinstance(high, int | float) or not low < high:
            raise UserError(f"The range {bounds[0]!r} of {name!r} should be two numbers, the lower one first.")
        if bounds["log"] and low <= 0:
            raise UserError(f"The logarithmic range {bounds[0]!r} of {name!r} should begin above 0.")
        return cls(name, (), low, high, bool(bounds["log"]))

    @property
    def is_whole(self) -> bool:
        """Whether the range is of whole numbers."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def round(self, value: float) -> float:
        """Round a drawn number to three digits, within the range; whole numbers stay as they are."""
        return value if self.is_whole else min(max(float(f"{value:.3g}"), self.low), self.high)

    @property
    def ends(self) -> tuple[Any, ...]:
        """All listed values, or both ends of the range."""
        return self.values or (self.low, self.high)


def parse_search_space(search_space: SearchSpace) -> tuple[SearchDimension, ...]:
    """Read the options that vary."""
    if isinstance(search_space, Mapping):
        dimensions = tuple(itertools.starmap(SearchDimension.of, search_space.items()))
    else:
        dimensions = tuple(map(SearchDimension.parse, search_space))
    names = [dimension.name for dimension in dimensions]
    if len(set(names)) < len(names):
        raise UserError(f"Each option can vary once; give all its values together. Got {', '.join(names)}.")
    return dimensions


def grid(dimensions: Sequence[SearchDimension]) -> list[dict[str, Any]]:
    """List all combinations of values; the values of the last option are next to each other."""
    for dimension in dimensions:
        if not dimension.values:
            raise UserError(f"{dimension.name!r} has a range, from which trials are drawn: say how many by 'trials'.")
    names = [dimension.name for dimension in dimensions]
    combinations = itertools.product(*(dimension.values for dimension in dimensions))
    return [dict(zip(names, values, strict=True)) for values in combinations]


def corners(dimensions: Sequence[SearchDimension]) -> list[dict[str, Any]]:
    """List settings in which every listed value, and both ends of every range, occur at least once."""
    count = max(len(dimension.ends) for dimension in dimensions)
    return [
        {dimension.name: dimension.ends[min(number, len(dimension.ends) - 1)] for dimension in dimensions}
        for number in range(count)
    ]


def with_settings(config: TrainConfig, settings: Settings) -> TrainConfig:
    """Change the options that a trial sets, also those in the brackets of a loss, sampler or backbone."""
    changes = {name: value for name, value in settings.items() if "." not in name}
    for name, value in settings.items():
        option, dot, setting = name.partition(".")
        if dot:
            choice = Choice.parse(changes.get(option, getattr(config, option)))
            changes[option] = str(Choice(choice.name, {**choice.settings, setting: value}))
    return with_options(config, changes)


def settings_title(method: str, settings: Settings) -> str:
    """A method and settings as people read them: ``proxy-anchor, dimension=16, loss.alpha=32``."""
    texts = [f"{name}={value_text(value)}" for name, value in settings.items()]
    return ", ".join([method, *texts] if method else texts)


def value_text(value: object) -> str:
    """A value as people write it: a square size as one number."""
    if isinstance(value, tuple | list):
        return str(value[0]) if len(set(value)) == 1 else "x".join(map(str, value))
    return str(value)


def _split(text: str) -> list[str]:
    """A text split at its commas, except those in brackets and quotes."""
    parts, depth = [""], 0
    for piece in _PARTS.findall(text):
        depth += (piece in "([") - (piece in ")]")
        if piece == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += piece
    return [part.strip() for part in parts]


def _as_type(name: str, value: object, kind: Any) -> Any:  # noqa: ANN401 - a type, and a value of it
    """A value of an option, converted from text if need be."""
    if isinstance(value, str) and kind is not str and typing.get_origin(kind) is not typing.Literal:
        value = Choice.parse(f"of(value={value})").settings["value"]
    if name == "image_size" and isinstance(value, int):
        value = (value, value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{name!r} cannot be {value!r}: {str(error).replace('`', '')}.") from None
