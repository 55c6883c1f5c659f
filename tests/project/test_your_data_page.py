"""Each row of the page "Your data" is a command that reads such a file."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cml.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "your_data.md"
COUNT = 12
RNG = np.random.default_rng(0)
JOINTS = RNG.uniform(8, 90, (COUNT, 4, 2)).round(1)


def list_rows() -> list[tuple[str, str, str]]:
    """What people have, the source, and the options, of each row of both tables."""
    rows: list[tuple[str, str, str]] = []
    source = ""
    for line in PAGE.read_text().splitlines():
        if (head := re.match(r"\| you have \| command, after `cml prepare (\w+) ", line)) is not None:
            source = head[1]
        elif (row := re.match(r"\| (.+) \| `([^`]+)`", line)) is not None:
            rows.append((row[1], source, row[2]))
    return rows


def test_the_page_has_its_tables() -> None:
    assert {source for _, source, _ in list_rows()} == {"folder", "table"}
    assert len(list_rows()) > 20


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page") / "IMAGES"
    folder.mkdir()
    for number in range(COUNT):
        Image.new("L", (120, 100), 9 * number).save(folder / f"{number:06d}.png")
        Image.new("L", (120, 100), 9 * number).save(folder / f"{20 + number}_0_x.jpg")
    return folder


def make_cell(column: str, number: int) -> Any:  # noqa: ANN401
    """The cell of a column, as the page calls it."""
    low = [10 + number, 12 + number]
    special: dict[str, Any] = {
        "file_name": f"{number:06d}.png", "id": number, "class": f"kind {number % 4}",
        "x": low[0], "y": low[1], "w": 20, "h": 30,
        "attributes": {"age": 20.5 + number}, "coordinates": [11.5 + number / 10, 48.2 + number / 10],
        "decimalLongitude": 11.5 + number / 10, "decimalLatitude": 48.2 + number / 10,
        "grade": ("none", "mild", "moderate", "severe")[number % 4], "age": -99 if number == 5 else 20.5 + number,
    }  # fmt: skip
    if column.startswith("gaze_"):
        return {"gaze_x": 0.6, "gaze_y": 0.0 if number % 2 else 0.8, "gaze_z": 0.8 if number % 2 else 0.0}[column]
    if column in ("v1", "v2", "v3", "v4", "v5"):
        return 1 + (number * int(column[1])) % 7
    return special.get(column, round(float(RNG.uniform(-1, 1)), 3))


def write_rows(path: Path, columns: list[str], times: int = 1) -> None:
    rows = [[make_cell(column, n) for column in columns] for _ in range(times) for n in range(COUNT)]
    if path.suffix == ".jsonl":
        path.write_text("\n".join(json.dumps(dict(zip(columns, row, strict=True))) for row in rows))
    elif path.suffix == ".xlsx":
        pd = pytest.importorskip("pandas")
        pytest.importorskip("openpyxl")
        pd.DataFrame(rows, columns=columns).to_excel(path, index=False)
    else:
        path.write_text("\n".join(",".join(map(str, row)) for row in [columns, *rows]))


def write_input(path: Path, options: list[str]) -> None:
    """Write the file that a command of the page names."""
    name = path.name
    if name in ("labels.npz", "data.npz"):
        np.savez(path, age=20.5 + np.arange(COUNT), embeddings=RNG.normal(size=(COUNT, 3)), file_name=np.array(
            [f"{n:06d}.png" for n in range(COUNT)]))  # fmt: skip
    elif name == "vectors.pt":
        import torch

        torch.save({str(n): torch.zeros(3) + n for n in range(COUNT)}, path)
    elif name == "vectors.npy":
        np.save(path, RNG.normal(size=(COUNT, 3)))
    elif path.suffix == ".ts":
        path.write_text("@data\n" + "\n".join(f"1,2,{n}:{n % 4}" for n in range(COUNT)))
    elif name == "comparisons.csv":
        rows = [f"{n:06d}.png,{(n + step) % COUNT:06d}.png,left" for n in range(COUNT) for step in (1, 2)]
        path.write_text("\n".join(["left,right,winner", *rows]))
    elif name == "coco.json":
        images = [{"id": n, "file_name": f"{n:06d}.png"} for n in range(COUNT)]
        entries = [
            {"id": n, "image_id": n, "category_id": 1, "bbox": [5, 5, 20 + n, 30], "attributes": {"age": 20.5 + n},
             "keypoints": [v for x, y in JOINTS[n].tolist() for v in (x, y, 2)]}
            for n in range(COUNT)
        ]  # fmt: skip
        kinds = [{"id": 1, "name": "mouse", "keypoints": ["nose", "tail", "l_ear", "r_ear"]}]
        path.write_text(json.dumps({"images": images, "annotations": entries, "categories": kinds}))
    elif name == "CollectedData_NAME.csv":
        parts = [part for part in ("nose", "tail", "l_ear", "r_ear") for _ in "xy"]
        head = [["scorer", *["A"] * 8], ["bodyparts", *parts], ["coords", *["x", "y"] * 4]]
        rows = [[f"{n:06d}.png", *map(str, JOINTS[n].ravel().tolist())] for n in range(COUNT)]
        path.write_text("\n".join(",".join(row) for row in [*head, *rows]))
    elif name == "joints.csv":
        head = [f"{part}_{side}" for part in ("nose", "tail", "ear", "paw") for side in "xy"]
        rows = [[f"{n:06d}.png", *map(str, JOINTS[n].ravel().tolist())] for n in range(COUNT)]
        path.write_text("\n".join(",".join(row) for row in [["file_name", *head], *rows]))
    elif name == "LABELS":
        path.mkdir()
        for n in range(COUNT):
            (path / f"{n:06d}.txt").write_text("0 0.5 0.5 0.2 0.2")
    else:
        named = options[options.index("--label-columns") + 1 :] if "--label-columns" in options else ["value"]
        ends = [place for place, option in enumerate(named) if option.startswith("--")]
        columns = [column.rpartition("=")[2].partition(".")[0] for column in named[: ends[0] if ends else None]]
        write_rows(path, list(dict.fromkeys(["file_name", "id", *columns])), 2 if "--several" in options else 1)


@pytest.mark.parametrize(("have", "source", "command"), list_rows(), ids=lambda text: str(text)[:40])
def test_a_row_of_the_page(
    have: str, source: str, command: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = shlex.split(command)
    for option in ("--labels", "--source", "--vectors"):
        if option in options:
            write_input(tmp_path / options[options.index(option) + 1], options)
    pattern = "--label-pattern" in options
    images = photos
    if pattern or source == "folder":
        images = tmp_path / "IMAGES"
        images.mkdir()
        for file in photos.glob("*.jpg" if pattern else "*.png"):
            (images / file.name).write_bytes(file.read_bytes())
    given = ["--images", str(images)] if source == "folder" else []
    assert main(["prepare", source, *given, "--out", "OUT", *options]) == 0, have
    assert (tmp_path / "OUT" / "dataset.json").is_file()
