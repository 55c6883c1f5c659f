"""Puts a link in the place of every file and folder that a killed command leaves; nobody may write through it.

Run: python tests/hostile/links.py [--only embed index] [--most 12]

A command is killed half-way. In a copy of what it left one path becomes a link to a twin of it elsewhere, symbolic or
hard, as a stranger's half-made output may hold it; then the command is given again. It may go on, begin anew or refuse
in one line; the twin has to be what it was. Not for: what comes of unlinked leftovers (faults.py).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import faults

Link = Callable[[Path, Path], object]
LINKS: dict[str, Link] = {"symbolic": lambda twin, at: at.symlink_to(twin), "hard": lambda twin, at: os.link(twin, at)}


def state(path: Path) -> dict[str, bytes]:
    """What there is at a path: files with their bytes, folders."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {
        one.relative_to(path).as_posix(): one.read_bytes() if one.is_file() else b"" for one in sorted(path.rglob("*"))
    }


def half_done(case: faults.Case, place: Path, log: Path) -> Path:
    """The folder around the output of a command that was killed half-way."""
    whole, half = place / "whole" / "out", place / "half" / "out"
    for out in (whole, half):
        out.parent.mkdir(parents=True)
        case.start(out)
    changes = faults.Changes(whole.parent)
    assert faults.forked(case.arguments(whole), log, processes=case.processes)(lambda: changes.look() < 0) == 0
    at, seen = max(1, changes.count // 2), faults.Changes(half.parent)
    faults.forked(case.arguments(half), log, processes=case.processes)(lambda: seen.look() >= at)
    return half.parent


def linked(case: faults.Case, half: Path, name: str, kind: str, place: Path, log: Path) -> list[str]:
    """What is wrong after the command was given again where ``name`` is a link."""
    shutil.copytree(half, place, symlinks=True)
    twin, path = place.with_name(f"{place.name}-twin"), place / name
    path.rename(twin)
    before = state(twin)
    LINKS[kind](twin, path)
    log.write_text("")
    faults.forked(faults._command(case, place / "out"), log, processes=case.processes)()
    wrong = [] if state(twin) == before else ["written through"]
    wrong += ["traceback"] if "Traceback" in log.read_text() else []
    for folder in (place, twin):
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    return wrong


def main_script() -> int:
    """Try all commands; 1 if anything was written elsewhere."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--most", type=int, default=12, help="paths of a command, folders first")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    tried = bad = 0
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CML_CACHE"] = f"{folder}/cache"
        for name, case in faults.cases(Path(folder)).items():
            if options.only and name not in options.only:
                continue
            log, place = Path(folder) / f"{name}.log", Path(folder) / f"{name}-links"
            half = half_done(case, place, log)
            paths = [path for path in sorted(half.rglob("*")) if path != half / "out"]
            random.Random(f"{options.seed} {name}").shuffle(paths)
            paths = sorted(paths, key=lambda path: path.is_file())[: options.most]
            for number, path in enumerate(paths):
                for kind in ["symbolic"] if path.is_dir() else LINKS:
                    at = path.relative_to(half).as_posix()
                    wrong = linked(case, half, at, kind, place / f"{number}-{kind}", log)
                    tried, bad = tried + 1, bad + bool(wrong)
                    if wrong:
                        print(f"  {name}: {at} as a {kind} link: {', '.join(wrong)}\n{log.read_text()[-2000:]}")
            print(f"{name}: {len(paths)} paths", flush=True)
    print(f"{tried} links, {bad} written through or with a traceback")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main_script())
