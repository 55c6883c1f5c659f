"""Image datasets as the library ``datasets`` reads them: local folders of images and of Parquet files, no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cml.array_types import UInt8
from cml.cli import main
from cml.data.check_dataset import check_dataset
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.hf import HuggingFace, _image_bytes
from cml.errors import DataError, UserError

# the library leaves the files of an imagefolder's metadata open
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def pixels(seed: int) -> UInt8:
    return np.random.default_rng(seed).integers(0, 256, (40, 60, 3), np.uint8)


@pytest.fixture
def imagefolder(tmp_path: Path) -> Path:
    """As ``load_dataset("imagefolder")`` expects it, with two parts."""
    for part, count in (("train", 6), ("test", 3)):
        folder = tmp_path / "photos" / part
        folder.mkdir(parents=True)
        lines = ["file_name,hour"]
        for number in range(count):
            Image.fromarray(pixels(number)).save(folder / f"{number}.png")
            lines.append(f"{number}.png,{number + 0.5}")
        (folder / "metadata.csv").write_text("\n".join(lines))
    return tmp_path / "photos"


def parquet(folder: Path, count: int = 40, **more: Any) -> Path:  # noqa: ANN401
    """One part, with a label of every kind."""
    import datasets
    import pyarrow.parquet as pq

    columns: dict[str, Any] = {
        "photo": [Image.fromarray(pixels(number)) for number in range(count)],
        "age": [20.0 + number for number in range(count)],
        "lat_lon": [[48.0 + number, 2.0] for number in range(count)],
        "texts": [[f"photo {number}", "a photo"] for number in range(count)],
        "kind": [number % 5 for number in range(count)],
    }
    features = datasets.Features(
        {
            "photo": datasets.Image(),
            "age": datasets.Value("float32"),
            "lat_lon": datasets.List(datasets.Value("float64")),
            "texts": datasets.List(datasets.Value("string")),
            "kind": datasets.ClassLabel(names=["oak", "elm", "ash", "fir", "yew"]),
        }
    )
    folder.mkdir(parents=True, exist_ok=True)
    table = datasets.Dataset.from_dict(columns | more, features=features).data.table  # to_parquet would fetch files
    pq.write_table(table, folder / "train-00000-of-00001.parquet")
    return folder


def lines_of(dataset: PreparedDataset) -> list[dict[str, Any]]:
    texts = [path.read_text().splitlines() for path in sorted(dataset.folder.glob("*/metadata.jsonl"))]
    return [json.loads(line) for text in texts for line in text]


def test_a_folder_of_images_with_its_own_split(imagefolder: Path, tmp_path: Path) -> None:
    source = HuggingFace(str(imagefolder), label_columns=("hour",), label_distance="circular(period=24)", unit="h")
    dataset = source.prepare(tmp_path / "out")
    assert dict(dataset.info.counts) == {"train": 6, "query": 3, "gallery": 0}
    assert dataset.info.details["label_distance"] == "circular(period=24)"
    assert sorted(item["value"] for item in lines_of(dataset) if item["role"] == "query") == [0.5, 1.5, 2.5]
    first = dataset.split("train")
    with Image.open(first.paths[0]) as image:
        assert np.array_equal(np.asarray(image), pixels(int(first.labels[0])))
    assert check_dataset(dataset.folder) == []


@pytest.mark.parametrize(
    ("options", "column", "label"),
    [
        ({"label_columns": ("age",)}, "value", 20.0),
        ({"label_columns": ("lat_lon",), "label_distance": "haversine"}, "value", [48.0, 2.0]),
        ({"label_columns": ("age", "kind")}, "value", [20.0, 0]),
        ({"label_columns": ("texts",), "kind": "captions"}, "captions", ["photo 0", "a photo"]),
        ({"label_columns": ("kind",), "kind": "classes"}, "class", "oak"),
    ],
)
def test_parquet_files_with_every_kind_of_label(
    tmp_path: Path, options: dict[str, Any], column: str, label: object
) -> None:
    dataset = HuggingFace(str(parquet(tmp_path / "raw")), image="photo", **options).prepare(tmp_path / "out")
    items = {item["item_id"]: item for item in lines_of(dataset)}
    assert len(items) == 40
    assert items["train-0000000"][column] == label
    assert dataset.info.queries_are_gallery


def test_classes_of_one_part_are_held_out_whole(tmp_path: Path) -> None:
    raw = parquet(tmp_path / "raw")
    source = HuggingFace(str(raw), image="photo", kind="classes", label_columns=("kind",), test_fraction=0.5)
    items = lines_of(source.prepare(tmp_path / "out"))
    roles = {role: {item["class"] for item in items if item["role"] == role} for role in ("train", "query")}
    assert roles["train"]
    assert roles["query"]
    assert not roles["train"] & roles["query"]


def test_a_stopped_preparation_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = parquet(tmp_path / "raw")
    source = HuggingFace(str(raw), image="photo", label_columns=("age",), image_size=16)
    whole = source.prepare(tmp_path / "whole")
    made: list[str] = []
    real = HuggingFace._picture

    def counted(self: HuggingFace, stored: Any, place: Any, where: str) -> Any:  # noqa: ANN401
        if len(made) == 20 and not (tmp_path / "again").exists():
            raise KeyboardInterrupt
        made.append(where)
        return real(self, stored, place, where)

    monkeypatch.setattr(HuggingFace, "_picture", counted)
    with pytest.raises(KeyboardInterrupt):
        source.prepare(tmp_path / "out")
    (tmp_path / "again").touch()
    first = len(made)
    dataset = source.prepare(tmp_path / "out")
    assert dataset.fingerprint == whole.fingerprint
    assert len(made) - first < 40
    with Image.open(dataset.split("train").paths[0]) as image:
        assert image.size == (24, 16)


def test_as_a_command(imagefolder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["prepare", f"hf:{imagefolder}", "--label-columns", "hour", "--out", str(out)]) == 0
    assert f"{out}: 6 train, 3 query items of task 'value'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"label_columns": ("years",)}, DataError, "no column 'years'. There are: photo, age, lat_lon, texts, kind"),
        ({"image": "age"}, DataError, "the column 'age' should hold images"),
        ({"label_columns": ()}, UserError, "label_columns should name a column"),
        ({"kind": "captions", "unit": "h"}, UserError, "belong to numbers"),
        ({"dataset": "no-folder"}, UserError, "must be named user/name. Got 'no-folder'"),
        ({"label_columns": ("texts",)}, DataError, "train:0: texts should be a finite number. Got 'photo 0'"),
    ],
)
def test_what_cannot_be_read_is_one_line(
    tmp_path: Path, changes: dict[str, Any], error: type[UserError], said: str
) -> None:
    raw = parquet(tmp_path / "raw", 3)
    with pytest.raises(error, match=said) as refused:
        HuggingFace(**{"dataset": str(raw), "image": "photo", "label_columns": ("age",), **changes}).prepare(
            tmp_path / "out"
        )
    assert "\n" not in str(refused.value)


def test_broken_parquet_is_one_line(tmp_path: Path) -> None:
    raw = parquet(tmp_path / "raw", 3)
    file = next(raw.iterdir())
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(DataError, match="cannot be read") as refused:
        HuggingFace(str(raw), image="photo", label_columns=("age",)).prepare(tmp_path / "out")
    assert "\n" not in str(refused.value)


def test_a_table_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    Image.fromarray(pixels(0)).save(tmp_path / "secret.png")
    raw = parquet(tmp_path / "raw", 4, photo=[{"bytes": None, "path": str(tmp_path / "secret.png")}] * 4)
    with pytest.raises(DataError, match=r"should be a file of the dataset. Got .*secret.png"):
        HuggingFace(str(raw), image="photo", label_columns=("age",)).prepare(tmp_path / "out")


@pytest.mark.parametrize(
    "path",
    ["/etc/hosts", "file:///etc/hosts::hf://datasets/user/name@0/x.zip", "/etc/hosts#hf://datasets/user/name@0/a.png"],
)
def test_a_dataset_of_the_hub_cannot_name_files_of_this_machine(path: str) -> None:
    with pytest.raises(DataError, match="should be a file of the dataset"):
        _image_bytes({"bytes": None, "path": path}, "user/name", "here")


def test_bad_items_can_be_skipped(tmp_path: Path) -> None:
    ages = [20.0 + number for number in range(40)]
    ages[3] = float("nan")
    raw = parquet(tmp_path / "raw", age=ages)
    source = HuggingFace(str(raw), image="photo", label_columns=("age",))
    with pytest.raises(DataError, match=r"train:3: age should be a finite number. Got nan"):
        source.prepare(tmp_path / "out")
    assert source.prepare(tmp_path / "out", skip_bad=True).info.details["skipped"]["count"] == 1


def class_numbers(folder: Path, labels: list[int]) -> Path:
    """Write a Parquet file of photographs whose label is a column of four class names."""
    import datasets
    import pyarrow.parquet as pq

    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c", "d"])})
    images = [Image.fromarray(pixels(number)) for number in range(len(labels))]
    folder.mkdir()
    table = datasets.Dataset.from_dict({"image": images, "label": labels}, features=features).data.table
    pq.write_table(table, folder / "train.parquet")
    return folder


def test_a_column_of_class_names_is_classes_unless_something_else_is_said(tmp_path: Path) -> None:
    raw = class_numbers(tmp_path / "raw", [0, 1, 2, 3] * 6)
    dataset = HuggingFace(str(raw)).prepare(tmp_path / "classes")
    assert dataset.info.task == "classes"
    assert {*dataset.split("train").labels, *dataset.split("query").labels} == {"a", "b", "c", "d"}
    assert HuggingFace(str(raw), kind="numbers").prepare(tmp_path / "numbers").info.task == "value"
    assert HuggingFace(str(raw), unit="grade").prepare(tmp_path / "grades").info.task == "value"


def test_an_unlabelled_item_of_a_class_column_is_a_bad_item(tmp_path: Path) -> None:
    raw = class_numbers(tmp_path / "raw", [0, 1, 2, 3, 0, -1] + [2, 3] * 6)
    with pytest.raises(DataError, match=r"train:5: label should be the number of a class, 0 to 3\. Got -1 instead"):
        HuggingFace(str(raw)).prepare(tmp_path / "out")
    dataset = HuggingFace(str(raw)).prepare(tmp_path / "out", skip_bad=True)
    assert dataset.info.details["skipped"]["count"] == 1
    assert sum(dataset.info.counts.values()) == 17


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_few_classes_always_have_queries(tmp_path: Path, count: int) -> None:
    raw = class_numbers(tmp_path / "raw", list(range(count)) * 5)
    counts = HuggingFace(str(raw), test_fraction=0.1).prepare(tmp_path / "out").info.counts
    assert counts["query"] == 5
    assert counts["train"] == 5 * (count - 1)


def test_a_place_whose_name_leaves_the_order_open_names_a_mend_that_a_dataset_has(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'texts' does not say which is which.*rename_column: lat_lon\."):
        HuggingFace(
            str(parquet(tmp_path / "raw")), image="photo", label_columns=("texts",), label_distance="haversine"
        ).prepare(tmp_path / "out")
