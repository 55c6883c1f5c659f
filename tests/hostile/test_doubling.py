"""Twice as much takes no more than three times as long: rows, columns, ids, labels, queries, shards."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.data_prep.row_files import read_rows
from cml.data_prep.sources.table import Table
from cml.storage.json_file import parse_json

pytestmark = pytest.mark.slow


def _rows(count: int, folder: Path) -> Callable[[], object]:
    (folder / "t.csv").write_text("a,b,y\n" + "1,2,3\n" * count)
    return lambda: list(read_rows(folder / "t.csv"))


def _columns(count: int, folder: Path) -> Callable[[], object]:
    names = ",".join(f"c{number}" for number in range(count))
    (folder / "t.csv").write_text(f"{names},y\n" + ("1," * count + "2\n") * 3)
    return lambda: list(Table(folder / "t.csv", features=("c*",), label_columns=("y",)).read_inputs())


def _label_columns(count: int, folder: Path) -> Callable[[], object]:
    names = [f"c{number}" for number in range(count)]
    (folder / "t.csv").write_text(f"{','.join(names)},y\n" + ("1," * count + "2\n") * 3)
    return lambda: list(Table(folder / "t.csv", features=("y",), label_columns=tuple(names)).read_inputs())


def _keys(count: int, folder: Path) -> Callable[[], object]:
    text = ("{" + ",".join(f'"k{number}": 1' for number in range(count)) + ', "k1": 2}').encode()

    def parse() -> None:
        with pytest.raises(ValueError, match="twice"):
            parse_json(text)

    return parse


def _ids(count: int, folder: Path) -> Callable[[], object]:
    index = cml.Index.create(folder / "index", dimension=2, digest="m")
    rows = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32)
    numbers = iter(range(9))

    def add() -> None:
        first = next(numbers) * count
        index.add(rows, ids=range(first, first + count))
        index.remove(range(first, first + count))

    return add


def _queries(count: int, folder: Path) -> Callable[[], object]:
    index = cml.Index.create(folder / "index", dimension=2, digest="m")
    index.add(np.random.default_rng(0).normal(size=(500, 2)).astype(np.float32), ids=range(500))
    queries = np.random.default_rng(1).normal(size=(count, 2)).astype(np.float32)
    return lambda: index.search(queries, k=5)


def _judgements(count: int, folder: Path) -> Callable[[], object]:
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, count, count), count + np.arange(count), rng.uniform(size=count)], axis=1)
    return lambda: cml.PairJudgements(rows, items=2 * count)


def _labels(count: int, folder: Path) -> Callable[[], object]:
    labels = [f"class {number % (count // 2)}" for number in range(count)]
    return lambda: cml.distances.get("classes").encode(labels)


CASES: dict[Callable[[int, Path], Callable[[], object]], int] = {
    _rows: 30_000,
    _columns: 20_000,
    _label_columns: 20_000,
    _keys: 50_000,
    _ids: 3_000,
    _queries: 2_000,
    _judgements: 10_000,
    _labels: 50_000,
}


@pytest.mark.parametrize("make", CASES, ids=lambda make: make.__name__)
def test_twice_as_much_takes_less_than_three_times_as_long(make: Any, tmp_path: Path) -> None:  # noqa: ANN401
    seconds: list[list[float]] = [[], []]
    calls = []
    for factor in (1, 2):
        (tmp_path / str(factor)).mkdir()
        calls.append(make(factor * CASES[make], tmp_path / str(factor)))
    for _ in range(5):
        for call, taken in zip(calls, seconds, strict=True):
            began = time.process_time()
            call()
            taken.append(time.process_time() - began)
    once, twice = map(min, seconds)
    assert twice < 3 * once + 0.02
