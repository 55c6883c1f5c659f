"""Checks of the settings of things made by name, whose ``UserError`` names the setting, the rule and the value."""

from collections.abc import Iterable
from typing import Literal

from cml.errors import UserError


def check_number(name: str, value: float, *, least: float, below: float = float("inf"), open_: bool = False) -> float:
    """Check that a setting is a number in [least, below), or in (least, below).

    Args:
        name: The name of the setting, for the error.
        value: Its value.
        least: The lower limit.
        below: The upper limit, which is excluded.
        open_: Whether the lower limit is excluded too.

    Returns:
        The value as a float.

    Raises:
        UserError: it is none.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (least < value if open_ else least <= value) or not value < below:
        rule = f"{'above' if open_ else 'at least'} {least:g}"
        rule += f" and below {below:g}" if below < float("inf") else ""
        raise UserError(f"The {name!r} must be a finite number {rule}. Got {value!r} instead.")
    return float(value)


def check_above_zero(name: str, value: float) -> float:
    """Check that a setting is a number above 0.

    Args:
        name: The name of the setting, for the error.
        value: Its value.

    Returns:
        The value as a float.

    Raises:
        UserError: it is none.
    """
    return check_number(name, value, least=0, open_=True)


def check_auto(name: str, value: float | Literal["auto"]) -> float | Literal["auto"]:
    """Check that a setting is a number above 0, or "auto", which stands for a value fitted to the training set.

    Args:
        name: The name of the setting, for the error.
        value: Its value.

    Returns:
        The value as a float, or "auto".

    Raises:
        UserError: it is neither.
    """
    if not isinstance(value, str):
        return check_above_zero(name, value)
    if value != "auto":
        raise UserError(f"The {name!r} must be a number above 0 or 'auto'. Got {value!r} instead.")
    return "auto"


def check_whole(name: str, value: int, *, least: int = 1) -> int:
    """Check that a setting is a whole number.

    Args:
        name: The name of the setting, for the error.
        value: Its value.
        least: The lowest allowed value.

    Returns:
        The value.

    Raises:
        UserError: it is none, or too low.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"The {name!r} must be a whole number of at least {least}. Got {value!r} instead.")
    return value


def check_word(name: str, value: str, words: Iterable[str]) -> None:
    """Check that a setting is one of some words.

    Args:
        name: The name of the setting, for the error.
        value: Its value.
        words: The allowed words.

    Raises:
        UserError: it is none of them.
    """
    words = list(words)
    if value not in words:
        rule = " or ".join(words) if len(words) == 2 else f"one of {', '.join(words)}"
        raise UserError(f"The {name!r} must be {rule}. Got {value!r} instead.")
