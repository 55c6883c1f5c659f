"""Run every command and example that the given pages show, in order, in a scratch folder per page.

    python .ci/page_commands.py SCRATCH README.md docs/start/*.md ...

Shell blocks are run line by line, cml in forks of a process that has imported torch; setting up an environment and
pytest are left to the caller. Long commands get fewer steps, losses, seeds, drawn pictures and variants through their
own documented options. Python blocks are run as they stand. One that begins with the name of a file is also written to
that file. A block after the comment ``<!-- not run: reason -->`` is skipped. The raw files that pages call
``tub.tar.gz``, ``lspet``, ... are the real ones where they exist; elsewhere the commands that read them are skipped,
and their names are printed. ``photos``, ``labels.csv``, ``data/mine`` and ``runs/mine`` are made here for pages that do
not make them.

``tests/project/test_extend.py`` reads the pages of ``docs/extend`` through the same functions.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

STEPS, COUNT = "4", "300"
TIME_LIMIT = 900  # seconds for one command
LONG = ("cml train", "cml compare", "cml demo")
RAW = {"tub.tar.gz": "donkeycar_tub/tub.tar.gz", "lspet": "lspet400", "zind": "zind_layouts", "coco": "coco_mini"}
BLOCK = re.compile(
    r"(?P<skip><!-- not run: [^\n]+ -->\n+)?^```(?P<kind>sh|python)\n(?P<text>.*?)^```", re.DOTALL | re.MULTILINE
)
PREPARATIONS = {
    "data/mine": "cml prepare folder --images photos --labels labels.csv --label-columns age --out data/mine",
    "runs/mine": "cml train value --data data/mine --out runs/mine --freeze-backbone --sampler 'random(batch_size=60)'",
}
ROOT = Path(__file__).resolve().parents[1]
SHELL = re.compile(r"[$|&;<>*?`~]")  # what only a shell understands
IMPORTED = (  # some seconds, which each of hundreds of commands would take
    *("torch._dynamo", "matplotlib.backends.backend_agg", "sklearn.neighbors", "safetensors.torch"),
    *("cml.commands.compare", "cml.commands.evaluate", "cml.commands.prepare", "cml.commands.train"),
    *("cml.comparing.compare", "cml.training.run_learner", "cml.training.validation"),
)
_own = threading.local()  # a thread's server


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes:
        kind: ``sh`` or ``python``.
        text: The code.
        is_skipped: Whether the page says that the block is not run.
    """

    kind: str
    text: str
    is_skipped: bool

    @property
    def file_name(self) -> str:
        """The file that a Python block belongs into, from its first line ``# NAME.py``; "" if it has none."""
        match = re.match(r"# (\w+\.py)\n", self.text) if self.kind == "python" else None
        return match[1] if match else ""

    def commands(self) -> list[str]:
        """The shell commands of the block without environments, installations and pytest; or its Python code."""
        if self.kind == "python":
            return [self.text]
        lines = [line.strip() for line in self.text.replace("\\\n", " ").splitlines()]
        lines = [line.rpartition("&& ")[2] if "venv" in line else line for line in lines]
        return [line for line in lines if line and not line.startswith(("#", "pytest", "pip install"))]


def read_blocks(text: str) -> Iterator[Block]:
    """Yield the shell and Python blocks of a page in order."""
    for match in BLOCK.finditer(text):
        yield Block(match["kind"], match["text"], match["skip"] is not None)


def main(scratch: Path, pages: list[Path]) -> int:
    """Run all pages, two at a time; returns 1 if a command fails or nothing was run."""
    scratch.mkdir(parents=True)
    prepared = scratch / "before"
    draw_photos(prepared)
    texts = {page.resolve(): page.read_text(encoding="utf-8") for page in pages}
    for folder, command in PREPARATIONS.items():
        if any(is_missing(text, folder) for text in texts.values()):
            run(shorten(command), prepared)
    with ThreadPoolExecutor(2) as pool:
        # pages with the most training start first, so that both threads finish at about the same time
        longest_first = sorted(texts.items(), key=lambda page: -count_long_commands(page[1]))
        futures = [pool.submit(run_page, page, text, prepared, scratch) for page, text in longest_first]
    errors = [future.exception() for future in futures]
    print(*(error for error in errors if error is not None), sep="\n\n", file=sys.stderr)
    total = sum(future.result() for future, error in zip(futures, errors, strict=True) if error is None)
    print(f"{total} commands of {len(pages)} pages passed")
    return 0 if total and not any(errors) else 1


def count_long_commands(text: str) -> int:
    """The number of commands of a page that train."""
    return sum(line.startswith(LONG) for line in text.splitlines())


def is_missing(text: str, folder: str) -> bool:
    """Whether a page reads a folder that its own commands do not make."""
    return folder in text and f"--out {folder}\n" not in text and f"--out {folder} " not in text


def run_page(page: Path, text: str, prepared: Path, scratch: Path) -> int:
    """Run a page's blocks until one fails, and return the number of commands."""
    data = Path(os.environ.get("CML_DATA", ROOT.parent / "shared" / "data"))
    folder = scratch / "-".join(page.relative_to(ROOT).with_suffix("").parts)
    folder.mkdir()
    blocks = list(read_blocks(text))
    if not blocks:
        return 0
    for name, path in RAW.items():
        if (data / path).exists():
            (folder / name).symlink_to(data / path)
    for name in ("photos", "labels.csv", *(name for name in PREPARATIONS if is_missing(text, name))):
        (folder / name).parent.mkdir(exist_ok=True)
        if name == "runs/mine":  # commands write into it
            shutil.copytree(prepared / name, folder / name)
        else:  # a link: the features of its images are computed once for all pages
            (folder / name).symlink_to(prepared / name)
    total = 0
    for block in blocks:
        if block.file_name:
            (folder / block.file_name).write_text(block.text)
        for command in block.commands():
            if block.is_skipped:
                print(f"{page.name}: not run: {command.splitlines()[0]}", flush=True)
                continue
            if block.kind == "sh" and not input_exists(command, folder):
                print(f"{page.name}: skipped, its raw data is not in {data}: {command}", flush=True)
                continue
            run(command if block.kind == "python" else shorten(command), folder, block.kind, page.name)
            total += 1
    return total


def run(command: str, folder: Path, kind: str = "sh", page: str = "before") -> None:
    """Run one command; its output is printed if it fails."""
    start = time.monotonic()
    if kind == "sh" and command.startswith("cml ") and not SHELL.search(command) and hasattr(os, "fork"):
        code, said = fork(shlex.split(command, comments=True), folder)
    else:
        words = [sys.executable, "-c", command] if kind == "python" else ["bash", "-c", command]
        completed = subprocess.run(
            words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=TIME_LIMIT
        )
        code, said = completed.returncode, completed.stdout
    print(f"{page}: {time.monotonic() - start:.0f} s + {command}", flush=True)
    if code != 0:
        raise RuntimeError(f"{said}\n{page}: failed with code {code}: {command}")


def fork(words: list[str], folder: Path) -> tuple[int, str]:
    """Run a cml command in a fork of this thread's server; its exit code, and what it said."""
    if not hasattr(_own, "server"):
        serving = [sys.executable, __file__, "--serve"]
        _own.server = subprocess.Popen(serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with tempfile.NamedTemporaryFile() as log:
        _own.server.stdin.write(json.dumps([words, str(folder), log.name]) + "\n")
        _own.server.stdin.flush()
        code = int(_own.server.stdout.readline())
        return code, log.read().decode(errors="replace")


def serve() -> None:
    """Import, then run each command that a line of the standard input names in a fork, and tell its exit code."""
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        words, folder, log = json.loads(line)
        child = os.fork()
        if not child:
            signal.alarm(TIME_LIMIT)
            os.chdir(folder)
            said, nothing = os.open(log, os.O_WRONLY | os.O_APPEND), os.open(os.devnull, os.O_RDONLY)
            for own, other in enumerate((nothing, said, said)):
                os.dup2(other, own)
            sys.argv = words
            sys.exit(importlib.import_module("cml.cli").main())
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def shorten(command: str) -> str:
    """A command with few steps, losses, seeds, drawn pictures and variants."""
    if command.startswith("cml compare captioning"):
        return re.sub(r"(--\w+-steps) \d+", rf"\1 {STEPS}", command) + " --seeds 1"
    if re.match(r"cml prepare (scenes|people|rooms|heads)", command):
        return re.sub(r"\s--count \d+", "", command) + f" --count {COUNT}"
    if "--tune" in command and "--tune-losses" not in command:
        command += " --tune-losses log-ratio"
    if command.startswith(LONG) and "--resume" not in command and "--tune" not in command:  # it chooses its steps
        if "--epochs" in command:
            command = re.sub(r"--epochs \d+", "--epochs 1", command)
        else:
            command = re.sub(r"\s--steps \d+", "", command) + f" --steps {STEPS}"
        command = re.sub(r"--seeds \d+", "--seeds 1", command)
        command = re.sub(r"\s--(count|train) \d+", "", command)
        if command.startswith("cml demo"):
            command += f" --count {COUNT}"
        chosen = "--variants|--losses|--search-space"
        if re.match(rf"cml (demo|compare) (pose|layout|caption|value) ((?!{chosen}).)*$", command):
            command += " --variants log-ratio"
    return command


def draw_photos(folder: Path, count: int = 300) -> None:
    """Write a folder of images and a CSV of ages, as a user would bring them."""
    from PIL import Image

    (folder / "photos").mkdir(parents=True)
    lines = ["file_name,age"]
    for index in range(count):
        Image.new("RGB", (80, 60), (index % 256, 90, 255 - index % 256)).save(folder / "photos" / f"{index}.jpg")
        lines.append(f"{index}.jpg,{index % 256 / 3:.1f}")
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")


def input_exists(command: str, folder: Path) -> bool:
    """Whether the input of a command exists: raw files, or the output of an earlier command that was not skipped."""
    paths = re.findall(r"(?:--(?:source|data|images|labels|runs)|cml distances) (\S+)", command)
    return all((folder / path).exists() for path in paths)


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["--serve"] else main(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]))
