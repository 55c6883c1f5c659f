"""Kills every command that takes long at random moments, resumes it, and compares the result with an unkilled run.

Run: python tests/hostile/faults.py [--kills 20] [--seed 0] [--only train embed]

A process group is killed with SIGKILL, once or twice on the way to a result; then the command is given again as a user
would. A moment is drawn as a share of the time an unkilled run took (start-up and end included) or as a number of
changes seen in its folder, which finds the work however busy the machine is. Results are compared byte for byte but
for what ``Case`` names. One kill in five goes to a process of its own, started from nothing; the others to a fork of
this script, which has imported everything before, so that a run takes seconds. The last line says what was lost.

Not for: single faults, which have tests of their own (test_faults.py).
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import torch
from PIL import Image
from tqdm import tqdm

import cml
from cml.cli import main
from cml.storage.json_file import write_json

IMPORTED = [
    "pytest",  # under which this may run: a fork imports the main module again
    "matplotlib.backends.backend_agg",
    "safetensors.torch",
    "sklearn.neighbors",
    "torch._dynamo",  # torch's optimisers import it
    "cml.commands.compare",
    "cml.commands.demo",
    "cml.commands.distances",
    "cml.commands.embed",
    "cml.commands.evaluate",
    "cml.commands.export",
    "cml.commands.export_captioning",
    "cml.commands.report",
    "cml.commands.index",
    "cml.commands.prepare",
    "cml.commands.search",
    "cml.commands.audit",
    "cml.commands.calibrate",
    "cml.commands.predict",
    "cml.commands.propose",
    "cml.commands.train",
    "cml.data_prep.synthetic.people.people",
    "cml.data_prep.synthetic.rooms.rooms",
    "cml.data_prep.sources.folder",
    "cml.distances.poses.keypoint_products",
    "cml.export.captioning",
    "cml.searching.search_page",
    "cml.export.hub",
    "cml.searching.index",
    "cml.searching.index_images",
    "cml.doors.index",
    "cml.doors.search",
    "cml.export.onnx_graph",
    "cml.reporting.curves",
    "cml.comparing.compare",
    "cml.comparing.demo",
    "cml.doors.retrieved",
    "cml.tasks.pose",
    "cml.training.run_learner",
    "cml.training.validation",
]
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(IMPORTED)
LIMIT = 200  # seconds that a command may take
CHUNK = 16  # images that an export records together here
TRAIN = (
    *("--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--dimension", "8"),
    *("--sampler", "random(batch_size=16)", "--flip", "list", "--brightness-jitter", "0.1"),
    *("--device", "cpu", "--workers", "1", "--steps", "24", "--checkpoint-every", "4"),
)


@dataclass(frozen=True)
class Case:
    """A command to kill.

    Attributes:
        arguments: The command line for a given output folder.
        again: What is added to it where the folder shows that the command was begun.
        begun: A file below the output folder that shows it.
        forms: By file name, what of a file counts, where not every byte does.
        refuses: The command refuses an output that is there; then what a killed one left is either nothing or whole.
        start: Makes what lies in the output folder before.
        kills: How often it may be killed on the way to a result.
        processes: How many run it together, as torchrun starts them.
    """

    arguments: Callable[[Path], list[str]]
    again: tuple[str, ...] = ()
    begun: str = ""
    forms: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)
    refuses: bool = False
    start: Callable[[Path], object] = lambda out: None
    kills: tuple[int, ...] = (1, 2)
    processes: int = 1


@dataclass
class Count:
    """What a command went through."""

    kills: int = 0
    moments: list[str] = field(default_factory=list)
    late: int = 0  # kills that came after the end
    runs: int = 0  # results compared
    lost: list[str] = field(default_factory=list)
    left: int = 0  # temporaries still there when a result is whole


def cases(scratch: Path) -> dict[str, Case]:
    """The commands that write, on drawn pictures; makes what they need."""
    data, run, photos, torn, index = (scratch / name for name in ("people", "run", "photos", "torn", "index"))
    quiet, labels = scratch / "log", scratch / "labels.csv"

    def made(*arguments: object) -> None:
        assert forked([str(word) for word in arguments], quiet)() == 0, quiet.read_text()

    made("prepare", "people", "--count", "80", "--size", "32", "--out", data)
    made("train", "pose", "--data", data, "--out", run, *TRAIN)
    for folder in (photos, torn):
        folder.mkdir()
        for number, path in enumerate(sorted(data.rglob("*.png"))):
            shutil.copy(path, folder / f"{number}.png")
    for number in (3, 40, 79):
        (torn / f"{number}.png").write_bytes(b"torn")
    count = len(list(photos.iterdir()))
    rows = [f"{number}.png,{number},{number} dogs on grass,kind {number % 9}" for number in range(count)]
    labels.write_text("\n".join(["file_name,age,caption,class", *rows, ""]))
    joints = [[3, 4], [20, 9], [16, 28]]
    lines = [json.dumps({"file_name": f"{number}.png", "keypoints": joints}) for number in range(count)]
    labels.with_suffix(".jsonl").write_text("\n".join([*lines, ""]))
    (scratch / "masks").mkdir()
    for number in range(count):
        Image.fromarray(np.full((32, 32), number % 5, np.uint8)).save(scratch / "masks" / f"{number}.png")
    made("index", run, photos, "--out", index)

    def folder_of(images: Path, *more: object) -> Callable[[Path], list[str]]:
        words = ["prepare", "folder", "--images", images, *more, "--out"]
        return lambda out: [*map(str, words), str(out)]

    def pose(*more: str) -> Callable[[Path], list[str]]:
        return lambda out: ["train", "pose", "--data", str(data), "--out", str(out), *TRAIN, *more]

    def features(images: Path, layout: str, *more: str) -> Callable[[Path], list[str]]:
        words = ["export", "captioning", str(run), "--images", str(images), "--layout", layout, "--longest", "64"]
        return lambda out: [*words, *more, "--out", str(out)]

    def on_run(*words: object) -> Case:
        return Case(lambda out: [*map(str, words[:1]), str(out), *map(str, words[1:])], start=_copy(run))

    def on_photos(*words: object, images: Path = photos, **how: Any) -> Case:  # noqa: ANN401
        return Case(lambda out: [*map(str, words), "--images", str(images), "--out", str(out)], **how)

    def strips_aside(path: Path) -> Any:  # noqa: ANN401 - how rows are cut depends on the speed that was measured
        return {**json.loads(path.read_text()), "strips": None, "checksum": None}

    resumed: dict[str, Any] = {"again": ("--resume",), "begun": "config.json"}
    numbers, skip = ("--labels", labels, "--label-columns", "age"), "--skip-bad"
    databases = {f"cocotalk_{kind}.lmdb": _database for kind in ("fc", "att")}
    # images that are tried again form other batches with the rest, in which the last bits of embeddings are others
    alone, pair = ("--batch-size", "1"), ("--seeds", "1", "--losses", "log-ratio", "cosent")
    little = [*TRAIN[:-4], "--steps", "6", "--checkpoint-every", "2"]
    return {
        "prepare": Case(folder_of(photos, *numbers)),
        "prepare skip": Case(folder_of(torn, *numbers, skip)),
        "prepare captions": Case(folder_of(photos, "--kind", "captions", "--labels", labels)),
        "prepare classes": Case(folder_of(photos, "--kind", "classes", "--labels", labels)),
        "prepare masks": Case(folder_of(photos, "--kind", "masks", "--masks", scratch / "masks")),
        "prepare keypoints": Case(folder_of(photos, "--kind", "keypoints", "--labels", labels.with_suffix(".jsonl"))),
        "prepare people": Case(lambda out: ["prepare", "people", "--count", "80", "--size", "32", "--out", str(out)]),
        "prepare rooms": Case(lambda out: ["prepare", "rooms", "--count", "60", "--out", str(out)]),
        "distances": Case(
            lambda out: ["distances", str(data), "--matrix", "--role", "all", "--out", str(out)],
            forms={"job.json": strips_aside},
        ),
        "distances lists": Case(
            lambda out: ["distances", str(data), "--neighbors", "7", "--role", "all", "--out", str(out)],
            forms={"job.json": strips_aside},
        ),
        "features": on_photos("features", "--image-size", 32, 32, "--device", "cpu"),
        "train": Case(pose(), **resumed, forms={"last.pt": _checkpoint}),
        "train validated": Case(pose("--evaluate-every", "5"), **resumed, forms={"last.pt": _checkpoint}),
        "train resumed": Case(pose(), **resumed, forms={"last.pt": _checkpoint}, kills=(3, 4)),
        "train shared": Case(pose(), **resumed, forms={"last.pt": _checkpoint}, processes=2),
        "compare": Case(
            lambda out: ["compare", "pose", "--data", str(data), "--out", str(out), *little, *pair],
            forms={"last.pt": _checkpoint},
        ),
        "demo": Case(
            lambda out: ["demo", "--out", str(out), "--count", "100", "--steps", "6"], forms={"last.pt": _checkpoint}
        ),
        "embed": on_photos("embed", run, "--batch-size", "2"),
        "embed skip": on_photos("embed", run, "--batch-size", "2", skip, "--tsv", images=torn),
        "index": Case(lambda out: ["index", str(run), str(photos), "--out", str(out), "--batch-size", "2"]),
        "index add": Case(
            lambda out: ["index", str(run), str(torn), "--out", str(out), "--add", "--prefix", "b", skip, *alone],
            start=_copy(index),
        ),
        "export": Case(features(photos, "directory")),
        "export skip": Case(features(torn, "directory", skip)),
        "export hdf5": Case(features(photos, "hdf5")),
        "export hdf5 skip": Case(features(torn, "hdf5", skip)),
        "export lmdb": Case(features(photos, "lmdb"), forms=databases),
        "export lmdb skip": Case(features(torn, "lmdb", skip), forms=databases),
        "export onnx": Case(lambda out: ["export", "onnx", str(run), "--out", str(out)], refuses=True),
        "export hub": Case(lambda out: ["export", "hub", str(run), "--out", str(out)], refuses=True),
        "evaluate": on_run("evaluate"),
        "report": on_run("report", "--queries", "4"),
        "search page": Case(
            lambda out: ["search", str(index), str(photos / "1.png"), "--html", str(out / "found.html"), "--k", "7"]
        ),
    }


def table_cases(scratch: Path) -> dict[str, Case]:
    """The commands that write, on vectors and judgements; makes what they need."""
    patients, run, judged = scratch / "diabetes", scratch / "table run", scratch / "judged"
    pairs, triplets, vectors = scratch / "pairs.csv", scratch / "triplets.csv", scratch / "vectors.npy"
    table, few, compared = scratch / "table.csv", scratch / "few", scratch / "compared"

    def made(*arguments: object) -> None:
        assert forked([str(word) for word in arguments], scratch / "log")() == 0, (scratch / "log").read_text()

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(80, 6)).astype(np.float32)
    np.save(vectors, rows)
    cells = [f"{','.join(f'{one:.3f}' for one in row)},{row[0] + row[1] / 2:.3f}" for row in rows]
    table.write_text("\n".join(["f0,f1,f2,f3,f4,f5,value", *cells, ""]))
    lines = [f"{one},{other},{other - one}" for one in range(80) for other in range(one + 1, 80, 3)]
    pairs.write_text("\n".join(["item,other,distance", *lines, ""]))
    lines = [",".join(map(str, sorted(rng.choice(80, 3, replace=False)))) for _ in range(300)]
    triplets.write_text("\n".join(["anchor,nearer,farther", *lines, ""]))
    judgements = ["prepare", "judgements", "--vectors", str(vectors)]
    numbers = ["prepare", "table", "--source", str(table), "--features", "f", "--out"]
    little = ("--steps", "3", "--sampler", "random(batch_size=32)")
    made("prepare", "diabetes", "--out", patients)
    made("train", "value", "--data", patients, "--out", run, *little)
    made(*judgements, "--pairs", pairs, "--out", judged)
    made(*judgements, "--triplets", triplets, "--out", compared)
    made(*numbers, few)

    def train(data: Path, *more: str) -> Callable[[Path], list[str]]:
        return lambda out: ["train", "value", "--data", str(data), "--out", str(out), *more]

    resumed: dict[str, Any] = {"again": ("--resume",), "begun": "config.json", "forms": {"last.pt": _checkpoint}}
    budget, pair = ("--budget", "30%", "--neighbors", "3", "--role", "all"), ("--losses", "log-ratio", "cosent")
    return {
        "index changes": Case(lambda out: ["change_index", str(out)]),
        "index vectors": Case(lambda out: ["index", str(run), str(patients), "--out", str(out), "--batch-size", "16"]),
        "distances budget": Case(lambda out: ["distances", str(few), *budget, "--out", str(out)]),
        "audit": Case(lambda out: ["audit", str(out)], start=_copy(run)),
        "calibrate": Case(lambda out: ["calibrate", str(out)], start=_copy(run)),
        "predict": Case(lambda out: ["predict", str(run), str(patients), "--out", str(out / "labels.csv")]),
        "propose": Case(lambda out: ["propose", str(run), str(patients), "--out", str(out / "next.csv")]),
        "explore": Case(
            lambda out: ["explore", str(out), "--beside", "oracle", "--maps", "pca", "--count", "60"], start=_copy(run)
        ),
        "prepare table": Case(lambda out: [*numbers, str(out)]),
        "prepare judged": Case(lambda out: [*judgements, "--pairs", str(pairs), "--out", str(out)]),
        "prepare triplets": Case(lambda out: [*judgements, "--triplets", str(triplets), "--out", str(out)]),
        "train judged": Case(train(judged, "--steps", "60"), **resumed),
        "train triplets": Case(train(compared, "--steps", "60", "--checkpoint-every", "10"), **resumed),
        "train tuned": Case(train(patients, "--tune", "--tune-losses", "log-ratio"), **resumed),
        "fit tuned": Case(lambda out: ["fit_tuned", str(out)], forms={"last.pt": _checkpoint}),
        "compare vectors": Case(
            lambda out: [
                "compare",
                "value",
                "--data",
                str(few),
                "--out",
                str(out),
                *little[2:],
                *pair,
                "--seeds",
                "1",
                *("--steps", "9", "--checkpoint-every", "3"),
            ],
            forms={"last.pt": _checkpoint},
        ),
    }


def store_cases(scratch: Path) -> dict[str, Case]:
    """The commands that write or read a feature store, on the photographs of ``cases``; makes what they need."""
    photos, ages, store, run = scratch / "photos", scratch / "ages", scratch / "store", scratch / "store run"

    def made(*arguments: object) -> None:
        assert forked([str(word) for word in arguments], scratch / "log")() == 0, (scratch / "log").read_text()

    network = ("--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--device", "cpu")
    columns, stored = ("--labels", scratch / "labels.csv", "--label-columns", "age"), ("--features", str(store))
    made("prepare", "folder", "--images", photos, *columns, "--out", ages)
    made("features", "--data", ages, *network, "--out", store)
    of_ages = ["train", "value", "--data", str(ages), *stored, "--sampler", "random(batch_size=16)"]
    made(*of_ages, "--out", run, "--steps", "3")
    steps = ("--steps", "24", "--checkpoint-every", "4")
    resumed: dict[str, Any] = {"again": ("--resume",), "begun": "config.json", "forms": {"last.pt": _checkpoint}}
    index = ["index", str(run), str(ages), *stored, "--batch-size", "2"]
    embed = ["embed", str(run), "--images", str(photos), *stored, "--batch-size", "2"]
    budget = [
        "distances",
        str(ages),
        *("--budget", "30%", "--neighbors", "3", "--role", "all"),
        "--vectors",
        str(store),
    ]
    halves = ["features", "--data", str(ages), *network, "--dtype", "float16"]
    return {
        "features halves": Case(lambda out: [*halves, "--out", str(out)]),
        "features of mine": Case(lambda out: ["store_features", str(out)]),
        "train store": Case(lambda out: [*of_ages, *steps, "--out", str(out)], **resumed),
        "train store tuned": Case(
            lambda out: [*of_ages[:-2], "--tune", "--tune-losses", "log-ratio", "--out", str(out)], **resumed
        ),
        "index store": Case(lambda out: [*index, "--out", str(out)]),
        "embed store": Case(lambda out: [*embed, "--out", str(out)]),
        "distances store": Case(lambda out: [*budget, "--out", str(out)]),
        "audit store": Case(lambda out: ["audit", str(out)], start=_copy(run)),
        "propose images": Case(lambda out: ["propose", str(run), str(photos), "--out", str(out / "next.csv")]),
        "explore grid": Case(
            lambda out: ["explore", str(out), "--grid", "6x5", "--png", str(out / "grid.png")], start=_copy(run)
        ),
    }


def every_case(scratch: Path) -> dict[str, Case]:
    """All cases; makes what they need."""
    return {**cases(scratch), **table_cases(scratch), **store_cases(scratch)}


def change_index(out: Path) -> int:
    """Add to an index, remove from it and compact it, as a program does that goes on where it was killed."""
    folder = out.with_name("index")
    try:
        index = cml.Index.open(folder)
    except cml.UserError:  # there is none yet
        index = cml.Index.create(folder, dimension=6, digest="mine")
    rows = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    for first in range(0, 60, 10):
        if str(first) not in index:
            index.add(rows[first : first + 10], ids=range(first, first + 10), labels=range(first, first + 10))
        if str(first + 3) in index:
            index.remove([first + 3])
    index.compact()
    hits = [[(hit.item_id, hit.label, hit.distance) for hit in row] for row in index.search(rows, len(index))]
    out.mkdir(exist_ok=True)
    write_json(out / "hits.json", hits)
    return 0


def fit_tuned(out: Path) -> int:
    """Choose a head for an array, as a program does that goes on where it was killed."""
    rows = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    begun = (out / "config.json").exists()
    cml.fit(rows, rows[:, 0], tune=True, tune_losses=("log-ratio",), out=out, resume=begun, quiet=True)
    return 0


def store_features(out: Path) -> int:
    """Write a store of what a function of its own computes."""
    rows = np.random.default_rng(0).normal(size=(400, 16)).cumsum(axis=1)
    cml.features(rows, backbone=spectrum, out=out, quiet=True)
    return 0


def spectrum(rows: np.ndarray) -> np.ndarray:
    """Amplitudes of the frequencies of signals."""
    return np.abs(np.fft.rfft(rows, axis=1))


PROGRAMS: dict[str, Callable[[Path], int]] = {  # what no command does
    "change_index": change_index,
    "fit_tuned": fit_tuned,
    "store_features": store_features,
}


def run(arguments: Sequence[str]) -> int:
    """Run a command or a program; the exit code."""
    program = PROGRAMS.get(arguments[0])
    if program is None:
        return main(arguments)
    try:
        return program(Path(arguments[1]))
    except cml.UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _copy(folder: Path) -> Callable[[Path], object]:
    return lambda out: shutil.copytree(folder, out)


def _database(path: Path) -> Any:  # noqa: ANN401 - pages of an LMDB file depend on its history, its content does not
    with lmdb.open(str(path), subdir=False, readonly=True, lock=False) as database, database.begin() as transaction:
        return dict(transaction.cursor())


def _checkpoint(path: Path) -> Any:  # noqa: ANN401 - tensors as bytes: a pickle numbers its objects as they came
    def plain(value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, torch.Tensor):
            return (
                str(value.dtype),
                tuple(value.shape),
                value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes(),
            )
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        return [plain(one) for one in value] if isinstance(value, list | tuple) else value

    return plain(torch.load(path, weights_only=True))


def _items(path: Path) -> list[tuple[Any, ...]]:
    """The items of an index; where they lie in the file, and when they came, may differ."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        return db.execute("SELECT id, label, path, columns, vector FROM items ORDER BY row").fetchall()


def content(folder: Path, case: Case) -> dict[str, Any]:
    """What a result is compared by: every file below a folder, bytes or form; temporaries and its own place aside."""

    def plain(path: Path) -> bytes:
        return path.read_bytes().replace(str(folder).encode(), b"OUT")

    return {
        path.relative_to(folder).as_posix(): ({"index.sqlite": _items} | {**case.forms}).get(path.name, plain)(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".partial-" not in path.name
    }


def forked(
    arguments: Sequence[str], log: Path, before: Callable[[], object] = bool, limit: float = LIMIT, processes: int = 1
) -> Callable[..., int]:
    """Begin a command in forks of the server, after ``before``; the result waits for its end, or kills it when due."""
    started = []
    where = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "localhost", "MASTER_PORT": str(_free_port())}
    for rank in range(processes):
        environment = os.environ | (where | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if processes > 1 else {})
        process = SERVER.Process(target=_command_in_fork, args=(list(arguments), log, environment, before, limit))
        process.start()
        started.append(process)
    pids = [process.pid for process in started if process.pid is not None]

    def exit_code() -> int | None:
        codes = [process.exitcode for process in started]
        return None if None in codes else next((code for code in codes if code), 0)

    def wait(seconds: float) -> None:
        for process in started:
            process.join(seconds)

    return _end(pids, exit_code, wait)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("localhost", 0))
        return int(one.getsockname()[1])


def _command_in_fork(
    arguments: list[str], log: Path, environment: dict[str, str], before: Callable[[], object], limit: float
) -> None:
    tqdm.set_lock(threading.RLock())  # tqdm's own is shared by all forks: one that is killed while drawing keeps it
    multiprocessing.set_start_method(None, force=True)  # the system's own again, for data workers
    os.setsid()
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.dump_traceback_later(limit, exit=True, file=2)
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    from cml.distances.jobs import run as jobs
    from cml.export import captioning

    jobs.choose_strip_pairs = lambda *_: 400  # type: ignore[assignment]  # several strips of a small job
    captioning.CHUNK = CHUNK
    code = 70
    try:
        before()
        code = run(arguments)
    except SystemExit as ended:  # as Python itself ends a process
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def hold_the_lock_of_bars() -> None:
    """Be in the middle of drawing a bar, for long."""
    tqdm.get_lock().acquire()
    print("held", flush=True)
    time.sleep(2 * LIMIT)


def _fresh(arguments: Sequence[str], log: Path) -> Callable[..., int]:
    """As ``forked``, in a process from nothing."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "cml", *arguments], stdout=file, stderr=file, start_new_session=True
        )
    return _end([process.pid], process.poll, process.wait)


def _end(
    pids: Sequence[int], exit_code: Callable[[], int | None], wait: Callable[[float], object]
) -> Callable[..., int]:
    """What waits for the end of processes, their exit code; or kills their groups as soon as it is due."""

    def end(due: Callable[[], bool] | None = None) -> int:
        while due is not None and exit_code() is None:
            if due():
                _kill(pids)
                break
            time.sleep(0.001)
        try:
            wait(LIMIT + 30)
        except subprocess.TimeoutExpired:
            _kill(pids)
        code = exit_code()
        assert code is not None, f"the processes {pids} do not end"
        return code

    return end


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.killpg(pid, signal.SIGKILL)
        except ProcessLookupError:  # it has no group of its own yet, or has ended
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Changes:
    """Counts the changes that a look at a folder shows."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._seen, self.count = folder, self._state(folder), 0

    def look(self) -> int:
        now = self._state(self._folder)
        self.count += now != self._seen
        self._seen = now
        return self.count

    @staticmethod
    def _state(folder: Path) -> set[tuple[str, int, int]]:
        found = set()
        for root, _, names in os.walk(folder):
            for name in names:
                try:
                    stat = os.stat(os.path.join(root, name))
                except OSError:
                    continue
                found.add((name, stat.st_size, stat.st_mtime_ns))
        return found


def torment(name: str, case: Case, scratch: Path, *, kills: int, rng: random.Random, fresh_share: float = 0.2) -> Count:
    """Kill one command ``kills`` times and compare every result that comes of it."""
    place = scratch / f"{name}-runs"
    log = scratch / f"{name}.log"
    whole = place / "0" / "out"
    whole.parent.mkdir(parents=True)
    case.start(whole)
    changes, began = Changes(whole.parent), time.monotonic()

    def watch() -> bool:
        changes.look()
        return False

    assert forked(case.arguments(whole), log, processes=case.processes)(watch) == 0, log.read_text()
    seconds, steps = time.monotonic() - began, changes.count
    wanted, count = content(whole, case), Count()
    while count.kills < kills and count.late < 20 * (kills + 1):
        out = place / str(count.runs + 1) / "out"
        out.parent.mkdir()
        case.start(out)
        for _ in range(rng.choice(case.kills)):
            if count.kills < kills:
                _kill_once(case, out, log, count, rng, seconds, steps, fresh_share)
            if case.refuses and out.exists():
                break
        done = case.refuses and out.exists()
        code = 0 if done else forked(_command(case, out), log, processes=case.processes)()
        count.runs += 1
        if code != 0 or content(out, case) != wanted:
            found = content(out, case) if out.exists() else {}
            wrong = [path for path in {*found, *wanted} if found.get(path) != wanted.get(path)]
            where = f"differs in {sorted(wrong)[:5]}; killed at {count.moments[-2:]}"
            count.lost.append(f"run {count.runs}: exit {code}, {where}")
        count.left += sum(".partial" in path.name for path in out.parent.rglob("*"))
        shutil.rmtree(out.parent)
    return count


def _command(case: Case, out: Path) -> list[str]:
    again = case.again if case.begun and (out / case.begun).exists() else ()
    return [*case.arguments(out), *again]


def _kill_once(
    case: Case, out: Path, log: Path, count: Count, rng: random.Random, seconds: float, steps: int, fresh_share: float
) -> None:
    command = _command(case, out)
    fresh = case.processes == 1 and command[0] not in PROGRAMS and rng.random() < fresh_share
    by_time = fresh or rng.random() < 0.3
    share, pause = rng.random(), rng.random() * 0.03 * seconds
    after, at = share * (seconds + (6 if fresh else 0)) * 1.02, rng.randint(1, max(1, steps))
    end = _fresh(command, log) if fresh else forked(command, log, processes=case.processes)
    began, changes, reached = time.monotonic(), Changes(out.parent), [0.0]

    def due() -> bool:
        now = time.monotonic()
        if by_time:
            return now - began >= after
        if changes.look() >= at and not reached[0]:
            reached[0] = now
        return bool(reached[0]) and now - reached[0] >= pause

    if end(due) == -signal.SIGKILL:
        count.kills += 1
        count.moments.append(f"{after:.2f}s" if by_time else f"#{at}")
    else:
        count.late += 1


def errors_of(log: Path, code: int) -> list[str]:
    """What is wrong with the end of a command that may fail: anything but one line of error, and that at the end."""
    said = log.read_text(errors="replace")
    lines = [line for line in said.splitlines() if line.startswith("error: ")]
    wrong = ["traceback"] if "Traceback" in said else []
    if code not in (0, 1, 2):
        wrong.append(f"exit {code}")
    elif code and len(lines) != 1:
        wrong.append(f"{len(lines)} lines of error")
    return wrong


def parse_series(purpose: str | None, times: str, default: int) -> argparse.Namespace:
    """Parse the options of a series.

    Args:
        purpose: Docstring of the script, whose first line its help shows.
        times: Name of the option that says how often each case is tried.
        default: Its default.

    Returns:
        The options: ``times``, ``seed`` and ``only``, the names of cases or None for all.
    """
    parser = argparse.ArgumentParser(description=(purpose or "").partition("\n")[0])
    parser.add_argument(f"--{times}", type=int, default=default)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=None)
    return parser.parse_args()


@contextlib.contextmanager
def open_series(only: Sequence[str] | None) -> Iterator[tuple[Path, dict[str, Case]]]:
    """Give a folder of its own to a series, with the cache of its commands, and the cases of these names."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["CML_CACHE"] = f"{folder}/cache"
        every = every_case(folder)
        yield folder, {name: case for name, case in every.items() if only is None or name in only}


def run_undisturbed(case: Case, whole: Path, log: Path) -> float:
    """Run the command of a case, which nothing disturbs, into a new folder; returns its seconds."""
    whole.parent.mkdir(parents=True)
    case.start(whole)
    began = time.monotonic()
    assert forked(case.arguments(whole), log, processes=case.processes)() == 0, log.read_text()
    return time.monotonic() - began


def main_script() -> int:
    """Torment the commands; 1 if anything was lost."""
    options = parse_series(__doc__, "kills", 20)
    if options.only is None or "export onnx" in options.only:
        SERVER.set_forkserver_preload([*IMPORTED, "onnxruntime", "onnxscript"])
    lost = kills = left = 0
    with open_series(options.only) as (folder, chosen):
        for name, case in chosen.items():
            count = torment(name, case, folder, kills=options.kills, rng=random.Random(f"{options.seed} {name}"))
            kills += count.kills
            lost += len(count.lost)
            left += count.left
            print(
                f"{name:<17} {count.kills:3} kills, {count.runs:3} results, {len(count.lost)} lost or corrupt, "
                f"{count.late} came too late, {count.left} temporaries left; at {' '.join(count.moments)}",
                flush=True,
            )
            for line in count.lost:
                print(f"  {line}", flush=True)
            if count.lost:
                print((folder / f"{name}.log").read_text()[-3000:])
    print(f"{kills} kills, {lost} lost or corrupt results, {left} temporaries left")
    return 1 if lost or left else 0


if __name__ == "__main__":
    sys.exit(main_script())
