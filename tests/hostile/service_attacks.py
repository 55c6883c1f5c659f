"""Attacks ``cml serve``: bombs, endless bodies, slow and vanishing clients.

Run: python tests/hostile/service_attacks.py [--requests 10000] [--clients 8] [--minutes 10]

The service runs in a process whose address space is limited. Clients ask all the time while attackers send pictures of
88 million pixels in 11 kB, bodies of 400 MB, bodies that come a byte a second, and connections that are closed in the
middle. Then the index is moved away and back. Every answer has to have the status that its request deserves; afterwards
the service has to answer, have as much memory as before, log a line a fault of its own, and end when it is told to.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import cml

Seen = Counter[tuple[str, int]]
PARTS = 5  # of the series, after each of which the memory is measured
ADDRESS_SPACE = 6 << 30  # of which torch's libraries take the most


def encode(image: Image.Image) -> bytes:
    """A PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def make_place(folder: Path) -> list[bytes]:
    """A run and an index of 40 images in a folder; the images."""
    rng = np.random.default_rng(0)
    tiles = rng.integers(0, 256, (40, 32, 32, 3), np.uint8)
    options: dict[str, Any] = {
        "backbone": "small-cnn",
        "weights": "none",
        "image_size": (32, 32),
        "dimension": 8,
        "workers": 0,
    }
    model = cml.fit(tiles, np.arange(40.0), steps=1, sampler="random(batch_size=40)", quiet=True, **options)
    model.save(folder / "runs/mine")
    cml.Index.create(folder / "index/mine", model, run=folder / "runs/mine").add(tiles, ids=range(40))
    return [encode(Image.fromarray(tile)) for tile in tiles]


class Service:
    """A service that runs in a process of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.log = folder / "log"
        command = [sys.executable, "-m", "cml", "serve", "index/mine", "--port", str(self.port), "--device", "cpu"]

        def limit() -> None:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))

        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=log, preexec_fn=limit
            )
        while self.status("GET", "/health") != 200:
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.2)

    def status(self, method: str, path: str, body: bytes | Iterator[bytes] | None = None) -> int:
        """Ask; the status of the answer, 0 for none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            connection.request(method, path, body, encode_chunked=isinstance(body, Iterator))
            response = connection.getresponse()
            answer = json.loads(response.read())
            return response.status if response.status != 200 or answer else -1
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()

    @property
    def memory(self) -> float:
        """Memory in MB."""
        fields = Path(f"/proc/{self.process.pid}/status").read_text().split("VmRSS:")[1]
        return int(fields.split()[0]) / 1000

    def end(self) -> float:
        """Tell it to end; the seconds that it takes."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(60)
        self.process.kill()
        self.process.wait()
        return time.monotonic() - began


@contextmanager
def running(folder: Path) -> Iterator[Service]:
    """A service that is killed at the end, if it still runs."""
    service = Service(folder)
    try:
        yield service
    finally:
        service.process.kill()
        service.process.wait()


def attack(service: Service, folder: Path, images: list[bytes], requests: int, clients: int, seconds: float) -> Seen:
    """Attack a service; how often each request got which status, such as ("bomb", 413).

    Requests are spread over the seconds, or sent as fast as they are answered.
    """
    seen: Seen = Counter()
    bomb, begun = encode(Image.new("1", (9400, 9400))), time.monotonic()
    every = seconds * clients / requests  # seconds between requests of a client

    def ask(number: int) -> None:
        for asked in range(requests // clients):
            time.sleep(max(0.0, begun + every * asked - time.monotonic()))
            seen["image", service.status("POST", "/search", images[(number + asked) % len(images)])] += 1

    def send_bombs() -> None:
        seen["bomb", service.status("POST", "/search", bomb)] += 1
        seen["text", service.status("POST", "/search", b"no image")] += 1

    def send_endless() -> None:  # the service may close the connection before all is sent
        parts = (bytes(1 << 20) for _ in range(400))
        seen["endless", service.status("POST", "/search", parts)] += 1

    def vanish() -> None:
        for part in (b"", images[0][:20]):
            with socket.create_connection(("127.0.0.1", service.port)) as connection, suppress(OSError):
                connection.sendall(b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n" + part)

    workers = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for worker in workers:
        worker.start()
    slow = [socket.create_connection(("127.0.0.1", service.port)) for _ in range(20)]
    for connection in slow:
        connection.sendall(b"POST /search HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n")
    while any(worker.is_alive() for worker in workers):
        for act in (send_bombs, send_endless, vanish):
            act()
        for connection in slow:
            with suppress(OSError):
                connection.sendall(b"x")
        time.sleep(min(1.0, every))
    for connection in slow:
        connection.close()
    moved = (folder / "index/mine").rename(folder / "index/moved")
    seen["no index", service.status("POST", "/search", images[0])] += 1
    seen["no index, health", service.status("GET", "/health")] += 1
    moved.rename(folder / "index/mine")
    seen["afterwards", service.status("POST", "/search", images[0])] += 1
    seen["afterwards, health", service.status("GET", "/health")] += 1
    return seen


RIGHT = {
    "image": {200},
    "bomb": {413},
    "text": {400},
    "endless": {413, 0},
    "no index": {500},
    "no index, health": {503},
    "afterwards": {200},
    "afterwards, health": {200},
}


def main() -> int:
    """Attack, and print what was answered, memory and the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images = make_place(folder)
        with running(folder) as service:
            attack(service, folder, images, 200, options.clients, 0)  # warms it
            seen: Seen = Counter()
            before, memory = service.memory, []
            for _ in range(PARTS):
                part = options.requests // PARTS, options.clients, 60 * options.minutes / PARTS
                seen += attack(service, folder, images, *part)
                memory.append(service.memory)
                print(f"{seen['image', 200]:,} images found, {memory[-1]:.0f} MB", flush=True)
            after = memory[-1]
            lines, ended = len(service.log.read_text().splitlines()), service.end()
    wrong = {key: count for key, count in seen.items() if key[1] not in RIGHT[key[0]]}
    print("; ".join(f"{what} {status}: {count:,}" for (what, status), count in sorted(seen.items())))
    print(f"memory {before:.0f} MB before, then {', '.join(f'{one:.0f}' for one in memory)} MB")
    print(f"{lines} lines in the log; ended in {ended:.1f} s")
    print(f"wrong answers: {wrong or 'none'}")
    return bool(wrong) or after > 1.2 * before + 50 or ended > 15


if __name__ == "__main__":
    sys.exit(main())
