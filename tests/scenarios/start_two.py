"""Two processes of a script on this machine, as torchrun starts them, without the process that torchrun itself is.

Both are forks of a process that has imported what scripts take seconds to import, and that waits for the next script.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from numba.core.registry import cpu_target

ROOT = Path(__file__).resolve().parents[2]
TIME_LIMIT = 240  # seconds
IMPORTED = (
    *("torch._dynamo", "torch.distributed", "torch.nn.parallel", "torch.utils.data", "accelerate", "lightning"),
    *("cml.losses.dense_triplet", "cml.losses.cross_batch_memory", "cml.sampling.epoch_batches", "cml.doors.fit"),
)
_servers: list[subprocess.Popen[str]] = []  # of this process, at most one that runs


def run_two(script: Path, *arguments: str) -> str:
    """Run a script in two processes, and return what the first prints; fail with what a failed one says."""
    codes, printed = end_of_two(script, *arguments)
    for code, text in zip(codes, printed, strict=True):
        assert code == 0, text
    return printed[0]


def end_of_two(script: Path, *arguments: str) -> tuple[list[int], list[str]]:
    """Run a script in two processes: the exit codes, that of a signal below 0, and what each printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "two",
    }  # fmt: skip
    server = _server()
    with tempfile.TemporaryDirectory() as folder:
        logs = [str(Path(folder) / rank) for rank in "01"]
        environments = [
            dict(os.environ) | shared | {"RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1")
        ]  # as they are now: tests change them
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([[str(script), *arguments], environments, logs]) + "\n")
        server.stdin.flush()
        answer = server.stdout.readline()
        if not answer:
            server.kill()
        return json.loads(answer), [Path(log).read_text(encoding="utf-8", errors="replace") for log in logs]


def _server() -> subprocess.Popen[str]:
    """The process that waits for the scripts of this one, and ends with it, as its standard input does."""
    if not _servers or _servers[0].poll() is not None:
        path = os.pathsep.join([str(ROOT), *sys.path])
        server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        atexit.register(server.communicate, timeout=TIME_LIMIT)
        _servers[:] = [server]
    return _servers[0]


def _serve() -> None:
    """Import, then run each script that a line of the standard input names in two forks, and tell their exit codes."""
    for name in IMPORTED:
        importlib.import_module(name)
    for context in (cpu_target.typing_context, cpu_target.target_context):
        context.refresh()  # what numba would read in each fork before it takes a function from its cache
    for line in sys.stdin:
        words, environments, logs = json.loads(line)
        ranks = []
        for environment, log in zip(environments, logs, strict=True):
            rank = os.fork()
            if not rank:
                _run(words, environment, log)
            ranks.append(rank)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks]), flush=True)


def _run(words: list[str], environment: dict[str, str], log: str) -> None:
    """Be a process that runs a script, and end."""
    signal.alarm(TIME_LIMIT)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(Path(words[0]).parent)
    said, nothing = os.open(log, os.O_WRONLY | os.O_CREAT), os.open(os.devnull, os.O_RDONLY)
    for own, other in enumerate((nothing, said, said)):
        os.dup2(other, own)
    sys.argv, sys.path[0] = words, str(Path(words[0]).parent)
    code = 0
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    os._exit(code)  # taking down an interpreter with all these modules would take longer than most scripts


if __name__ == "__main__":
    _serve()
