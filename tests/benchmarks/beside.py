"""Processor time of the main jobs by this checkout and by another one, by turns.

    python tests/benchmarks/beside.py /path/to/other/.venv/bin/python [--jobs evaluate-1000 fit ..] [--rounds 15]

The other Python has another state of this project installed, such as a checkout of an earlier commit. Each of the two
has one process per job, which does the job once before it counts; then they take turns, each first in every second
round, with one thread. A figure is the median ratio of the rounds, this checkout's time over the other's, with the 95 %
interval of that median over resampled rounds. ``import`` and ``help`` start a new Python each time.

Jobs: ``evaluate-1000`` and ``evaluate-3000``, ``evaluate_embeddings`` of so many items among each other with four rows
and all metrics; ``fit``, 100 steps of a head on 2,000 vectors; ``tune``, the choice of a
head for 400 vectors; ``embed``, 20,000 vectors by the trained model;
``import``, ``import cml``; ``help``, ``cml --help``.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

STARTS = {"import": ["-c", "import cml"], "help": ["-m", "cml", "--help"]}
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS", "NUMBA")}


def prepare_evaluation(count: int) -> Callable[[], object]:
    """Evaluate embeddings of items with two numbers as labels."""
    from cml.retrieval import evaluate_embeddings

    rng = np.random.default_rng(0)
    labels = rng.normal(size=(count, 2))
    noisy = [labels + scale * rng.normal(size=(count, 2)) for scale in (0.3, 0.6)]
    ours, other = (np.concatenate([rows, rng.normal(size=(count, 14))], axis=1).astype(np.float32) for rows in noisy)
    return lambda: evaluate_embeddings(ours, labels, others={"other": other})


def prepare_fit() -> Callable[[], object]:
    """Train a head on vectors."""
    import cml

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2000, 64)).astype(np.float32)
    return lambda: cml.fit(rows, rows[:, :2], steps=100, quiet=True)


def prepare_tuning() -> Callable[[], object]:
    """Choose a head for vectors."""
    import cml

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 64)).astype(np.float32)
    return lambda: cml.fit(rows, rows[:, :2], tune=True, dimension=16, quiet=True)


def prepare_embedding() -> Callable[[], object]:
    """Embed vectors."""
    import cml

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(20_000, 64)).astype(np.float32)
    model = cml.fit(rows[:500], rows[:500, :2], steps=5, quiet=True)
    return lambda: model.embed(rows)


JOBS: dict[str, Callable[[], Callable[[], object]]] = {
    "evaluate-1000": lambda: prepare_evaluation(1000),
    "evaluate-3000": lambda: prepare_evaluation(3000),
    "fit": prepare_fit,
    "tune": prepare_tuning,
    "embed": prepare_embedding,
}


def serve(job: str) -> None:
    """Do a job for each line that comes, and print its processor time."""
    work = JOBS[job]()
    work()
    print("ready", flush=True)
    for _ in sys.stdin:
        begin = time.process_time()
        work()
        print(time.process_time() - begin, flush=True)


def time_start(python: str, arguments: Sequence[str]) -> float:
    """The processor time of a new Python."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [python, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **ONE_THREAD}, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_by_turns(job: str, pythons: Sequence[str], rounds: int) -> np.ndarray:  # (rounds, 2) seconds
    """Let both do a job in turn."""
    if job in STARTS:
        return take_turns(lambda side: time_start(pythons[side], STARTS[job]), rounds)
    workers = [
        subprocess.Popen(
            [python, "-W", "ignore", __file__, python, "--serve", job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **ONE_THREAD},
        )
        for python in pythons
    ]

    def ask(side: int) -> float:
        worker = workers[side]
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
        return float(worker.stdout.readline())

    try:
        for worker in workers:
            assert worker.stdout is not None
            if worker.stdout.readline().strip() != "ready":
                raise SystemExit(f"{worker.args!r} did not begin: call it by itself to see why.")
        return take_turns(ask, rounds)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(timeout=60)


def take_turns(ask: Callable[[int], float], rounds: int) -> np.ndarray:  # (rounds, 2)
    """Ask both, each first in every second round."""
    seconds = np.empty((rounds, 2))
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            seconds[number, side] = ask(side)
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", help="the Python of the other checkout")
    parser.add_argument("--jobs", nargs="+", choices=[*JOBS, *STARTS], default=[*JOBS, *STARTS])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    add_json_option(parser)
    given = parser.parse_args(arguments)
    if given.serve:
        serve(given.serve)
        return
    figures = {}
    for job in given.jobs:
        seconds = time_by_turns(job, [sys.executable, given.python], given.rounds)
        ratios = seconds[:, 0] / seconds[:, 1]
        drawn = np.random.default_rng(0).choice(ratios, (2000, len(ratios)))
        low, high = np.quantile(np.median(drawn, axis=1), [0.025, 0.975])
        figures[job] = {"ratio": float(np.median(ratios)), "low": float(low), "high": float(high)}
        ours, other = np.median(seconds, axis=0)
        print(f"{job:14} {np.median(ratios):5.2f} ({low:.2f} to {high:.2f})  {ours:.3f} and {other:.3f} s", flush=True)
    write_figures(given.json, figures)


if __name__ == "__main__":
    main()
