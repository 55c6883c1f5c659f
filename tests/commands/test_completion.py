"""Completion: the words that may follow, and bash itself with the script on partial commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cml.cli import COMMANDS, main
from cml.commands.completion import SCRIPTS, complete_words


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["tra"], ["train"]),
        (["train", "po"], ["pose"]),
        (["train", "value", "--label-d"], ["--label-distance"]),
        (["bench", "ch"], ["check"]),
        (["bench", "check", "--rer"], ["--rerun"]),
        (["bench", "--track", ""], ["A", "B"]),
        (["export", "h"], ["hub"]),
        (["evaluate", "runs/mine", "--js"], ["--json"]),
        (["evaluate", ""], []),  # a folder
        (["no-such-command", ""], []),
        (["train", "--no-such-flag", ""], []),
    ],
)
def test_words_that_may_follow(words: list[str], found: list[str]) -> None:
    assert complete_words(words) == found


def test_the_first_word_is_a_command() -> None:
    assert complete_words([""])[: len(COMMANDS)] == list(COMMANDS)
    assert complete_words([]) == complete_words([""])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert capsys.readouterr().out == SCRIPTS[shell]


def test_an_unknown_shell_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "bash" in line
    assert "tcsh" in line


def test_bash_completes_partial_commands(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:  # Windows
        pytest.skip("no bash")
    command = tmp_path / "cml"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cml "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    lines = ['eval "$(cml completion bash)"']
    for words in ("cml tra", "cml train val", "cml losses --mark", "cml export onnx"):
        lines += [f"COMP_WORDS=({words})", "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))", "_cml", 'echo "${COMPREPLY[@]}"']
    lines.append("complete -p cml")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [bash, "-c", "\n".join(lines)],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "train", "value", "--markdown", "onnx", "complete -o default -F _cml cml",
    ]  # fmt: skip
    assert done.stderr == ""
