"""Two processes of a script on this machine, as torchrun starts them, without the process that torchrun itself is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TIME_LIMIT = 240  # seconds


# what C++ says where a thread of torch outlives the interpreter: rare, and after the script's last line
_TORN_DOWN = "terminate called without an active exception"


def run_two(script: Path, *arguments: str) -> str:
    """Run a script in two processes, and return what the first prints; fail with what a failed one says.

    A run whose processes were torn down wrongly by torch, after the end of the script, is run again once.
    """
    processes, printed = _start_two(script, *arguments)
    if any(text.rstrip().endswith(_TORN_DOWN) for text in printed):
        processes, printed = _start_two(script, *arguments)
    for process, text in zip(processes, printed, strict=True):
        assert process.returncode == 0, text
    return printed[0]


def _start_two(script: Path, *arguments: str) -> tuple[list[subprocess.Popen[str]], list[str]]:
    """The two processes, which have ended, and what each printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "two",
    }  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), *arguments], cwd=script.parent, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank},
        )
        for rank in ("0", "1")
    ]  # fmt: skip
    try:
        printed = [process.communicate(timeout=TIME_LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return processes, printed
