"""The n-th allocation, read or write fails, n = 1, 2, ..: the call says so, and the process then does it as before.

Run: python tests/hostile/failing_calls.py [--acts search fit] [--every 1]

A profile function raises inside the chosen calls into C, so that no part of cml is replaced. All is done in one
process. A finding is an exception that cml does not mean to raise, another result in silence, or one afterwards. Not
for: killed processes (faults.py), full disks (full_disks.py).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import itertools
import json
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from reread_files import FORMATS
from service_attacks import make_place

import cml
from cml.checks.audit_list import read_scores
from cml.data.prepared import PreparedDataset
from cml.distances.euclidean import Euclidean
from cml.distances.jobs.job_options import JobOptions
from cml.distances.jobs.run import write_neighbors
from cml.errors import MachineError, UserError
from cml.storage.atomic import write_csv

ROWS = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
ALLOCATIONS = {"empty", "zeros", "concatenate", "array", "copy"}
INPUT_OUTPUT = {"open", "read", "readinto", "write", "pwrite", "preadv", "fsync", "replace", "mkdir", "execute", "stat"}
EXPECTED = (UserError, MachineError, MemoryError, OSError)


class Failing:
    """Lets the n-th call of some names fail, in this thread or one that starts meanwhile."""

    def __init__(self, names: set[str], error: BaseException, number: int) -> None:
        self._names, self._error, self._left, self.fired = names, error, number, False

    def __enter__(self) -> Failing:
        sys.setprofile(self._watch)
        threading.setprofile(self._watch)
        return self

    def __exit__(self, *_: object) -> None:
        self._left = 0  # threads keep what watches them
        sys.setprofile(None)
        threading.setprofile(None)

    def _watch(self, frame: FrameType, event: str, call: Any) -> None:  # noqa: ANN401
        if event != "c_call" or call.__name__ not in self._names or not _is_of_cml(frame):
            return
        self._left -= 1
        if self._left == 0:
            self.fired = True
            raise self._error


def _is_of_cml(frame: FrameType | None) -> bool:
    """Whether a call comes from cml, through few other frames, and not from an import."""
    for _ in range(4):
        if frame is None or "importlib" in frame.f_code.co_filename:
            return False
        if "/cml/" in frame.f_code.co_filename or "/data_prep/" in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def _search(folder: Path) -> object:
    index = cml.Index.open(folder / "index")
    return repr(index.search(ROWS[:3], k=4))


def _add(folder: Path) -> object:
    index = cml.Index.open(folder / "index")
    if "new" not in index:
        index.add(ROWS[:1] + 1, ids=["new"])
    return len(index), repr(index.search(ROWS[:1] + 1, k=1))


def _index(folder: Path) -> object:
    """As ``cml index``: the same call continues what was begun."""
    index = cml.index(folder / "model", folder / "rows.npy", folder / "made", device="cpu", quiet=True)
    return len(index), repr(index.search(ROWS[:3], k=4))


def _embeddings(folder: Path) -> object:
    return repr(cml.EmbeddingFolder.open(folder / "embedded").search(np.eye(5, dtype=np.float32), 4))


def _distances(folder: Path) -> object:
    labels = Euclidean().encode(ROWS.tolist())
    job = write_neighbors(Euclidean(), labels, folder / "job", 3, options=JobOptions(threads=1, bar_after=None))
    return [np.load(job.path / name).tolist() for name in ("ids.npy", "distances.npy")]


def _prepare(folder: Path) -> object:
    if not (folder / "data").exists():
        options: dict[str, Any] = {"features": ("a", "b"), "label_columns": ("y",)}
        cml.prepare("table", folder / "data", source=folder / "rows.csv", **options)
    return [PreparedDataset.open(folder / "data").split(role).item_ids for role in ("train", "query")]


def _fit(folder: Path) -> object:
    model = cml.fit(ROWS, ROWS[:, 0], steps=2, dimension=3, sampler="random(batch_size=20)", workers=0, quiet=True)
    return model.embed(ROWS).tolist()


def _evaluate(folder: Path) -> object:
    from cml.retrieval.embeddings import evaluate_embeddings

    result = evaluate_embeddings(ROWS[:10], ROWS[:10, 0], ROWS[10:], ROWS[10:, 0], label_distance="euclidean")
    return str(result)


def _load(folder: Path) -> object:
    return cml.load(folder / "model", device="cpu").embed(ROWS).tolist()


def _audit(folder: Path) -> object:
    return read_scores(folder / "audit/audit.csv")


class Serving:
    """Asks a service of images, which lives on from call to call, for the neighbours of one."""

    def __init__(self, folder: Path) -> None:
        from cml.doors.search import open_with_model
        from cml.serving.answer import Searcher

        folder.mkdir()
        with contextlib.chdir(folder):
            self._image = make_place(folder)[0]
            self._searcher = Searcher(*open_with_model(folder / "index/mine", None, device="cpu"))

    def ask(self, failing: Failing | None = None) -> tuple[list[int], list[bytes]]:
        """Ask twice, the first time with a call that fails: the statuses, and the bodies."""
        from cml.serving.app import create_app
        from cml.serving.query import Limits

        async def ask_twice() -> list[tuple[int, bytes]]:
            app = create_app(self._searcher, Limits())
            with failing or contextlib.nullcontext():
                app.state.service.worker.start()
                first = await ask_app(app, "/search", self._image)
            second = await ask_app(app, "/search", self._image)
            await app.state.service.worker.end()
            return [first, second]

        statuses, bodies = zip(*asyncio.run(ask_twice()), strict=True)
        return list(statuses), list(bodies)


async def ask_app(app: Any, path: str, body: bytes) -> tuple[int, bytes]:  # noqa: ANN401
    """Send a request to an ASGI application: status and body of the answer."""
    sent: list[Any] = []
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
    place = {"path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": []}

    async def receive() -> Any:  # noqa: ANN401
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401
        sent.append(message)

    await asyncio.wait_for(app({**scope, **place, "server": ("x", 1), "client": ("y", 2)}, receive, send), 60)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


ACTS: dict[str, Callable[[Path], object]] = {
    "search": _search,
    "add": _add,
    "index": _index,
    "embeddings": _embeddings,
    "distances": _distances,
    "prepare": _prepare,
    "load": _load,
    "audit": _audit,
    "fit": _fit,
    "evaluate": _evaluate,
}
KINDS: dict[str, tuple[set[str], BaseException]] = {
    "input and output": (INPUT_OUTPUT, OSError(errno.ENOSPC, "No space left on device")),
    "memory": (ALLOCATIONS, MemoryError("full")),
}


def make_sound(folder: Path) -> None:
    """What the acts read."""
    folder.mkdir()
    cml.Index.create(folder / "index", dimension=4, digest="m").add(ROWS, ids=range(40))
    np.save(folder / "rows.npy", ROWS)
    FORMATS["embeddings"].make(folder / "embedded")
    write_csv(folder / "rows.csv", ["a", "b", "y"], [[f"{value}" for value in row[:3].tolist()] for row in ROWS])
    FORMATS["audit"].make(folder / "audit")
    model = cml.fit(ROWS, ROWS[:, 0], steps=1, dimension=3, sampler="random(batch_size=20)", workers=0, quiet=True)
    model.save(folder / "model")


def find_faults(name: str, kind: str, sound: Path, place: Path, every: int = 1) -> Iterator[tuple[str, str]]:
    """Let each ``every``-th call of an act fail once, until none does; for each what came of it, and the finding.

    The same act then has to succeed, in this process.
    """
    act, (names, error) = ACTS[name], KINDS[kind]
    shutil.copytree(sound, place / "expected")
    expected = act(place / "expected")
    for number in itertools.count(1, every):
        folder = place / str(number)
        shutil.copytree(sound, folder)
        told = finding = ""
        with warnings.catch_warnings(action="ignore"), Failing(names, error, number) as failing:
            try:
                told, finding = "same", "" if act(folder) == expected else "another result in silence"
            except EXPECTED as said:
                told, finding = "refused", "more than one line" if "\n" in str(said) else ""
            except Exception as fault:
                told, finding = "fault", f"{type(fault).__name__}: {fault}"
        try:
            finding = finding or ("" if act(folder) == expected else "another result afterwards")
        except Exception as fault:
            finding = finding or f"afterwards {type(fault).__name__}: {fault}"
        shutil.rmtree(folder)
        if not failing.fired:
            assert told == "same", "nothing failed, and yet it was refused"
            return
        yield told, finding and f"{name}, {kind}, call {number}: {finding}"


def find_faults_of_service(kind: str, place: Path, every: int = 1) -> Iterator[tuple[str, str]]:
    """As ``find_faults``, for the requests of a service that lives on."""
    service, (names, error) = Serving(place), KINDS[kind]
    expected = _hits(service.ask()[1][1])
    for number in itertools.count(1, every):
        failing = Failing(names, error, number)
        (first, second), (said, again) = service.ask(failing)
        if not failing.fired:
            return
        told, finding = "same" if first == 200 else "refused", ""
        if second != 200 or _hits(again) != expected:
            finding = f"afterwards {second}: {again!r:.200}"
        elif first not in (200, 500) or (first == 200 and _hits(said) != expected):
            finding = f"status {first}: {said!r:.200}"
        yield told, finding and f"service, {kind}, call {number}: {finding}"


def _hits(body: bytes) -> list[tuple[str, float]]:
    """What was found; the last digits depend on whether the search is compiled already."""
    return [(hit["id"], round(hit["distance"], 4)) for hit in json.loads(body)["results"][0]["found"]]


def main() -> int:
    """Count what came of all failing calls, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acts", nargs="*", default=[*ACTS, "service"])
    parser.add_argument("--every", type=int, default=1, help="let each of so many calls fail")
    options = parser.parse_args()
    findings, tried = [], 0
    with tempfile.TemporaryDirectory() as place:
        make_sound(sound := Path(place, "sound"))
        for name, kind in itertools.product(options.acts, KINDS):
            folder, began = Path(place, f"{name} {kind}"), time.monotonic()
            series = find_faults_of_service(kind, folder, options.every) if name == "service" else None
            outcomes = list(series or find_faults(name, kind, sound, folder, options.every))
            tried += len(outcomes)
            told = dict(Counter(told for told, _ in outcomes))
            print(f"{name}, {kind}: {len(outcomes)} calls, {told}, {time.monotonic() - began:.0f} s", flush=True)
            findings += [finding for _, finding in outcomes if finding]
    print("\n".join(findings) or "no finding", f"in {tried} failing calls")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
