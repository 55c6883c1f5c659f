"""The journey of somebody with few photographs: prepare, check, train, validate, evaluate, compare, look.

    python tests/scenarios/small_data.py [--counts 80 40 20 12] [--data DIR]

Takes the first photographs of COCO's train2017 (``coco_mini`` of the real data) and a number for each, its mean
brightness, and runs the commands in a shell, those that a command prints as next steps exactly as they are printed. It
prints what they print and fails if one fails, if a validation is constant, or if there is no verdict.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

Run = Callable[[str, Path], tuple[int, str, str]]  # a command and a folder to its exit code, stdout and stderr
FEWEST = 16  # training images of which 8 can be held out for validation
ROOT = Path(__file__).resolve().parents[2]


def in_a_shell(command: str, folder: Path) -> tuple[int, str, str]:
    """A command as a user would give it."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, shell=True, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=900
    )
    return done.returncode, done.stdout, done.stderr


def in_this_process(command: str, folder: Path) -> tuple[int, str, str]:
    """The same without starting Python anew, which takes most of the time."""
    from cml.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for one in command.split(" && "):
            program, *arguments = shlex.split(one)
            assert program == "cml"
            if (code := main(arguments)) != 0:
                return code, out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


class Journey:
    """The commands of one user, and what went wrong."""

    def __init__(self, folder: Path, run: Run) -> None:
        self.folder, self._run = folder, run
        self.faults: list[str] = []
        self.said: list[str] = []

    def give(self, command: str, *, verdict: bool = False, code: int = 0) -> str:
        """Run a command; what it prints."""
        got, out, err = self._run(command, self.folder)
        last = [line for line in err.splitlines() if line.startswith(("kept step", "error:", "cml"))]
        self.said += [f"$ {command}", *out.splitlines(), *last]
        if got != code:
            self.faults.append(f"exit code {got} instead of {code}: {command}\n{err[-2000:]}")
        if verdict and "Verdict: " not in out:
            self.faults.append(f"no verdict: {command}")
        return out + "\n" + err

    def next_step(self, said: str, **more: bool) -> str:
        """Run the command that another one printed as the next step."""
        steps = [line.removeprefix("next: ") for line in said.splitlines() if line.startswith("next: ")]
        if not steps:
            self.faults.append(f"no next step after {self.said[-1]}")
            return ""
        return self.give(steps[0], **more)


def journey(photographs: Sequence[Path], folder: Path, run: Run, *, steps: int = 300) -> Journey:
    """Go through all of it with some photographs.

    Args:
        photographs: Their files.
        folder: An empty folder to work in.
        run: How to run a command.
        steps: Training steps of what is not printed.
    """
    (folder / "photos").mkdir()
    lines = ["file_name,brightness"]
    for path in photographs:
        shutil.copy(path, folder / "photos")
        with Image.open(path) as image:
            lines.append(f"{path.name},{np.asarray(image.convert('L')).mean():.2f}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")

    way = Journey(folder, run)
    prepared = way.give(
        "cml prepare folder --images photos --labels labels.csv --label-columns brightness --unit levels --out data/few"
    )
    way.give("cml check data/few", verdict=True)
    trained = way.next_step(prepared)
    way.next_step(trained, verdict=True)

    train = len((folder / "data/few/train/metadata.jsonl").read_text().splitlines())
    common = f'--freeze-backbone --steps {steps} --sampler "random(batch_size={min(60, train // 2)})"'
    every = f"--evaluate-every {max(1, steps // 15)} --patience 4"
    refused = way.give(
        f"cml train value --data data/few --out runs/validated {common} {every}", code=2 * (train < FEWEST)
    )
    if train < FEWEST:
        if "too few to hold" not in refused:
            way.faults.append("the refusal does not say why")
    else:
        records = [json.loads(line) for line in (folder / "runs/validated/metrics.jsonl").read_text().splitlines()]
        scores = [record["validation"] for record in records if "validation" in record]
        way.said.append(f"validation: {' '.join(f'{score:.3f}' for score in scores)}")
        if len(set(scores)) < 2:
            way.faults.append(f"the validation is constant: {scores}")
        if "kept step" not in refused:
            way.faults.append("training does not say which step it kept")
        way.give("cml evaluate runs/validated", verdict=True)

    compare = (
        f'cml compare value --data data/few --out runs/losses --losses log-ratio "cosent(scale=2.0)" --seeds 2 {common}'
    )
    pages = [line for line in way.give(compare, verdict=True).splitlines() if line.startswith("retrieval report: ")]
    if not pages or not (folder / pages[0].removeprefix("retrieval report: ")).exists():
        way.faults.append("compare names no retrieval report that is there")
    return way


def main() -> int:
    """Run all sizes; 1 if something went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[80, 40, 20, 12])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CML_DATA", ROOT.parent / "shared" / "data")))
    options = parser.parse_args()
    photographs = sorted((options.data / "coco_mini" / "train2017").glob("*.jpg"))
    faults: list[str] = []
    for count in options.counts:
        with tempfile.TemporaryDirectory() as folder:
            way = journey(photographs[:count], Path(folder), in_a_shell)
        print(f"\n==== {count} photographs\n", *way.said, sep="\n")
        faults += [f"{count} photographs: {fault}" for fault in way.faults]
    print(f"\n==== {len(faults)} faults", *faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
