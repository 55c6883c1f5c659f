"""Results of the benchmark by mutation, checked and shown: ``python tests/hostile/hostile_results.py``.

Every input is a published result of which an entry or bytes of its ranks were changed. A finding is anything but
agreement or a ``UserError`` of one line, and a check that takes long or much memory. Not for: which changes must be
refused (tests/bench/test_doctored_results.py).
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cml.bench.check_result import check_result
from cml.bench.leaderboard import write_leaderboard
from cml.bench.result import config_digest
from cml.bench.table import read_board
from cml.errors import UserError

SOURCE = Path(__file__).parents[2] / "results" / "2026.1" / "digits" / "A-efficientnet-lite0"
METHODS = ("cosent", "h-ap", "sum", "log-ratio", "oracle", "random", "label-mds")
SECONDS, BYTES = 10.0, 1 << 29  # the longest check, and the most memory of one
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1e308, 2**62, 1.5, -0.0, [], {}, [[]], [None], [1] * 50, {"a": 1}),
    *("", "x" * 3000, "../../x", "\x00\n", "nan", "(((", "timm/resnet18", "efficientnet-lite0(x=1)"),
    *("sum(log-ratio, 0.3*cosent)", "2026.1-quick"),
)


def _copy_source(folder: Path) -> Path:
    shutil.copytree(SOURCE, folder / "2026.1" / "digits" / SOURCE.name)
    return folder


def _entries(value: object, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each entry; of a list, its first three."""
    if keys:
        yield keys
    inner = value.items() if isinstance(value, dict) else enumerate(value[:3]) if isinstance(value, list) else ()
    for key, child in inner:
        yield from _entries(child, (*keys, key))


def _change_record(record: dict[str, Any], rng: random.Random) -> str:
    keys = rng.choice(list(_entries(record)))
    inner: Any = record
    for key in keys[:-1]:
        inner = inner[key]
    old = inner[keys[-1]]
    draw = rng.random()
    if draw < 0.2:
        del inner[keys[-1]]
        return f"without {keys}"
    is_number = isinstance(old, int | float) and not isinstance(old, bool)
    inner[keys[-1]] = old * rng.choice([-1, 0, 2, 1.01]) if is_number and draw < 0.5 else rng.choice(VALUES)
    return f"{keys} = {str(inner[keys[-1]])[:60]!a}"


def _change_bytes(content: bytes, rng: random.Random) -> bytes:
    raw = bytearray(content)
    for _ in range(rng.choice([1, 3, 20])):
        at = rng.choice([rng.randrange(len(raw)), rng.randrange(60), len(raw) - 1 - rng.randrange(250)])
        raw[at] = rng.randrange(256)
    return bytes(raw[: rng.randrange(len(raw))] if rng.random() < 0.2 else raw)


def make_input(folder: Path, rng: random.Random) -> tuple[Path, str]:
    """Write a result and change it.

    Args:
        folder: Folder of results.
        rng: What is drawn from.

    Returns:
        The file of the result, and what was changed.
    """
    path = folder / "2026.1" / "digits" / SOURCE.name / f"{rng.choice(METHODS)}.json"
    path.parent.mkdir(parents=True)
    for source in SOURCE.glob(f"{path.stem}.*"):
        shutil.copyfile(source, path.with_name(source.name))
    record = json.loads(path.read_text("utf-8"))
    ranks = path.with_suffix(".npz")
    if ranks.exists() and rng.random() < 0.3:
        ranks.write_bytes(_change_bytes(ranks.read_bytes(), rng))
        record["ranks_sha256"] = hashlib.sha256(ranks.read_bytes()).hexdigest()
        change = "bytes of the ranks"
    else:
        change = "; ".join(_change_record(record, rng) for _ in range(rng.choice([1, 1, 2])))
        if isinstance(record.get("config"), dict) and rng.random() < 0.8:
            record["config_sha256"] = config_digest(record["config"])
    path.write_text(json.dumps(record), "utf-8")
    return path, f"{path.stem}: {change}"


def _show(folder: Path) -> None:
    board = read_board(folder, checks=True)
    str(board)
    board.to_json()
    write_leaderboard(folder, folder.parent / "board.html")
    for call in (board.trials, lambda: board.against("cosent")):
        try:
            call()
        except UserError:
            continue


def _find_fault(call: Callable[[], object]) -> str:
    """What is wrong with a call, or ""."""
    began = time.process_time()  # whatever else the machine does
    tracemalloc.start()
    try:
        call()
    except UserError as error:
        if "\n" in str(error):
            return f"more than one line: {error}"
    except Exception:
        return traceback.format_exc(limit=-3)
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    seconds = time.process_time() - began
    if most > BYTES or seconds > SECONDS:
        return f"{most:,} bytes, {seconds:.1f} s"
    return ""


def series(inputs: int, seed: int, report: Callable[[str], object] = print) -> dict[str, list[str]]:
    """Try inputs.

    Args:
        inputs: Their number.
        seed: Random seed.
        report: What is called with each finding.

    Returns:
        What went wrong, by what was done: "check" or "show".
    """
    found: dict[str, list[str]] = collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="cml-results-") as root:
        check_result(SOURCE / "oracle.json")  # prepares the set, and imports what shows it
        _show(_copy_source(Path(root) / "sound" / "results"))
        for number in range(inputs):
            folder = Path(root) / str(number) / "results"
            path, change = make_input(folder, random.Random(f"{seed} {number}"))
            for what, call in (("check", lambda: check_result(path)), ("show", lambda: _show(folder))):  # noqa: B023
                fault = _find_fault(call)
                if fault:
                    found[what].append(f"{number}: {change}: {fault}")
                    report(f"{what} {found[what][-1]}")
            shutil.rmtree(folder.parent)
    return dict(found)


def main() -> None:
    """Run the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=1300)
    options.add_argument("--seed", type=int, default=0)
    chosen = options.parse_args()
    began = time.monotonic()
    found = series(chosen.inputs, chosen.seed)
    counts = ", ".join(f"{len(found.get(what, ()))} in {what}" for what in ("check", "show"))
    print(f"{chosen.inputs} inputs in {time.monotonic() - began:.0f} s, findings: {counts}")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
