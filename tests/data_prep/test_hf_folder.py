"""Local folders in the form of the Hugging Face hub: which files are read, which are refused, and how much of them."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cml.data.prepared import PreparedDataset
from cml.data_prep import hf_parquet
from cml.data_prep.hf_folder import list_files, split_files
from cml.data_prep.sources.hf import HuggingFace
from cml.errors import DataError, UserError

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
README = "---\nconfigs:\n- config_name: default\n  data_files: {}\n---\n"


def png(grey: int = 0, size: int = 20) -> bytes:
    file = io.BytesIO()
    Image.new("L", (size, size), grey).save(file, "PNG")
    return file.getvalue()


def write_table(path: Path, images: list[Any], labels: list[Any] | None = None, **options: Any) -> Path:  # noqa: ANN401
    path.parent.mkdir(parents=True, exist_ok=True)
    labels = [float(row) for row in range(len(images))] if labels is None else labels
    pq.write_table(pa.table({"image": pa.array(images, IMAGE), "label": pa.array(labels)}), path, **options)
    return path


def stored(count: int) -> list[dict[str, Any]]:
    return [{"bytes": png(row), "path": None} for row in range(count)]


def prepare(folder: Path, out: Path, *, skip_bad: bool = False, **options: Any) -> PreparedDataset:  # noqa: ANN401
    return HuggingFace(str(folder), **options).prepare(out, skip_bad=skip_bad)


@pytest.mark.parametrize("named", ['"../secret/t.parquet"', '"http://127.0.0.1:9/x.parquet"', '"hf://datasets/a/b/x"'])
def test_a_readme_leads_nowhere(tmp_path: Path, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(tmp_path / "secret" / "t.parquet", stored(20), [99.0] * 20)
    write_table(tmp_path / "raw" / "local.parquet", stored(20))
    (tmp_path / "raw" / "README.md").write_text(README.format(named))
    dataset = prepare(tmp_path / "raw", tmp_path / "out")
    assert sum(dataset.info.counts.values()) == 20
    assert 99.0 not in [*dataset.split("train").labels, *dataset.split("query").labels]
    assert "README.md names data files. That is not followed" in capsys.readouterr().err


def test_a_loading_script_is_not_run(tmp_path: Path) -> None:
    write_table(tmp_path / "raw" / "local.parquet", stored(20))
    (tmp_path / "raw" / "raw.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    prepare(tmp_path / "raw", tmp_path / "out")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_that_lead_out_are_refused(tmp_path: Path, kind: str) -> None:
    secret = write_table(tmp_path / "secret" / "t.parquet", stored(20))
    write_table(tmp_path / "raw" / "local.parquet", stored(20))
    (tmp_path / "raw" / "more").symlink_to(secret if kind == "file" else secret.parent)
    with pytest.raises(DataError, match=r"raw/more is a link to .*secret.*\. Copy that into the folder\."):
        prepare(tmp_path / "raw", tmp_path / "out")


def test_links_within_are_files(tmp_path: Path) -> None:
    write_table(tmp_path / "raw" / "below" / "a.parquet", stored(2))
    (tmp_path / "raw" / "b.parquet").symlink_to("below/a.parquet")
    (tmp_path / "raw" / ".git").symlink_to("/")
    assert list_files(tmp_path / "raw") == ["b.parquet", "below/a.parquet"]


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["a.parquet", "b.parquet"], {"train": ["a.parquet", "b.parquet"]}),
        (["train.parquet", "test.parquet"], {"train": ["train.parquet"], "test": ["test.parquet"]}),
        (["my-train-0.png", "x/dev_1.png", "cover.png"], {"train": ["my-train-0.png"], "validation": ["x/dev_1.png"]}),
        (["train/cat/1.png", "test/dog/1.png"], {"train": ["train/cat/1.png"], "test": ["test/dog/1.png"]}),
        (
            ["data/train-00000-of-00002.parquet", "data/odd-00000-of-00001-ab.parquet", "test.parquet"],
            {"train": ["data/train-00000-of-00002.parquet"], "odd": ["data/odd-00000-of-00001-ab.parquet"]},
        ),
        (["trainer.parquet", "contest.parquet"], {"train": ["trainer.parquet", "contest.parquet"]}),
    ],
)
def test_files_are_split_by_their_names_as_the_hub_does(
    tmp_path: Path, names: list[str], parts: dict[str, list[str]]
) -> None:
    from datasets.data_files import DataFilesPatternsDict, get_data_patterns

    assert split_files(names) == parts
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    patterns = get_data_patterns(str(tmp_path))
    oracle = DataFilesPatternsDict.from_patterns(patterns).resolve(base_path=str(tmp_path))
    relative = {
        str(part): sorted({os.path.relpath(file, tmp_path) for file in files}) for part, files in oracle.items()
    }
    assert relative == {part: sorted(files) for part, files in parts.items()}


def test_a_subset_is_a_folder_of_that_name(tmp_path: Path) -> None:
    write_table(tmp_path / "raw" / "big" / "train.parquet", stored(20))
    write_table(tmp_path / "raw" / "small" / "train.parquet", stored(12))
    assert sum(prepare(tmp_path / "raw", tmp_path / "out", subset="small").info.counts.values()) == 12
    with pytest.raises(UserError, match="there is no folder"):
        prepare(tmp_path / "raw", tmp_path / "o", subset="tiny")
    with pytest.raises(UserError, match=r"without '\.\.'"):
        prepare(tmp_path / "raw", tmp_path / "o", subset="../out")


def test_folders_named_by_class(tmp_path: Path) -> None:
    for name in ("oak", "elm", "ash", "fir"):
        for number in range(3):
            (tmp_path / "raw" / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / "raw" / name / f"{number}.png").write_bytes(png(number))
    dataset = prepare(tmp_path / "raw", tmp_path / "out", kind="classes", test_fraction=0.5)
    assert sorted({*dataset.split("train").labels, *dataset.split("query").labels}) == ["ash", "elm", "fir", "oak"]


def test_metadata_lines_and_other_image_columns(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    lines = []
    for number in range(20):
        (raw / f"{number}.png").write_bytes(png(number))
        lines.append(json.dumps({"photo_file_name": f"{number}.png", "label": [number, 1.5]}))
    (raw / "metadata.jsonl").write_text("\n".join(lines))
    dataset = prepare(raw, tmp_path / "out", image="photo")
    assert sorted(label[0] for label in [*dataset.split("train").labels, *dataset.split("query").labels]) == [
        *range(20)
    ]
    (raw / "metadata.jsonl").write_text("\n".join([*lines, json.dumps({"photo_file_name": "../x.png", "label": 1})]))
    with pytest.raises(DataError, match=r"metadata\.jsonl:21: the image '\.\./x\.png' should be relative"):
        prepare(raw, tmp_path / "o", image="photo")
    (raw / "metadata.jsonl").write_text("\n".join([*lines, json.dumps({"photo_file_name": "3.png"})]))
    with pytest.raises(DataError, match="no column 'label'"):
        prepare(raw, tmp_path / "o", image="photo")


def write_tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_archives_of_samples(tmp_path: Path) -> None:
    members = {}
    for number in range(20):
        members |= {f"a/{number}.png": png(number), f"a/{number}.cls": b"%d" % number, f"a/{number}.json": b"{}"}
    write_tar(tmp_path / "raw" / "train-0.tar", members)
    dataset = prepare(tmp_path / "raw", tmp_path / "out", image="png", label_columns=("cls",))
    assert sorted([*dataset.split("train").labels, *dataset.split("query").labels]) == [*range(20)]
    write_tar(tmp_path / "raw" / "train-0.tar", members | {"a/20.png": png(1), "a/20.cls": b"x"})
    with pytest.raises(DataError, match=r"train-0\.tar: a/20\.cls cannot be read: invalid literal"):
        prepare(tmp_path / "raw", tmp_path / "o", image="png", label_columns=("cls",))


def test_folders_of_other_files_say_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "labels.csv").write_text("file_name,age\na.png,3\n")
    with pytest.raises(DataError, match=r"no Parquet or Arrow files, images or tar archives\. .* 'cml prepare folder'"):
        prepare(tmp_path / "raw", tmp_path / "out")


def test_files_that_unpack_to_far_more_than_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf_parquet, "FREE", 1 << 20)
    zeros = {"bytes": bytes(1 << 20), "path": None}
    write_table(tmp_path / "raw" / "a.parquet", [zeros] * 12, compression="zstd", use_dictionary=False)
    with pytest.raises(DataError, match=r"a\.parquet unpacks to 12,\d{3},\d{3} bytes or more; the limit .* is 1,"):
        prepare(tmp_path / "raw", tmp_path / "out")
    # one entry of a dictionary, decoded for every row
    write_table(tmp_path / "raw" / "a.parquet", [{"bytes": os.urandom(1 << 16), "path": None}] * 1000)
    table = hf_parquet.ParquetTable(tmp_path / "raw" / "a.parquet")
    with pytest.raises(DataError, match="unpacks to"):
        list(table.read(["image"]))


def test_rows_without_images_are_counted_unread(tmp_path: Path) -> None:
    write_table(tmp_path / "raw" / "a.parquet", [None] * 2_000_000, [0.5] * 2_000_000)
    write_table(tmp_path / "raw" / "b.parquet", [*stored(10), {"bytes": None, "path": None}, None, *stored(20)])
    assert len(list(hf_parquet.ParquetTable(tmp_path / "raw" / "a.parquet").read(["image", "label"]))) == 2
    with pytest.raises(DataError, match=r"a\.parquet has 1,048,576 rows without an image\. \(With --skip-bad"):
        prepare(tmp_path / "raw", tmp_path / "out")
    dataset = prepare(tmp_path / "raw", tmp_path / "out", skip_bad=True)
    assert dataset.info.details["skipped"]["count"] == 2_000_002
    assert sum(dataset.info.counts.values()) == 30
    assert "train-2000012" in [*dataset.split("train").item_ids, *dataset.split("query").item_ids]


def test_a_class_number_without_a_name_is_a_bad_item(tmp_path: Path) -> None:
    metadata = {"info": {"features": {"label": {"_type": "ClassLabel", "names": ["oak", "elm"]}}}}
    labels = pa.array([0, 1] * 20 + [-1, 2])
    table = pa.table({"image": pa.array(stored(42), IMAGE), "label": labels})
    (tmp_path / "raw").mkdir()
    pq.write_table(
        table.replace_schema_metadata({"huggingface": json.dumps(metadata)}), tmp_path / "raw" / "test.parquet"
    )
    write_table(tmp_path / "raw" / "train.parquet", stored(4), ["oak", "elm", "oak", "elm"])
    with pytest.raises(DataError, match=r"test:40: label should be the number of a class, 0 to 1. Got -1"):
        prepare(tmp_path / "raw", tmp_path / "out", kind="classes")
    assert (
        prepare(tmp_path / "raw", tmp_path / "out", kind="classes", skip_bad=True).info.details["skipped"]["count"] == 2
    )


def test_images_in_tables_may_be_bytes_alone(tmp_path: Path) -> None:
    features = json.dumps({"info": {"features": {"image": {"_type": "Image"}}}})
    table = pa.table({"image": [png(row) for row in range(20)], "label": [*range(20)]})
    (tmp_path / "raw").mkdir()
    pq.write_table(table.replace_schema_metadata({"huggingface": features}), tmp_path / "raw" / "a.parquet")
    assert sum(prepare(tmp_path / "raw", tmp_path / "out").info.counts.values()) == 20


def test_fields_of_objects_are_labels_and_bytes_are_images(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    fields = [{"age": float(row), "sex": "f"} for row in range(20)]
    table = pa.table({"photo": pa.array([png(row) for row in range(20)], pa.binary()), "attributes": fields})
    pq.write_table(table, tmp_path / "raw" / "a.parquet")
    dataset = prepare(tmp_path / "raw", tmp_path / "set", image="photo", label_columns=("attributes.age",))
    assert sorted([*dataset.split("train").labels, *dataset.split("query").labels]) == list(map(float, range(20)))
    with pytest.raises(DataError, match=r"there is no column 'attributes\.height'"):
        prepare(tmp_path / "raw", tmp_path / "bad", image="photo", label_columns=("attributes.height",))


def test_what_datasets_saves_to_disk(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("float32")})
    for part, count in (("train", 20), ("test", 8)):
        rows = {"image": stored(count), "label": [float(row) for row in range(count)]}
        datasets.Dataset.from_dict(rows, features).save_to_disk(tmp_path / "raw" / part)
    assert dict(prepare(tmp_path / "raw", tmp_path / "set").info.counts) == {"train": 20, "query": 8, "gallery": 0}
    file = next((tmp_path / "raw" / "test").glob("*.arrow"))
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read as Arrow") as refused:
        prepare(tmp_path / "raw", tmp_path / "bad")
    assert "\n" not in str(refused.value)
