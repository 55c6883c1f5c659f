"""Prepared datasets: reader, validator and writer, with every kind of broken input."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fuzz_parsers import changed_json
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cml.data import metadata
from cml.data.check_dataset import check_dataset
from cml.data.dataset_info import DatasetInfo
from cml.data.encode_image import Encoded, encode
from cml.data.label_form import LabelForm
from cml.data.prepared import ROLES, PreparedDataset
from cml.data.prepared_writer import Item, PreparedWriter, find_prepared, write_dataset
from cml.errors import DataError, UserError

ROLE_OF = ["train", "train", "train", "query", "gallery", "gallery"]


def info(label_column: str = "keypoints", **changes: Any) -> DatasetInfo:  # noqa: ANN401
    texts = {"label_unit": "px", "frame": "crop", "source": "drawn", "licence": "MIT"}
    return DatasetInfo(**{"name": "tiny", "task": "pose", "label_column": label_column, **texts, **changes})


def picture(seed: int, size: int = 24) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8))


def same(a: Image.Image, b: Image.Image) -> bool:
    return np.array_equal(np.asarray(a), np.asarray(b))


def keypoints(seed: int) -> list[list[float]]:
    return [[float(seed), 2.5, 1], [0, 0, 0]]


def write(folder: Path, label: Callable[[int], Any] = keypoints, **changes: Any) -> PreparedDataset:  # noqa: ANN401
    items = [Item(f"id{n}", role, picture(n), label(n), extra={"n": n}) for n, role in enumerate(ROLE_OF)]
    return write_dataset(folder, info(**changes), items)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("written") / "set").folder


@pytest.fixture
def dataset(written: Path, tmp_path: Path) -> Path:
    """A copy of a dataset of its own, since writing one waits for the disk."""
    return shutil.copytree(written, tmp_path / "set")


def lines(folder: Path, name: str = "train") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name / "metadata.jsonl").read_text().splitlines()]


def rewrite(folder: Path, name: str, entries: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / name / "metadata.jsonl").write_text(text)


def change(folder: Path, name: str, line: int, **columns: Any) -> None:  # noqa: ANN401
    entries = lines(folder, name)
    entries[line - 1] |= columns
    rewrite(folder, name, entries)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.parent.iterdir() if path != folder]


# ---- writing and reading back


def test_round_trip(tmp_path: Path) -> None:
    made = write(tmp_path / "set", details={"joints": ["a", "b"]}, made_with={"source": "test", "settings": {"x": 1}})
    read = PreparedDataset.open(str(made.folder))
    assert read.info == made.info
    assert read.info.counts == {"train": 3, "query": 1, "gallery": 2}
    assert read.info.details == {"joints": ["a", "b"]}
    for role in ROLES:
        split = read.split(role)
        expected = [n for n, other in enumerate(ROLE_OF) if other == role]
        assert len(split) == len(expected)
        assert split.role == role
        assert list(split.item_ids) == [f"id{n}" for n in expected]
        assert list(split.labels) == [keypoints(n) for n in expected]
        for path, number in zip(split.paths, expected, strict=True):
            assert path.parent.parent.name == ("train" if role == "train" else "test")
            assert np.abs(np.asarray(Image.open(path)) / 1.0 - np.asarray(picture(number))).mean() < 60
    assert check_dataset(made.folder) == []
    assert leftovers(made.folder) == []
    assert lines(made.folder)[2]["n"] == 2
    with pytest.raises(UserError, match="'test'"):
        read.split("test")


def test_fingerprint_follows_metadata(tmp_path: Path) -> None:
    first, same = write(tmp_path / "a"), write(tmp_path / "b")
    assert first.fingerprint == same.fingerprint
    assert write(tmp_path / "c", lambda n: keypoints(n + 1)).fingerprint != first.fingerprint
    assert write(tmp_path / "d", label_unit="m").fingerprint != first.fingerprint


def test_pictures_keep_their_bytes_or_are_encoded(tmp_path: Path) -> None:
    picture(0).save(tmp_path / "a.jpg", quality=40)
    picture(0).save(tmp_path / "b.png")
    picture(0).save(tmp_path / "c.bmp")
    for name, suffix in (("a.jpg", ".jpg"), ("b.png", ".png")):
        path = tmp_path / name
        assert (
            encode(path) == encode(path.read_bytes()) == encode(path.read_bytes) == Encoded(path.read_bytes(), suffix)
        )
    assert encode(tmp_path / "c.bmp").suffix == ".jpg"
    lossless = encode(picture(3), quality=None)
    (tmp_path / "lossless.png").write_bytes(lossless.content)
    assert lossless.suffix == ".png"
    assert same(Image.open(tmp_path / "lossless.png"), picture(3))
    assert len(encode(picture(3), quality=30).content) < len(encode(picture(3)).content)
    assert encode(Image.new("RGBA", (8, 8))).suffix == ".jpg"
    (tmp_path / "cut.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:-200])
    (tmp_path / "cut.png").write_bytes((tmp_path / "b.png").read_bytes()[:-200])
    (tmp_path / "text.jpg").write_text("no image")
    Image.fromarray(np.zeros((4, 4), np.float32)).save(tmp_path / "deep.tif")
    for name, what in (
        ("cut.jpg", "truncated"),
        ("cut.png", ""),
        ("text.jpg", "it is none of"),
        ("deep.tif", "8 bits"),
        ("gone.jpg", "No such file"),
    ):
        with pytest.raises(DataError, match=rf"(?s){name}.*{what}"):
            encode(tmp_path / name)


def test_ids_become_safe_file_names(tmp_path: Path) -> None:
    ids = ["a/b.jpg", "a_b", "A_b", "../../x", ".hidden", "人", "物", "x" * 300, "a b"]
    with PreparedWriter(tmp_path / "set", info("value")) as writer:
        for number, item_id in enumerate(ids):
            writer.add([Item(item_id=item_id, role="train", image=picture(number), label=number)])
        for role in ("query", "gallery"):
            writer.add([Item(item_id=role, role=role, image=picture(0), label=0)])
    split = PreparedDataset.open(tmp_path / "set").split("train")
    assert list(split.item_ids) == ids
    names = [path.name for path in split.paths]
    assert len({name.lower() for name in names}) == len(ids)
    assert all(len(name) < 120 and name[0] not in "._-" and name.isascii() for name in names)
    assert all(path.parent == tmp_path / "set/train/images" for path in split.paths)
    assert names[0] == "a_b.jpg"
    assert check_dataset(tmp_path / "set") == []


def test_masks_and_captions(tmp_path: Path) -> None:
    mask = np.arange(24 * 24, dtype=np.uint8).reshape(24, 24) % 6
    made = write(tmp_path / "set", lambda n: Image.fromarray(mask), label_column="layout_file_name")
    label = made.split("query").labels[0]
    assert label == made.folder / "test/layout/id3.png"
    assert same(Image.open(label), Image.fromarray(mask))
    assert check_dataset(made.folder) == []
    label.unlink()
    with pytest.raises(DataError, match=r"test/metadata.jsonl:1: layout_file_name 'layout/id3.png' names a missing"):
        PreparedDataset.open(made.folder)
    captions = write(tmp_path / "captions", lambda n: ["one"] * (n + 1), label_column="captions")
    assert captions.split("train").labels == (["one"], ["one"] * 2, ["one"] * 3)
    with pytest.raises(UserError, match="should be an image"):
        write(tmp_path / "bad", label_column="layout_file_name")


# ---- all or nothing


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
def test_an_error_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def items() -> Iterator[Item]:
        yield Item("a", "train", picture(0), 0.0)
        raise error

    with pytest.raises(type(error)):
        write_dataset(tmp_path / "set", info("value"), items())
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_nothing_at_out(tmp_path: Path) -> None:
    out = tmp_path / "set"
    script = f"""
        import time
        from pathlib import Path
        from PIL import Image
        from cml.data.prepared import DatasetInfo
        from cml.data.prepared_writer import Item, PreparedWriter
        info = DatasetInfo("n", "value", "value", "", "", "", "")
        with PreparedWriter(Path({str(out)!r}), info) as writer:
            for n, role in enumerate(["train", "query", "gallery"]):
                writer.add([Item(item_id=str(n), role=role, image=Image.new("RGB", (8, 8)), label=n)])
            print("written", flush=True)
            time.sleep(60)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()
    assert write(out).info.counts["train"] == 3  # what the killed run left behind is in nobody's way


def test_a_full_disk_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0
    really_write = Path.write_bytes

    def write_bytes(path: Path, content: bytes) -> int:
        nonlocal written
        written += 1
        if written == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return really_write(path, content)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    with pytest.raises(UserError, match=f"disk is full.*{tmp_path / 'set'}"):
        write(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_full_at_the_last_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_json(path: Path, value: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("cml.data.prepared_writer.write_json", write_json)
    with pytest.raises(UserError, match="disk is full"):
        write(tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_already_prepared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    origin = {"source": "test", "revision": 1, "settings": {"size": 24, "names": ("a", "b")}, "input": "00"}
    out = tmp_path / "set"
    assert find_prepared(out, origin) is None
    out.mkdir()
    assert find_prepared(out, origin) is None  # an empty folder is as good as none
    made = write(out, made_with=origin)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    again = find_prepared(out, origin)
    assert again is not None
    assert again.fingerprint == made.fingerprint
    assert "already prepared" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == before
    with pytest.raises(UserError, match=r"size was 24, now 32"):
        find_prepared(out, {**origin, "settings": {"size": 32, "names": ["a", "b"]}})
    with pytest.raises(UserError, match="already exists"):
        write(out)
    other = tmp_path / "other"
    other.mkdir()
    (other / "photo.jpg").touch()
    with pytest.raises(UserError, match="not an empty folder"):
        find_prepared(other, origin)
    shutil.rmtree(out / "test" / "images")
    with pytest.raises(DataError, match="missing file"):
        find_prepared(out, origin)


def test_the_writer_refuses(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no query items"):
        write_dataset(tmp_path / "set", info("value"), [Item("a", "train", picture(0), 1)])
    good: dict[str, Any] = {"item_id": "b", "role": "train", "image": picture(0), "label": [1, 2], "extra": {"n": 1}}
    for changes, what in (
        ({"item_id": "a"}, "no other item has"),
        ({"item_id": ""}, "no other item has"),
        ({"item_id": "a\nb"}, "printable"),
        ({"role": "test"}, "'test'"),
        ({"label": [1, math.nan]}, "not finite"),
        ({"label": [1, math.inf]}, "not finite"),
        ({"label": [1, 10**400]}, "not finite"),
        ({"label": np.array([1, 2, 3])}, "3 numbers, but the first"),
        ({"label": None}, "has None"),
        ({"label": [True, 1]}, "has True"),
        ({"extra": {}}, "same extra columns"),
        ({"extra": {"n": 1.5}}, "same extra columns"),
        ({"extra": {"role": 1}}, "'role'"),
    ):
        with PreparedWriter(tmp_path / "set", info("value")) as writer:
            writer.add([Item(**{**good, "item_id": "a"})])
            with pytest.raises(UserError, match=what):
                writer.add([Item(**{**good, **changes})])
            writer.add([Item(**good)])  # a refused item leaves no trace
            for role in ("query", "gallery"):
                writer.add([Item(**{**good, "item_id": role, "role": role})])
        assert check_dataset(tmp_path / "set") == []
        shutil.rmtree(tmp_path / "set")


def test_an_error_of_an_item_says_where_it_comes_from(tmp_path: Path) -> None:
    items = [Item("a", "train", tmp_path / "gone.jpg", 1.0, where="labels.csv:2")]
    with pytest.raises(DataError, match=r"^labels.csv:2: The image .*gone.jpg cannot be read"):
        write_dataset(tmp_path / "set", info("value"), items)


# ---- broken datasets: open raises the first fault, check_dataset lists it


def _truncate_image(folder: Path) -> None:
    path = folder / "test/images/id3.jpg"
    path.write_bytes(path.read_bytes()[:-100])


def _link_out(folder: Path) -> None:
    (folder.parent / "secret.jpg").write_bytes((folder / "train/images/id0.jpg").read_bytes())
    (folder / "train/images/id0.jpg").unlink()
    (folder / "train/images/id0.jpg").symlink_to(folder.parent / "secret.jpg")


def _link_folder_out(folder: Path) -> None:
    shutil.move(folder / "train/images", folder.parent / "images")
    (folder / "train/images").symlink_to(folder.parent / "images")


def _text(name: str, line: int, text: str) -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        path = folder / name / "metadata.jsonl"
        rows = path.read_bytes().splitlines()
        rows[line - 1] = text.encode("latin-1")
        path.write_bytes(b"\n".join(rows) + b"\n")

    return put


def _edit(name: str, line: int, **columns: Any) -> Callable[[Path], None]:  # noqa: ANN401
    return lambda folder: change(folder, name, line, **columns)


def _of_info(**fields: Any) -> Callable[[Path], None]:  # noqa: ANN401
    def put(folder: Path) -> None:
        value = json.loads((folder / "dataset.json").read_text())
        (folder / "dataset.json").write_text(json.dumps({**value, **fields}))

    return put


def _drop_queries(folder: Path) -> None:
    rewrite(folder, "test", [entry for entry in lines(folder, "test") if entry["role"] != "query"])
    _of_info(counts={"train": 3, "query": 0, "gallery": 2})(folder)


def _drop_training(folder: Path) -> None:
    (folder / "train/metadata.jsonl").write_text("")
    _of_info(counts={"train": 0, "query": 1, "gallery": 2})(folder)


TRAIN, TEST = "train/metadata.jsonl", "test/metadata.jsonl"
NUMBERS = '{"file_name": "images/id1.jpg", "item_id": "id1", "role": "train", "keypoints": [[%s, 0, 1], [0, 0, 0]]}'
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no json": (_text("train", 2, '{"file_name": '), f"{TRAIN}:2: is not JSON"),
    "an empty line": (_text("train", 2, ""), f"{TRAIN}:2: is not JSON"),
    "a list": (_text("train", 2, "[1]"), f"{TRAIN}:2: should be one JSON object"),
    "no utf-8": (_text("train", 2, '{"a": "\xff"}'), f"{TRAIN}:2: is not UTF-8"),
    "nested deep": (_text("train", 2, "[" * 10**5), f"{TRAIN}:2: is nested too deep"),
    "huge number": (_text("train", 2, NUMBERS % ("9" * 5000)), f"{TRAIN}:2: holds a number of thousands of digits"),
    "nan": (_text("train", 2, NUMBERS % "NaN"), f"{TRAIN}:2: holds NaN"),
    "infinity": (_text("train", 2, NUMBERS % "-Infinity"), f"{TRAIN}:2: holds -Infinity"),
    "overflow": (_text("train", 2, NUMBERS % "1e999"), f"{TRAIN}:2: holds 1e999, which is too large"),
    "large whole number": (_text("train", 2, NUMBERS % ("9" * 400)), f"{TRAIN}:2: keypoints holds a number too large"),
    "a joint less": (_edit("train", 2, keypoints=[[1, 1, 1]]), f"{TRAIN}:2: keypoints is an array of 1 x 3 numbers"),
    "ragged": (_edit("train", 2, keypoints=[[1, 1, 1], [1]]), f"{TRAIN}:2: keypoints holds lists of different"),
    "a word": (_edit("train", 2, keypoints=[[1, 1, "1"], [1, 1, 1]]), f"{TRAIN}:2: .*has '1'"),
    "null": (_edit("test", 2, keypoints=None), f"{TEST}:2: .*has None"),
    "true": (_edit("test", 2, keypoints=[[True, 1, 1], [1, 1, 1]]), f"{TEST}:2: .*has True"),
    "role twice": (_text("train", 2, '{"role": "train", ' + NUMBERS[1:] % 1), f"{TRAIN}:2: names the key 'role' twice"),
    "no label": (_text("train", 2, NUMBERS.replace("keypoints", "kp") % 1), f"{TRAIN}:2: has no column 'keypoints'"),
    "role of the other folder": (_edit("train", 2, role="query"), f"{TRAIN}:2: role should be train .*'query'"),
    "unknown role": (_edit("test", 2, role="val"), f"{TEST}:2: role should be query or gallery"),
    "role is a list": (_edit("test", 2, role=["query"]), f"{TEST}:2: role should be query or gallery"),
    "id twice": (_edit("test", 2, item_id="id1"), f"{TEST}:2: item_id 'id1' is listed already in .*{TRAIN}:2"),
    "id is a number": (_edit("test", 2, item_id=3), f"{TEST}:2: item_id should be a text"),
    "image twice": (_edit("train", 2, file_name="./images/id0.jpg"), f"{TRAIN}:2: image .*already in .*{TRAIN}:1"),
    "image missing": (lambda folder: (folder / "test/images/id3.jpg").unlink(), f"{TEST}:1: file_name .*missing file"),
    "absolute": (_edit("train", 2, file_name="/etc/passwd"), f"{TRAIN}:2: file_name '/etc/passwd' should be relative"),
    "upwards": (_edit("train", 2, file_name="images/../../x.jpg"), f"{TRAIN}:2: .*without '..'"),
    "a folder": (_edit("train", 2, file_name="images"), f"{TRAIN}:2: .*missing file"),
    "nul": (_edit("train", 2, file_name="a\0/b.jpg"), f"{TRAIN}:2: file_name .*holds a backslash or NUL"),
    "surrogate": (_edit("train", 2, file_name="\ud800/b.jpg"), f"{TRAIN}:2: holds half a character"),
    "no name": (_edit("train", 2, file_name=None), f"{TRAIN}:2: file_name None should be the path"),
    "link out": (_link_out, f"{TRAIN}:1: .*leads out of the dataset"),
    "folder link out": (_link_folder_out, f"{TRAIN}:1: .*leads out of the dataset"),
    "second file": (_edit("train", 2, depth_file_name="d.png"), f"{TRAIN}:2: depth_file_name 'd.png' names a missing"),
    "counts": (_of_info(counts={"train": 4, "query": 1, "gallery": 2}), "counts 4 train items, but .* lists 3"),
    "no query": (_drop_queries, "has no query items"),
    "no training": (_drop_training, "has no train items"),
    "a line lost": (lambda folder: rewrite(folder, "train", lines(folder)[:2]), "counts 3 train items, but .* lists 2"),
    "no metadata": (lambda folder: (folder / TEST).unlink(), f"{TEST} cannot be read"),
    "no info": (lambda folder: (folder / "dataset.json").unlink(), "dataset.json cannot be read"),
    "info no json": (lambda folder: (folder / "dataset.json").write_text("{"), "dataset.json: is not JSON"),
    "info without task": (_of_info(task=None), "dataset.json: task should be a text"),
    "info without name": (_of_info(name=""), "dataset.json: name should be a text"),
    "info label column": (_of_info(label_column="role"), "dataset.json: label_column cannot be 'role'"),
    "info counts": (_of_info(counts=[1]), "dataset.json: counts should be an object"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_metadata(dataset: Path, kind: str) -> None:
    spoil, message = BROKEN[kind]
    spoil(dataset)
    with pytest.raises(DataError, match=message) as caught:
        PreparedDataset.open(dataset)
    assert str(dataset) in str(caught.value)
    assert str(caught.value) in check_dataset(dataset)


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dataset.json cannot be read \(No such file"):
        PreparedDataset.open(tmp_path / "gone")
    assert len(check_dataset(tmp_path / "gone")) == 1


def test_check_decodes_every_image_and_finds_all_faults(dataset: Path) -> None:
    _truncate_image(dataset)
    (dataset / "train/images/id1.jpg").write_text("no image")
    (dataset / "train/images/stray.png").write_bytes(b"")
    change(dataset, "train", 3, keypoints=[[1, 2, 3]])
    done: list[int] = []
    problems = check_dataset(dataset, progress=done.append)
    assert len(done) == 6
    assert len(problems) == 4
    for problem, parts in zip(
        problems,
        (
            (f"{TRAIN}:3", "1 x 3 numbers"),
            (f"{TRAIN}:2", "id1.jpg cannot be read"),
            (f"{TEST}:1", "id3.jpg cannot be read", "truncated"),
            ("train/images/stray.png", "no metadata.jsonl lists"),
        ),
        strict=True,
    ):
        assert all(part in problem for part in parts), problem


def test_images_may_lie_anywhere_below(dataset: Path) -> None:
    (dataset / "train/a/b").mkdir(parents=True)
    (dataset / "train/images/id1.jpg").rename(dataset / "train/a/b/x.jpg")
    (dataset / "train/images/id2.jpg").rename(dataset / "train/y.jpg")
    change(dataset, "train", 2, file_name="a/b/x.jpg")
    change(dataset, "train", 3, file_name="./y.jpg")
    paths = PreparedDataset.open(dataset).split("train").paths
    assert paths == (dataset / "train/images/id0.jpg", dataset / "train/a/b/x.jpg", dataset / "train/y.jpg")
    assert check_dataset(dataset) == []


def test_a_dataset_made_by_hand(dataset: Path) -> None:
    value = json.loads((dataset / "dataset.json").read_text())
    del value["details"], value["made_with"]
    (dataset / "dataset.json").write_text(json.dumps({**value, "more": 1}))
    assert PreparedDataset.open(dataset).info.details == {}


# ---- label form against a plain recursion


def slow_shape(label: Any) -> tuple[int, ...] | None:  # noqa: ANN401
    """The shape of nested lists of finite numbers; None where there is none."""
    if isinstance(label, list):
        shapes = [slow_shape(part) for part in label]
        if not shapes or any(shape is None or shape != shapes[0] for shape in shapes):
            return None
        return (len(label), *shapes[0])  # type: ignore[misc]
    if isinstance(label, bool) or not isinstance(label, int | float) or not math.isfinite(label):
        return None
    return ()


nested = st.recursive(
    st.one_of(st.integers(-5, 5), st.floats(), st.booleans(), st.none()), lambda part: st.lists(part, max_size=3)
)


@settings(deadline=None, max_examples=50)
@given(nested, nested)
def test_label_form_agrees_with_recursion(first: Any, second: Any) -> None:  # noqa: ANN401
    form = LabelForm()
    for label in (first, second):
        assert (LabelForm().fault(label) is None) == (slow_shape(label) is not None)
    if slow_shape(first) is not None and form.fault(first) is None:
        assert (form.fault(second) is None) == (slow_shape(second) == slow_shape(first))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 4), max_size=4))
def test_label_form_takes_every_full_array(shape: list[int]) -> None:
    form = LabelForm()
    label = np.arange(math.prod(shape), dtype=float).reshape(shape).tolist()
    assert form.fault(label) is None
    assert form.fault(label) is None
    assert form.fault([label]) is not None


def test_label_form_of_texts() -> None:
    form = LabelForm()
    assert form.fault(["a", "b"]) is None
    assert form.fault(["c"]) is None
    assert "empty" in str(form.fault([]))
    assert "empty text" in str(form.fault(["a", " "]))
    assert "a text, but the first item's is a list of texts" in str(form.fault("a"))
    assert "one number" in str(form.fault(3))
    assert LabelForm().fault("a.png") is None
    assert "empty" in str(LabelForm().fault(""))
    assert LabelForm().fault({"a": 1}) is not None
    deep: Any = 1.0
    for _ in range(2000):
        deep = [deep]
    assert "deeper" in str(LabelForm().fault(deep))


# ---- Hugging Face datasets reads the folder as it is


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Any]:
    for name in ("HF_HOME", "HF_DATASETS_CACHE", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()

    def load_dataset(folder: Path) -> Any:  # noqa: ANN401
        return datasets.load_dataset("imagefolder", data_dir=str(folder), cache_dir=str(tmp_path / "cache"))

    return load_dataset


def test_hugging_face_reads_nested_labels(tmp_path: Path, load: Callable[[Path], Any]) -> None:
    made = write(tmp_path / "set", lambda n: [[n, 2.5, 1], [0, 0, 0]])
    loaded = load(made.folder)
    assert set(loaded) == {"train", "test"}
    assert set(loaded["train"].column_names) == {"image", "item_id", "role", "keypoints", "n"}
    assert loaded["train"]["keypoints"] == [[[n, 2.5, 1], [0, 0, 0]] for n in range(3)]
    assert loaded["test"]["role"] == ["query", "gallery", "gallery"]
    for n, row in enumerate(loaded["train"]):
        assert row["item_id"] == f"id{n}"
        assert same(row["image"], Image.open(made.split("train").paths[n]))


def test_hugging_face_reads_masks(tmp_path: Path, load: Callable[[Path], Any]) -> None:
    masks = [Image.fromarray(np.full((24, 24), n, np.uint8)) for n in range(6)]
    made = write(tmp_path / "set", lambda n: masks[n], label_column="layout_file_name")
    loaded = load(made.folder)
    assert set(loaded["train"].column_names) == {"image", "item_id", "role", "layout", "n"}
    for n, row in enumerate(loaded["test"]):
        assert same(row["layout"], masks[3 + n])
        assert row["image"].mode == "RGB"


def test_hugging_face_reads_captions(tmp_path: Path, load: Callable[[Path], Any]) -> None:
    made = write(tmp_path / "set", lambda n: ["a dog"] * (n + 1), label_column="captions")
    assert load(made.folder)["test"]["captions"] == [["a dog"] * 4, ["a dog"] * 5, ["a dog"] * 6]


# ---- many lines at once against each by itself


def unusual(*_: object, **_options: object) -> None:
    """Leaves every line to the reader that words faults."""
    raise metadata._Unusual


@pytest.fixture
def line_by_line(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], PreparedDataset]:
    """Opens a dataset without the parser of many lines."""

    def opened(folder: Path) -> PreparedDataset:
        with monkeypatch.context() as context:
            context.setattr("cml.data.metadata._Reader._take", unusual)
            return PreparedDataset.open(folder)

    return opened


LABELS: dict[str, Callable[[int], Any]] = {
    "numbers": lambda n: n / 3,
    "poses": keypoints,
    "texts": lambda n: f"class {n % 2}",
    "captions": lambda n: ["a \u00e9 \u2013 \U0001f600"] * (n + 1),
}


@pytest.mark.parametrize("kind", LABELS)
def test_many_lines_at_once_give_what_each_by_itself_gives(
    tmp_path: Path, kind: str, line_by_line: Callable[[Path], PreparedDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = write(tmp_path / "set", LABELS[kind], label_column="thing")
    slow = line_by_line(made.folder)
    for size in (1, 200, 1 << 20):  # a line at a time, two lines or more, all
        monkeypatch.setattr("cml.data.metadata._BLOCK", size)
        monkeypatch.setattr("cml.data.metadata._LineReader", None)  # nothing here needs a closer look
        fast = PreparedDataset.open(made.folder)
        monkeypatch.undo()
        assert fast.fingerprint == slow.fingerprint
        for role in ROLES:
            assert fast.split(role) == slow.split(role)
            assert [type(label) for label in fast.split(role).labels] == [
                type(label) for label in slow.split(role).labels
            ]


@pytest.mark.parametrize("size", [1, 300])
@pytest.mark.parametrize("kind", BROKEN)
def test_faults_are_the_same_however_many_lines_are_read_at_once(
    dataset: Path, kind: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    BROKEN[kind][0](dataset)
    at_once = check_dataset(dataset)
    monkeypatch.setattr("cml.data.metadata._BLOCK", size)
    assert check_dataset(dataset) == at_once
    monkeypatch.setattr("cml.data.columns.hash", lambda _: 0, raising=False)
    assert check_dataset(dataset) == at_once
    monkeypatch.setattr("cml.data.metadata._Reader._take", unusual)
    assert check_dataset(dataset) == at_once


@pytest.mark.parametrize(
    "spoil",
    [
        '{"file_name": "images/id1.jpg", "item_id": "id1", "role": "train", "keypoints": [[true, 0, 1], [0, 0, 0]]}',
        '{"file_name": "images/id1.jpg", "item_id": "id1", "role": "train", "keypoints": [[1, 0, 1], [0, 0, 0]], '
        '"x": "\xff"}',
        '{"file_name": "images/id1.jpg", "item_id": "id1", "role": "train", "keypoints": [[1, 0, 1], [0, 0, 0]], '
        '"depth\\u005ffile_name": "gone.png"}',
        '{"file_name": "images/id1.jpg", "item_id": "id1", "role": "train", "keypoints": [[1, 0, 1], [0, 0, 0]], '
        '"n": ' + "9" * 5000 + "}",
        '{"file_name": "images/id1.jpg", "item_id": "id1", "role": "train", "keypoints": [[1, 0, 1], [0, 0, 0]]} {}',
        '{"file_name": "images/id1.jpg", "item_id": "id1", "role": "train", "keypoints": [[1, 0, 1], [0, 0, 0]], "x":\n'
        '{}} {"file_name": "images/id2.jpg", "item_id": "id2", "role": "train", "keypoints": [[1, 0, 1], [0, 0, 0]]}',
        '{"file_name": "images/id1.jpg", "item_id": "id1", "role": "train", "keypoints": [[1, 0, 1], [0, 0, 0]], "x":'
        ' [{}\n,{}]} {"file_name": "x", "item_id": "x", "role": "train", "keypoints": [[1, 0, 1], [0, 0, 0]]}',
    ],
    ids=[
        "true among numbers",
        "no UTF-8 where nobody looks",
        "an escaped column",
        "a huge number",
        "two on a line",
        "two on two lines",
        "two on two lines, a list",
    ],
)
def test_many_lines_at_once_let_no_fault_through(dataset: Path, spoil: str) -> None:
    _text("train", 2, spoil)(dataset)
    with pytest.raises(DataError, match=f"{TRAIN}:2: "):
        PreparedDataset.open(dataset)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_taken_at_once_is_sound_line_by_line(
    dataset: Path, line_by_line: Callable[[Path], PreparedDataset], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines changed at random: whatever many lines at once let through, each by itself gives too."""
    whole = (dataset / "train/metadata.jsonl").read_bytes()
    taken = 0
    for number in range(300):
        changed = changed_json(whole, 10**6, 1000 * seed + number)
        (dataset / "train/metadata.jsonl").write_bytes(changed)
        fast = None
        with monkeypatch.context() as context, contextlib.suppress(DataError, metadata._Unusual):
            context.setattr("cml.data.metadata._LineReader.__init__", unusual)
            fast = PreparedDataset.open(dataset)
            taken += changed != whole
        if fast is None:
            continue
        slow = line_by_line(dataset)
        assert slow.fingerprint == fast.fingerprint
        assert all(slow.split(role) == fast.split(role) for role in ROLES)
    assert taken


def test_line_ends_of_windows_are_read_at_once(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = PreparedDataset.open(dataset)
    for name in ("train", "test"):
        path = dataset / name / "metadata.jsonl"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    monkeypatch.setattr("cml.data.metadata._LineReader", None)
    found = PreparedDataset.open(dataset)
    assert all(found.split(role) == expected.split(role) for role in ROLES)


def test_an_item_listed_twice_is_found_across_blocks(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train = dataset / "train/metadata.jsonl"
    train.write_text(train.read_text() * 2)
    problems = check_dataset(dataset)
    assert sum("item_id" in problem for problem in problems) == 3
    assert sum("image " in problem and "listed already" in problem for problem in problems) == 3
    assert f"{train}:4: item_id 'id0' is listed already in {train}:1; an item has one line, one role." in problems
    monkeypatch.setattr("cml.data.metadata._BLOCK", 1)
    assert check_dataset(dataset) == problems


def test_links_and_other_ways_to_say_a_path_stay_good(dataset: Path) -> None:
    (dataset / "train/images/id1.jpg").rename(dataset / "train/real.jpg")
    (dataset / "train/images/id1.jpg").symlink_to(dataset / "train/real.jpg")
    change(dataset, "train", 3, file_name="images//./id2.jpg")
    split = PreparedDataset.open(dataset).split("train")
    assert [path.name for path in split.paths] == ["id0.jpg", "id1.jpg", "id2.jpg"]
    change(dataset, "train", 1, file_name="images/id1.jpg")
    with pytest.raises(DataError, match=f"{TRAIN}:2: image .*id1.jpg' is listed already in .*{TRAIN}:1"):
        PreparedDataset.open(dataset)


def test_columns_are_sequences(dataset: Path) -> None:
    split = PreparedDataset.open(dataset).split("train")
    assert split.item_ids[-1] == "id2"
    assert split.item_ids[1:] == ("id1", "id2")
    assert split.item_ids != ("id0", "id1", "id3")
    assert split.paths[np.int64(1)] == split.paths[:2][1] == dataset / "train/images/id1.jpg"
    assert pickle.loads(pickle.dumps(split)) == split
    assert np.asarray(split.labels).shape == (3, 2, 3)
    with pytest.raises(IndexError):
        split.item_ids[3]


def test_whole_numbers_stay_whole_and_large_ones_exact(dataset: Path) -> None:
    _of_info(label_column="n")(dataset)
    assert [type(label) for label in PreparedDataset.open(dataset).split("train").labels] == [int] * 3
    change(dataset, "train", 2, n=2**53 + 1)
    change(dataset, "train", 3, n=10**30)
    assert list(PreparedDataset.open(dataset).split("train").labels) == [0, 2**53 + 1, 10**30]
