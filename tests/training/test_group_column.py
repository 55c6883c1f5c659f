"""The column of groups of a prepared dataset: what validation and tune hold out together."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.items import LabelledItems
from cml.tuning import heads
from cml.tuning.splits import make_splits

SHORT: dict[str, Any] = {"sampler": "random(batch_size=16)", "dimension": 4, "steps": 2, "quiet": True}
COUNT = 120


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of vectors of ten sites, twelve of each."""
    folder = tmp_path_factory.mktemp("sites")
    rows = np.random.default_rng(0).normal(size=(COUNT, 3)).round(3)
    with (folder / "table.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "age", "split", "site", "number"])
        for item, row in enumerate(rows):
            writer.writerow([*row, row[0], "test" if item >= 110 else "train", f"site {item % 10}", item % 4])
    return folder / "table.csv"


OF_TABLE: dict[str, Any] = {"features": ("a", "b", "c"), "label_columns": ("age",), "split_column": "split"}


@pytest.fixture(scope="module")
def dataset(table: Path) -> PreparedDataset:
    """The dataset of the table, with two columns of groups."""
    return cml.prepare("table", table.with_name("set"), source=table, **OF_TABLE, keep_columns=("site", "number"))


@pytest.fixture(scope="module")
def grouped(table: Path) -> PreparedDataset:
    """The dataset of the table, prepared with its sites as groups."""
    return cml.prepare("table", table.with_name("grouped"), source=table, **OF_TABLE, group_column="site")


def test_training_takes_the_groups_of_the_dataset(
    grouped: PreparedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert grouped.info.group_column == "site"
    assert grouped.read_groups("train", "site") == [f"site {item % 10}" for item in range(110)]
    data = ["--data", str(grouped.folder), "--device", "cpu", "--steps", "2", "--sampler", "random(batch_size=16)"]
    assert main(["train", "value", *data, "--out", str(tmp_path / "run"), "--evaluate-every", "1"]) == 0
    said = capsys.readouterr().err
    assert "Groups: the column 'site', by which the dataset was split." in said
    assert "group_column=none turns this off." in said
    assert "validation holds out 11 of 110 items: whole groups." in said
    run = cml.open_run(tmp_path / "run")
    assert run.config.train.group_column == "site"
    assert run.queries.groups is not None

    assert main(["train", "value", *data, "--out", str(tmp_path / "none"), "--group-column", "none"]) == 0
    assert "Groups:" not in capsys.readouterr().err
    assert cml.open_run(tmp_path / "none").queries.groups is None


def test_comparisons_take_the_groups_of_the_dataset(
    grouped: PreparedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = {name: value for name, value in SHORT.items() if name != "quiet"}
    for _ in range(2):  # the second finds the runs of the first
        cml.compare("value", grouped, tmp_path / "runs", losses=["log-ratio"], seeds=1, device="cpu", **short)
        assert capsys.readouterr().err.count("Groups: the column 'site'") == 1
    (path,) = tmp_path.glob("runs/**/config.json")
    assert cml.open_run(path.parent).config.train.group_column == "site"


def test_a_group_column_whose_name_is_taken_is_kept_by_another(table: Path, tmp_path: Path) -> None:
    text = table.read_text().replace("split,site,", "split,role,", 1)
    (tmp_path / "table.csv").write_text(text)
    dataset = cml.prepare(
        "table",
        tmp_path / "set",
        source=tmp_path / "table.csv",
        **OF_TABLE,
        group_column="role",
        keep_columns=("number",),
    )
    assert dataset.info.group_column == "group"
    assert dataset.read_groups("train", "group") == [f"site {item % 10}" for item in range(110)]
    assert next(dataset.read_further("train")) == {"number": 0.0, "group": "site 0"}


def test_groups_are_read_in_the_order_of_the_items(dataset: PreparedDataset) -> None:
    assert dataset.read_groups("train", "site") == [f"site {item % 10}" for item in range(110)]
    assert dataset.read_groups("train", "number")[:5] == ["0.0", "1.0", "2.0", "3.0", "0.0"]


def test_tune_holds_out_whole_groups(
    dataset: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(heads, "STOPS", (2,))
    seen: list[Any] = []

    def note_splits(features: Any, groups: Any = None, *others: Any, **named: Any) -> Any:  # noqa: ANN401 - passed on
        seen.append(groups)
        return make_splits(features, groups, *others, **named)

    monkeypatch.setattr("cml.tuning.tune.make_splits", note_splits)
    data = ["--data", str(dataset.folder), "--out", str(tmp_path / "run")]
    assert main(["train", "value", *data, "--tune", "--group-column", "site"]) == 0
    assert "4 splits held out whole groups" in capsys.readouterr().err
    np.testing.assert_array_equal(seen[0], np.arange(110) % 10)
    assert cml.open_run(tmp_path / "run").config.train.group_column == "site"


def test_validation_holds_out_whole_groups(
    dataset: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out: list[Any] = []
    split = LabelledItems.split

    def note_groups(self: LabelledItems, rule: Any) -> Any:  # noqa: ANN401 - passed on
        parts = split(self, rule)
        held_out.append([set(part.groups.tolist()) for part in parts if part.groups is not None])
        return parts

    monkeypatch.setattr(LabelledItems, "split", note_groups)
    cml.train("value", dataset, tmp_path / "run", group_column="site", evaluate_every=1, **SHORT)
    trained, validated = held_out[-1]
    assert trained | validated == set(range(10))
    assert not trained & validated


@pytest.mark.parametrize("options", [{"tune": True}, SHORT], ids=["tune", "nothing is held out"])
def test_a_column_that_is_not_there_is_one_line(
    options: dict[str, Any], dataset: PreparedDataset, tmp_path: Path
) -> None:
    said = r"metadata\.jsonl:1: there is no column 'sites' of groups.*'site'"
    with pytest.raises(UserError, match=said) as error:
        cml.train("value", dataset, tmp_path / "run", group_column="sites", **options)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("group", ["null", "[1, 2]", '""'])
def test_a_group_is_named(group: str, dataset: PreparedDataset, tmp_path: Path) -> None:
    copy = tmp_path / "set"
    for path in dataset.folder.rglob("*"):
        if path.is_file():
            (copy / path.relative_to(dataset.folder)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(dataset.folder)).write_bytes(path.read_bytes())
    metadata = copy / "train" / "metadata.jsonl"
    metadata.write_text(metadata.read_text().replace('"site": "site 3"', f'"site": {group}'))
    with pytest.raises(UserError, match=r"metadata\.jsonl:4: site should name the item's group. Got"):
        cml.open_dataset(copy).read_groups("train", "site")


def test_fit_takes_the_groups_themselves() -> None:
    rows = np.random.default_rng(0).normal(size=(40, 3))
    with pytest.raises(UserError, match=r"give cml\.fit the groups themselves"):
        cml.fit(rows, rows[:, 0], group_column="site", evaluate_every=1, **SHORT)


def test_items_that_were_trained_on_are_marked(
    dataset: PreparedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cml.train("value", dataset, tmp_path / "run", **SHORT)
    index = cml.index(tmp_path / "run", dataset.folder, tmp_path / "index", quiet=True)
    known = set(dataset.split("train").item_ids)
    hits = index.search(np.zeros((1, 4), np.float32), 120)[0]
    assert {hit.item_id for hit in hits if hit.is_trained} == known
    assert len(hits) == COUNT
    assert {hit.columns.get("trained on", "no") for hit in hits} == {"yes", "no"}
    vectors = dataset.folder / "test" / "vectors.npy"
    capsys.readouterr()
    assert main(["search", str(tmp_path / "index"), str(vectors), "--k", "3", "--exact"]) == 0
    assert "training item" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["search", str(tmp_path / "index"), str(vectors), "--k", "3", "--html", str(page)]) == 0
    assert "trained on" in page.read_text()


def test_evaluation_leaves_out_the_site_of_the_query(dataset: PreparedDataset, tmp_path: Path) -> None:
    cml.train("value", dataset, tmp_path / "run", group_column="number", evaluate_every=1, **SHORT)
    run = cml.open_run(tmp_path / "run")
    assert run.queries.groups is not None
    found = run.evaluate()
    distances = np.abs(np.subtract.outer(*[np.array(dataset.split("query").labels)] * 2))
    distances[run.queries.groups[:, None] == run.queries.groups] = np.inf
    assert found.rows["oracle"]["label_distance@1"].mean == pytest.approx(distances.min(axis=1).mean(), rel=1e-5)
