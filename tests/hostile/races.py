"""Starts a command two or three times at once on one output, kills some, and compares what is left with one run.

Run: python tests/hostile/races.py [--tries 10] [--seed 0] [--only "index add" propose]

Each start comes at a random moment of the first. A third of the tries kill the first one, a third start three. A
command that finds another at work may end with one line of error, or wait. Given once more, it has to end as a lone run
does. Readers open and search the index meanwhile; they may never fail or see half a change.

Not for: threads of one process (tests/searching/test_index.py), processes of one run (tests/distributed).
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import faults
import numpy as np

import cml
from cml.searching.index_file import holds_index


def search_while_changed(out: Path) -> int:
    """Search the index of ``faults.change_index`` until its result is there; every hit has to be as the item is."""
    folder, rows = out.with_name("index"), np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    deadline = time.monotonic() + faults.LIMIT / 4
    while not holds_index(folder) and time.monotonic() < deadline:
        time.sleep(0.002)
    index = cml.Index.open(folder)
    while not (out / "hits.json").exists() and time.monotonic() < deadline:
        if not len(index):
            continue
        for row, hits in zip(rows, index.search(rows, 1), strict=True):
            item = int(hits[0].item_id)
            assert abs(hits[0].distance - float(np.linalg.norm(row - rows[item]))) < 1e-5, hits
            assert hits[0].label == item, hits
    return 0


faults.PROGRAMS["search_while_changed"] = search_while_changed


def race(case: faults.Case, out: Path, logs: Path, rng: random.Random, seconds: float) -> tuple[list[int], list[str]]:
    """Run a command several times at once; exit codes, and what is wrong."""
    out.parent.mkdir(parents=True)
    case.start(out)
    kind = rng.choice(["two", "three", "killed"])
    began, ends, paths = time.monotonic(), [], []
    moments = sorted([0.0, *(rng.random() * seconds * 0.8 for _ in range(2 if kind == "three" else 1))])
    for number, moment in enumerate(moments):
        time.sleep(max(0.0, began + moment - time.monotonic()))
        paths.append(logs / f"{number}.log")
        paths[-1].write_text("")
        ends.append(faults.forked(faults._command(case, out), paths[-1], processes=case.processes))
    if case.arguments(out)[0] == "change_index":
        paths.append(logs / "reader.log")
        paths[-1].write_text("")
        ends.append(faults.forked(["search_while_changed", str(out)], paths[-1]))
    due = time.monotonic() + rng.random() * seconds / 2
    due_now: Callable[[], bool] | None = (lambda: time.monotonic() >= due) if kind == "killed" else None
    codes = [ends[0](due_now), *(end() for end in ends[1:])]
    wrong = []
    for code, path in zip(codes, paths, strict=True):
        killed = kind == "killed" and path is paths[0] and code == -signal.SIGKILL
        found = [] if killed else faults.errors_of(path, code)
        wrong += [f"{one}: {path.read_text()[-1500:]}" for one in found]
    if kind != "killed" and 0 not in codes[: len(moments)]:
        wrong.append(f"none of {kind} has ended well: {[path.read_text()[-300:] for path in paths]}")
    return codes, wrong


def main_script() -> int:
    """Race all commands; 1 if anything was lost."""
    options = faults.parse_series(__doc__, "tries", 10)
    bad = tried = 0
    with faults.open_series(options.only) as (folder, chosen):
        for name, case in chosen.items():
            rng, place = random.Random(f"{options.seed} {name}"), folder / f"{name} races"
            whole, log = place / "whole" / "out", place / "log"
            seconds = faults.run_undisturbed(case, whole, log)
            wanted, ended = faults.content(whole, case), 0
            for number in range(options.tries):
                out = place / str(number) / "out"
                codes, wrong = race(case, out, place, rng, seconds)
                ended += codes.count(0)
                expected = 2 if case.refuses and out.exists() else 0
                log.write_text("")
                code = faults.forked(faults._command(case, out), log, processes=case.processes)()
                if code != expected:
                    wrong.append(f"exit {code} afterwards: {log.read_text()[-1500:]}")
                left = faults.content(out, case) if out.exists() else {}
                if left != wanted:
                    differs = [path for path in {*left, *wanted} if left.get(path) != wanted.get(path)]
                    wrong.append(f"another result: {sorted(differs)[:5]}")
                if [path for path in out.parent.rglob("*") if ".partial" in path.name]:
                    wrong.append("temporaries are left")
                tried, bad = tried + 1, bad + bool(wrong)
                for one in wrong:
                    print(f"  {name}, race {number}: {one}", flush=True)
                shutil.rmtree(out.parent)
            print(f"{name:<17} {options.tries} races, {ended} commands ended well", flush=True)
    print(f"{tried} races, {bad} lost")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main_script())
