"""Published sets whose labels are numbers, angles, rotations and places: real files where a package has them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cml.data.prepared import PreparedDataset, check_dataset
from cml.data_prep.elpv import Elpv
from cml.errors import DataError


def picture(path: Path, seed: int = 0, mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (20, 20, 3) if mode == "RGB" else (20, 20)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, shape, np.uint8)).save(path)


def lines_of(dataset: PreparedDataset) -> dict[str, dict[str, object]]:
    """The items as metadata.jsonl has them, by their ids."""
    texts = [path.read_text().splitlines() for path in sorted(dataset.folder.glob("*/metadata.jsonl"))]
    return {item["item_id"]: item for text in texts for item in map(json.loads, text)}


def roles_of(dataset: PreparedDataset) -> dict[str, str]:
    return {item: role for role in dataset.info.roles for item in dataset.split(role).item_ids}


# ---- elpv


def elpv(folder: Path, lines: str) -> Path:
    for number in range(1, 13):
        picture(folder / f"images/cell{number:04}.png", number, "L")
    (folder / "labels.csv").write_text(lines)
    return folder


CELLS = "".join(f"images/cell{n:04}.png  {(n % 4) / 3}  {'mono' if n % 2 else 'poly'}\n" for n in range(1, 13))


def test_solar_cells_as_the_package_has_them(tmp_path: Path) -> None:
    pytest.importorskip("elpv_dataset")
    source = Elpv()
    listed = list(source._listed(source._files()[0]))
    assert len(listed) == 2624
    assert {round(3 * one.label) for one in listed} == {0, 1, 2, 3}  # type: ignore[union-attr]


def test_solar_cells_are_split_by_a_hash_of_their_names(tmp_path: Path) -> None:
    dataset = Elpv(elpv(tmp_path / "raw", CELLS), test_share=0.5).prepare(tmp_path / "out")
    items = lines_of(dataset)
    assert items["images/cell0001.png"]["value"] == pytest.approx(1 / 3)
    assert items["images/cell0001.png"]["cell"] == "mono"
    assert dataset.info.queries_are_gallery
    assert set(roles_of(dataset).values()) == {"train", "query"}
    assert check_dataset(dataset.folder) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("images/cell0001.png  1.5  mono", "labels.csv:1: the probability should be from 0 to 1. Got 1.5"),
        ("images/cell0001.png  nan  mono", "labels.csv:1: the probability should be a finite number. Got 'nan'"),
        ("images/cell0001.png  1.0", "labels.csv:1: should be a path, a probability and mono or poly"),
        ("images/cell9999.png  1.0  poly", "cell9999.png is missing"),
        ("../cell0001.png  1.0  poly", "labels.csv:1: the image '../cell0001.png'"),
    ],
)
def test_solar_cells_that_are_listed_wrongly(tmp_path: Path, line: str, said: str) -> None:
    raw = elpv(tmp_path / "raw", f"{line}\n{CELLS.partition(chr(10))[2]}")
    with pytest.raises(DataError, match=said):
        Elpv(raw, test_share=0.5).prepare(tmp_path / "out")
    dataset = Elpv(raw, test_share=0.5).prepare(tmp_path / "out", skip_bad=True)
    assert sum(dataset.info.counts.values()) == 11
