"""The errors that cml raises on purpose.

Every one of them is a single sentence a user can act on: the file or argument, the rule, the value found and the
mend. The command line prints that sentence alone; a traceback means a bug in cml.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Iterable, Iterator

_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_LONGEST = 1500  # characters of a message


class UserError(Exception):
    """Something the user gave cannot be used; the message says what, where, which rule, which value and the mend.

    The command line prints it in one line and exits with code 2. Of a long message the middle is left out, which is a
    value that it repeats.

    Example:
        >>> from cml import losses
        >>> losses.get("log-ratio(weight=rank)")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        cml.errors.UserError: The loss 'log-ratio' has no setting 'weight'. It has: label_exponent, ...
    """

    def __str__(self) -> str:
        return shortened(super().__str__())


def shortened(said: str) -> str:
    """A message in one line, without the middle of what is too long to be read."""
    said = _CONTROLS.sub(lambda found: repr(found[0])[1:-1], said)
    half = _LONGEST // 2
    return said if len(said) <= _LONGEST else f"{said[:half]} .. {said[-half:]}"


class MachineError(Exception):
    """The machine failed: a process was killed, hung or ran out of memory; the message says which and what to do.

    The command line prints it in one line and exits with code 1.
    """


class DataError(UserError):
    """A file does not say what its format promises; the message names the file and, where there is one, the line."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What goes behind the sentence that refuses a name: the nearest known one as a question, "" where none is near.

    Example:
        >>> did_you_mean("log_ratio", ["log-ratio", "triplet"])
        " Did you mean 'log-ratio'?"
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


@contextlib.contextmanager
def extra_needed(extra: str, what: str) -> Iterator[None]:
    """Say which extra of cml a missing package comes with.

    Args:
        extra: Its name.
        what: What needs it, to be read before "comes with the extra".

    Raises:
        UserError: an import inside fails.
    """
    try:
        yield
    except ImportError as error:
        raise UserError(f"{what} comes with the extra '{extra}': pip install 'cml[{extra}]' ({error}).") from None
