"""Nothing of the test run can last for ever: a test that hangs ends, shows where it was, and the next one runs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FORKING = {"start_two.py"}  # whose process runs no tests, and whose forks set an alarm
HANGS = """
import threading, time

def the_place_where_it_hangs():
    threading.Event().wait(60)

def test_that_hangs():
    the_place_where_it_hangs()

def test_the_next():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["-n", "1"]], ids=["alone", "side by side"])
def test_a_test_that_hangs_fails_with_its_stack_and_the_next_one_runs(more: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(tmp_path)]
    told = subprocess.run(
        [*command, "-o", "timeout=1", "-p", "no:cacheprovider", *more, str(tmp_path)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert "1 failed, 1 passed" in told.stdout, told.stdout + told.stderr
    assert "the_place_where_it_hangs" in told.stdout + told.stderr


@pytest.mark.slow
def test_every_process_that_is_waited_for_has_a_time_limit() -> None:
    found = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called, settings = ast.unparse(node.func), {word.arg for word in node.keywords}
            waits = called in ("subprocess.run", "subprocess.check_output") or called.endswith(".communicate")
            # a fork of the tests shares their locks
            forks = called == "os.fork" and path.name not in FORKING
            if (waits and "timeout" not in settings) or forks:
                found.append(f"{path.name}:{node.lineno}: {called}")
    assert found == []
