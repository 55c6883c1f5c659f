"""Each example of the page "File formats" is read as the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cml.data.check_dataset import check_dataset
from cml.data.dataset_info import FOLDERS
from cml.data.prepared import PreparedDataset

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "formats.md"
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.+?)\n```", PAGE.read_text(), re.DOTALL)]
INFO = {"format": 1, "name": "mine", "task": "value", "label_column": "value", "label_unit": "", "frame": ""}


def write_dataset(folder: Path, details: dict[str, Any], line: dict[str, Any]) -> Path:
    """A dataset of three items like that of a line."""
    roles = ("train", "query", "gallery")
    counts = dict.fromkeys(roles, 1)
    info = {**INFO, "source": "", "licence": "", "details": details, "made_with": {}, "counts": counts}
    for role in roles:
        place = folder / FOLDERS[role]
        (place / "images").mkdir(parents=True, exist_ok=True)
        own = {**line, "item_id": f"{role} {line['item_id']}", "role": role}
        if "file_name" in own:
            own["file_name"] = f"images/{role}.png"
            Image.new("L", (8, 8), len(role)).save(place / own["file_name"])
        with (place / "metadata.jsonl").open("a") as file:
            file.write(json.dumps(own) + "\n")
    (folder / "dataset.json").write_text(json.dumps(info))
    return folder


def test_the_page_has_examples_of_each_form() -> None:
    assert ["inputs" in example for example in EXAMPLES] == [False, True, False]


@pytest.mark.parametrize("line", [example for example in EXAMPLES if "role" in example])
def test_a_line_of_metadata(line: dict[str, Any], tmp_path: Path) -> None:
    details = {"inputs": {"kind": "texts"}} if "text" in line else {}
    folder = write_dataset(tmp_path / "set", details, line)
    assert check_dataset(folder) == []
    assert PreparedDataset.open(folder).split("train").labels[0] == line["value"]


@pytest.mark.parametrize("details", [example for example in EXAMPLES if "inputs" in example])
def test_details_of_vectors(details: dict[str, Any], tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "set", details, {"item_id": "17", "value": 4.0})
    for name, count in (("train", 1), ("test", 2)):
        rows = np.ones((count, details["inputs"]["size"]), np.float32)
        rows[0, 0] = np.nan if details["inputs"]["missing"] else 0
        np.save(folder / name / "vectors.npy", rows)
    assert check_dataset(folder) == []
    assert list(PreparedDataset.open(folder).info.inputs.columns) == details["inputs"]["columns"]
