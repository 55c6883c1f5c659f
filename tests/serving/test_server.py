"""The server of ``cml serve`` ends when it is told to, whatever its worker does, and tells those that it refuses."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("fastapi_offline")

PROGRAM = """
import socket, time
from types import SimpleNamespace
from cml.serving import server
from cml.serving.app import create_app
from cml.serving.query import Limits

server.LONGEST_END = 0.5  # seconds

def answer(queries):
    if queries[0].k == 2:
        time.sleep(600)
    return [[{"novelty": None, "found": []}] for _ in queries]

class Searcher:
    form, calibration, answer = SimpleNamespace(kind="texts"), None, staticmethod(answer)

    def __len__(self):
        return 0

searcher = Searcher()
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    server.Server(create_app(searcher, Limits())).run(sockets=[listener])
raise AssertionError("the process goes on")
"""
HEAD = b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n"


def _count_waiting(port: int) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", "/health")
        return int(json.loads(connection.getresponse().read())["waiting"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_while_a_search_does_not(number: signal.Signals, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-c", PROGRAM]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            with closing(client) as endless, socket.create_connection(("127.0.0.1", port), timeout=60) as half:
                endless.request("POST", "/search", '{"texts": ["a"]}')
                assert endless.getresponse().read().count(b"found") == 1
                half.sendall(HEAD)
                endless.request("POST", "/search?k=2", '{"texts": ["a"]}')
                while _count_waiting(port) < 2:
                    time.sleep(0.02)
                process.send_signal(number)
                refused = endless.getresponse()
                assert (refused.status, refused.read()) == (503, b'{"detail":"The service ends; ask again later."}')
                assert b"503" in half.recv(1000)
            assert process.wait(60) == 0
            assert process.stdout.read() == "ended\n"
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()
