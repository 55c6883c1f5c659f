"""Kills every command that takes long at random moments, resumes it, and compares the result with an unkilled run.

Run: python tests/faults.py [--kills 20] [--seed 0] [--only train embed]

A process group is killed with SIGKILL, once or twice on the way to a result; then the command is given again as a user
would. A moment is drawn as a share of the time an unkilled run took (start-up and end included) or as a number of
changes seen in its folder, which finds the work however busy the machine is. Results are compared byte for byte but
for what ``Case`` names. One kill in five goes to a process of its own, started from nothing; the others to a fork of
this script, which has imported everything before, so that a run takes seconds. The last line says what was lost.

Not for: single faults, which have tests of their own (test_faults.py).
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from cml.cli import main

IMPORTED = [
    "pytest",  # under which this may run: a fork imports the main module again
    "matplotlib.backends.backend_agg",
    "safetensors.torch",
    "sklearn.neighbors",
    "torch._dynamo",  # torch's optimisers import it
    "cml.commands.distances",
    "cml.commands.embed",
    "cml.commands.export",
    "cml.commands.export_captioning",
    "cml.commands.prepare",
    "cml.commands.train",
    "cml.data_prep.drawn.people.people",
    "cml.distances.keypoints.kernel",
    "cml.export.captioning",
    "cml.export.hub",
    "cml.export.onnx_graph",
    "cml.reporting.curves",
    "cml.tasks.pose",
    "cml.training.begin",
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
    """

    arguments: Callable[[Path], list[str]]
    again: tuple[str, ...] = ()
    begun: str = ""
    forms: Mapping[str, Callable[[Path], Any]] = field(default_factory=dict)
    refuses: bool = False


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
    """The commands on 80 drawn people; makes what they need."""
    data, run, photos = scratch / "people", scratch / "run", scratch / "photos"
    quiet = scratch / "log"
    assert forked(["prepare", "people", "--count", "80", "--size", "32", "--out", str(data)], quiet)() == 0
    assert forked(["train", "pose", "--data", str(data), "--out", str(run), *TRAIN], quiet)() == 0, quiet.read_text()
    photos.mkdir()
    for number, path in enumerate(sorted(data.rglob("*.png"))):
        shutil.copy(path, photos / f"{number}.png")
    labels = scratch / "labels.csv"
    rows = [f"{number}.png,{number}" for number in range(len(list(photos.iterdir())))]
    labels.write_text("\n".join(["file_name,age", *rows, ""]))
    folder = ["folder", "--images", str(photos), "--labels", str(labels), "--label-columns", "age"]

    def strips_aside(path: Path) -> Any:  # noqa: ANN401 - how rows are cut depends on the speed that was measured
        return {**json.loads(path.read_text()), "strips": None}

    return {
        "prepare": Case(lambda out: ["prepare", *folder, "--out", str(out)]),
        "distances": Case(
            lambda out: ["distances", str(data), "--matrix", "--role", "all", "--out", str(out)],
            forms={"job.json": strips_aside},
        ),
        "train": Case(
            lambda out: ["train", "pose", "--data", str(data), "--out", str(out), *TRAIN],
            again=("--resume",),
            begun="config.json",
            forms={"last.pt": _checkpoint},
        ),
        "embed": Case(lambda out: ["embed", str(run), "--images", str(photos), "--out", str(out), "--batch-size", "2"]),
        "export": Case(lambda out: ["export", "captioning", str(run), "--images", str(photos), "--out", str(out)]),
        "export onnx": Case(lambda out: ["export", "onnx", str(run), "--out", str(out)], refuses=True),
        "export hub": Case(lambda out: ["export", "hub", str(run), "--out", str(out)], refuses=True),
    }


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


def content(folder: Path, case: Case) -> dict[str, Any]:
    """What a result is compared by: every file below a folder, bytes or form; temporaries aside."""
    return {
        path.relative_to(folder).as_posix(): case.forms.get(path.name, Path.read_bytes)(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".partial-" not in path.name
    }


def forked(
    arguments: Sequence[str], log: Path, before: Callable[[], object] = bool, limit: float = LIMIT
) -> Callable[..., int]:
    """Begin a command in a fork of the server, after ``before``; the result waits for its end, or kills it when due."""
    process = SERVER.Process(target=_command_in_fork, args=(list(arguments), log, dict(os.environ), before, limit))
    process.start()
    assert process.pid is not None
    return _end(process.pid, lambda: process.exitcode, process.join)


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

    jobs.pairs_a_strip = lambda *_: 400  # type: ignore[assignment]  # several strips of a small job
    captioning.CHUNK = CHUNK
    code = 70
    try:
        before()
        code = main(arguments)
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
    return _end(process.pid, process.poll, process.wait)


def _end(pid: int, exit_code: Callable[[], int | None], wait: Callable[[float], object]) -> Callable[..., int]:
    """What waits for the end of a process, its exit code; or kills its group as soon as it is due."""

    def end(due: Callable[[], bool] | None = None) -> int:
        while due is not None and exit_code() is None:
            if due():
                _kill(pid)
                break
            time.sleep(0.001)
        try:
            wait(LIMIT + 30)
        except subprocess.TimeoutExpired:
            _kill(pid)
        code = exit_code()
        assert code is not None, f"process {pid} does not end"
        return code

    return end


def _kill(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has no group of its own yet
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
    changes, began = Changes(whole.parent), time.monotonic()

    def watch() -> bool:
        changes.look()
        return False

    assert forked(case.arguments(whole), log)(watch) == 0, log.read_text()
    seconds, steps = time.monotonic() - began, changes.count
    wanted, count = content(whole, case), Count()
    while count.kills < kills:
        out = place / str(count.runs + 1) / "out"
        out.parent.mkdir()
        for _ in range(rng.choice((1, 2))):
            if count.kills < kills:
                _kill_once(case, out, log, count, rng, seconds, steps, fresh_share)
            if case.refuses and out.exists():
                break
        code = 0 if case.refuses and out.exists() else forked(_command(case, out), log)()
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
    fresh = rng.random() < fresh_share
    by_time = fresh or rng.random() < 0.3
    share, pause = rng.random(), rng.random() * 0.03 * seconds
    after, at = share * (seconds + (6 if fresh else 0)) * 1.02, rng.randint(1, max(1, steps))
    end = (_fresh if fresh else forked)(_command(case, out), log)
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


def main_script() -> int:
    """Torment the commands; 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=None)
    options = parser.parse_args()
    if options.only is None or "export onnx" in options.only:
        SERVER.set_forkserver_preload([*IMPORTED, "onnxruntime", "onnxscript"])
    lost = kills = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CML_CACHE"] = f"{folder}/cache"
        for name, case in cases(Path(folder)).items():
            if options.only and name not in options.only:
                continue
            count = torment(name, case, Path(folder), kills=options.kills, rng=random.Random(f"{options.seed} {name}"))
            kills += count.kills
            lost += len(count.lost)
            print(
                f"{name:<11} {count.kills:3} kills, {count.runs:3} results, {len(count.lost)} lost or corrupt, "
                f"{count.late} came too late, {count.left} temporaries left; at {' '.join(count.moments)}",
                flush=True,
            )
            for line in count.lost:
                print(f"  {line}", flush=True)
            if count.lost:
                print((Path(folder) / f"{name}.log").read_text()[-3000:])
    print(f"{kills} kills, {lost} lost or corrupt results")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main_script())
