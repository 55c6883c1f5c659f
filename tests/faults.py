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
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import cml.commands.distances
import cml.commands.embed
import cml.commands.export
import cml.commands.export_captioning
import cml.commands.prepare
import cml.commands.train
import cml.export.hub
import cml.export.onnx_graph
import cml.reporting.curves
import cml.training.prepared
import cml.training.validation
from cml.cli import main
from cml.distances.jobs import run as jobs

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
    assert _forked(["prepare", "people", "--count", "80", "--size", "32", "--out", str(data)], quiet)() == 0
    assert _forked(["train", "pose", "--data", str(data), "--out", str(run), *TRAIN], quiet)() == 0, quiet.read_text()
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


def _forked(arguments: Sequence[str], log: Path) -> Callable[..., int]:
    """Begin a command in a fork of this process; the result waits for its end, or kills it when told to."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        torch.set_num_threads(1)
        jobs.pairs_a_strip = lambda *_: 400  # several strips of a small job
        cml.export.captioning.CHUNK = CHUNK
        code = 70
        try:
            code = main(arguments)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def end(due: Callable[[], bool] | None = None) -> int:
        while due is not None and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if due():
                os.killpg(child, signal.SIGKILL)
                break
            time.sleep(0.001)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    return end


def _fresh(arguments: Sequence[str], log: Path) -> Callable[..., int]:
    """As ``_forked``, in a process from nothing."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "cml", *arguments], stdout=file, stderr=file, start_new_session=True
        )

    def end(due: Callable[[], bool] | None = None) -> int:
        while due is not None and process.poll() is None:
            if due():
                os.killpg(process.pid, signal.SIGKILL)
                break
            time.sleep(0.001)
        return process.wait()

    return end


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

    assert _forked(case.arguments(whole), log)(watch) == 0, log.read_text()
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
        code = 0 if case.refuses and out.exists() else _forked(_command(case, out), log)()
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
    case: Case,
    out: Path,
    log: Path,
    count: Count,
    rng: random.Random,
    seconds: float,
    steps: int,
    fresh_share: float,
) -> None:
    fresh = rng.random() < fresh_share
    by_time = fresh or rng.random() < 0.3
    share, pause = rng.random(), rng.random() * 0.03 * seconds
    after, at = share * (seconds + (6 if fresh else 0)) * 1.02, rng.randint(1, max(1, steps))
    end = (_fresh if fresh else _forked)(_command(case, out), log)
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
        import onnxruntime  # noqa: F401 - a fork begins with it
        import onnxscript  # noqa: F401
    torch.set_num_threads(1)
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
