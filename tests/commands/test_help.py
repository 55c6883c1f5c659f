"""The help of every command and subcommand: how values and defaults of options are shown, alike everywhere."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import pytest
from tyro.conf import Positional, UseAppendAction, arg

from cml import data_prep
from cml.cli import COMMANDS, main
from cml.command_line.parse_options import parse
from cml.training.config import TrainConfig
from cml.training.vector_options import vector_options

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))

from making.help import read_help

BENCH = ("check", "table", "page")
WRONG = {
    r"\(default: (None|''|\"\")?\)": "an option that is not given by default is shown without a default",
    r"\{None\}": "a value that may be left out is shown by the name of its type",
    r"\[[A-Z]+ \[[A-Z]+ \.\.\.\]\]|\} \.\.\.\]": "several values are shown as INT ...",
    r"``": "a help text has no marks of docstrings",
    r"\d\.\d{8,}": "a default has few digits",
    r"(?<= )\.\.(?!\.)": "an ellipsis has three points",
}


@dataclass(frozen=True)
class Group:
    """What belongs together.

    A note for programmers.
    """

    share: float = 1 / 3
    """A number."""


@dataclass(frozen=True)
class Options:
    """Do something."""

    items: Annotated[tuple[str, ...], Positional, arg(metavar="ITEM")]
    """Items."""
    group: Group
    sizes: tuple[int, ...] = ()
    """Sizes of 10,000
    pixels, by default all."""
    sides: tuple[Literal["left", "right"], ...] = ("left",)
    """Sides."""
    limit: int | None = None
    """A limit; by default none."""
    floor: int | None = 3
    """A floor."""
    rule: Annotated[tuple[str, ...], UseAppendAction] = ()
    """A rule, as often as you like."""


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every option stand on one line."""
    monkeypatch.setenv("COLUMNS", "2000")
    monkeypatch.setenv("NO_COLOR", "1")


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with contextlib.suppress(SystemExit):
        main([*words, "--help-all"])
    text: str = capsys.readouterr().out
    return text


def help_texts(capsys: pytest.CaptureFixture[str], command: str) -> Iterator[tuple[str, str]]:
    """The help of a command and of each of its subcommands."""
    text = help_of(capsys, command)
    yield command, text
    is_list = re.search(r"usage: .* [A-Z]+ \[options\]$", text, re.MULTILINE)
    listed = re.findall(r"^  ([a-z][\w-]*) +\S", text, re.MULTILINE) if is_list else []
    for name in BENCH if command == "bench" else listed:
        yield f"{command} {name}", help_of(capsys, command, name)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_values_and_defaults_plainly(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    faults = []
    for name, text in help_texts(capsys, command):
        assert text.startswith("usage: cml"), name
        for pattern, rule in WRONG.items():
            faults += [f"cml {name}: {rule}: {line.strip()}" for line in text.splitlines() if re.search(pattern, line)]
    assert not faults, "\n".join(faults)


def test_every_kind_of_option_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(Options, ["--help"], prog="cml do")
    shown = [" ".join(line.strip("│ ").split()) for line in capsys.readouterr().out.splitlines()]
    assert "ITEM ... Items. (required)" in shown
    assert "--sizes INT ... Sizes of 10000 pixels, by default all." in shown
    assert "--sides {left,right} ... Sides. (default: left)" in shown
    assert "--limit INT A limit; by default none." in shown
    assert "--floor INT|None A floor. (default: 3)" in shown
    assert "--rule STR A rule, as often as you like." in shown
    assert "--share FLOAT A number. (default: 0.3333)" in shown
    assert "What belongs together." in shown
    assert not any("programmers" in line for line in shown)
    words = ["a", "--sizes", "1", "2", "--limit", "4", "--floor", "None", "--rule", "x", "--rule", "y"]
    options = parse(Options, words, prog="cml do")
    assert options == Options(("a",), Group(), (1, 2), ("left",), 4, None, ("x", "y"))


def test_help_shows_the_options_that_most_set_and_help_all_each_once(capsys: pytest.CaptureFixture[str]) -> None:
    named = [name for names in TrainConfig.HELP_GROUPS.values() for name in names]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(TrainConfig))
    whole = read_help("train", "value")
    assert [whole.count(f"─ {title} options ") for title in TrainConfig.HELP_GROUPS] == [1] * 7
    flags = re.findall(r"^│ --([a-z-]+)", whole, re.MULTILINE)
    assert {name.replace("_", "-") for name in named} <= set(flags)
    assert len(set(flags)) == len(flags)
    with pytest.raises(SystemExit):
        main(["train", "value", "--help"])
    short = capsys.readouterr().out
    assert f"--help-all shows {len(named) - len(TrainConfig.HELP_GROUPS['basic'])} more." in short
    assert "--loss STR" in short
    assert "--ema-decay" not in short


def test_help_of_a_comparison_hides_the_options_that_its_rows_set() -> None:
    flags = re.findall(r"^│ --([a-z-]+)", read_help("compare", "value"), re.MULTILINE)
    assert {"losses", "freeze-backbone", "ema-decay"} <= set(flags)
    assert not {"loss", "tune", "tune-minutes"} & set(flags)


_RARE = {  # of each source with groups of options: one of the first group, and one that only --help-all shows
    **dict.fromkeys(("folder", "table", "text"), ("--group-column STR", "--decimal MARK")),
    "hf": ("--kind {numbers,captions,classes}", "--bits INT"),
    "judgements": ("--pairs PATH", "--quote MARK"),
    "molecules": ("--count INT", "--radius INT"),
    "mpii": ("--images PATH", "--room FLOAT"),
}


@pytest.mark.parametrize("source", _RARE)
def test_help_of_a_source_begins_with_the_basics(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    entry = data_prep.registry.entry(source)
    groups: dict[str, tuple[str, ...]] = entry.HELP_GROUPS
    named = [name for names in groups.values() for name in names]
    assert sorted(named) == sorted(field.name for field in dataclasses.fields(entry))
    whole = read_help("prepare", source)
    assert {f"--{name.replace('_', '-')}" for name in named} <= set(re.findall(r"--[a-z-]+", whole))
    basic, rare = _RARE[source]
    assert rare in whole
    with pytest.raises(SystemExit):
        main(["prepare", source, "--help"])
    short = capsys.readouterr().out
    assert f"--help-all shows {len(named) - len(groups['basic'])} more." in short
    assert basic in short
    assert rare not in short


def test_every_source_with_many_options_has_groups_of_them() -> None:
    for name in data_prep.names():
        entry = data_prep.registry.entry(name)
        assert hasattr(entry, "HELP_GROUPS") == (len(dataclasses.fields(entry)) >= 10), name


def test_help_begins_with_what_is_required() -> None:
    flags = re.findall(r"^│ (--[a-z-]+)", read_help("prepare", "coco_cxc"), re.MULTILINE)
    assert flags.index("--source") < flags.index("--cxc") < flags.index("--short-side")


def test_help_of_the_learning_rate_says_that_of_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "value", "--help"])
    said = " ".join(re.sub(r"[│\n]", " ", capsys.readouterr().out).split())
    rates = f"For vectors, the default is {vector_options()['learning_rate']:g}, with grades 0.001."
    assert f"{rates} (default: 0.001)" in said


def test_help_of_an_onnx_graph_names_vectors(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (("export",), ("export", "onnx")):
        assert "uint8 pixels or float32 vectors" in " ".join(help_of(capsys, *words).split())
