"""Freed memory stays for the next batch in processes of cml's commands, unless the environment says otherwise."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from cml.cli import main

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's allocator")

ROUNDS, BLOCKS, MEGABYTES = 10, 3, 24
SCRIPT = f"""
import resource, sys
from cml.processes.memory import give_back_freed_memory, keep_freed_memory
if sys.argv[1] == "keep":
    keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
batch = lambda: [b"x" * ({MEGABYTES} << 20) for _ in range({BLOCKS})]
batch()
before = faults()
for _ in range({ROUNDS}):
    batch()
print(faults() - before)
give_back_freed_memory()
before = faults()
batch()
print(faults() - before)
"""
PAGES = BLOCKS * (MEGABYTES << 20) // os.sysconf("SC_PAGE_SIZE")


def page_faults(how: str, **environment: str) -> tuple[int, int]:
    """Page faults in ten batches after the first, and in one after memory was given back."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, how],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
        timeout=240,
    )
    kept, given_back = map(int, ran.stdout.split())
    return kept, given_back


def test_memory_of_a_batch_serves_the_next() -> None:
    again, afresh = page_faults("keep")
    assert again < 0.1 * PAGES  # of all ten batches
    assert afresh > 0.9 * PAGES


def test_the_environment_decides_where_it_says_something() -> None:
    again, _ = page_faults("keep", MALLOC_TRIM_THRESHOLD_="131072")
    assert again > 0.9 * ROUNDS * PAGES


def test_the_system_gets_large_blocks_back_otherwise() -> None:
    again, _ = page_faults("default")
    assert again > 0.5 * ROUNDS * PAGES


def test_commands_keep_freed_memory(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    called = []
    monkeypatch.setattr("cml.cli.keep_freed_memory", lambda: called.append(True))
    assert main(["losses"]) == 0
    assert called == [True]
    assert "log-ratio" in capsys.readouterr().out
