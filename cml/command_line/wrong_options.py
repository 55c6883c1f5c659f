"""Errors in a command line as one line: which option, what is wrong, what may have been meant.

The parser tyro prints its account of an error in a box on stderr and exits. The first paragraph of that box is what its
public interface offers; it is read here, so that no version of tyro is tied to the names of its internals. Without it,
tests/commands/test_wrong_options.py fails.
"""

import contextlib
import dataclasses
import difflib
import io
import os
import re
import typing
from collections.abc import Iterator, Sequence

from cml.errors import UserError
from cml.option_types import suggest_choice

_BOX = re.compile(r"^[\s│|╭╰╮╯]*|[\s│|╭╰╮╯]*$")
_RULE = re.compile(r"[─━-]{3,}")
_WIDE = "100000"  # columns, so that the box breaks no line


@contextlib.contextmanager
def explain_wrong_options(kind: type, arguments: Sequence[str], prog: str) -> Iterator[None]:
    """Turn the parser's errors into a ``UserError`` while it parses."""
    columns = os.environ.get("COLUMNS")
    try:
        with contextlib.redirect_stderr(io.StringIO()) as account:
            if "--help" not in arguments and "-h" not in arguments:  # whose lines should fit the terminal
                os.environ["COLUMNS"] = _WIDE
            yield
    except SystemExit as end:
        if not end.code:
            raise
        text = _explain_unknown(kind, arguments, prog) or _explain(account.getvalue(), prog)
        raise UserError(f"{text} '{prog} --help' lists all options.") from None
    finally:
        os.environ.pop("COLUMNS", None)
        if columns is not None:
            os.environ["COLUMNS"] = columns


def _explain(account: str, prog: str) -> str:
    """One sentence of the parser's account: a title, with ASCII alone a rule, the fault, a rule, hints."""
    lines = [_BOX.sub("", line) for line in account.splitlines()[1:]]
    while lines and _RULE.fullmatch(lines[0]):
        del lines[0]
    end = next((number for number, line in enumerate(lines) if _RULE.fullmatch(line)), len(lines))
    body = [line for line in lines[:end] if line]
    text = " ".join(body).partition(" Got errors:")[0].removesuffix(".")
    if text.startswith("Missing from "):  # below it the options, each with its help
        options = [word for line in body[1:] for word in [line.split()[0]] if word.startswith("--") or word.isupper()]
        return f"{prog} needs {' and '.join(dict.fromkeys(options))}."
    if choice := re.fullmatch(r"invalid choice (.*) for argument '(\S+)'\. (Expected .*)", text):
        return f"Invalid choice {choice[1]} for {choice[2]}. {choice[3]}.{_suggest(choice[1], choice[3])}"
    if text.startswith("Unrecognized options: "):
        words = text.removeprefix("Unrecognized options: ").split(", ")
        return f"Unrecognized options: {' '.join(words)}."
    text = re.sub(r"'\('(\S+)',\)'", r"'\1'", text.removeprefix("Error parsing "))  # as tyro 1.0.0 names an option
    return f"{text or 'These options cannot be read'}."


def _suggest(given: str, expected: str) -> str:
    """The choice that may have been meant, as of an option in Python."""
    word, choices = re.match(r"'(.*?)'", given), re.findall(r"'(.*?)'", expected)
    return suggest_choice(word[1], choices) if word else ""


def _explain_unknown(kind: type, arguments: Sequence[str], prog: str) -> str:
    """A sentence on the first flag in ``arguments`` that is not an option of ``kind``; "" if all are."""
    known = sorted({"--help", *_flags(kind)})
    flags = [word.partition("=")[0] for word in arguments if word[:2] == "--" and word[2:3].isalpha()]
    flag = next((flag for flag in flags if flag.replace("_", "-") not in known), "")
    if not flag:
        return ""
    close = difflib.get_close_matches(flag.replace("_", "-"), known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    if flag == "--batch-size" and "--sampler" in known:
        hint = " The size of batches is the sampler's, as in --sampler 'random(batch_size=60)'."
    return f"{prog} has no option {flag}.{hint}"


def _flags(kind: type) -> Iterator[str]:
    """The flags of a dataclass; those of a nested dataclass have no prefix."""
    hints = typing.get_type_hints(kind)
    for option in dataclasses.fields(kind):
        inner = hints[option.name]
        if isinstance(inner, type) and dataclasses.is_dataclass(inner):
            yield from _flags(inner)
        else:
            name = option.name.replace("_", "-")
            yield from (f"--{name}", f"--no-{name}") if inner is bool else (f"--{name}",)
