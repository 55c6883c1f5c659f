"""The way of the data: how many modules of cml a few actions enter, and how often control changes from one to another.

    python tests/benchmarks/data_path.py [--json] [--only NAME ..]

Counts calls by ``sys.setprofile``, of Python functions in files of cml alone, in all threads. The first action also
counts what it imports; the others find everything imported. A module that is entered again and again for one fact is
the sign to look for. The script needs nothing but an importable cml, of this version or of an earlier one, which
PYTHONPATH chooses.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

OPTIONS: dict[str, Any] = {
    "backbone": "small-cnn",
    "weights": "none",
    "image_size": (32, 32),
    "dimension": 8,
    "sampler": "random(batch_size=16)",
    "workers": 0,
    "steps": 3,
    "flip": "none",
}


@dataclass(frozen=True)
class DataPath:
    """What one action goes through.

    Attributes:
        action: Its name.
        modules: Modules of cml in which a function was called.
        changes: How often a call led from one module of cml to another.
        calls: Calls of functions of cml.
        busiest: The modules that were entered most often, with the number of times.
    """

    action: str
    modules: int
    changes: int
    calls: int
    busiest: dict[str, int]


class Profile:
    """Counts calls of functions in files of cml while it is open; a stack per thread tells where returns lead."""

    def __init__(self) -> None:
        self.entered: Counter[str] = Counter()  # module to how often control came in from another module
        self.calls, self.changes = 0, 0
        self._names: dict[str, str] = {}  # file to module, "" outside of cml
        self._stacks = threading.local()

    def __enter__(self) -> Profile:
        threading.setprofile(self._event)
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _module(self, file: str) -> str:
        if file not in self._names:
            self._names[file] = module_of(file)
        return self._names[file]

    def _event(self, frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "return"):
            return
        module = self._module(frame.f_code.co_filename)
        if not module:
            return
        stack: list[str] = self._stacks.__dict__.setdefault("modules", [])
        if event == "call":
            self.calls += 1
            if not stack or stack[-1] != module:
                self.entered[module] += 1
                self.changes += bool(stack)
            stack.append(module)
        elif stack:
            stack.pop()


def module_of(file: str) -> str:
    """The module of cml that a file holds; "" for files of others."""
    for folder, package in ROOTS:
        if file.startswith(folder) and file.endswith(".py"):
            inner = file.removeprefix(folder).removesuffix(".py").removesuffix("/__init__").strip("/")
            return ".".join([package, *inner.split("/")]) if inner != "__init__" else package
    return ""


def roots() -> list[tuple[str, str]]:
    """Folders of cml, tasks and data_prep, wherever they are installed, to their packages; the inner ones first."""
    import cml.data_prep
    import cml.tasks

    packages = {"cml.data_prep": cml.data_prep, "cml.tasks": cml.tasks, "cml": cml}
    folders = [(place, name) for name, package in packages.items() for place in package.__path__]
    folders += [(str(Path(place).resolve()), name) for place, name in folders]
    return sorted(dict.fromkeys(folders), key=lambda one: -len(one[0]))


def actions(folder: Path) -> dict[str, Callable[[], object]]:
    """The actions, in an order in which each finds what it needs."""
    import numpy as np

    import cml
    from cml import data_prep

    data = folder / "people"
    data_prep.get("people", count=90, size=32, workers=1).prepare(data)
    state: dict[str, Any] = {}
    images = np.zeros((4, 32, 32, 3), np.uint8)

    def train() -> None:
        cml.train("pose", data, folder / "run", quiet=True, **OPTIONS)

    def open_again() -> None:
        state["run"] = cml.open_run(folder / "run")

    def block() -> None:
        labels, distance = state["labels"], state["distance"]
        distance.pairwise(labels[:16], labels[:16])

    def encode() -> None:
        from cml import distances

        state["distance"] = distances.get("keypoints(squared=False)")
        raw = state["run"].dataset.split("train").labels
        state["labels"] = state["distance"].encode(raw)

    return {
        "compare two losses, with imports": lambda: cml.compare(
            "pose", data, folder / "compared", losses=["log-ratio(weights=uniform)", "cosent"], seeds=1, **OPTIONS
        ),
        "train three steps": train,
        "open a run": open_again,
        "evaluate": lambda: state["run"].evaluate(),
        "encode labels": encode,
        "a batch's labels to a block": block,
        "embed for the first time": lambda: state["run"].model.embed(images),
        "one image to its embedding": lambda: state["run"].model.embed(images[:1]),
    }


def measure(only: list[str]) -> list[DataPath]:
    """Run the actions one after the other, and count each."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, action in actions(Path(folder)).items():
            with contextlib.redirect_stderr(io.StringIO()), Profile() as profile:
                action()
            if not only or name in only:
                busiest = dict(profile.entered.most_common(8))
                results.append(DataPath(name, len(profile.entered), profile.changes, profile.calls, busiest))
    return results


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--only", nargs="+", default=[], help="names of actions to print; the others run all the same")
    parser.add_argument("--busiest", action="store_true", help="also print the modules that are entered most often")
    options = parser.parse_args(arguments)
    results = measure(options.only)
    if options.json:
        print(json.dumps([asdict(result) for result in results], indent=2))
        return
    print(f"{'action':<34}{'modules':>9}{'changes':>9}{'calls':>10}")
    for result in results:
        print(f"{result.action:<34}{result.modules:>9}{result.changes:>9}{result.calls:>10}")
        if options.busiest:
            print("   ", ", ".join(f"{name} {count}" for name, count in result.busiest.items()))


ROOTS = roots()

if __name__ == "__main__":
    main()
