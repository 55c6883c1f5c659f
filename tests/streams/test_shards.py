"""Shards: tar files in the form of WebDataset, the library of that name, and streaming sets of Hugging Face."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.errors import UserError
from cml.streams.tar_shards import parse_array, read_shard

FAST: dict[str, Any] = {"steps": 3, "workers": 0, "quiet": True, "sampler": "random(batch_size=8)"}
PICTURES: dict[str, Any] = {"backbone": "small-cnn", "weights": "none", "image_size": (16, 16), "dimension": 4}


def array_file(array: Any) -> bytes:  # noqa: ANN401
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def picture(level: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 18), (level, level, 255 - level)).save(file, "PNG")
    return file.getvalue()


def write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path: Path) -> Path:
    for shard in range(3):
        members: dict[str, bytes] = {}
        for item in range(20 * shard, 20 * (shard + 1)):
            members[f"{item:04}.png"] = picture(4 * item)
            members[f"{item:04}.json"] = json.dumps({"age": item / 2, "name": f"no {item}"}).encode()
            members[f"{item:04}.cls"] = str(item % 3).encode()
            members[f"{item:04}.npy"] = array_file(np.array([item, 1, 2], np.float32))
            members[f"{item:04}.txt"] = f"text {item}".encode()
            members[f"{item:04}.other"] = b"passed over"
        write_tar(tmp_path / f"{shard}.tar", members)
    return tmp_path


def test_an_item_has_the_fields_of_its_members(shards: Path) -> None:
    item = next(read_shard(shards / "1.tar"))
    assert item.pop("npy").tolist() == [20, 1, 2]
    assert item.pop("png") == {"bytes": picture(80), "path": None}
    assert item == {"__key__": "1.tar: 0020", "json.age": 10, "json.name": "no 20", "cls": 2, "txt": "text 20"}


def test_tar_files_are_trained_on(shards: Path) -> None:
    stream = cml.LabelledStream(str(shards / "*.tar"), buffer=20)
    assert repr(stream) == "LabelledStream(3 tar files, buffer=20, shares=3)"
    model = cml.fit(stream, image="png", label="json.age", **FAST, **PICTURES)
    again = cml.fit(stream, image="png", label="json.age", **{**FAST, "workers": 2}, **PICTURES)
    pictures = np.zeros((2, 16, 16, 3), np.uint8)
    assert np.array_equal(model.embed(pictures), again.embed(pictures))
    listed = list(itertools.islice(stream, 30))  # what is advised where all items are needed
    assert cml.fit(listed, image="png", label="json.age", **FAST, **PICTURES).form.kind == "images"
    rows = cml.fit(stream, features="npy", label="cls", label_distance="classes", loss="proxy-anchor", **FAST)
    assert rows.form.shape == (3,)


def test_the_order_of_tar_files_is_drawn_for_each_pass(shards: Path) -> None:
    stream = cml.LabelledStream([shards / f"{number}.tar" for number in range(3)], shares=1)
    first = [next(stream.open_share(0, epoch, 0))["cls"] for epoch in range(20)]
    assert set(first) == {0, 2, 1}
    assert len(list(stream.open_share(0, 5, 0))) == 60


def test_damaged_members_are_named(tmp_path: Path) -> None:
    good = {
        f"{item}.{kind}": content for item in range(20) for kind, content in (("png", picture(item)), ("cls", b"1"))
    }
    write_tar(tmp_path / "a.tar", {**good, "77.png": picture(3)[:60], "77.cls": b"1"})
    options: dict[str, Any] = {"label": "cls", "label_distance": "classes", **PICTURES, **FAST}
    with pytest.raises(UserError, match=r"The image of item 20 \(a.tar: 77\) of the stream cannot"):
        cml.fit(cml.LabelledStream(tmp_path / "a.tar", buffer=30), **options)
    write_tar(tmp_path / "b.tar", {**good, "77.npy": array_file(np.ones(3))[:-1]})
    with pytest.raises(UserError, match=r"b.tar: 77.npy cannot be read: it holds 23 bytes, and its header says 24"):
        cml.fit(cml.LabelledStream(tmp_path / "b.tar", buffer=30), image="png", **options)
    (tmp_path / "c.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:9000])
    with pytest.raises(UserError, match=r"c.tar is not a complete tar archive"):
        cml.fit(cml.LabelledStream(tmp_path / "c.tar", buffer=30), image="png", **options)
    with pytest.raises(UserError, match="No file fits"):
        cml.LabelledStream(str(tmp_path / "*.zip"))
    with pytest.raises(UserError, match=r"Each of the 'shares' needs a tar file, but there are 1"):
        cml.LabelledStream(tmp_path / "a.tar", shares=2)


@pytest.mark.parametrize(
    "content", [b"", b"no array", array_file(np.array(["a"], object)), array_file(np.array(["text"]))]
)
def test_arrays_are_of_plain_numbers(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_array(content)


def test_an_array_is_read_as_numpy_does() -> None:
    for array in (np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((3, 2), np.float16)), np.array(True)):
        assert np.array_equal(parse_array(array_file(array)), array)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it closes a file when it is collected
def test_data_sets_of_webdataset_divide_themselves(shards: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    names = [str(shards / f"{number}.tar") for number in range(3)]

    def data() -> Any:  # noqa: ANN401
        return webdataset.WebDataset(names, shardshuffle=False).decode("pil").to_tuple("png", "json")

    def with_ages() -> Iterator[Any]:
        return ((image, label["age"]) for image, label in data())

    model = cml.fit(cml.LabelledStream(with_ages, buffer=20), **FAST, **PICTURES)
    dicts = webdataset.WebDataset(names, shardshuffle=False).decode("pil")
    shared = cml.fit(cml.LabelledStream(dicts, buffer=20, shares=3), image="png", label="cls", **FAST, **PICTURES)
    assert model.config.dimension == shared.config.dimension == 4


def rows(shards: list[int]) -> Iterator[dict[str, Any]]:
    for shard in shards:
        for item in range(20):
            yield {"x": [float(item), float(shard), 1.0], "a": item, "b": shard, "age": float(item + shard)}


def hub_stream(count: int = 4) -> Any:  # noqa: ANN401 - of a library without types
    datasets = pytest.importorskip("datasets")
    return datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": [*range(count)]})


def test_streams_of_hugging_face_are_trained_on_by_their_shards() -> None:
    named: dict[str, Any] = {"features": "x", "label": "age"}
    stream = cml.LabelledStream(hub_stream(), buffer=30)
    assert stream.shares == 4

    def shared(share: int, shares: int) -> Iterator[Any]:
        return ((np.float32(row["x"]), row["age"]) for row in rows([share]))

    probe = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    expected = cml.fit(cml.LabelledStream(shared, buffer=30, shares=4), **{**FAST, "steps": 20}).embed(probe)
    for workers in (0, 2):
        model = cml.fit(stream, **named, **{**FAST, "steps": 20, "workers": workers})
        assert np.array_equal(model.embed(probe), expected)
    assert cml.fit(hub_stream(), **named, **FAST).form.fields == ("x",)
    shuffled = hub_stream().shuffle(seed=1, buffer_size=10)
    assert cml.fit(shuffled, **named, **FAST).form.fields == ("x",)


def test_columns_of_numbers_are_one_vector() -> None:
    import pandas as pd

    model = cml.fit(hub_stream(), features=["a", "b"], label="age", **FAST)
    assert model.form.columns == ("a", "b")
    assert model.embed(pd.DataFrame({"b": [1.0], "a": [2.0]})).shape == (1, 128)
    with pytest.raises(UserError, match="Name the field that holds the inputs"):
        cml.fit(hub_stream(), label="age", **FAST)
    with pytest.raises(UserError, match="Item 0 of share 0 of the stream has no field 'c'"):
        cml.fit(hub_stream(), features=["a", "c"], label="age", **FAST)


def test_a_column_of_class_labels_is_compared_as_classes(capsys: pytest.CaptureFixture[str]) -> None:
    datasets = pytest.importorskip("datasets")
    types = datasets.Features(
        {"x": datasets.Sequence(datasets.Value("float32")), "kind": datasets.ClassLabel(names=["a", "b"])}
    )
    table = datasets.Dataset.from_dict(
        {"x": np.eye(20, 3).tolist(), "kind": [item % 2 for item in range(20)]}, features=types
    )
    model = cml.fit(table.to_iterable_dataset(num_shards=2), label="kind", **{**FAST, "quiet": False})
    assert model.label_distance.name == "classes"
    assert "2 workers" not in capsys.readouterr().err


def test_images_of_hugging_face_may_be_encoded() -> None:
    datasets = pytest.importorskip("datasets")
    pictures = [Image.new("RGB", (18, 18), (level, 0, 0)) for level in range(0, 200, 10)]
    table = datasets.Dataset.from_dict({"picture": pictures, "level": [*range(20)]}).cast_column(
        "picture", datasets.Image()
    )
    named: dict[str, Any] = {"image": "picture", "label": "level", **FAST, **PICTURES}
    probe = np.zeros((1, 16, 16, 3), np.uint8)
    decoded = cml.fit(table.to_iterable_dataset(), **named).embed(probe)
    encoded = table.cast_column("picture", datasets.Image(decode=False)).to_iterable_dataset()
    assert np.array_equal(cml.fit(encoded, **named).embed(probe), decoded)
