"""Arrays of any library, names of files, comparisons and series of archives as labels and vectors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.data.prepared import PreparedDataset
from cml.data_prep.bradley_terry import score_items
from cml.errors import DataError, UserError

COUNT = 16
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(COUNT, 5)).astype(np.float32)
AGES = (20.5 + np.arange(COUNT)).astype(np.float64)
IDS = [f"img{number:03d}" for number in range(COUNT)]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number, name in enumerate(IDS):
        Image.new("L", (32, 24), 10 * number).save(folder / f"{name}.png")
    return folder


def write_npz(folder: Path, arrays: dict[str, Any]) -> Path:
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def write_pt(folder: Path, arrays: dict[str, Any]) -> Path:
    import torch

    torch.save(
        {n: a.tolist() if a.dtype.kind == "U" else torch.from_numpy(a) for n, a in arrays.items()}, folder / "a.pt"
    )
    return folder / "a.pt"


def write_h5(folder: Path, arrays: dict[str, Any]) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "a.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array.astype(h5py.string_dtype()) if array.dtype.kind == "U" else array
    return folder / "a.h5"


def write_safetensors(folder: Path, arrays: dict[str, Any]) -> Path:
    from safetensors.numpy import save_file

    save_file({name: array for name, array in arrays.items() if array.dtype.kind != "U"}, folder / "a.safetensors")
    return folder / "a.safetensors"


def write_folder(folder: Path, arrays: dict[str, Any]) -> Path:
    (folder / "arrays").mkdir()
    for name, array in arrays.items():
        if array.dtype.kind != "U":
            np.save(folder / "arrays" / f"{name}.npy", array)
    return folder / "arrays"


WRITERS: list[Callable[[Path, dict[str, Any]], Path]] = [
    write_npz, write_pt, write_h5, write_safetensors, write_folder,
]  # fmt: skip


def vectors_of(dataset: PreparedDataset) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for role in ("train", "query"):
        split = dataset.split(role)
        assert split.vectors is not None
        found |= dict(zip(split.item_ids, split.vectors.read(np.arange(len(split.item_ids))), strict=True))
    return found


def labels_of(dataset: PreparedDataset) -> dict[str, Any]:
    return {item: label for role in ("train", "query") for item, label in zip(
        dataset.split(role).item_ids, dataset.split(role).labels, strict=True)}  # fmt: skip


@pytest.mark.parametrize("write", WRITERS)
def test_columns_of_arrays(write: Callable[..., Path], tmp_path: Path) -> None:
    source = write(tmp_path, {"embeddings": VECTORS, "age": AGES})
    dataset = cml.prepare("table", tmp_path / "set", source=source, features=("embeddings",), label_columns=("age",))
    assert vectors_of(dataset)["000003"] == pytest.approx(VECTORS[3])
    assert labels_of(dataset)["000003"] == AGES[3]


@pytest.mark.parametrize("write", WRITERS)
def test_vectors_are_joined_by_the_names_of_items(
    write: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = RNG.permutation(COUNT).tolist()
    vectors = write(tmp_path, {IDS[number]: VECTORS[number] for number in order})
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["id,age", *(f"{name},{age}" for name, age in zip(IDS, AGES, strict=True))]))
    settings: dict[str, Any] = {"source": table, "vectors": vectors, "label_columns": ("age",)}
    with pytest.raises(
        UserError, match="names its items: name the column of the table that they are in by --id-column"
    ):
        cml.prepare("table", tmp_path / "no", **settings)
    dataset = cml.prepare("table", tmp_path / "set", **settings, id_column="id")
    assert vectors_of(dataset)[IDS[3]] == pytest.approx(VECTORS[3])
    assert "joined by the ids in id" in capsys.readouterr().err
    with table.open("a") as file:
        file.write("\nimg099,5\n")
    with pytest.raises(DataError, match="has no vector of the item 'img099'"):
        cml.prepare("table", tmp_path / "missing", **settings, id_column="id")


def test_vectors_without_names_are_joined_in_order_which_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "t.csv"
    table.write_text("\n".join(["age", *map(str, AGES.tolist())]))
    settings: dict[str, Any] = {"source": table, "label_columns": ("age",)}
    dataset = cml.prepare("table", tmp_path / "set", vectors=write_npz(tmp_path, {"emb": VECTORS}), **settings)
    assert vectors_of(dataset)["000003"] == pytest.approx(VECTORS[3])
    assert "has no ids: its vectors belong to the rows of" in capsys.readouterr().err
    with pytest.raises(DataError, match=r"has 15 rows, but .* has 16"):
        cml.prepare("table", tmp_path / "few", vectors=write_npz(tmp_path, {"emb": VECTORS[1:]}), **settings)


@pytest.mark.parametrize("write", [write_npz, write_pt, write_h5])
def test_arrays_label_images_by_name_or_in_order(
    write: Callable[..., Path], photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = np.array([f"{name}.png" for name in IDS])
    order = RNG.permutation(COUNT)
    labels = write(tmp_path, {"paths": names[order], "age": AGES[order]})
    settings: dict[str, Any] = {"images": photos, "label_columns": ("age",)}
    assert labels_of(cml.prepare("folder", tmp_path / "set", labels=labels, **settings))["img003.png"] == AGES[3]
    capsys.readouterr()
    labels = write(tmp_path, {"age": AGES})
    assert labels_of(cml.prepare("folder", tmp_path / "order", labels=labels, **settings))["img003.png"] == AGES[3]
    assert "in the order of their names, from img000.png" in capsys.readouterr().err
    with pytest.raises(DataError, match="has 15 rows and names no images"):
        cml.prepare("folder", tmp_path / "few", labels=write(tmp_path, {"age": AGES[1:]}), **settings)
    by_name = write(tmp_path, {IDS[number]: VECTORS[number] for number in order.tolist()})
    dataset = cml.prepare("folder", tmp_path / "named", labels=by_name, images=photos, label_columns=("vector",))
    assert labels_of(dataset)["img003.png"] == pytest.approx(VECTORS[3].tolist())


def test_no_array_is_unpickled_or_read_from_another_file(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    np.savez(tmp_path / "objects.npz", value=np.array([{"a": 1}] * 12, object))
    (tmp_path / "pickled.pt").write_bytes(pickle.dumps({"value": print}))
    np.save(tmp_path / "secret.npy", AGES)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["age"] = AGES
    with h5py.File(tmp_path / "link.h5", "w") as file:
        file["value"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "age")
        file["soft"] = h5py.SoftLink("/value")
    with h5py.File(tmp_path / "external.h5", "w") as file:
        file.create_dataset("value", (4,), "f8", external=[(str(tmp_path / "secret.npy"), 0, 32)])
    with h5py.File(tmp_path / "bomb.h5", "w") as file:
        file.create_dataset("value", (1 << 31,), "f8", chunks=(1 << 20,), compression="gzip", fillvalue=0)
    for name, fault in (
        ("objects.npz", "cannot be read as plain arrays"),
        ("pickled.pt", "cannot be read as plain arrays"),
        ("link.h5", "holds no array of rows"),
        ("external.h5", "lies in another file"),
        ("bomb.h5", "unpacks to"),
    ):
        with pytest.raises(DataError, match=fault) as refused:
            cml.prepare("table", tmp_path / "set", source=tmp_path / name, features=("value",), label_columns=("age",))
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("write", WRITERS[:4])
def test_damaged_arrays_are_one_line(write: Callable[..., Path], tmp_path: Path) -> None:
    path = write(tmp_path, {"embeddings": VECTORS, "age": AGES})
    content = path.read_bytes()
    for damaged in (b"", content[:40], content[: len(content) // 2], b"\0" * 200):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="cannot be read as plain arrays") as refused:
            cml.prepare("table", tmp_path / "set", source=path, features=("embeddings",), label_columns=("age",))
        assert "\n" not in str(refused.value)


# ---- names of files


def test_labels_in_the_names_of_files(tmp_path: Path) -> None:
    (tmp_path / "faces").mkdir()
    for number in range(COUNT):
        Image.new("L", (32, 24), 10 * number).save(tmp_path / "faces" / f"{20 + number}_{number % 4}_x.jpg")
    settings: dict[str, Any] = {"images": tmp_path / "faces"}
    dataset = cml.prepare(
        "folder", tmp_path / "ages", label_pattern="{age:d}_{}_{}.jpg", label_columns=("age",), **settings
    )
    assert labels_of(dataset)["23_3_x.jpg"] == 23
    classes: dict[str, Any] = {"kind": "classes", "label_columns": ("race",), "label_pattern": "{}_{race}_{}.jpg"}
    assert set(labels_of(cml.prepare("folder", tmp_path / "classes", **classes, **settings)).values()) <= set("0123")
    Image.new("L", (32, 24)).save(tmp_path / "faces" / "cover.jpg")
    with pytest.raises(DataError, match=r"cover.jpg: the name does not fit the pattern"):
        cml.prepare("folder", tmp_path / "bad", label_pattern="{age:d}_{}_{}.jpg", label_columns=("age",), **settings)
    for pattern in ("ages.jpg", "{age:x}.jpg", "{age}_{age}.jpg", "{age}_}.jpg"):
        with pytest.raises(UserError, match="label_pattern"):
            cml.prepare("folder", tmp_path / "no", label_pattern=pattern, label_columns=("age",), **settings)


def test_names_of_files_by_the_cells_of_a_row(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join(["id,value", *(f"{n},{n}.5" for n in range(COUNT))]))
    settings: dict[str, Any] = {"images": photos, "labels": tmp_path / "t.csv"}
    dataset = cml.prepare("folder", tmp_path / "set", file_pattern="img{id:03}.png", **settings)
    assert labels_of(dataset)["img003.png"] == 3.5
    with pytest.raises(UserError, match=r"A field of a file_pattern is {column} or {column:06}"):
        cml.prepare("folder", tmp_path / "no", file_pattern="{id:>3}.png", **settings)
    with pytest.raises(DataError, match="there is no column '__class__'"):
        cml.prepare("folder", tmp_path / "no", file_pattern="{__class__}.png", **settings)


# ---- comparisons


def test_scores_are_those_of_bradley_and_terry(photos: Path, tmp_path: Path) -> None:
    true = np.linspace(-1.5, 1.5, COUNT)
    pairs = np.array([(a, b) for a in range(COUNT) for b in range(COUNT) if a != b] * 8)
    won = (RNG.random(len(pairs)) < 1 / (1 + np.exp(true[pairs[:, 1]] - true[pairs[:, 0]]))).astype(float)
    scores, errors = score_items(pairs, won, COUNT)
    expected = 1 / (1 + np.exp(scores[pairs[:, 1]] - scores[pairs[:, 0]]))
    for item in range(COUNT):  # at the maximum each item has won as often as expected, but for the prior
        first, second = pairs[:, 0] == item, pairs[:, 1] == item
        wins = won[first].sum() + (1 - won[second]).sum()
        assert wins == pytest.approx(expected[first].sum() + (1 - expected[second]).sum(), abs=0.2)
    assert np.abs((scores - true) / errors).max() < 4
    for header, name in (
        ("left,right,winner", "left"),
        ("image_a,image_b,preferred", "a"),
        ("item1,item2,winner", "1"),
    ):
        rows = [
            f"{IDS[a]}.png,{IDS[b]}.png,{name if w else f'{IDS[b]}.png'}" for (a, b), w in zip(pairs, won, strict=True)
        ]
        (tmp_path / "c.csv").write_text("\n".join([header, *rows]))
        settings: dict[str, Any] = {"images": photos, "labels": tmp_path / "c.csv", "label_columns": ("score",)}
        dataset = cml.prepare("folder", tmp_path / name, keep_columns=("error",), **settings)
        assert labels_of(dataset)["img003.png"] == pytest.approx(scores[3], abs=1e-6)
    (tmp_path / "c.csv").write_text("left,right,winner\nimg000.png,img001.png,img002.png\n")
    with pytest.raises(DataError, match=r"winner should be an item of the row, left, right or equal"):
        cml.prepare("folder", tmp_path / "no", **settings)


def test_many_items_are_scored_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, won = RNG.integers(0, 20, (400, 2)), RNG.integers(0, 2, 400).astype(float)
    pairs[:, 1] = (pairs[:, 0] + 1 + pairs[:, 1] % 19) % 20
    dense = score_items(pairs, won, 20)[0]
    monkeypatch.setattr("cml.data_prep.bradley_terry._MOST_DENSE", 1)
    assert score_items(pairs, won, 20)[0] == pytest.approx(dense, abs=1e-5)


# ---- series


@pytest.mark.parametrize("form", ["ts", "tsv", "regression"])
def test_series_of_archives(form: str, tmp_path: Path) -> None:
    series = RNG.normal(size=(COUNT, 12)).round(4)
    path = tmp_path / ("s.tsv" if form == "tsv" else "s.ts")
    if form == "tsv":
        lines = ["\t".join(map(str, [1 + n % 3, *row])) for n, row in enumerate(series.tolist())]
    else:
        head = "@targetlabel true" if form == "regression" else "@classLabel true 1 2 3"
        lines = ["#a comment", "@problemName Waves", "@timeStamps false", head, "@data"]
        lines += [f"{','.join(map(str, row))}:{1 + n % 3}" for n, row in enumerate(series.tolist())]
    path.write_text("\n".join(lines))
    kind, column = ("numbers", "value") if form == "regression" else ("classes", "class")
    settings: dict[str, Any] = {"kind": kind, "features": ("series",), "label_columns": (column,)}
    dataset = cml.prepare("table", tmp_path / "set", source=path, **settings)
    assert vectors_of(dataset)["000003"] == pytest.approx(series[3], abs=1e-6)
    assert labels_of(dataset)["000003"] == (1 if kind == "numbers" else "1")
    path.write_text(path.read_text() + ("\n1\tx" + "\t1" * 11 if form == "tsv" else "\n1,2,x:1"))
    with pytest.raises(DataError, match="should be a series of numbers and its"):
        cml.prepare("table", tmp_path / "bad", source=path, **settings)
