"""``cml prepare table`` and ``diabetes``: own vectors from CSV, JSONL, Parquet and .npy, against slow readings."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.data.check_dataset import check_dataset
from cml.data.images import native_size
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.table import Table
from cml.errors import DataError, UserError
from cml.retrieval.feature_forms import STANDARDISED, VECTOR_ROWS

COUNT = 40


def table() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    return [
        {"name": f"p{n}", "emb_0": float(rng.normal()), "age": n / 2, "emb_1": float(n * n), "site": f"s{n % 8}"}
        for n in range(COUNT)
    ]


def write_csv(path: Path, lines: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, lines[0].keys())
        writer.writeheader()
        writer.writerows(lines)
    return path


def write_jsonl(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_parquet(path: Path, lines: list[dict[str, Any]]) -> Path:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pa.Table.from_pylist(lines), path)
    return path


WRITERS = {".csv": write_csv, ".jsonl": write_jsonl, ".parquet": write_parquet}


def by_id(dataset: PreparedDataset) -> dict[str, tuple[list[float], Any]]:
    """Id to vector and label, over all roles."""
    items: dict[str, tuple[list[float], Any]] = {}
    for role in dataset.info.roles:
        split = dataset.split(role)
        assert split.vectors is not None
        vectors = split.vectors.read(np.arange(len(split))).tolist()
        items |= dict(zip(split.item_ids, zip(vectors, split.labels, strict=True), strict=True))
    return items


@pytest.mark.parametrize("suffix", WRITERS)
def test_each_kind_of_file_gives_the_same_items(tmp_path: Path, suffix: str) -> None:
    source = WRITERS[suffix](tmp_path / f"table{suffix}", table())
    dataset = cml.prepare(
        "table", tmp_path / "set", source=source, features=("emb_*",), label_columns=("age",), id_column="name"
    )
    wanted = {
        line["name"]: ([float(np.float32(line["emb_0"])), float(np.float32(line["emb_1"]))], line["age"])
        for line in table()
    }
    assert by_id(dataset) == wanted
    assert dataset.info.inputs.columns == ("emb_0", "emb_1")
    assert dataset.info.counts == {"train": 28, "query": 12, "gallery": 0}


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_one_column_may_hold_whole_vectors(tmp_path: Path, suffix: str) -> None:
    rng = np.random.default_rng(0)
    lines = [{"vector": rng.normal(size=5).tolist(), "value": n} for n in range(COUNT)]
    source = WRITERS[suffix](tmp_path / f"table{suffix}", lines)
    dataset = cml.prepare("table", tmp_path / "set", source=source, features=("vector",))
    items = by_id(dataset)
    for n, line in enumerate(lines):
        assert items[f"{n:06d}"] == (np.array(line["vector"], np.float32).tolist(), n)
    lines[7]["vector"].pop()
    source = WRITERS[suffix](tmp_path / f"short{suffix}", lines)
    with pytest.raises(DataError, match=r"(:8|row 7): the vector should have 5 numbers, as the first one has"):
        cml.prepare("table", tmp_path / "other", source=source, features=("vector",))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_vectors_of_a_npy_file_follow_the_rows_of_the_table(tmp_path: Path, dtype: str) -> None:
    rows = (100 * np.random.default_rng(0).normal(size=(COUNT, 6))).astype(dtype)
    np.save(tmp_path / "vectors.npy", rows)
    source = write_csv(tmp_path / "table.csv", table())
    options: dict[str, Any] = {"source": source, "vectors": tmp_path / "vectors.npy", "label_columns": ("age",)}
    items = by_id(cml.prepare("table", tmp_path / "set", **options))
    assert items == {f"{n:06d}": (row.astype(np.float32).tolist(), n / 2) for n, row in enumerate(rows)}
    stored = np.load(tmp_path / "set/train/vectors.npy").dtype
    assert stored == (dtype if dtype == "float16" else "float32")
    np.save(tmp_path / "vectors.npy", rows[1:])
    short = rf"vectors.npy has {COUNT - 1} rows, but .*table.csv has {COUNT}\. .* in the same order\."
    with pytest.raises(DataError, match=short):
        cml.prepare("table", tmp_path / "other", **options)


@pytest.mark.parametrize("value", ["", "nan", "inf"])
def test_a_line_without_a_label_is_deleted_with_its_row_of_vectors(tmp_path: Path, value: str) -> None:
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(COUNT, 6)))
    lines = table()
    lines[3]["age"] = value
    source = write_csv(tmp_path / "table.csv", lines)
    own = {"source": source, "label_columns": ("age",)}
    with pytest.raises(DataError, match=r"table.csv:5: .* or delete the line and its row of vectors\.npy"):
        cml.prepare("table", tmp_path / "set", vectors=tmp_path / "vectors.npy", **own)
    with pytest.raises(DataError, match=r"table.csv:5: .* or delete the line(?! and)"):
        cml.prepare("table", tmp_path / "other", features=("emb_*",), **own)


def test_groups_stay_together_and_columns_are_kept(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "table.csv", table())
    dataset = cml.prepare(
        "table",
        tmp_path / "set",
        source=source,
        features=("emb_*",),
        label_columns=("age",),
        id_column="name",
        group_column="site",
        keep_columns=("site", "emb_1"),
    )
    sites: dict[str, set[str]] = {}
    for path in dataset.folder.glob("*/metadata.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            assert line["emb_1"] == float(int(line["item_id"][1:]) ** 2)
            sites.setdefault(line["site"], set()).add(line["role"])
    assert all(len(roles) == 1 for roles in sites.values())
    assert len(sites) == 8


def test_consecutive_rows_are_groups(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "table.csv", [{"a": number, "age": number} for number in range(60)])
    options: dict[str, Any] = {"features": ("a",), "label_columns": ("age",), "query_fraction": 0.5}
    dataset = cml.prepare("table", tmp_path / "set", source=source, group_rows=7, **options)
    assert dataset.info.group_column == "group"
    roles: dict[str, set[str]] = {}
    for role in ("train", "query", "gallery"):
        for age, group in zip(dataset.split(role).labels, dataset.read_groups(role, "group"), strict=True):
            first = int(age) // 7 * 7 + 1
            assert group == f"rows {first} to {first + 6}"
            roles.setdefault(group, set()).add(role)
    assert len(roles) == 9
    assert all(len(of_group) == 1 for of_group in roles.values())
    for wrong, said in (
        ({"group_rows": 1}, "'group_rows' must be 0 or at least 2"),
        ({"group_rows": 7, "group_column": "a"}, "Give either 'group_rows' or a 'group_column'"),
        ({"group_rows": 7, "keep_columns": ("group",)}, "leave it out of 'keep_columns'"),
        ({"group_rows": 30}, "All 30 test items are of the group"),
    ):
        with pytest.raises(UserError, match=said):
            cml.prepare("table", tmp_path / "wrong", source=source, **{**options, **wrong})


@pytest.mark.slow
def test_pictures_beside_a_table_are_shown(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    lines = table()
    for number, line in enumerate(lines):
        line["picture"] = f"{number}.png" if number % 2 else ""
        Image.new("RGB", (600, 400), (number % 256, 0, 0)).save(tmp_path / f"pictures/{number}.png")
    source = write_csv(tmp_path / "table.csv", lines)
    options: dict[str, Any] = {
        "source": source,
        "features": ("emb_*",),
        "label_columns": ("age",),
        "keep_columns": ("site",),
        "images": tmp_path / "pictures",
        "file_column": "picture",
    }
    dataset = cml.prepare("table", tmp_path / "set", **options)
    assert check_dataset(tmp_path / "set") == []
    for role in dataset.info.roles:
        split = dataset.split(role)
        for name, path in zip(split.item_ids, split.pictures, strict=True):
            assert (path is not None) == (int(name) % 2 == 1)
            if path is not None:
                assert native_size(path) == (256, 384)
    assert [columns["site"] for columns in dataset.read_further("query")] == [
        lines[int(name)]["site"] for name in dataset.split("query").item_ids
    ]
    lines[5]["picture"] = "../table.csv"
    write_csv(source, lines)
    with pytest.raises(DataError, match=r"table.csv:7: the image '../table.csv' "):
        cml.prepare("table", tmp_path / "other", **options)
    with pytest.raises(DataError, match=r"there is no column 'file_name'"):
        cml.prepare("table", tmp_path / "other", **{**options, "file_column": "file_name"})


def test_a_split_column_decides(tmp_path: Path) -> None:
    lines = [{**line, "part": ("train", "query", "gallery")[n % 3]} for n, line in enumerate(table())]
    source = write_csv(tmp_path / "table.csv", lines)
    options: dict[str, Any] = {"source": source, "features": ("emb_0",), "label_columns": ("age",)}
    dataset = cml.prepare("table", tmp_path / "set", split_column="part", **options)
    assert list(dataset.split("query").item_ids) == [f"{n:06d}" for n in range(1, COUNT, 3)]


BAD = [
    ({"emb_1": "high"}, ":5: emb_1 should be a finite number. Got 'high' instead; mend it, or leave the column out"),
    ({"emb_1": "inf"}, ":5: emb_1 should be a finite number. Got 'inf' instead"),
    ({"emb_1": "nan"}, ":5: emb_1 should be a number, but is missing ('nan')"),
    ({"emb_1": ""}, ":5: emb_1 should be a number, but is missing ('')"),
    ({"emb_1": "1e39"}, ":5: emb_1 should be a finite float32. Got inf instead"),
    ({"age": ""}, ":5: age should be a finite number. Got '' instead"),
    ({"name": "p0"}, ":5: the id 'p0' is already in"),
    ({"name": " "}, ":5: name is empty, but should be"),
]


@pytest.mark.parametrize(("change", "fault"), BAD)
def test_a_bad_cell_is_named_by_row_and_column(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    lines = table()
    lines[3] |= change
    source = write_csv(tmp_path / "table.csv", lines)
    options: dict[str, Any] = {"source": source, "features": ("emb_*",), "label_columns": ("age",), "id_column": "name"}
    with pytest.raises(DataError) as error:
        cml.prepare("table", tmp_path / "set", **options)
    assert f"{source}{fault}" in str(error.value)
    dataset = cml.prepare("table", tmp_path / "set", skip_bad=True, **options)
    assert sum(dataset.info.counts.values()) == COUNT - 1
    assert dataset.info.details["skipped"]["count"] == 1
    left = by_id(dataset)
    assert left["p9"][0][1] == 81  # later rows keep their own vectors


@pytest.mark.parametrize("suffix", WRITERS)
def test_missing_numbers_are_kept_on_demand(tmp_path: Path, suffix: str) -> None:
    lines = table()
    lines[3]["emb_1"] = None
    source = WRITERS[suffix](tmp_path / f"table{suffix}", lines)
    options: dict[str, Any] = {"source": source, "features": ("emb_*",), "label_columns": ("age",)}
    with pytest.raises(DataError, match=r"(:[45]|row 3): emb_1 should be a number, but is missing"):
        cml.prepare("table", tmp_path / "set", **options)
    dataset = cml.prepare("table", tmp_path / "set", allow_missing=True, **options)
    values = by_id(dataset)["000003"][0]
    assert np.isnan(values[1])
    assert not np.isnan(values[0])
    run: dict[str, Any] = {"steps": 2, "sampler": "random(batch_size=16)", "quiet": True}
    with pytest.raises(UserError, match=r"\(id 000003\), column 1 \('emb_1'\) of the vectors is nan"):
        cml.train("value", dataset, tmp_path / "run", **run)
    trained = cml.train("value", dataset, tmp_path / "mean", missing="mean", **run)
    rows = trained.evaluate().rows
    assert all(np.isfinite(rows[form]["spearman_rho"].mean) for form in VECTOR_ROWS)


@pytest.mark.parametrize("suffix", WRITERS)
@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"features": ("emb*",), "label_columns": ("agee",)}, "there is no column 'agee'. Did you mean 'age'?"),
        ({"features": ("emb*",)}, "there is no column 'value'. There are: name, emb_0, age, emb_1, site."),
        ({"features": ("emv_0",), "label_columns": ("age",)}, "no column that matches features='emv_0'. Did you mean"),
        ({"features": ("age",), "label_columns": ("age",)}, "'age' is a feature and a label, id, split or group"),
        ({"features": ("site",), "label_columns": ("age",)}, "site should be a finite number. Got 's0' instead"),
        ({"features": ("emb*",), "label_columns": ("age",), "group_column": "sites"}, "Did you mean 'site'?"),
    ],
)
def test_columns_that_do_not_fit_are_one_line(tmp_path: Path, suffix: str, options: dict[str, Any], fault: str) -> None:
    source = WRITERS[suffix](tmp_path / f"table{suffix}", table())
    with pytest.raises((DataError, UserError)) as error:
        cml.prepare("table", tmp_path / "set", source=source, **options)
    assert fault in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({}, "Name the columns of the vectors"),
        ({"features": ("a",), "vectors": Path("b.npy")}, "Got both"),
        (
            {"source": Path("a.txt"), "features": ("a",)},
            "should be a .csv, .tsv, .jsonl, .json, .parquet, .xlsx file. Got a.txt",
        ),
        ({"features": ("a",), "unit": "years", "kind": "classes"}, "A unit belongs to numbers and angles"),
        ({"features": ("a",), "label_columns": ()}, "label_columns should name at least one column"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(tmp_path: Path, options: dict[str, Any], fault: str) -> None:
    with pytest.raises(UserError) as error:
        cml.prepare("table", tmp_path / "set", **{"source": Path("table.csv"), **options})
    assert fault in str(error.value)


def test_bad_npy_files_are_one_line(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "table.csv", table())
    path = tmp_path / "vectors.npy"
    options: dict[str, Any] = {"source": source, "vectors": path, "label_columns": ("age",)}
    for content, fault in (
        (np.array([{}] * COUNT, object), "cannot be read: "),
        (np.zeros(COUNT, np.float32), "should hold vectors"),
        (np.full((COUNT, 2), np.nan, np.float32), "row 0: column 0 should be a number, but is missing"),
    ):
        np.save(path, content)
        with pytest.raises(DataError, match=fault):
            cml.prepare("table", tmp_path / "set", **options)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="cannot be read"):
        cml.prepare("table", tmp_path / "set", **options)


def test_a_constant_column_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_csv(tmp_path / "table.csv", [{**line, "emb_2": 5} for line in table()])
    cml.prepare("table", tmp_path / "set", source=source, features=("emb_*",), label_columns=("age",))
    told = capsys.readouterr().err
    assert (
        "1 of 3 columns of the vectors are constant and carry no information about the label: column 2 ('emb_2')"
        in told
    )


def test_classes_and_captions_are_labels_too(tmp_path: Path) -> None:
    lines = [{**line, "words": f"a {line['site']} dog"} for line in table()]
    source = write_csv(tmp_path / "table.csv", lines)
    options: dict[str, Any] = {"source": source, "features": ("emb_*",)}
    classes = cml.prepare("table", tmp_path / "classes", kind="classes", label_columns=("site",), **options)
    assert classes.info.task == "classes"
    assert classes.info.details["recall_ks"]
    captions = cml.prepare("table", tmp_path / "captions", kind="captions", label_columns=("words",), **options)
    assert captions.info.task == "caption"
    assert captions.split("train").labels[0] == [lines[int(captions.split("train").item_ids[0])]["words"]]


def test_diabetes_is_prepared_trained_and_compared_with_its_own_vectors(tmp_path: Path) -> None:
    from sklearn.datasets import load_diabetes

    dataset = cml.prepare("diabetes", tmp_path / "set")
    patients = load_diabetes(scaled=False)
    for name, (vector, label) in by_id(dataset).items():
        np.testing.assert_allclose(vector, patients.data[int(name)], rtol=1e-6)
        assert label == patients.target[int(name)]
    run = cml.train("value", dataset, tmp_path / "run", steps=60, sampler="random(batch_size=64)", quiet=True)
    assert run.config.train.backbone == "none"
    evaluation = run.evaluate()
    assert list(evaluation.rows) == ["embedding", *VECTOR_ROWS, "ridge", "random", "oracle"]
    # the row of standardised vectors against a slow reading: by the training rows alone
    train, query = (dataset.split(role).vectors for role in ("train", "query"))
    assert train is not None
    assert query is not None
    fitted = train.read(np.arange(len(train))).astype(np.float64)
    rows = (query.read(np.arange(len(query))) - fitted.mean(axis=0)) / fitted.std(axis=0)
    slow = cml.retrieval.evaluate_embeddings(rows.astype(np.float32), list(dataset.split("query").labels))
    for name in ("label_distance@10", "spearman_rho"):
        assert abs(slow.rows["embedding"][name].mean - evaluation.rows[STANDARDISED][name].mean) < 1e-4


@pytest.mark.parametrize("allow_missing", [False, True])
def test_rows_that_are_read_at_once_are_those_read_one_by_one(
    allow_missing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    cells = [[f"{value:.4g}" for value in row] for row in rng.normal(size=(120, 3)).tolist()]
    for row, column, text in (
        (3, 0, "1_0"), (17, 1, ""), (18, 2, "nan"), (40, 0, "1e39"), (41, 2, "x"), (42, 1, "1,5"), (60, 2, "1e400"),
        (77, 0, " 1.5 "), (78, 2, str(2**53 + 1)), (90, 1, "0x10"),
    ):  # fmt: skip
        cells[row][column] = f'"{text}"'
    lines = [",".join(row) for row in cells]
    lines[100] += ",5"
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *lines]))

    def read() -> tuple[list[Any], list[Any]]:
        table = Table(tmp_path / "t.csv", features=("a", "b"), label_columns=("y",), allow_missing=allow_missing)
        labels = [str(row) if isinstance(row, DataError) else row.label for row in table._read_labels([])]  # type: ignore[union-attr]
        inputs = [str(row) if isinstance(row, DataError) else row.tolist() for row in table.read_inputs()]
        return labels, inputs

    whole = read()
    for size in (1, 7):
        monkeypatch.setattr("cml.data_prep.labelled_rows._BLOCK", size)
        monkeypatch.setattr("cml.data_prep.sources.table._CELLS", 2 * size)
        assert str(read()) == str(whole)
    for module in ("sources.table", "number_labels"):
        monkeypatch.setattr(f"cml.data_prep.{module}.read_plain", lambda *_: None)
    assert str(read()) == str(whole)
    assert sum(isinstance(label, str) for label in whole[0]) == 5
