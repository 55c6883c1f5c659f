"""Near copies by the order of a file: named where neighbours are alike and both sides share them, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.cli import main
from cml.data.vectors import Vectors
from cml.retrieval.near_in_order import name_copies_by_features, name_copies_in_order, share_of_near_neighbors

SHORT: dict[str, Any] = {"steps": 2, "sampler": "random(batch_size=32)", "quiet": True, "device": "cpu"}


def film(seed: int, count: int = 200, width: int = 6) -> np.ndarray:
    """Frames of which each is near the one before it."""
    return np.cumsum(np.random.default_rng(seed).normal(size=(count, width)), axis=0).astype(np.float32)


def slow_share(rows: np.ndarray, is_query: np.ndarray) -> float:
    """How many queries have their nearest gallery item within 2 % of the order."""
    near = []
    for place in np.flatnonzero(is_query):
        apart = [np.linalg.norm(rows[place] - row) for row in rows]
        others = [other for other in range(len(rows)) if not is_query[other]]
        nearest = min(others, key=lambda other: apart[other])
        near.append(abs(nearest - place) <= 0.02 * len(rows))
    return float(np.mean(near))


def dealt(rows: np.ndarray, is_query: np.ndarray) -> str:
    places = np.flatnonzero(is_query), np.flatnonzero(~is_query)
    return name_copies_in_order(Vectors(rows[is_query]), Vectors(rows[~is_query]), places)


@pytest.mark.parametrize("seed", range(3))
def test_the_share_is_that_of_a_slow_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for rows in (film(seed, 120), rng.normal(size=(120, 4)).astype(np.float32)):
        is_query = rng.random(120) < 0.4
        assert share_of_near_neighbors(rows, is_query) == pytest.approx(slow_share(rows, is_query))


def test_a_film_is_named_and_a_split_in_blocks_is_not() -> None:
    for seed in range(20):
        rows = film(seed)
        assert "of the queries have their nearest item close by in the order" in name_copies_in_order(
            Vectors(rows), None
        )
        is_query = np.random.default_rng(seed).random(len(rows)) < 0.3
        assert dealt(rows, is_query)
        places = np.flatnonzero(is_query), np.flatnonzero(~is_query)
        assert name_copies_by_features(rows[is_query], rows[~is_query], places)
        assert name_copies_by_features(rows, None)
        assert not name_copies_by_features(rows[is_query], rows[~is_query])  # whose common order is not known
        assert not dealt(rows, np.arange(len(rows)) < 60)
        assert not name_copies_in_order(Vectors(rows[::2]), Vectors(rows[1::2]))  # whose common order is not known


def test_of_shuffled_data_none_is_named() -> None:
    """No false alarm in 3,000 calls, which bounds the rate at 0.1 % (95 % confidence); expected are 10^-9."""
    alarms = 0
    for seed in range(1000):
        rng = np.random.default_rng(seed)
        rows = film(seed, int(rng.integers(50, 200)), int(rng.choice([1, 3, 10])))
        rows = rng.permutation(rows) if seed % 2 else rng.lognormal(size=rows.shape).astype(np.float32)
        alarms += bool(name_copies_in_order(Vectors(rows), None))
        alarms += bool(name_copies_by_features(rows, None))
        alarms += bool(dealt(rows, rng.random(len(rows)) < 0.5))
    assert alarms == 0


def test_few_queries_and_a_constant_tell_nothing() -> None:
    rows = film(0)
    is_query = np.zeros(len(rows), bool)
    is_query[::11] = True  # 19 of them
    assert not dealt(rows, is_query)
    assert not name_copies_in_order(Vectors(np.ones((100, 3), np.float32)), None)
    gaps = rows.copy()
    gaps[::2, 0] = np.nan
    assert name_copies_in_order(Vectors(gaps, missing="mean"), None)


def test_of_many_items_a_part_is_read() -> None:
    read: list[int] = []

    class Counted(Vectors):
        def read(self, items: Any) -> Any:  # noqa: ANN401
            read.append(len(items))
            return super().read(items)

    assert name_copies_in_order(Counted(film(0, 60_000, 3)), None)
    assert sum(read) == 5000


@pytest.mark.parametrize("groups", [{}, {"group_column": "minute"}, {"group_rows": 40}], ids=["none", "column", "rows"])
def test_evaluate_and_check_say_the_same_sentence(
    groups: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, labels = film(3, 400), np.random.default_rng(0).uniform(size=400)
    lines = [
        "a,b,label,minute",
        *(f"{row[0]},{row[1]},{label},{n // 40}" for n, (row, label) in enumerate(zip(rows, labels, strict=True))),
    ]
    (tmp_path / "table.csv").write_text("\n".join(lines), "utf-8")
    options: dict[str, Any] = {"features": ("a", "b"), "label_columns": ("label",), "test_fraction": 0.6}
    data = cml.prepare("table", tmp_path / "set", source=tmp_path / "table.csv", **options, **groups)
    prepared = capsys.readouterr().err
    assert main(["check", str(tmp_path / "set")]) == 0
    checked = capsys.readouterr().out
    verdict = cml.train("value", data, tmp_path / "run", **SHORT).evaluate().verdict
    for text in (prepared, checked, verdict):
        assert ("in the order of the file" in text) is not bool(groups)
        mend = "(--group-column or --group-rows of cml prepare), so that queries are compared"
        assert (mend in text) is not bool(groups)


@pytest.mark.parametrize("rows", [4, 60])
@pytest.mark.parametrize("query_fraction", [0.3, 1.0])
def test_small_groups_of_a_film_are_named(
    rows: int, query_fraction: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frames, labels = film(3, 600), np.random.default_rng(0).uniform(size=600)
    lines = ["a,b,label", *(f"{row[0]},{row[1]},{label}" for row, label in zip(frames, labels, strict=True))]
    (tmp_path / "table.csv").write_text("\n".join(lines), "utf-8")
    options: dict[str, Any] = {"features": ("a", "b"), "label_columns": ("label",), "test_fraction": 0.6}
    options |= {"group_rows": rows, "query_fraction": query_fraction}
    data = cml.prepare("table", tmp_path / "set", source=tmp_path / "table.csv", **options)
    prepared = capsys.readouterr().err
    verdict = cml.train("value", data, tmp_path / "run", **SHORT).evaluate().verdict
    for text in (prepared, verdict):
        assert ("nearest item of another group close by in the order" in text) is (rows == 4)
        assert ("give larger groups (--group-column or --group-rows of cml prepare), so that" in text) is (rows == 4)


def test_the_share_among_other_groups_is_that_of_a_slow_loop() -> None:
    rows, groups = film(5, 90), np.arange(90) // 4
    near = []
    for place, row in enumerate(rows):
        others = [other for other in range(90) if groups[other] != groups[place]]
        nearest = min(others, key=lambda other: float(np.linalg.norm(rows[other] - row)))
        near.append(abs(nearest - place) <= 0.02 * 90)
    assert share_of_near_neighbors(rows, None, groups) == pytest.approx(np.mean(near))


def test_a_model_names_them_too() -> None:
    rows, labels = film(4, 300, 20), np.random.default_rng(0).uniform(size=300)
    model = cml.fit(rows[:150], labels[:150], **SHORT)
    found = model.evaluate(rows[150:], labels[150:])
    assert "in the order of the file" in found.verdict
    assert "in the order of the file" in found.headline
    shuffled = np.random.default_rng(1).permutation(150) + 150
    assert "in the order of the file" not in model.evaluate(rows[shuffled], labels[shuffled]).verdict
    classes = ["car", "bus", "tram"]
    sorted_names = [classes[number // 50] for number in range(150)]
    by_class = cml.fit(rows[:150], sorted_names, label_distance="classes", **SHORT)
    assert "in the order of the file" not in by_class.evaluate(rows[150:], sorted_names).verdict
