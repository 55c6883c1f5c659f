"""How many modules, functions and calls of cml lie between a public call and its result.

    python tests/benchmarks/ways.py
    python tests/benchmarks/ways.py evaluate-run --where  # with the functions of each module

Each call is made once before, so that imports, compiled functions and caches are not counted. Comprehensions and
lambdas are not counted either, nor what other threads do.
"""

import argparse
import collections
import contextlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from PIL import Image

import cml
from cml.cli import main as run_command

ROOT = Path(cml.__file__).parents[1]
OURS = f"{ROOT / 'cml'}{os.sep}"
BATCH = "random(batch_size=30)"


class Way:
    """What a block enters of cml."""

    def __init__(self) -> None:
        self.calls: collections.Counter[tuple[str, str]] = collections.Counter()  # of (file, function)
        self.is_over = False

    def count(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call; Python's profiler calls it."""
        code = frame.f_code
        is_named = not code.co_name.startswith("<")
        if event == "call" and is_named and not self.is_over and code.co_filename.startswith(OURS):
            self.calls[code.co_filename, code.co_qualname] += 1

    @contextlib.contextmanager
    def walked(self) -> Iterator[None]:
        """Count in the block."""
        sys.setprofile(self.count)
        try:
            yield
        finally:
            sys.setprofile(None)

    def describe(self) -> str:
        """The three figures."""
        modules = len({file for file, _ in self.calls})
        return f"modules {modules:4}  functions {len(self.calls):4}  calls {self.calls.total():6}"

    def places(self) -> Iterator[str]:
        """A line for each module: its calls, and those of each function."""
        for file in sorted({file for file, _ in self.calls}):
            here = {name: calls for (where, name), calls in self.calls.items() if where == file}
            each = ", ".join(f"{name} {calls}" for name, calls in sorted(here.items(), key=lambda one: -one[1]))
            yield f"    {sum(here.values()):5} {os.path.relpath(file, ROOT)}: {each}"


def to_first_step(fit: Callable[[], Any]) -> Way:
    """The way to the first update of the weights."""
    way, step = Way(), torch.optim.AdamW.step

    def end(self: torch.optim.AdamW, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        way.is_over = True
        return step(self, *arguments, **options)

    torch.optim.AdamW.step = end  # type: ignore[method-assign]
    try:
        with way.walked():
            fit()
    finally:
        torch.optim.AdamW.step = step  # type: ignore[method-assign]
    return way


def whole(call: Callable[[], Any]) -> Way:
    """The way to the end of a call."""
    way = Way()
    with way.walked():
        call()
    return way


def quiet_command(*words: str) -> None:
    """Run a command and drop what it prints."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run_command(list(words)) == 0


def make_ways(folder: Path) -> dict[str, tuple[Callable[[], Any], Callable[[Callable[[], Any]], Way]]]:
    """Name to the call, and to how it is counted."""
    rng = np.random.default_rng(0)
    labels = rng.uniform(8, 56, 200)
    images = rng.integers(0, 255, (200, 32, 32, 3)).astype(np.uint8)
    vectors = rng.normal(size=(200, 8)).astype(np.float32)
    Image.fromarray(images[0]).save(folder / "a.png")

    def fit_images() -> cml.Model:
        shape: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (32, 32)}
        return cml.fit(images, labels, steps=2, sampler=BATCH, workers=0, quiet=True, **shape)

    def fit_vectors() -> cml.Model:
        return cml.fit(vectors, labels, steps=2, sampler=BATCH, workers=0, quiet=True)

    model = fit_images()
    data, run = str(folder / "people"), str(folder / "run")
    quiet_command("prepare", "people", "--count", "90", "--size", "32", "--out", data)
    quiet_command(
        *("train", "pose", "--data", data, "--out", run, "--backbone", "small-cnn", "--weights", "none"),
        *("--image-size", "32", "32", "--steps", "3", "--sampler", "random(batch_size=16)", "--workers", "0"),
    )
    return {
        "fit-images": (fit_images, to_first_step),
        "fit-vectors": (fit_vectors, to_first_step),
        "embed": (lambda: model.embed([str(folder / "a.png")]), whole),
        "evaluate": (lambda: model.evaluate(images[:100], labels[:100]), whole),
        "evaluate-run": (lambda: quiet_command("evaluate", run), whole),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", help="fit-images, fit-vectors, embed, evaluate, evaluate-run, or all")
    parser.add_argument("--where", action="store_true", help="name the modules and their functions")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        ways = make_ways(Path(folder))
        for name in options.ways or ways:
            call, count = ways[name]
            call()
            way = count(call)
            print(f"{name:14} {way.describe()}", *(way.places() if options.where else ()), sep="\n", flush=True)


if __name__ == "__main__":
    main()
