"""Options that vary, as people write them: ``dimension=16,32``, ``learning_rate=1e-5..1e-2:log``; and their grid.

Not for: drawing trials from them (trials.py).
"""

from __future__ import annotations

import itertools
import re
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from cml.errors import UserError, did_you_mean
from cml.registry import Choice
from cml.training.config import TrainConfig

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

    Attributes:
        name: An option of ``TrainConfig``, or one of a loss, sampler or backbone: ``loss.alpha``.
        values: The values, where they are listed; else there is a range.
        low: The least value of the range; whole numbers alone are drawn where both ends are whole.
        high: The greatest.
        log: Draw evenly on a logarithmic scale.

    Example:
        >>> Varied.parse("sampler.batch_size=30,60").values
        (30, 60)
        >>> Varied.parse("learning_rate=1e-5..1e-2:log")
        Varied(name='learning_rate', values=(), low=1e-05, high=0.01, log=True)
    """

    name: str
    values: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    log: bool = False

    @classmethod
    def parse(cls, text: str) -> Varied:
        """Read ``option=value,value,..`` or ``option=low..high``, to which ``:log`` may be added.

        Raises:
            UserError: another form, an option that does not exist or cannot vary, or a value that is not one of it.
        """
        name, equals, right = (part.strip() for part in text.partition("="))
        if not equals or not right:
            raise UserError(f"{text!r} should read option=value,value or option=low..high.")
        return cls.of(name, right)

    @classmethod
    def of(cls, name: str, values: str | Iterable[Any]) -> Varied:
        """As ``parse``, of an option's name and its values, which may be a text.

        Raises:
            UserError: as ``parse``.
        """
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
        given = _split(values) if isinstance(values, str) else values
        made = tuple(_typed(name, one, kind) for one in given)
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
    """The options that vary: texts as the command line takes them, or names to values or to such a text.

    Raises:
        UserError: as ``Varied.parse``; or none, or one named twice.
    """
    found = (
        tuple(Varied.of(*one) for one in vary.items()) if isinstance(vary, Mapping) else tuple(map(Varied.parse, vary))
    )
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise UserError(f"Each option can vary once; give all its values together. Got {', '.join(names)}.")
    return found


def grid(varied: Sequence[Varied]) -> list[dict[str, Any]]:
    """All combinations of listed values, the last option's values next to each other.

    Raises:
        UserError: one has a range, of which there is no grid.
    """
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
        value = _number(value)
    if name == "image_size" and isinstance(value, int):
        value = (value, value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise UserError(f"{name!r} cannot be {value!r}: {str(error).replace('`', '')}.") from None


def _number(text: str) -> Any:  # noqa: ANN401 - any literal
    return Choice.parse(f"of(value={text})").settings["value"]
