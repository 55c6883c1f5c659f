"""A Dask cluster of this machine, for the tests."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import distributed


class Workers:
    """A scheduler and two worker processes on loopback.

    Args:
        folder: Where they are started, and find modules.
        preload: The module that a worker imports first.
    """

    def __init__(self, folder: Path, preload: str) -> None:
        self.folder, self._preload = folder, preload
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self.start("scheduler", "--host", "127.0.0.1", "--port", str(port))
        self.workers = [self.start_worker() for _ in range(2)]

    def start_worker(self) -> subprocess.Popen[bytes]:
        return self.start("worker", self.address, "--nthreads", "1", "--no-nanny", "--preload", self._preload)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(self.folder), *sys.path])
        limits = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "DASK_LOGGING__DISTRIBUTED": "error"}
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", *command, "--no-dashboard"],
            env=os.environ | limits | {"PYTHONPATH": path},
            cwd=self.folder,
        )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@contextlib.contextmanager
def two_workers(folder: Path, preload: str) -> Iterator[Workers]:
    """The cluster, once its workers are there."""
    started = Workers(folder, preload)
    try:
        with distributed.Client(started.address, timeout=200, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=200)
        yield started
    finally:
        started.stop()
