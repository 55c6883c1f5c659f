"""The errors that cml raises on purpose; the command line prints their message only. A traceback means a bug in cml."""

import contextlib
import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from cml.version import DISTRIBUTION

# what moves the cursor, ends a line, or reorders the text after it, as a file name of a stranger may
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_MOVES = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LONGEST = 1500  # characters of a message


class UserError(Exception):
    """An input cannot be used; the message says what, where, which rule, which value and the remedy.

    The command line prints it in one line and exits with code 2. The middle of a long message, a repeated value, is
    left out.

    Example:
        >>> from cml import losses
        >>> losses.get("log-ratio(weight=rank)")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        cml.errors.UserError: The loss 'log-ratio' has no setting 'weight'. It has: label_exponent, ...
    """

    def __str__(self) -> str:
        return shorten_message(super().__str__())


def shorten_message(text: str) -> str:
    """Put a message in one line of limited length."""
    text = escape_controls(text)
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} .. {text[-half:]}"


def escape_controls(text: str, spell: Callable[[str], str] = lambda character: ascii(character)[1:-1]) -> str:
    r"""Escape control characters, also those of text direction: a terminal would obey them."""
    return _CONTROLS.sub(lambda match: spell(match[0]), text)


def escape_moves(text: str) -> str:
    """Escape what moves a terminal's cursor alone."""
    return _MOVES.sub(lambda match: ascii(match[0])[1:-1], text)


def holds_controls(text: str) -> bool:
    """Tell whether a text moves a terminal's cursor; characters of text direction do not, and names may need them."""
    return _MOVES.search(text) is not None


class MachineError(Exception):
    """A process was killed, hung or ran out of memory; as ``UserError``, but the exit code is 1."""


class DataError(UserError):
    """A file violates its format; the message names the file and, if there is one, the line."""


class ImplausibleData(UserWarning):
    """The category of warnings about labels and label distances that are legal, but probably not what was meant."""


def did_you_mean(
    name: str, known: Iterable[str]
) -> str:  # a question to append to an error, with the closest known name; "" if there is none
    """Suggest a known name in place of an unknown one."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def install_hint(extra: str) -> str:
    """Name the command that installs an extra of cml: from where cml itself was installed."""
    from importlib import metadata  # slow to import, and only an error needs it

    stated = [found.read_text("direct_url.json") for found in metadata.distributions(name=DISTRIBUTION)]
    origin = json.loads(next(filter(None, stated), "{}"))  # a checkout's own egg-info, first on the path, has none
    if not str(origin.get("url", "")).startswith("file:"):  # a package index
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    source = Path(unquote(urlsplit(origin["url"]).path))  # a checkout, or a wheel
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{'.' if source == Path.cwd() else source}[{extra}]'"


@contextlib.contextmanager
def require_extra(extra: str, what: str) -> Iterator[None]:
    """Name the extra that is missing, if an import in the block fails."""
    try:
        yield
    except ImportError as error:
        raise UserError(f"{what} needs the extra '{extra}': {install_hint(extra)} ({error}).") from None


def quoted_list(names: Iterable[str]) -> str:
    """Names in double quotes, as messages list them."""
    return ", ".join(f'"{name}"' for name in names)
