"""Kernels of notebooks that are forks of one process: each would import for seconds what all of them need."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

IMPORTED = (
    *("ipykernel.kernelapp", "matplotlib_inline.backend_inline", "torch._dynamo", "sklearn.neighbors", "pandas"),
    *("cml.doors.fit", "cml.doors.load", "cml.doors.run", "cml.losses.dense_triplet", "cml.training.gradient_descent"),
)


def start() -> None:
    """Let jupyter start its kernels in this way from now on, where the system has forks."""
    if not hasattr(os, "fork"):
        return
    folder = Path(tempfile.mkdtemp())
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(folder / "socket"))
        listening.listen()
        number = listening.fileno()
        server = subprocess.Popen(
            [sys.executable, __file__, "serve", str(number)], stdin=subprocess.PIPE, pass_fds=[number]
        )
    atexit.register(shutil.rmtree, folder)
    atexit.register(server.communicate, timeout=60)  # it ends when its standard input does
    kernel = folder / "kernels" / "python3"
    kernel.mkdir(parents=True)
    command = [sys.executable, "-S", __file__, "ask", str(folder / "socket"), "{connection_file}"]
    spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    (kernel / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    os.environ["JUPYTER_PATH"] = os.pathsep.join([str(folder), os.environ.get("JUPYTER_PATH", "")])


def ask(address: str, connection_file: str, *options: str) -> int:
    """Ask for a kernel with the standard streams of this process, and wait for its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which jupyter sends to a kernel before it asks it to end
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        message = json.dumps([["-f", connection_file, *options], os.getcwd(), dict(os.environ)]).encode()
        socket.send_fds(line, [len(message).to_bytes(8, "big")], [0, 1, 2])
        line.sendall(message)
        return 0 if line.recv(1) else 1  # nothing comes from a kernel that has died


def serve(number: str) -> None:
    """Import, then start a fork for each kernel that a socket is asked for, until the standard input ends."""
    from numba.core.registry import cpu_target

    for name in IMPORTED:
        importlib.import_module(name)
    for context in (cpu_target.typing_context, cpu_target.target_context):
        context.refresh()  # what numba would read in each fork before it takes a function from its cache
    with socket.socket(fileno=int(number)) as listening:
        while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
            line, _ = listening.accept()
            if not os.fork():
                listening.close()
                be_kernel(line)
            line.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


def be_kernel(line: socket.socket) -> None:
    """Be the kernel that is asked for on a line, tell it of the end, and end."""
    from ipykernel import kernelapp

    length, streams, _, _ = socket.recv_fds(line, 8, 3)
    options, folder, environment = json.loads(line.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
    for own, other in enumerate(streams):
        os.dup2(other, own)
        os.close(other)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = ""
    parent = f"--IPKernelApp.parent_handle={os.getppid()}"  # with which it ends
    kernelapp.launch_new_instance(argv=[*options, parent])
    atexit._run_exitfuncs()
    line.send(b".")
    os._exit(0)  # taking down an interpreter with all these modules takes a second


if __name__ == "__main__":
    sys.exit(ask(*sys.argv[2:]) if sys.argv[1] == "ask" else serve(*sys.argv[2:]))
