"""Labels that are files: sequences in every format become the same labels, and faults name file, rule and mend."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.folder import Folder
from cml.errors import DataError, UserError
from cml.plausibility.dataset_rules import find_in_dataset
from cml.tasks import value

STEPS = [np.arange(2.0 * (4 + n % 3)).reshape(-1, 2) / 3 + n for n in range(8)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("images", "steps"):
        (tmp_path / name).mkdir()
    for number, steps in enumerate(STEPS):
        Image.new("RGB", (32, 32), (30 * number, 0, 0)).save(tmp_path / "images" / f"{number}.png")
        stem = tmp_path / "steps" / f"{number}"
        match number % 4:
            case 0:
                np.save(f"{stem}.npy", steps)
            case 1:
                np.savez(f"{stem}.npz", steps=steps)
            case 2:
                rows = [["x", "y"], *([repr(value) for value in step] for step in steps.tolist())]
                Path(f"{stem}.csv").write_text("\n".join(map(",".join, rows)) + "\n")
            case _:
                Path(f"{stem}.json").write_text(json.dumps(steps.tolist()))
    return tmp_path


def prepare(folder: Path, **options: Any) -> PreparedDataset:  # noqa: ANN401
    chosen = {"images": folder / "images", "kind": "sequence", "label_files": folder / "steps", **options}
    return cml.prepare("folder", folder / "data", **chosen)


def test_files_of_every_format_are_labels(folder: Path) -> None:
    dataset = prepare(folder)
    distance = cml.distances.get("dtw")
    labels = {item: label for role in ("train", "query") for item, label in pairs(dataset, role)}
    assert sorted(labels) == [f"{number}.png" for number in range(8)]
    read = distance.encode([labels[f"{number}.png"] for number in range(8)])
    given = distance.encode(STEPS)
    np.testing.assert_array_equal(read.arrays["steps"], given.arrays["steps"])
    assert dataset.info.details["label_distance"] == "dtw"
    turning = cml.distances.get("dtw(base=circular)")
    np.testing.assert_array_equal(
        turning.pairwise(turning.encode(list(labels.values())), turning.encode(list(labels.values()))),
        turning.pairwise(*[turning.encode([STEPS[int(name[0])] for name in labels])] * 2),
    )


def pairs(dataset: PreparedDataset, role: str) -> list[tuple[str, Any]]:
    split = dataset.split(role)
    return list(zip(split.item_ids, split.labels, strict=True))


def test_steps_that_stay_where_they_are_are_not_suspicious(folder: Path) -> None:
    for path in (folder / "steps").iterdir():
        path.unlink()
    for number in range(8):
        np.save(folder / "steps" / f"{number}.npy", np.full(6, number % 5) + 0.01234)
    dataset = prepare(folder)
    assert "repeated-labels" not in {finding.rule for finding in find_in_dataset(dataset)}
    words = value.describe(dataset.split("train").labels[0], dataset.info)
    assert re.fullmatch(r"6 steps: \d\.01\d* to \d\.01\d*", words)


def test_a_table_names_the_files(folder: Path) -> None:
    files = sorted((folder / "steps").iterdir())
    rows = [f"{number}.png,{files[number].name}" for number in range(8)]
    (folder / "labels.csv").write_text("\n".join(["file_name,sequence", *rows]))
    dataset = prepare(folder, labels=folder / "labels.csv", label_distance="frechet(band=4)")
    assert sum(dataset.info.counts.values()) == 8
    assert dataset.info.details["label_distance"] == "frechet(band=4)"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[]", r"3.json should hold one array of numbers \(T,\) or \(T, F\), T at least 1. It holds float64 of shape"),
        ("[[1, 2], [3]]", r"3.json should hold one array of numbers .*; its steps differ in length"),
        ('[["a", "b"]]', r"3.json should hold one array of numbers .* It holds list"),
        ("[[1, 2], [3, NaN]]", r"3.json holds nan at step 1 where a finite number should be; fill it in"),
        ("[[1, 2, 3]]", r"the label has 3 numbers a step, the first has 2; export all with the same columns"),
        ('{"a": 1}', r"3.json should hold one array of numbers .* It holds dict|3.json should hold one array"),
        ("[[1, 2]", r"3.json.*JSON"),
    ],
)
def test_faulty_files_are_named(folder: Path, content: str, message: str) -> None:
    (folder / "steps" / "3.json").write_text(content)
    with pytest.raises(DataError, match=message):
        prepare(folder)
    dataset = prepare(folder, skip_bad=True)
    assert sum(dataset.info.counts.values()) == 7


def test_missing_and_foreign_files_are_named(folder: Path) -> None:
    (folder / "steps" / "3.json").unlink()
    with pytest.raises(DataError, match=r"3\.png: .* should have one of 3\{\.npy,.*\}; it has none"):
        prepare(folder)
    (folder / "steps" / "3.csv").write_text("1,2\n1,red\n")
    with pytest.raises(DataError, match=r"3.csv:2: a step should be numbers. Got 'red'"):
        prepare(folder)
    np.savez(folder / "steps" / "3.npz", a=STEPS[0], b=STEPS[1])
    with pytest.raises(DataError, match=r"it has .npz and .csv"):
        prepare(folder)
    (folder / "labels.csv").write_text("file_name,sequence\n0.png,../../x.npy\n")
    with pytest.raises(DataError, match="label file"):
        prepare(folder, labels=folder / "labels.csv")
    with pytest.raises(UserError, match="label_files, a folder, and --kind sequence belong together"):
        Folder(folder / "images", kind="sequence", labels=folder / "labels.csv")


def test_steps_that_are_texts_are_numbers() -> None:
    distance = cml.distances.get("dtw")
    labels = distance.encode([["0 1", "2 3.5"], ["1 1"]])
    assert labels.arrays["steps"][0].tolist() == [[0, 1], [2, 3.5]]
    with pytest.raises(cml.distances.LabelError, match=r"Label 1 should be a sequence of numbers .* Got \['a'\]"):
        distance.encode([["0"], ["a"]])
