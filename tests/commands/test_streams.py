"""Commands whose standard streams are closed, full or gone: the work is done, and lost results are an error."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cml.cli import _machine

CML = f'"{sys.executable}" -m cml'


def shell(line: str, streams: str = "") -> subprocess.CompletedProcess[str]:
    command = ["bash", "-c", f"{CML} {line} {streams}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["2>&-", ">&-", "2>/dev/full", "<&- >&- 2>&-"])
def test_a_command_does_its_work_whatever_nobody_hears(streams: str, tmp_path: Path) -> None:
    out = tmp_path / "digits"
    told = shell(f"prepare people --count 24 --size 16 --out {out}", streams)
    assert told.returncode == 0
    assert "error" not in told.stderr.lower()
    assert told.stdout.startswith(str(out)) is (">&-" not in streams.split())
    files = [path for path in out.rglob("*") if path.is_file()]
    assert (out / "dataset.json") in files
    assert not [
        path for path in files if b"prepare people" in path.read_bytes()
    ]  # no file got a closed stream's number


def test_an_error_is_an_error_also_where_nobody_hears_it() -> None:
    assert shell("nonsense", "2>&-").returncode == 2
    assert shell("nonsense", "2>/dev/full").returncode == 2


def test_an_array_that_a_full_disk_cuts_is_told_as_one() -> None:
    with pytest.raises(OSError, match="requested and") as caught, Path("/dev/full").open("wb", buffering=0) as file:
        np.zeros(100_000).tofile(file)  # an error of NumPy's own, without a number
    assert _machine(caught.value).startswith("The disk is full (while writing)")


@pytest.mark.slow
@pytest.mark.parametrize("line", ["--version", "--help", "losses", "train pose --help"])
def test_results_that_stdout_does_not_take_are_one_error(line: str) -> None:
    told = shell(line, ">/dev/full")
    assert told.returncode == 1
    assert told.stderr.startswith("error: The disk is full (")
    assert len(told.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    assert shell("losses", "| head -1; exit ${PIPESTATUS[0]}").returncode == 0


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    script = """
import signal
from cml import cli
from cml.training import callbacks
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with callbacks.catch_signals() as request:
    signal.raise_signal(signal.SIGHUP)
    assert not request.is_set
cli._run = lambda *_: signal.raise_signal(signal.SIGHUP)
assert cli.main(["demo"]) == 0
signal.signal(signal.SIGHUP, signal.SIG_DFL)
assert cli.main(["demo"]) == 130
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    assert told.stderr.split() == ["stopped"]
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


@pytest.mark.parametrize("line", ["losses", "train pose --help", "prepare people --count 24 --size 16 --out here"])
def test_a_deleted_working_directory_is_one_error(line: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    python = f'cd "{tmp_path}/gone"; rmdir ../gone; {CML} {line}'
    told = subprocess.run(["bash", "-c", python], capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 2
    (message,) = [text for text in told.stderr.splitlines() if "getcwd" not in text]  # which bash says
    assert message == (
        "error: The working directory was deleted. Change to a folder that exists and run the command again."
    )
