"""Gives commands a disk that becomes full at a random place; then a larger one, and compares with an undisturbed run.

Run: python tests/hostile/full_disks.py [--tries 10] [--seed 0] [--only "index add" propose]

The output lies on a tmpfs of its own, whose size is a random share of what the command writes. The command has to end
with one line of error, or to be whole if it needs less. Given again on a large disk it has to end as an undisturbed run
does. Needs the right to mount. Not for: single moments, such as that of a checkpoint (test_faults.py).
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import faults

PAGE = 4096  # bytes, the unit of a tmpfs
LARGE = 1 << 28
FULL = ("disk is full", "has no room", "free. Choose", "left. Take", "No space left")


@contextmanager
def mounted(place: Path) -> Iterator[Callable[[int], None]]:
    """A disk; the function that is given changes its size in bytes."""
    place.mkdir()
    _mount(place, f"size={LARGE}")
    try:
        yield lambda size: _mount(place, f"remount,size={size}")
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=60)


def _mount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True, timeout=60)


def used(disk: Path) -> int:
    """Bytes in use."""
    state = os.statvfs(disk)
    return (state.f_blocks - state.f_bfree) * state.f_frsize


def written(folder: Path) -> int:
    """Bytes of pages that the files of a folder take."""
    return sum(-(-path.stat().st_size // PAGE) * PAGE for path in folder.rglob("*") if path.is_file())


def try_disk(
    case: faults.Case, whole: Path, disk: Path, resize: Callable[[int], None], share: float, log: Path
) -> tuple[int, list[str]]:
    """Run a command until the disk is full, and again on a large one; its first exit code, and what is wrong."""
    out = disk / "a" / "out"
    out.parent.mkdir()
    case.start(out)
    started = used(disk)
    resize(started + max(1, round(share * (written(whole.parent) - started + PAGE) / PAGE)) * PAGE)
    log.write_text("")
    code = faults.forked(case.arguments(out), log, processes=case.processes)()
    wrong = faults.errors_of(log, code)
    if code and not wrong and not any(words in log.read_text() for words in FULL):
        wrong.append("another error")
    resize(LARGE)
    if not (case.refuses and out.exists()):
        again = log.with_name("again.log")
        again.write_text("")
        if last := faults.forked(faults._command(case, out), again, processes=case.processes)():
            wrong.append(f"exit {last} when there is room: {again.read_text()[-500:]}")
    if faults.content(out, case) != faults.content(whole, case):
        wrong.append("another result")
    if [path for path in out.parent.rglob("*") if ".partial" in path.name]:
        wrong.append("temporaries are left")
    shutil.rmtree(out.parent)
    return code, wrong


def main_script() -> int:
    """Try all commands; 1 if anything was lost."""
    options = faults.parse_series(__doc__, "tries", 10)
    bad = tried = 0
    with faults.open_series(options.only) as (folder, chosen):
        for name, case in chosen.items():
            rng, place, full = random.Random(f"{options.seed} {name}"), folder / f"{name} disk", 0
            log, whole = place / "log", place / "whole" / "out"
            faults.run_undisturbed(case, whole, log)
            with mounted(place / "disk") as resize:
                for _ in range(options.tries):
                    share = rng.random()
                    code, wrong = try_disk(case, whole, place / "disk", resize, share, log)
                    tried, bad, full = tried + 1, bad + bool(wrong), full + bool(code)
                    if wrong:
                        print(
                            f"  {name}, {share:.2f} of the room: {', '.join(wrong)}\n{log.read_text()[-2000:]}",
                            flush=True,
                        )
            print(f"{name:<17} {options.tries} disks, of which {full} were full", flush=True)
    print(f"{tried} disks, {bad} with a traceback, another result or another error")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main_script())
