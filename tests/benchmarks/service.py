"""``cml serve`` beside bare ``model.embed`` and ``index.search``. Bar: no error, .8 of their throughput.

    python tests/benchmarks/service.py [--requests 1000] [--clients 8] [--size 160] [--rounds 2]

The service runs in a process of its own, with EfficientNet-Lite0 and an index of 2,000 embeddings. Clients, each a
thread with a connection, send JPEGs of 640 x 480 pixels and wait for the neighbours. The bare side embeds the same
images by one call of ``model.embed`` in this process and searches once. Both have all cores, decode the JPEGs, and are
measured in turn; the best throughput of each counts, because the machine may be shared. The ratio is that of the
service to the bare side.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import os
import re
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

ROOT = Path(__file__).resolve().parents[2]
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
def serve(index: Path, *options: str, log: Path | None = None) -> Iterator[int]:
    """Start ``cml serve`` of an index, on a port that is free; its errors go to a log."""
    command = [sys.executable, "-m", "cml", "serve", str(index), "--port", "0", "--device", "cpu", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    errors = subprocess.DEVNULL if log is None else log.open("wb")
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            port = re.search(r":(\d+)/search", lines[1])
            if port is None:
                raise RuntimeError(f"the service has ended: {lines} {'' if log is None else log.read_text()}")
            yield int(port[1])
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
        errors += response.status != 200 or len(answer["results"][0]["found"]) != 5
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
        index = cml.Index.create(folder / "index/mine", model, run=folder / "runs/mine")
        rows = np.random.default_rng(1).normal(size=(ITEMS, model.config.dimension)).astype(np.float32)
        index.add(rows / np.linalg.norm(rows, axis=1, keepdims=True), ids=range(ITEMS))
        with serve(folder / "index/mine") as port, ThreadPoolExecutor(options.clients) as clients:
            send(port, photos[:2])  # loads and compiles
            index.search(photos[:2], 5)
            for _ in range(options.rounds):
                start = time.perf_counter()
                index.search(images, 5)
                bare.append(options.requests / (time.perf_counter() - start))
                start = time.perf_counter()
                errors += sum(clients.map(send, [port] * options.clients, shares))
                served.append(options.requests / (time.perf_counter() - start))
    ratio = max(served) / max(bare)
    print(f"{options.clients} clients, {options.requests} requests a round, {options.rounds} rounds: {errors} errors")
    print(
        f"images a second: service {max(served):.1f}, bare embed and search {max(bare):.1f}; "
        f"ratio {ratio:.2f} (bar {BAR})"
    )
    sizes = {"requests": options.requests, "clients": options.clients, "size": options.size}
    write_figures(options.json, {**sizes, "errors": errors, "service": served, "bare": bare, "ratio": ratio})


if __name__ == "__main__":
    main()
