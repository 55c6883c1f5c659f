"""Asks ``cml serve`` while other processes change its index and are killed.

Run: python tests/hostile/service_races.py [--tries 10] [--seed 0]

In each try, images are added to the index, by a command that is killed at a random moment and given again, while
clients ask the service all the time. Every answer has to be that of an index before or after a change: status 200, the
image itself first, and no id twice. At the end new images are found, and the service is killed and starts again. A file
that is no image is answered with status 400. Not for: throughput (tests/benchmarks/service.py).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import faults

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from service import serve

CLIENTS = 3


def ask(port: int, content: bytes) -> tuple[int, list[dict[str, object]]]:
    """Send an image; status and hits."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=faults.LIMIT)
    try:
        connection.request("POST", "/search", content)
        response = connection.getresponse()
        answer = json.loads(response.read())
    finally:
        connection.close()
    return response.status, answer["results"][0]["found"] if response.status == 200 else []


def ask_all_the_time(port: int, images: dict[str, bytes], until: threading.Event, wrong: list[str]) -> None:
    """Ask for indexed images in turn and note wrong answers."""
    while not until.is_set():
        for name, content in images.items():
            try:
                status, hits = ask(port, content)
            except (OSError, ValueError) as error:
                wrong.append(f"{name}: {error!r}")
                return
            ids = [str(hit["id"]) for hit in hits]
            if status != 200 or len(set(ids)) < len(ids) or ids[0] not in (name, f"b{name}"):
                wrong.append(f"{name}: status {status}, {ids}")


def try_service(place: Path, scratch: Path, rng: random.Random) -> list[str]:
    """One addition to an index that a service searches; what is wrong."""
    place.mkdir()
    shutil.copytree(scratch / "index", place / "index")
    photos, log = sorted((scratch / "photos").iterdir())[:6], place / "log"
    images = {path.name: path.read_bytes() for path in photos}
    command = ["index", str(scratch / "run"), str(scratch / "more"), "--out", str(place / "index"), "--add"]
    wrong: list[str] = []
    ended = threading.Event()
    with serve(place / "index", "--run", str(scratch / "run")) as port:
        clients = [threading.Thread(target=ask_all_the_time, args=(port, images, ended, wrong)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        began, after = time.monotonic(), rng.random() * 2
        faults.forked([*command, "--batch-size", "2"], log)(lambda: time.monotonic() - began > after)
        if code := faults.forked([*command, "--batch-size", "2"], log)():
            wrong.append(f"exit {code}: {log.read_text()[-1000:]}")
        status, hits = ask(port, (scratch / "more" / "new.png").read_bytes())
        if status != 200 or hits[0]["id"] != "new.png":
            wrong.append(f"the new image is not found: {status}, {hits[:1]}")
        if ask(port, b"no image")[0] != 400:
            wrong.append("a file that is no image is not answered with 400")
        ended.set()
        for client in clients:
            client.join()
    with serve(place / "index", "--run", str(scratch / "run")) as port:
        if ask(port, images[photos[0].name])[0] != 200:
            wrong.append("the service does not start again")
    return wrong


def main_script() -> int:
    """Try the service; 1 if any answer was wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng, bad = random.Random(options.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        os.environ["CML_CACHE"] = f"{folder}/cache"
        faults.cases(scratch)
        (scratch / "more").mkdir()
        for path in sorted((scratch / "photos").iterdir())[:20]:
            shutil.copy(path, scratch / "more" / f"b{path.name}")
        faults.Image.effect_noise((32, 32), 80).convert("RGB").save(scratch / "more" / "new.png")
        for number in range(options.tries):
            wrong = try_service(scratch / f"service {number}", scratch, rng)
            bad += bool(wrong)
            for one in wrong[:5]:
                print(f"  try {number}: {one}", flush=True)
    print(f"{options.tries} services, {bad} with a wrong answer")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main_script())
