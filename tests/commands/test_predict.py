"""``cml predict``: labels of new items from those of the nearest training items."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import cml
from cml.cli import main
from cml.doors.run_predictions import bound_errors

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
    column = run.dataset.info.label_column
    assert [item["item_id"] for item in printed["items"]] == [str(row) for row in range(12)]
    assert not any(item["is_trained"] for item in printed["items"])
    found = [item[column] for item in printed["items"]]
    with out.open(newline="") as file:
        written = [row[column] for row in csv.DictReader(file)]
    if name == "kind":
        assert found == list(wanted)
        assert set(written) <= {"'=red", "blue"}  # no spreadsheet runs it
    else:
        np.testing.assert_allclose(found, np.array(wanted), rtol=1e-6)
        np.testing.assert_allclose([json.loads(text) for text in written], np.array(wanted), rtol=1e-5)


@pytest.mark.parametrize("name", ["age", "both", "kind"])
def test_the_error_is_that_of_test_items(name: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", str(runs / name), str(runs / f"{name} data"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    dataset = cml.open_dataset(runs / f"{name} data")
    splits = [dataset.split(role) for role in ("query", "gallery")]
    truth = {one: label for split in splits for one, label in zip(split.item_ids, split.labels, strict=True)}
    assert [item["item_id"] for item in printed["items"]] == list(truth)
    queries = set(splits[0].item_ids)
    column = dataset.info.label_column
    errors = []
    for item in printed["items"]:
        if item["item_id"] in queries:
            if name == "kind":
                errors.append(float(item[column] != truth[item["item_id"]]))
            else:
                errors.append(float(np.linalg.norm(np.subtract(item[column], truth[item["item_id"]]))))
    assert printed["error"]["items"] == len(errors)
    assert printed["error"]["mean"] == pytest.approx(np.mean(errors), abs=1e-5)
    known, wanted = dataset.split("train").labels, [truth[one] for one in splits[0].item_ids]
    if name == "kind":
        most = max(set(known), key=list(known).count)
        constant = np.mean([label != most for label in wanted])
    else:
        middle = np.mean(known, axis=0)
        constant = np.mean([np.linalg.norm(np.subtract(label, middle)) for label in wanted])
    assert printed["error"]["constant"] == pytest.approx(constant, abs=1e-5)
    assert (np.mean([item["within_90"] for item in printed["items"]]) > 0) == (name != "kind" or max(errors) > 0)


def slow_bound(errors: list[float], spreads: list[float], new: float) -> float:
    """The bound of one new item, whose spread counts among those of which the usual one is the median."""
    usual = sorted([*spreads, new])[len(spreads) // 2]
    if usual == 0:
        return sorted(errors)[int(np.ceil(0.9 * (len(errors) + 1))) - 1]
    scaled = sorted(error / (spread + usual) for error, spread in zip(errors, spreads, strict=True))
    return scaled[int(np.ceil(0.9 * (len(errors) + 1))) - 1] * (new + usual)


@pytest.mark.parametrize("count", [9, 10, 63])
@pytest.mark.parametrize("agreeing", [0.0, 0.3, 0.7], ids="{:.0%} agree".format)
def test_bounds_are_those_of_a_slow_loop(count: int, agreeing: float) -> None:
    rng = np.random.default_rng(count)
    errors, spreads = rng.random((2, count))
    new = rng.random(50)
    spreads[rng.random(count) < agreeing], new[rng.random(50) < agreeing] = 0, 0
    new[0] = np.nan
    found = bound_errors(errors, spreads, new)
    wanted = [slow_bound(errors.tolist(), spreads.tolist(), one) for one in new[1:].tolist()]
    np.testing.assert_allclose(found[1:], wanted, rtol=1e-12)
    assert np.isinf(found[0])
    assert np.isinf(bound_errors(errors[:8], spreads[:8], new)).all()


@pytest.mark.parametrize("count", [9, 20, 63, 400])
@pytest.mark.parametrize("kind", ["numbers", "of unequal spread", "four values", "mostly agreeing"])
def test_the_bound_holds_for_nine_of_ten_new_errors(count: int, kind: str) -> None:
    rng, held = np.random.default_rng(count), []
    for _ in range(1000):
        spreads = rng.exponential(size=count + 50)
        errors = rng.standard_t(3, count + 50) ** 2 * (spreads if kind == "of unequal spread" else 1)
        if kind == "four values":
            errors, spreads = np.floor(4 * np.minimum(errors, 0.99)), np.floor(spreads)
        if kind == "mostly agreeing":
            spreads[rng.random(count + 50) < 0.6] = 0
        held.append((errors[count:] <= bound_errors(errors[:count], spreads[:count], spreads[count:])).mean())
    error = np.std(held) / 1000**0.5
    assert np.mean(held) > 0.9 - 3 * error
    assert kind == "four values" or np.mean(held) < 0.9 + 1 / (count + 1) + 3 * error


def test_training_items_do_not_predict_themselves(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train = cml.open_dataset(runs / "age data").split("train")
    assert train.vectors is not None
    rows = train.vectors.read(np.arange(len(train)))
    np.save(runs / "mixed.npy", np.concatenate([rows[:20], rows[:5] + 1]))
    assert main(["predict", str(runs / "age"), str(runs / "mixed.npy"), "--k", "1", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)["items"]
    assert [item["is_trained"] for item in printed] == [True] * 20 + [False] * 5
    model = cml.load(runs / "age", device="cpu")
    embedded = model.embed(rows)
    apart = np.linalg.norm(embedded[:20, None] - embedded, axis=2)
    apart[np.arange(20), np.arange(20)] = np.inf
    wanted = np.asarray(train.labels, float)[apart.argmin(axis=1)].ravel()
    np.testing.assert_allclose([item["value"] for item in printed[:20]], wanted, rtol=1e-6)
    assert main(["predict", str(runs / "age"), str(runs / "mixed.npy")]) == 0
    said = capsys.readouterr().out
    assert said.count("  training item\n") == 20
    assert "training items, which are predicted from the others: 20 of 25" in said
    assert "test items: label distance" in said
    assert said.count("  (within ") == 5
    assert "within: for 90% of new items like the test items, the true label is at most this far off" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["new.npy", "--k", "0"], "'k' must be at least 1 and below 80"),
        (["new.npy", "--k", "80"], "below 80, the number of training items. Got 80"),
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
