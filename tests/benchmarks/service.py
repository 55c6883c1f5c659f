"""The search service of docs/tutorials/service.md beside a bare ``model.embed``. Bar: no error, .8 of its throughput.

    python tests/benchmarks/service.py [--requests 1000] [--clients 8] [--size 160] [--rounds 2]

The code of the page runs in a process of its own, with EfficientNet-Lite0 and an index of 2,000 embeddings. Clients,
each a thread with a connection, send JPEGs of 640 x 480 pixels and wait for the neighbours. The bare side embeds the
same images by one call of ``model.embed`` in this process. Both have all cores, decode the JPEGs, and are measured in
turn; the best throughput of each counts, because the machine may be shared. The ratio is that of the service to the
bare side.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from PIL import Image

import cml

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "service.md"
ITEMS, PHOTOS, BAR = 2000, 40, 0.8


def draw_photos() -> list[bytes]:
    """JPEGs of 640 x 480 pixels."""
    rng = np.random.default_rng(0)
    photos = []
    for _ in range(PHOTOS):
        coarse = Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8))
        file = io.BytesIO()
        coarse.resize((640, 480), Image.Resampling.BILINEAR).save(file, "JPEG", quality=90)
        photos.append(file.getvalue())
    return photos


@contextmanager
def serve(folder: Path) -> Iterator[int]:
    """Start the service of the page in a folder with run and index, on a port that is free."""
    (block,) = re.findall(
        r"^%%writefile service.py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    (folder / "service.py").write_text(block, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, "-m", "uvicorn", "service:app", "--port", str(port), "--log-level", "warning"]
    roots = os.pathsep.join([str(PAGE.parents[2]), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONPATH": roots}) as process:
        try:
            while True:
                if process.poll() is not None:
                    raise RuntimeError("the service has ended")
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.2)
            yield port
        finally:
            process.terminate()


def send(port: int, images: Sequence[bytes]) -> int:
    """Send images one after the other; returns the number of answers that are no neighbours."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    errors = 0
    for image in images:
        connection.request("POST", "/search", image)
        response = connection.getresponse()
        answer = json.loads(response.read())
        errors += response.status != 200 or len(answer) != 5
    connection.close()
    return errors


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--size", type=int, default=160, help="side of the images that the backbone gets, in pixels")
    parser.add_argument("--rounds", type=int, default=2)
    add_json_option(parser)
    options = parser.parse_args(arguments)
    photos = draw_photos()
    images = [photos[number % PHOTOS] for number in range(options.requests)]
    shares = [images[client :: options.clients] for client in range(options.clients)]
    side = (options.size, options.size)
    bare, served, errors = [], [], 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = cml.fit(
            photos,
            np.arange(float(PHOTOS)),
            backbone="efficientnet-lite0",
            freeze_backbone=True,
            image_size=side,
            steps=1,
            sampler=f"random(batch_size={PHOTOS})",
            out=folder / "runs/mine",
            quiet=True,
        )
        index = cml.Index.create(folder / "index/mine", model)
        rows = np.random.default_rng(1).normal(size=(ITEMS, model.config.dimension)).astype(np.float32)
        index.add(rows / np.linalg.norm(rows, axis=1, keepdims=True), ids=range(ITEMS))
        with serve(folder) as port, ThreadPoolExecutor(options.clients) as clients:
            send(port, photos[:2])  # loads and compiles
            model.embed(photos[:2])
            for _ in range(options.rounds):
                start = time.perf_counter()
                model.embed(images)
                bare.append(options.requests / (time.perf_counter() - start))
                start = time.perf_counter()
                errors += sum(clients.map(send, [port] * options.clients, shares))
                served.append(options.requests / (time.perf_counter() - start))
    ratio = max(served) / max(bare)
    print(f"{options.clients} clients, {options.requests} requests a round, {options.rounds} rounds: {errors} errors")
    print(f"images a second: service {max(served):.1f}, bare embed {max(bare):.1f}; ratio {ratio:.2f} (bar {BAR})")
    sizes = {"requests": options.requests, "clients": options.clients, "size": options.size}
    write_figures(options.json, {**sizes, "errors": errors, "service": served, "bare": bare, "ratio": ratio})


if __name__ == "__main__":
    main()
