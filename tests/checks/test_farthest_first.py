"""Farthest-first traversal against its definition, and what a run proposes to label next."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import cml
from cml.checks.proposals import choose_farthest
from cml.cli import main
from cml.errors import UserError


def choose_slowly(pool: np.ndarray, known: np.ndarray, count: int) -> list[int]:
    chosen: list[int] = []
    for _ in range(count):
        there = np.concatenate([known, pool[chosen]])
        away = [
            -1.0 if item in chosen else np.linalg.norm(there - pool[item], axis=1).min() for item in range(len(pool))
        ]
        chosen.append(int(np.argmax(away)))
    return chosen


@pytest.mark.parametrize("count", [1, 7, 40])
def test_the_choice_is_that_of_the_definition(count: int) -> None:
    rng = np.random.default_rng(0)
    pool, known = rng.normal(size=(40, 3)).astype(np.float32), rng.normal(size=(9, 3)).astype(np.float32)
    pool[5] = pool[6]
    chosen = choose_farthest(pool, known, count)
    assert chosen.items.tolist() == choose_slowly(pool, known, count)
    assert (np.diff(chosen.distances) <= 0).all()
    assert chosen.distances[0] == pytest.approx(np.linalg.norm(known - pool[chosen.items[0]], axis=1).min(), rel=1e-6)


def test_every_item_is_chosen_once_where_all_are_alike() -> None:
    alike = np.ones((5, 2), np.float32)
    assert sorted(choose_farthest(alike, 2 * alike, 5).items.tolist()) == [0, 1, 2, 3, 4]
    assert len(choose_farthest(alike, alike, 1).items) == 0


def test_what_cannot_be_chosen_is_one_line() -> None:
    pool = np.ones((3, 2), np.float32)
    for count in (0, 4):
        with pytest.raises(UserError, match=f"must be from 1 to the 3 items of the pool. Got {count}"):
            choose_farthest(pool, pool, count)
    with pytest.raises(UserError, match="Choose the first items to label at random"):
        choose_farthest(pool, pool[:0], 1)
    with pytest.raises(UserError):
        choose_farthest(pool, np.full((1, 2), np.nan, np.float32), 1)


def test_a_model_proposes_what_no_label_covers() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(100, 4))
    model = cml.fit(rows, rows[:, 0], steps=2, sampler="random(batch_size=50)", quiet=True)
    pool = np.concatenate([rows[:10], rows[:2] + 20])
    assert sorted(model.propose(pool, 2, labelled=rows).tolist()) == [10, 11]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("greys")
    (folder / "images").mkdir()
    lines = ["file_name,value"]
    for number in range(40):
        Image.new("RGB", (24, 24), (100 + number, 100, 100)).save(folder / "images" / f"{number}.png")
        lines.append(f"{number}.png,{number}")
    (folder / "labels.csv").write_text("\n".join(lines))
    dataset = cml.prepare("folder", folder / "data", images=folder / "images", labels=folder / "labels.csv")
    options = {"backbone": "small-cnn", "weights": "none", "image_size": (64, 64), "steps": 2, "workers": 0}
    cml.train("value", dataset, folder / "run", sampler="random(batch_size=16)", quiet=True, **options)
    return folder / "run"


def test_a_run_proposes_images_of_a_folder(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = tmp_path / "pool"
    (pool / "more").mkdir(parents=True)
    for number in range(6):
        Image.new("RGB", (24, 24), (110 + number, 80, 100)).save(pool / f"{number}.png")
    Image.new("RGB", (24, 24), (0, 250, 0)).save(pool / "more" / "green.png")
    assert main(["propose", str(run), str(pool), "--count", "3", "--out", str(tmp_path / "next.csv")]) == 0
    assert "more/green.png" in capsys.readouterr().out
    with (tmp_path / "next.csv").open(encoding="utf-8", newline="") as file:
        listed = list(csv.DictReader(file))
    assert [line["rank"] for line in listed] == ["1", "2", "3"]
    assert listed[0]["item_id"] == "more/green.png"
    assert main(["propose", str(run), str(pool), "--count", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["items"] == ["more/green.png"]
    assert main(["propose", str(run), str(pool), "--count", "9"]) == 2
    assert "must be from 1 to the 7 items of the pool. Got 9" in capsys.readouterr().err
    assert main(["propose", str(run), str(tmp_path / "none")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_pool_of_vectors_is_no_pool_of_images(run: Path, tmp_path: Path) -> None:
    cml.prepare("diabetes", tmp_path / "diabetes")
    with pytest.raises(UserError, match=r"The model takes images, but .* holds"):
        cml.open_run(run).propose(tmp_path / "diabetes", 3)
