"""``cml predict``: labels of new items from those of the nearest training items."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import cml
from cml.cli import main

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(100, 4)).round(3)
TABLE = {"features": ("a", "b", "c", "d"), "split_column": "split"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of numbers, two numbers and classes."""
    folder = tmp_path_factory.mktemp("predict")
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "d", "age", "width", "kind", "split"])
        for item, row in enumerate(ROWS):
            kind = "=red" if row[0] > 0 else "blue"
            writer.writerow([*row, row[0], row[1], kind, "test" if item >= 80 else "train"])
    columns = {"age": ("age",), "both": ("age", "width"), "kind": ("kind",)}
    for name, labels in columns.items():
        kind = "classes" if name == "kind" else "numbers"
        data = cml.prepare(
            "table", folder / f"{name} data", source=folder / "table.csv", label_columns=labels, kind=kind, **TABLE
        )
        task = data.info.task
        cml.train(task, data, folder / name, sampler="random(batch_size=16)", dimension=4, steps=20, quiet=True)
    np.save(folder / "new.npy", RNG.normal(size=(12, 4)).astype(np.float32))
    return folder


@pytest.mark.parametrize("name", ["age", "both", "kind"])
def test_labels_are_those_that_the_model_predicts(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "labels.csv"
    assert main(["predict", str(runs / name), str(runs / "new.npy"), "--k", "3", "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    run = cml.open_run(runs / name, device="cpu")
    train = run.dataset.split("train")
    wanted = run.model.predict(np.load(runs / "new.npy"), train.inputs, train.labels, k=3)
    (column,) = {"item_id", run.dataset.info.label_column} - {"item_id"}
    assert [item["item_id"] for item in printed["items"]] == [str(row) for row in range(12)]
    found = [item[column] for item in printed["items"]]
    with out.open(newline="") as file:
        written = [row[column] for row in csv.DictReader(file)]
    if name == "kind":
        assert found == list(wanted)
        assert set(written) <= {"'=red", "blue"}  # no spreadsheet runs it
    else:
        np.testing.assert_allclose(found, np.array(wanted), rtol=1e-6)
        np.testing.assert_allclose([json.loads(text) for text in written], np.array(wanted), rtol=1e-5)


def test_the_error_is_measured_where_labels_can_be_averaged(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("age", "kind"):
        assert main(["predict", str(runs / name), str(runs / "new.npy")]) == 0
        said = capsys.readouterr().out
        assert said.count("\n") == 13 + (name == "age")
        assert ("--protocol regression" in said) == (name == "age")
    assert main(["predict", str(runs / "age"), str(runs / "age data")]) == 0  # of which the test items are taken
    assert capsys.readouterr().out.count("\n") == 22


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["new.npy", "--k", "0"], "'k' must be at least 1 and at most 80"),
        (["new.npy", "--k", "81"], "at most 80, the number of training items. Got 81"),
        (["table.csv"], "is not a folder"),
        (["age"], "The model takes 4 numbers"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(
    arguments: list[str], said: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(runs / "age"), str(runs / arguments[0]), *arguments[1:]]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
