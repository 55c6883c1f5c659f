"""Checks of the settings of things made by name, whose ``UserError`` names the setting, the rule and the value."""

from collections.abc import Iterable
from typing import Any, Literal

from cml.errors import UserError
from cml.option_types import convert_option, describe_value, is_number, join_choices, suggest_choice, suggest_value


def check_number(name: str, value: float, *, least: float, below: float = float("inf"), open_: bool = False) -> float:
    """Check that a setting is a number in [least, below), or in (least, below)."""
    if not is_number(value) or not (least < value if open_ else least <= value) or not value < below:
        rule = f"{'above' if open_ else 'at least'} {least:g}"
        rule += f" and below {below:g}" if below < float("inf") else ""
        raise UserError(
            f"The {name!r} must be a finite number {rule}. Got {describe_value(value)} instead.{_hint(value, float)}"
        )
    return float(value)


def check_above_zero(name: str, value: float) -> float:
    """Check that a setting is a number above 0."""
    return check_number(name, value, least=0, open_=True)


def check_auto(name: str, value: float | Literal["auto"]) -> float | Literal["auto"]:
    """Check that a setting is a number above 0, or "auto", which stands for a value fitted to the training set."""
    if not isinstance(value, str):
        return check_above_zero(name, value)
    if value != "auto":
        raise UserError(
            f"The {name!r} must be a number above 0 or 'auto'. Got {value!r} instead."
            f"{suggest_choice(value, ['auto']) or suggest_value(value, float)}"
        )
    return "auto"


def check_whole(name: str, value: int, *, least: int = 1) -> int:
    """Check that a setting is a whole number."""
    if not is_number(value, whole=True) or value < least:
        raise UserError(
            f"The {name!r} must be a whole number of at least {least}. Got {describe_value(value)} instead."
            f"{_hint(value, int)}"
        )
    return int(value)


def check_word(name: str, value: str, words: Iterable[str]) -> None:
    """Check that a setting is one of some words."""
    words = list(words)
    if not isinstance(value, str) or value not in words:
        rule = join_choices(words)
        hint = suggest_choice(value, words)
        raise UserError(f"The {name!r} must be {rule}. Got {describe_value(value)} instead.{hint}")


def check_flag(name: str, value: bool) -> bool:  # the value as a bool
    """Check that a setting is True or False; a word such as "no" would count as true."""
    return bool(convert_option(name, value, bool))


def _hint(value: Any, kind: type) -> str:  # noqa: ANN401 - a wrong value of any kind
    """The value of another type that may have been meant; none for a number that is out of range."""
    return "" if is_number(value, whole=kind is int) else suggest_value(value, kind)
