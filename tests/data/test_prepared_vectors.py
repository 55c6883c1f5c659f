"""Prepared datasets of vectors: written, read back, and every way in which their files may be wrong."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cml.data.check_dataset import check_dataset, describe_constant_columns
from cml.data.dataset_info import read_dataset_info
from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, write_dataset
from cml.data.vectors import Vectors
from cml.errors import DataError, UserError

COUNT, WIDTH = 12, 3
ROLES = ("train", "query", "train", "gallery")
Array = np.ndarray[Any, Any]


def rows(dtype: str = "float32") -> Array:
    return np.random.default_rng(0).normal(size=(COUNT, WIDTH)).astype(dtype)


def write(
    folder: Path, vectors: Sequence[Any] | Array | None = None, *, inputs: dict[str, Any] | None = None
) -> PreparedDataset:
    vectors = rows() if vectors is None else vectors
    form = {"kind": "vectors", "size": WIDTH, "columns": ["a", "b", "c"], **(inputs or {})}
    info = DatasetInfo("tiny", "value", "value", "", "", "a test", "none", {"inputs": form})
    items = [Item(f"item {n}", ROLES[n % 4], None, float(n), vector=vector) for n, vector in enumerate(vectors)]
    return write_dataset(folder, info, items)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_vectors_come_back_in_the_order_of_their_items(tmp_path: Path, dtype: str) -> None:
    dataset = write(tmp_path / "set", rows(dtype))
    for role in dict.fromkeys(ROLES):
        split = dataset.split(role)
        wanted = [n for n in range(COUNT) if ROLES[n % 4] == role]
        assert list(split.item_ids) == [f"item {n}" for n in wanted]
        assert split.vectors is not None
        assert split.inputs is split.vectors
        assert split.vectors.form.columns == ("a", "b", "c")
        np.testing.assert_array_equal(split.vectors.read(np.arange(len(split))), rows(dtype)[wanted].astype(np.float32))
        assert list(split.pictures) == [None] * len(wanted)
    assert np.load(tmp_path / "set/train/vectors.npy").dtype == dtype
    info = read_dataset_info(dataset.folder)
    assert info is not None
    assert info.inputs.shape == (WIDTH,)
    assert read_dataset_info(tmp_path) is None
    assert check_dataset(dataset.folder) == []
    with pytest.raises(UserError, match="needs images, but the items of the dataset are vectors of 3 numbers"):
        _ = dataset.split("train").paths


def test_an_item_may_have_a_picture(tmp_path: Path) -> None:
    from PIL import Image

    info = DatasetInfo("tiny", "value", "value", "", "", "", "", {"inputs": {"kind": "vectors", "size": WIDTH}})
    picture = Image.new("RGB", (8, 8))
    items = [Item(f"{n}", ROLES[n % 4], picture if n % 3 else None, n, vector=v) for n, v in enumerate(rows())]
    dataset = write_dataset(tmp_path / "set", info, items)
    shown = [path is not None for role in ("train", "query", "gallery") for path in dataset.split(role).pictures]
    order = [n for role in ("train", "query", "gallery") for n in range(COUNT) if ROLES[n % 4] == role]
    assert shown == [n % 3 != 0 for n in order]
    assert check_dataset(dataset.folder) == []
    (tmp_path / "set/train/images" / next(p.name for p in dataset.split("train").pictures if p)).unlink()
    with pytest.raises(DataError, match="names a missing file"):
        PreparedDataset.open(dataset.folder)


def test_the_vectors_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    dataset = write(tmp_path / "set")
    path = dataset.folder / "test/vectors.npy"
    array = np.load(path)
    array[1, 1] += 1
    np.save(path, array)
    other = PreparedDataset.open(dataset.folder)
    assert other.fingerprint != dataset.fingerprint
    assert {name for name in other.digests if other.digests[name] != dataset.digests[name]} == {"test/vectors.npy"}


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def save(change: Callable[[Array], Array]) -> Callable[[Path], None]:
    def replace(path: Path) -> None:
        np.save(path, change(np.load(path)))

    return replace


def poison(value: float) -> Callable[[Path], None]:
    def put(array: Array) -> Array:
        array[1, 2] = value
        return array

    return save(put)


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (truncate, "cannot be read: "),
        (Path.unlink, "cannot be read (No such file or directory); it should hold the vectors"),
        (lambda path: path.write_bytes(b""), "it is no .npy file"),
        (lambda path: np.save(path, np.array([{}] * 6)), "cannot be read: "),
        (save(lambda array: array[:-1]), "has 5 rows, but the metadata.jsonl beside it has 6 lines"),
        (save(lambda array: array[:, :-1]), "should be an array (N, 3) of float16 or float32"),
        (save(lambda array: array.astype(np.float64)), "It holds (6, 3), float64"),
        (save(lambda array: array.astype(np.int32)), "It holds (6, 3), int32"),
        (save(np.asfortranarray), "in C order"),
        (save(lambda array: array[0]), "It holds (3,), float32"),
        (poison(np.inf), "row 1 (id item 2), column 2 ('c') of the vectors should be a finite number, none may be"),
        (poison(np.nan), "row 1 (id item 2), column 2 ('c') of the vectors should be a finite number, none may be"),
    ],
)
def test_a_bad_file_of_vectors_is_one_line(tmp_path: Path, damage: Callable[[Path], None], fault: str) -> None:
    dataset = write(tmp_path / "set")
    path = dataset.folder / "train/vectors.npy"
    damage(path)
    with pytest.raises(DataError) as error:
        PreparedDataset.open(dataset.folder)
    assert str(path) in str(error.value)
    assert fault in str(error.value)
    assert "\n" not in str(error.value)
    assert any(fault in problem for problem in check_dataset(dataset.folder))


@pytest.mark.parametrize(
    ("inputs", "fault"),
    [
        ("vectors", "details.inputs should be"),
        ({"kind": "sound"}, "details.inputs should be"),
        ({"kind": "vectors"}, "details.inputs.size should be a whole number, but is None"),
        ({"kind": "vectors", "size": True}, "details.inputs.size should be a whole number"),
        ({"kind": "vectors", "size": 0}, "must have positive sizes"),
        ({"kind": "vectors", "size": 3, "columns": ["a"]}, "There must be a name for each of 3 numbers"),
        ({"kind": "vectors", "size": 3, "columns": "abc"}, "details.inputs.columns should be a list of names"),
        ({"kind": "vectors", "size": 3, "missing": 1}, "details.inputs.missing should be true or false"),
        ({"kind": "vectors", "size": 4}, "should be an array (N, 4)"),
    ],
)
def test_a_bad_description_of_the_inputs_is_one_line(tmp_path: Path, inputs: object, fault: str) -> None:
    dataset = write(tmp_path / "set")
    info = json.loads((dataset.folder / "dataset.json").read_text())
    info["details"]["inputs"] = inputs
    (dataset.folder / "dataset.json").write_text(json.dumps(info))
    with pytest.raises(DataError) as error:
        PreparedDataset.open(dataset.folder)
    assert fault in str(error.value)


def test_numbers_may_be_missing_where_dataset_json_says_so(tmp_path: Path) -> None:
    some = rows()
    some[3, 1] = np.nan
    dataset = write(tmp_path / "set", some, inputs={"missing": True})
    vectors = dataset.split("gallery").vectors
    assert vectors is not None
    assert np.isnan(vectors.read(np.array([0]))[0, 1])
    some[3, 1] = np.inf
    with pytest.raises(DataError, match=r"Item 'item 3': column 1 \('b'\) of the vectors should be a finite number"):
        write(tmp_path / "other", some, inputs={"missing": True})


@pytest.mark.parametrize(
    ("vector", "fault"),
    [
        (np.zeros(4, np.float32), "its vector should be 3 numbers of float32. Got (4,), float32 instead"),
        (np.zeros(3, np.float16), "its vector should be 3 numbers of float32. Got (3,), float16 instead"),
        (np.full(3, np.nan, np.float32), "should be a finite number, none may be missing. It is nan"),
    ],
)
def test_a_vector_of_another_form_is_a_bad_item(tmp_path: Path, vector: Array, fault: str) -> None:
    with pytest.raises(DataError) as error:
        write(tmp_path / "set", [*rows(), vector])
    assert f"Item 'item {COUNT}'" in str(error.value)
    assert fault in str(error.value)
    assert not (tmp_path / "set").exists()


def test_items_and_dataset_are_of_one_kind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"are vectors, by details.inputs. The item 'item 0' has no vector"):
        write(tmp_path / "set", [None] * COUNT)
    info = DatasetInfo("tiny", "value", "value", "", "", "", "")
    with pytest.raises(UserError, match=r"are images, by details.inputs. The item 'a' has a vector"):
        write_dataset(tmp_path / "set", info, [Item("a", "train", None, 1.0, vector=rows()[0])])
    with pytest.raises(UserError, match="The item 'a' has no image"):
        write_dataset(tmp_path / "set", info, [Item("a", "train", None, 1.0)])


def test_constant_columns_are_named(tmp_path: Path) -> None:
    some = rows()
    some[:, 1] = 7
    dataset = write(tmp_path / "set", some)
    assert describe_constant_columns(dataset).startswith("1 of 3 columns of the training vectors are constant")
    assert "column 1 ('b')" in describe_constant_columns(dataset)
    assert describe_constant_columns(write(tmp_path / "other")) == ""


def test_a_slice_of_the_map_shares_the_file(tmp_path: Path) -> None:
    vectors = write(tmp_path / "set").split("train").vectors
    assert isinstance(vectors, Vectors)
    assert isinstance(vectors.rows, np.memmap)
    assert isinstance(vectors.with_missing("mean").rows, np.memmap)


def test_batches_are_written_as_items_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(1).normal(size=(90, WIDTH)).astype(np.float32)
    numbers[11, 1] = np.nan
    items: list[Item | DataError] = [
        Item(f"item {n}", ROLES[n % 4], None, float(n), where=f"row {n}", vector=row) for n, row in enumerate(numbers)
    ]
    items[7] = DataError("row 7: is bad")
    items[30] = Item("item 30", "train", None, "thirty", where="row 30", vector=numbers[30])
    items[31] = Item("item 31", "train", None, 1.0, where="row 31", vector=numbers[31, :2])
    items[55] = Item("item 55", "train", None, 1.0, extra={"more": 1}, where="row 55", vector=numbers[55])
    items[80] = Item("item 80", "train", None, 1.0, where="row 80", vector=numbers[80].astype(np.float16))
    inputs = {"inputs": {"kind": "vectors", "size": WIDTH}}
    written: list[tuple[Any, ...]] = []
    for size in (1, 8, 512):
        monkeypatch.setattr("cml.data.prepared_writer._BATCH", size)
        info = DatasetInfo("tiny", "value", "value", "", "", "", "", inputs)
        kept = [item for n, item in enumerate(items) if n != 55]  # what differs in columns is no bad item but a fault
        dataset = write_dataset(tmp_path / f"set {size}", info, kept, skip_bad=True)
        files = sorted(path for path in dataset.folder.rglob("*") if path.is_file())
        written.append((dataset.info.details, [path.read_bytes() for path in files]))
        with pytest.raises(UserError, match="row 55: Every item needs the same extra columns"):
            write_dataset(tmp_path / f"fault {size}", info, items, skip_bad=True)
        with pytest.raises(DataError, match=r"row 11: Item 'item 11': .*should be a finite number"):
            write_dataset(tmp_path / f"bad {size}", info, iter(kept[8:]))
    assert written[0] == written[1] == written[2]
    assert written[0][0]["skipped"]["count"] == 5
