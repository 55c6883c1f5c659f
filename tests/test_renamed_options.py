from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cml.command_line.parse_options import parse
from cml.errors import DataError, UserError, did_you_mean
from cml.renamed_options import with_current_names
from cml.storage.saved_options import saved_options


@dataclass(frozen=True)
class Inner:
    new_name: int = 1


@dataclass(frozen=True)
class Options:
    inner: Inner = field(default_factory=Inner)
    new_name: int = 1
    new_switch: bool = False
    kept: int = 0


@pytest.fixture(autouse=True)
def _renamed(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {"old_name": "new_name", "old_switch": "new_switch", "kept": "new_name", "gone": "not_there"}
    monkeypatch.setattr("cml.renamed_options.RENAMED", rows)


@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--old-name", "--new-name"),
        ("--old_name", "--new-name"),
        ("--old-switch", "--new-switch"),
        ("--no-old-switch", "--no-new-switch"),
    ],
)
def test_a_command_line_refuses_an_old_option_and_names_the_new_one(flag: str, hint: str) -> None:
    @dataclass(frozen=True)
    class Flat:
        new_name: int = 1
        new_switch: bool = False

    with pytest.raises(UserError) as refused:
        parse(Flat, [flag, "3"], prog="cml try")
    assert f"cml try has no option {flag}. Did you mean {hint}?" in str(refused.value)


def test_saved_options_are_read_under_their_old_names(tmp_path: Path) -> None:
    read = saved_options(Options, {"old_name": 3, "kept": 4, "inner": {"old_name": 5}}, "config.json", "a config")
    assert read == Options(Inner(5), 3, False, 4)
    with pytest.raises(DataError, match="'gone'"):
        saved_options(Options, {"gone": 3}, "config.json", "a config")
    with pytest.raises(DataError, match=r"'old_name'.*Did you mean 'new_name'"):  # not silently one of the two
        saved_options(Options, {"old_name": 3, "new_name": 4}, "config.json", "a config")


def test_an_option_keeps_its_place_and_a_current_name_its_meaning() -> None:
    assert list(with_current_names({"kept": 1, "old_name": 2}, {"new_name", "kept"}).items()) == [
        ("kept", 1),
        ("new_name", 2),
    ]
    assert did_you_mean("old_name", ["new_name"]) == " Did you mean 'new_name'?"
