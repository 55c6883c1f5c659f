"""Texts and numbers of strangers in every place of every schema, through every command that prints.

Run: python tests/hostile/canaries.py [--most 1000]

Each text of each JSON file is replaced by one that would move a terminal, and each number by others that make no sense,
one at a time, with checksums made to fit. A finding is a control character on stdout, stderr or on a page, a traceback,
or an error that is not one line.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import itertools
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from reread_files import sign_again

import cml
from cml.cli import main as run_command

TEXT = "canary\x1b[31m\x9b2J\u202e\x07"
MOVES = set("\x1b\x9b\u202e\x07")
NUMBERS = (-7, 1e300, 7)
KEPT = "--keep-columns site --query-fraction 1"
COLUMNS = "--features a b c --label-columns y"
LITTLE = "--steps 1 --dimension 3 --workers 0 --sampler random(batch_size=20) --device cpu"
APPROXIMATE = "distances data --neighbors 3 --role all --budget 40% --out approximation"
NETWORK = "--backbone small-cnn --weights none --image-size 16 16 --device cpu"
_TOLD_EVERY = 20  # seconds
Place = tuple[str | int, ...]
COMMANDS = {
    "data/dataset.json": ("check data", "distances data --summary --out s", "evaluate run --data data --device cpu"),
    "data/train/metadata.jsonl": (
        "check data",
        "distances data --summary --out s",
        "audit run --data data --device cpu",
    ),
    "data/test/metadata.jsonl": (
        "check data",
        "evaluate run --data data --device cpu",
        "explore run --data data --device cpu --maps pca",
    ),
    "run/config.json": (
        "evaluate run --data data --device cpu",
        "search index query.npy --run run --k 2",
        "propose run pool.npy --data data --count 2",
    ),
    "run/calibration.json": (
        "search index query.npy --run run --k 2 --html page.html",
        "search index query.npy --run run --json",
    ),
    "run/evaluation.json": (
        "report run --data data --queries 2 --k 2 --device cpu",
        "export hub run --data data --out hub",
    ),
    "job/job.json": ("distances data --neighbors 3 --out job", "distances data --neighbors 3 --out job --verify"),
    "embedded/manifest.json": ("search embedded query.npy --run run --k 2",),
    "embedded/items.jsonl": ("search embedded query.npy --run run --k 2 --html page.html",),
    "run/metrics.jsonl": ("report run --data data --queries 2 --k 2 --device cpu",),
    "approximation/approximation.json": (APPROXIMATE,),
    "index/index.sqlite": (
        "search index query.npy --run run --k 160 --html page.html",
        "search index query.npy --run run --k 160 --json",
        "index run data --out index --add --prefix b --device cpu",
    ),
    "rows.csv": (f"prepare table --source rows.csv {COLUMNS} --out new", "prepare table --source rows.csv --out new"),
    "pairs.csv": ("prepare judgements --vectors pool.npy --pairs pairs.csv --out new",),
    "store/manifest.json": (f"train value --data pictures --features store --out r {LITTLE}",),
    "store/items.jsonl": (f"train value --data pictures --features store --out r {LITTLE}",),
    "graded/queries.jsonl": ("evaluate graded_run", "explore graded_run --maps pca"),
    "graded/corpus.jsonl": ("evaluate graded_run", "index graded_run --out i"),
    "graded/search.json": ("evaluate graded_run",),
    "graded_run/search_data.json": ("evaluate graded_run", "explore graded_run --maps pca"),
    "graded_run/config.json": ("evaluate graded_run",),
}


def make_world(root: Path) -> None:
    """A dataset of vectors, a run on it and what is made of that, in the working directory."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(160, 3)).round(3)
    lines = ["a,b,c,y,site", *(f"{a},{b},{c},{a + b:.3f},north" for a, b, c in rows.tolist())]
    (root / "rows.csv").write_text("\n".join(lines))
    np.save(root / "query.npy", rows[:2].astype(np.float32))
    np.save(root / "pool.npy", (rows[:9] + 1).astype(np.float32))
    (root / "pairs.csv").write_text(
        "item,other,distance\n" + "".join(f"{i},{j},{j - i}\n" for i in range(9) for j in range(i + 1, 9))
    )
    (root / "images").mkdir()
    for number in range(30):
        Image.new("RGB", (16, 16), (8 * number, 90, 9)).save(root / f"images/{number}.png")
    (root / "images.csv").write_text("file_name,y\n" + "".join(f"{number}.png,{number}\n" for number in range(30)))
    vectors = {f"{kind}{number}": rows[number].astype(np.float32) for kind in "qd" for number in range(40)}
    queries, documents = ({name: row for name, row in vectors.items() if name[0] == kind} for kind in "qd")
    pairs = [(f"q{i}", f"d{j}", (i * j) % 4) for i in range(40) for j in range(0, 40, 3)]
    grades = cml.Grades(*zip(*pairs, strict=True))
    cml.SearchFolder.write(root / "graded", queries, documents, {"train": grades, "test": grades})
    train = "train value --data data --out run --steps 2 --dimension 3 --workers 0 --sampler random(batch_size=20)"
    for command in (
        f"prepare table --source rows.csv --features a b c --label-columns y {KEPT} --out data",
        f"{train} --device cpu",
        APPROXIMATE,
        "prepare folder --images images --labels images.csv --label-columns y --out pictures",
        f"features --data pictures {NETWORK} --out store",
        "train grades --data graded --out graded_run --steps 2 --dimension 3",
        "evaluate graded_run",
        "evaluate run --data data --device cpu",
        "calibrate run --device cpu",
        "predict run data --out labels.csv --device cpu",
        "index run data --out index --device cpu",
        "embed run --images data --out embedded --device cpu",
        "distances data --neighbors 3 --out job",
    ):
        code, printed, _ = run_quietly(command)
        assert code == 0, (command, printed)


def run_quietly(command: str) -> tuple[int, str, str]:
    """Run a command in this process: its exit code, what it printed, and a traceback or ""."""
    out, fault, code = io.StringIO(), "", -1
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), warnings.catch_warnings(action="ignore"):
        try:
            code = run_command(command.split())
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            fault = traceback.format_exc()
    return code, out.getvalue(), fault


def leaves(tree: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:  # noqa: ANN401 - any JSON
    """All texts and numbers of a tree; of a list the first and last entries alone."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from leaves(value, (*place, name))
    elif isinstance(tree, list):
        for number in sorted({0, len(tree) - 1}) if tree else ():
            yield from leaves(tree[number], (*place, number))
    elif isinstance(tree, str | int | float) and not isinstance(tree, bool):
        yield place, tree


def put(tree: Any, place: Place, value: object) -> Any:  # noqa: ANN401 - any JSON
    """The tree with another value at a place."""
    changed = copy.deepcopy(tree)
    inner = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


def inputs(path: Path) -> Iterator[tuple[str, bytes]]:
    """What a file is changed to, one value at a time, with the name of the place."""
    if path.suffix in (".sqlite", ".csv"):
        yield from (_cells_of_index if path.suffix == ".sqlite" else _cells_of_table)(path)
        return
    head, newline, rest = (
        path.read_bytes().partition(b"\n") if path.suffix == ".jsonl" else (path.read_bytes(), b"", b"")
    )
    tree = json.loads(head)
    for place, value in leaves(tree):
        for other in [TEXT] if isinstance(value, str) else NUMBERS:
            changed = json.dumps(put(tree, place, other)).encode()
            yield f"{'.'.join(map(str, place))}={other!r:.20}", changed + newline + rest


def _cells_of_table(path: Path) -> Iterator[tuple[str, bytes]]:
    """The names of columns and the cells of the first two rows."""
    lines = [line.split(",") for line in path.read_text("utf-8").splitlines()]
    for row, column in itertools.product(range(3), range(len(lines[0]))):
        for other in (TEXT, *NUMBERS):
            changed = [line.copy() for line in lines]
            changed[row][column] = str(other)
            yield f"{row}.{column}={other!r:.20}", "\n".join(map(",".join, changed)).encode()


def _cells_of_index(path: Path) -> Iterator[tuple[str, bytes]]:
    """The texts of what an index says of itself, and the cells of an item."""
    with closing(sqlite3.connect(path)) as db:
        about = [name for (name,) in db.execute("SELECT name FROM about")]
    places = [(f"about.{name}", "UPDATE about SET value = ? WHERE name = ?", [name]) for name in about]
    places += [
        (name, f"UPDATE items SET {name} = ? WHERE row = 5", []) for name in ("id", "label", "path", "columns", "added")
    ]
    for (where, change, rest), other in itertools.product(
        places, (TEXT, json.dumps(TEXT), json.dumps({TEXT: TEXT}), *NUMBERS)
    ):
        copy = path.with_name("copy")
        shutil.copy(path, copy)
        with closing(sqlite3.connect(copy)) as db, db:
            db.execute(change, [other, *rest])
        yield f"{where}={other!r:.20}", copy.read_bytes()
        copy.unlink()


def find_faults(root: Path, most: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Change one value after the other and run the commands; for each what came of it, and the finding or ""."""
    sound = root / "sound"
    sound.mkdir()
    with contextlib.chdir(sound):
        make_world(sound)
    for name, commands in COMMANDS.items():
        changes = list(inputs(sound / name))
        random.Random(f"{seed} {name}").shuffle(changes)
        for where, content in changes[:most]:
            place = root / "changed"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(sound, place)
            (place / name).write_bytes(content)
            sign_again((place / name).parent)
            for command in commands:
                with contextlib.chdir(place):
                    code, printed, fault = run_quietly(command.replace(str(sound), str(place)))
                pages = [page.read_text("utf-8", "replace") for page in place.rglob("*.html")]
                finding = fault
                if any(MOVES & set(text) for text in (printed, *pages)):
                    finding = "a control character"
                elif code == 2 and len([line for line in printed.splitlines() if line.startswith("error: ")]) != 1:
                    finding = f"no single line: {printed[-200:]!r}"
                elif code not in (0, 1, 2):
                    finding = fault or f"exit code {code}: {printed[-200:]!r}"
                told = f"{'text' if 'canary' in where else 'number'}, {'taken' if code == 0 else 'refused'}"
                yield told, finding and f"{name} {where}: {command}: {finding}"


def main() -> int:
    """Count what came of all canaries, and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1000, help="values of a file")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        os.environ["CML_CACHE"] = str(Path(name, "cache"))
        outcomes: list[tuple[str, str]] = []
        begun = time.monotonic()
        for outcome in find_faults(Path(name), options.most, options.seed):
            outcomes.append(outcome)
            if outcome[1]:
                print(outcome[1], flush=True)
            if time.monotonic() - begun > _TOLD_EVERY:
                found = sum(bool(finding) for _, finding in outcomes)
                print(f"{len(outcomes):,} calls, {found} findings", flush=True)
                begun = time.monotonic()
    found = sum(bool(finding) for _, finding in outcomes)
    print(dict(Counter(told for told, _ in outcomes)), f"{found} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
