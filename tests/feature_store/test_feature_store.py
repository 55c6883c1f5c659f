"""The feature store: what it holds, that it is computed once, what a kill leaves, and what it refuses."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from export_runs import draw_images
from PIL import Image
from torch import nn

import cml
from cml.cli import main
from cml.data import images as images_module
from cml.data.prepared import PreparedDataset
from cml.errors import DataError, UserError
from cml.feature_store import stored_items
from cml.feature_store.frozen_features import frozen_features
from cml.feature_store.networks import BackboneNetwork, FunctionNetwork
from cml.feature_store.store import FeatureStore
from cml.feature_store.stored_items import FileItems, ValueItems, value_key
from cml.feature_store.write_store import write_features
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.ranks import Ranks
from cml.storage.atomic import GrowingFile
from cml.storage.resumable_output import work_path

SIZE = ["--image-size", "32", "32"]
SMALL: dict[str, Any] = {"image_size": (32, 32), "crop": 1.0, "quiet": True}


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lite0() -> EmbeddingModel:
    return EmbeddingModel(ModelConfig("efficientnet-lite0", "imagenet", 2, False, (32, 32)))


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "people"
    cml.prepare("people", folder, count=110, size=32)
    return folder


@pytest.fixture(scope="module")
def made(people: Path) -> FeatureStore:
    return cml.features(people, out=people.parent / "store", **SMALL)


@contextlib.contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count images that are decoded and files that are digested."""
    counts = {"decoded": 0, "digested": 0}

    def count(name: str, function: Any) -> Any:  # noqa: ANN401
        def counting(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            counts[name] += 1
            return function(*arguments, **options)

        return counting

    with monkeypatch.context() as patch:
        patch.setattr(images_module, "read_image", count("decoded", images_module.read_image))
        patch.setattr(stored_items, "digest_file", count("digested", stored_items.digest_file))
        yield counts


def test_features_are_bit_for_bit_those_of_a_frozen_backbone(people: Path, made: FeatureStore) -> None:
    dataset, model = PreparedDataset.open(people), lite0()
    start = 0
    for role in ("train", "query", "gallery")[: 2 if dataset.info.queries_are_gallery else 3]:
        split = dataset.split(role)
        rows = np.asarray(made.rows)[start : start + len(split)]
        np.testing.assert_array_equal(rows, frozen_features(model, split.paths))
        np.testing.assert_array_equal(rows, model.extract(split.paths))
        assert made.item_ids[start : start + len(split)] == list(split.item_ids)
        start += len(split)
    assert len(made) == start
    assert len(dataset.split("train")) > 64  # more than a batch, and no whole number of batches
    np.testing.assert_array_equal(np.load(made.folder / "features-00000.npy"), made.rows)


def test_a_store_is_an_array_of_its_rows(made: FeatureStore, tmp_path: Path) -> None:
    rows = np.asarray(made.rows)
    np.testing.assert_array_equal(np.asarray(made), rows)
    assert np.asarray(made, np.float64).dtype == np.float64
    assert made.shape == rows.shape
    for items in (3, -1, np.int64(2), slice(1, 9, 2), [5, 0, 5], rows[:, 0] > np.median(rows[:, 0]), slice(0, 0)):
        np.testing.assert_array_equal(made[items], rows[items])
    with pytest.raises(IndexError):
        made[len(made)]
    model = cml.fit(
        made, np.arange(float(len(made))), steps=1, dimension=4, quiet=True, sampler="random(batch_size=20)"
    )
    np.testing.assert_allclose(model.embed(made[:5]), model.embed(rows[:5]))
    damaged = shutil.copytree(made.folder, tmp_path / "damaged")
    with (damaged / "features-00000.npy").open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"\x01\x02\x03\x04")
    with pytest.raises(DataError, match="its checksum is wrong"):
        np.asarray(FeatureStore.open(damaged))
    with pytest.raises(DataError, match="its checksum is wrong"):
        FeatureStore.open(damaged)[0]


def test_float16_is_the_rounded_float32_in_half_of_the_space(people: Path, made: FeatureStore, tmp_path: Path) -> None:
    half = cml.features(people, out=tmp_path / "half", dtype="float16", **SMALL)
    np.testing.assert_array_equal(np.asarray(half.rows), np.asarray(made.rows).astype(np.float16))
    assert half.select().read(np.arange(3)).dtype == np.float32
    with pytest.raises(UserError, match="holds features as float16, not as float32"):
        cml.features(people, out=tmp_path / "half", **SMALL)
    with pytest.raises(DataError, match=r"'1' reach 7e\+04, too much for float16: store float32"):
        cml.features(np.array([[1.0], [7e4]]), backbone=lambda rows: rows, out=tmp_path / "h", dtype="float16")


def test_a_second_run_computes_nothing_and_reads_no_image(
    people: Path, made: FeatureStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = content(made.folder)
    with counted(monkeypatch) as counts:
        again = cml.features(people, out=made.folder, **SMALL)
        again.find(PreparedDataset.open(people).split("query").paths)
    assert counts == {"decoded": 0, "digested": 0}
    assert content(again.folder) == before
    with counted(monkeypatch) as counts:
        cml.features(people, out=tmp_path / "counted", **SMALL)
    assert counts == {"decoded": len(made), "digested": len(made)}  # so the counters count


def test_a_copy_of_the_images_is_known_by_its_content(
    people: Path, made: FeatureStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(people, tmp_path / "copy", copy_function=shutil.copyfile)  # with new times
    paths = PreparedDataset.open(tmp_path / "copy").split("query").paths
    with counted(monkeypatch) as counts:
        positions = made.find(paths)
        cml.features(tmp_path / "copy", out=made.folder, **SMALL)
    assert counts["decoded"] == 0
    assert [made.items[position].file_name for position in positions] == [
        path.relative_to(tmp_path / "copy").as_posix() for path in paths
    ]


def test_items_of_all_kinds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(150, 4)).astype(np.float32)
    module = nn.Linear(4, 3)
    store = cml.features(rows, backbone=module, out=tmp_path / "vectors", quiet=True)
    np.testing.assert_allclose(np.asarray(store.rows), module(torch.from_numpy(rows)).detach().numpy(), atol=1e-6)
    np.testing.assert_array_equal(store.find(rows[[5, 2]]), [5, 2])
    pixels = rng.integers(0, 255, (3, 20, 20, 3), np.uint8)
    store = cml.features(pixels, backbone="small-cnn", out=tmp_path / "arrays", image_size=(16, 16), quiet=True)
    again = cml.features(pixels, backbone="small-cnn", out=tmp_path / "arrays", image_size=(16, 16), quiet=True)
    assert store.rows.shape == again.rows.shape == (3, 256)  # random weights are the same ones
    photos = draw_images(tmp_path / "photos", 3)
    sides = cml.features(photos, backbone=_file_sizes, out=tmp_path / "function", quiet=True)
    np.testing.assert_array_equal(np.asarray(sides.rows)[:, 0], [path.stat().st_size for path in photos])
    vectors = sides.select(np.array([2, 0]))
    np.testing.assert_array_equal(vectors.subset(slice(0, 1)).read(np.array([0])), np.asarray(sides.rows)[[2]])
    with pytest.raises(UserError, match="There are no items"):
        cml.features(rows[:0], backbone=lambda rows: rows, out=tmp_path / "none")


def _file_sizes(paths: list[Path]) -> list[list[float]]:
    return [[path.stat().st_size, 1.0] for path in paths]


def test_keys_tell_contents_apart(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    values: list[Any] = [
        "a",
        np.zeros((2, 3)),
        np.zeros((3, 2)),
        np.ones((2, 3)),
        [1, "a"],
        {"a": 1},
        Image.new("RGB", (2, 2)),
        Image.new("RGB", (2, 2), "red"),
    ]
    assert len({value_key(value) for value in values}) == len(values)
    assert value_key(torch.ones(3)) == value_key(np.ones(3, np.float32))
    assert value_key(tmp_path / "a") == value_key("a")
    with pytest.raises(UserError, match="Got object instead"):
        value_key(object())
    with pytest.raises(UserError, match="Got ndarray instead"):
        value_key(np.array([{}]))


class Slow:
    """A function that takes a little time for each call."""

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        time.sleep(0.004)
        return np.cumsum(rows, axis=1)


def write_slowly(rows: np.ndarray, out: Path) -> None:
    network = FunctionNetwork(Slow())
    network.chunk = 16
    write_features(ValueItems(rows), network, out, rows_per_shard=100, bar="")


def write_when_started(started: Event, rows: np.ndarray, out: Path) -> None:
    started.set()
    write_slowly(rows, out)


@pytest.mark.parametrize("stores", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_at_random_moments_it_is_the_uninterrupted_store(stores: int, tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(430, 5)).astype(np.float32)
    seconds = math.inf
    for name in ("whole", "again", "once more"):  # a machine that is busy at one moment would take too long
        begun = time.monotonic()
        write_slowly(rows, tmp_path / name)
        seconds = min(seconds, time.monotonic() - begun)
    processes = multiprocessing.get_context("forkserver")  # of a process without threads, that has imported already
    processes.set_forkserver_preload(["cml.feature_store.write_store", "pytest"])
    rng, late = random.Random(0), 0
    for number in range(stores):
        out = tmp_path / str(number)
        for _ in range(2):  # killed twice on the way
            started = processes.Event()
            child = processes.Process(target=write_when_started, args=(started, rows, out))
            child.start()
            assert started.wait(60)
            time.sleep(rng.uniform(0, seconds))
            child.kill()
            child.join(60)
            late += child.exitcode == 0
        write_slowly(rows, out)
        assert content(out) == content(tmp_path / "whole"), number
    assert late <= 2 * stores - 2  # some kills came before the end, also on a machine that was busier when it was timed
    np.testing.assert_array_equal(np.asarray(FeatureStore.open(tmp_path / "0").rows), np.cumsum(rows, axis=1))


def test_killed_after_the_last_step_it_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.ones((30, 2), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr("cml.storage.work_folder.WorkFolder.discard", lambda folder: None)
        write_slowly(rows, tmp_path / "out")
    assert work_path(tmp_path / "out").exists()
    write_slowly(rows, tmp_path / "out")
    assert not work_path(tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["features-00000.npy", "features-00003.npy", "items.jsonl"])
def test_a_half_written_piece_is_dropped(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(0).normal(size=(430, 5)).astype(np.float32)
    write_slowly(rows, tmp_path / "whole")
    append = GrowingFile.append

    def torn(file: GrowingFile, written: bytes) -> None:
        if str(file.name).endswith(name) and len(written) > 200 and torn_after.pop(0) == 0:
            append(file, written[:77])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append(file, written)

    for chunks in (0, 1):
        torn_after = list(range(chunks, -100, -1))
        with monkeypatch.context() as patch:
            patch.setattr(GrowingFile, "append", torn)
            with pytest.raises(OSError, match="No space left on device") as error:
                write_slowly(rows, tmp_path / "torn")
        assert error.value.filename is not None
        write_slowly(rows, tmp_path / "torn")
        assert content(tmp_path / "torn") == content(tmp_path / "whole")
        shutil.rmtree(tmp_path / "torn")


def test_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_images(tmp_path / "photos", 3)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(GrowingFile, "append", full)
    words = ["features", "--images", tmp_path / "photos", "--out", tmp_path / "out", *SIZE]
    assert main([str(word) for word in words]) == 1
    assert f"error: The disk is full ({tmp_path / 'out'}): free some space" in capsys.readouterr().err


def test_stores_of_other_models_and_images_are_refused(people: Path, made: FeatureStore, tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"was made by .*lite0 \(weights imagenet, 32 x 32 pixels\), but .* 48 x 48 pixels\)"
    ):
        cml.features(people, out=made.folder, image_size=(48, 48), crop=1.0)
    with pytest.raises(UserError, match="need small-cnn"):
        cml.features(people, backbone="small-cnn", out=made.folder, image_size=(32, 32))
    with pytest.raises(UserError, match=rf"holds features of {len(made)} items, not of"):
        cml.features(people, out=made.folder, splits=["train"], **SMALL)
    other = BackboneNetwork(lite0()).made_by | {"fingerprint": "0"}
    with pytest.raises(UserError, match="made by other weights, code or preprocessing of the same name, but run x"):
        made.check_made_by(other, "run x")

    photos = draw_images(tmp_path / "photos", 3)
    store = cml.features(tmp_path / "photos", out=tmp_path / "store", **SMALL)
    Image.new("RGB", (9, 9)).save(photos[1])
    with pytest.raises(UserError, match=f"holds features of other items: item 1, '{photos[1].name}'"):
        cml.features(tmp_path / "photos", out=tmp_path / "store", **SMALL)
    Image.new("RGB", (9, 8)).save(tmp_path / "new.png")
    with pytest.raises(
        DataError, match=rf"lacks 3 of 4 items: .*{photos[1].name} \(another image than the stored one\); "
        r".*new\.png \(not among the stored items\); .*gone\.png \(the file is missing\)\. Compute",
    ):  # fmt: skip
        store.find([photos[0], photos[1], tmp_path / "new.png", tmp_path / "gone.png"])
    (tmp_path / "begun").mkdir()
    with pytest.raises(DataError, match="is no finished feature store"):
        FeatureStore.open(tmp_path / "begun")


def test_work_of_another_model_is_not_continued(tmp_path: Path) -> None:
    rows = np.ones((40, 2), np.float32)

    def fails_late(part: np.ndarray) -> np.ndarray:
        if len(part) < 16:
            raise KeyboardInterrupt
        return part

    network = FunctionNetwork(fails_late)
    network.chunk = 16
    with pytest.raises(KeyboardInterrupt):
        write_features(ValueItems(rows), network, tmp_path / "out", bar="")
    with pytest.raises(UserError, match="was begun with different settings"):
        write_features(ValueItems(rows), FunctionNetwork(lambda part: part), tmp_path / "out", bar="")
    with pytest.raises(UserError, match="was begun with different settings"):
        write_features(ValueItems(2 * rows), network, tmp_path / "out", bar="")


def test_damaged_stores_are_refused(made: FeatureStore, tmp_path: Path) -> None:
    def copy(number: int) -> tuple[Path, Path]:
        folder = tmp_path / str(number)
        shutil.copytree(made.folder, folder)
        return folder, folder / "features-00000.npy"

    folder, shard = copy(0)
    shard.write_bytes(shard.read_bytes()[:-5])
    with pytest.raises(DataError, match=r"features-00000\.npy cannot be read .*Delete .* and compute"):
        FeatureStore.open(folder)
    folder, shard = copy(1)
    flipped = bytearray(shard.read_bytes())
    flipped[-5] ^= 1
    shard.write_bytes(flipped)
    store = FeatureStore.open(folder)
    with pytest.raises(DataError, match=r"features-00000\.npy is damaged: its checksum is wrong"):
        store.select(np.array([0]))
    folder, shard = copy(2)
    np.save(shard, np.asarray(made.rows)[:, 1:])
    with pytest.raises(DataError, match=rf"should hold float32 \({len(made)}, 1280\). Got float32 \({len(made)}, 1279"):
        FeatureStore.open(folder)
    folder, shard = copy(3)
    np.save(shard, np.array([{}] * len(made), object))
    with pytest.raises(DataError, match="cannot be read"):
        FeatureStore.open(folder)
    folder, shard = copy(4)
    shard.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        FeatureStore.open(folder)
    folder, _ = copy(5)
    (folder / "items.jsonl").write_bytes((folder / "items.jsonl").read_bytes()[:-9])
    with pytest.raises(DataError, match=r"items\.jsonl is damaged"):
        _ = FeatureStore.open(folder).items
    for number, change in enumerate(({"features": 3}, {"items": 1}, {"shards": []}, {"dtype": "object"}, {"kind": 1})):
        folder, _ = copy(6 + number)
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | change))
        with pytest.raises(DataError):
            FeatureStore.open(folder)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda rows: rows[:-1], r"a row of numbers for each of 5 items, \(5, F\). Got float32 \(4, 2\) instead"),
        (lambda rows: rows.astype(object), r"Got object \(5, 2\) instead"),
        (lambda rows: [[1.0], [1.0, 2.0]], r"rows of one length. Got \[\(1,\), \(2,\)\] instead"),
        (lambda rows: None, "Got NoneType instead"),
        (lambda rows: rows * np.nan, "The features of '0' hold NaN or infinity"),
    ],
)
def test_what_a_function_returns_is_checked(returned: Any, message: str, tmp_path: Path) -> None:  # noqa: ANN401
    with pytest.raises(UserError, match=message):
        cml.features(np.ones((5, 2), np.float32), backbone=returned, out=tmp_path / "out")
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())


def test_rows_of_another_width_name_both_numbers(tmp_path: Path) -> None:
    network = FunctionNetwork(lambda rows: rows[:, : 2 - int(rows[0, 0])])
    network.chunk = 3
    rows = np.array([[0, 0]] * 3 + [[1, 0]] * 2, np.float32)
    with pytest.raises(DataError, match="gives 1 numbers for item '3' and gave 2 before"):
        write_features(ValueItems(rows), network, tmp_path / "out", bar="")


def test_an_unreadable_image_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    photos = draw_images(tmp_path / "photos", 3)
    photos[2].write_bytes(b"no image")
    with pytest.raises(DataError, match=photos[2].name):
        cml.features(tmp_path / "photos", out=tmp_path / "store", **SMALL)


def test_shares_of_several_processes_are_the_store_of_one(tmp_path: Path) -> None:
    """Batches begin at multiples of 64 of a chunk in every process, so that the features have the same bits."""

    class Two(Ranks):
        def compute_rows(self, total: int, compute: Any) -> Any:  # noqa: ANN401
            middle = -(-total // 64) // 2 * 64
            return np.concatenate([compute(slice(0, middle)), compute(slice(middle, total))])

    photos = draw_images(tmp_path / "photos", 130, size=20)
    network = BackboneNetwork(lite0())
    one = write_features(FileItems(photos), network, tmp_path / "one", bar="")
    two = write_features(FileItems(photos), network, tmp_path / "two", bar="", ranks=Two())
    assert content(one.folder) == content(two.folder)


@pytest.mark.slow
def test_the_command(people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["features", "--data", people, "--out", tmp_path / "store", *SIZE, "--splits", "query", "--json"]
    assert main([str(word) for word in words]) == 0
    printed = json.loads(capsys.readouterr().out)
    count = len(PreparedDataset.open(people).split("query"))
    assert printed == {"folder": str(tmp_path / "store"), "items": count, "features": 1280, "dtype": "float32"}
    (tmp_path / "texts").write_text("two dogs\nthree dogs\ntwo dogs\n")
    words = ["features", "--texts", tmp_path / "texts", "--backbone", "sentences/all-minilm-l6-v2"]
    assert main([*map(str, words), "--out", str(tmp_path / "texts-store")]) == 0
    assert "features of sentences/all-minilm-l6-v2, 3 x 384 float32" in capsys.readouterr().out
    store = FeatureStore.open(tmp_path / "texts-store")
    np.testing.assert_array_equal(store.find(["three dogs", "two dogs"]), [1, 0])
    for wrong, message in (
        (["--images", people, "--data", people], "Give one of --images FOLDER, --data DATASET and --texts FILE"),
        (["--images", tmp_path / "none"], "none does not exist; give a folder of images"),
        (["--texts", people / "train" / "images" / "00000.png"], "is not UTF-8 text"),
        (["--images", people, "--backbone", "sentences/all-minilm-l6-v2"], "keypoints should be a text"),
        (["--images", people, "--backbone", "efficient-lite0"], "Unknown backbone"),
    ):
        assert main(["features", *map(str, wrong), "--out", str(tmp_path / "x")]) == 2
        assert message in capsys.readouterr().err
