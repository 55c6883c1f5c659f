from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest
from tyro.conf import Positional, arg

from cml.command_line.parse_options import _explain, parse
from cml.errors import UserError


@dataclass(frozen=True)
class Options:
    """Options of every kind."""

    run: Annotated[str, Positional, arg(metavar="RUN")]
    data: str
    count: int = 3
    mode: Literal["a", "b"] = "a"
    pair: tuple[int, int] = (1, 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "cml try needs RUN and --data."),
        ("x", "cml try needs --data."),
        ("x --data d --count q", "--count: invalid literal for int() with base 10: 'q'."),
        ("x --data d --mode c", "Invalid choice 'c' for --mode. Expected one of ('a', 'b')."),
        ("x --data d --count", "Missing value for argument '--count'. Expected 1 values."),
        ("x --data d --pair 1", "Missing value for argument '--pair'. Expected 2 values."),
        ("x y --data d", "Unrecognized options: y."),
        ("x --data d --cuont 3", "cml try has no option --cuont. Did you mean --count?"),
        (f"x --data d --count {'q' * 150}", f"--count: invalid literal for int() with base 10: '{'q' * 150}"),
    ],
)
@pytest.mark.parametrize("columns", ["30", "200"])
def test_a_wrong_option_is_explained_in_one_line(
    arguments: str, text: str, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with pytest.raises(UserError) as error:
        parse(Options, arguments.split(), prog="cml try")
    assert str(error.value).startswith(text)
    assert str(error.value).endswith("'cml try --help' lists all options.")


def test_accounts_of_other_versions_of_the_parser_and_of_ascii_terminals_are_read() -> None:
    ascii_only = " Invalid choice \n ------- \n  invalid choice 'c' for argument '--m'. Expected one of ('a', 'b').  \n"
    boxed = "╭─ Missing argument ─╮\n│ Missing value for argument '('--n',)'. Expected 1 values. │\n╰──────╯\n"
    assert _explain(ascii_only, "cml try") == "Invalid choice 'c' for --m. Expected one of ('a', 'b')."
    assert _explain(boxed, "cml try") == "Missing value for argument '--n'. Expected 1 values."
    assert _explain("", "cml try") == "These options cannot be read."
