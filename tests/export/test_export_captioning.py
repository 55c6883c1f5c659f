from __future__ import annotations

import errno
import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
import pytest
import torch
from export_runs import draw_images, draw_odd_images, make_run
from PIL import Image
from torch import nn

import cml
from cml.cli import main
from cml.data.image_list import ImageList
from cml.data.images import read_image
from cml.errors import DataError, UserError
from cml.export.captioning import CaptioningFeatures, CaptioningView, Estimate, export_captioning
from cml.export.feature_stores import STORES, FeatureStore, Layout
from cml.export.trunk import open_trunk
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.models.weights import backbone_fingerprint
from cml.storage.work_folder import parse_line

NATIVE = CaptioningFeatures()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "value")


@pytest.fixture(scope="module")
def model(run: Path) -> EmbeddingModel:
    return cml.load(run, device="cpu").network


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    draw_images(folder / "val2014", 4, name="COCO_val2014_{:012}.png", size=64)
    draw_images(folder / "train", 3, name="00000039{}.png", size=96, seed=1)
    return folder


def reader(path: Path, extension: str) -> Callable[[str], np.ndarray]:
    """Reads features as the loader of ImageCaptioning.pytorch and self-critical.pytorch does, kind by kind."""

    def parse(content: bytes) -> np.ndarray:
        loaded = np.load(io.BytesIO(content))
        return loaded if extension == ".npy" else loaded["feat"]  # type: ignore[no-any-return]

    if path.suffix == ".lmdb":
        database = lmdb.open(
            str(path),
            subdir=path.is_dir(),
            readonly=True,
            lock=False,
            readahead=False,
            map_size=2 << 40,
            max_readers=100,
        )

        def from_lmdb(key: str) -> np.ndarray:
            with database.begin(write=False) as transaction:
                content = transaction.get(key.encode("ascii"))
            if content is None:
                raise KeyError(key)
            return parse(content)

        return from_lmdb
    if path.suffix == ".h5":

        def from_hdf5(key: str) -> np.ndarray:
            with h5py.File(path, "r") as file:
                return np.array(file[key]).astype("float32")

        return from_hdf5
    return lambda key: parse((path / (key + extension)).read_bytes())


def readers(out: Path, layout: Layout, name: str = "cocotalk") -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    fc, att = STORES[layout].parts(name)
    return reader(out / fc, ".npy"), reader(out / att, ".npz")


def slow_features(model: EmbeddingModel, path: Path, side: int) -> tuple[np.ndarray, np.ndarray]:
    """One image through the stages by hand; each place is the mean of the cells that it overlaps."""
    pixels = torch.from_numpy(read_image(path).copy()).permute(2, 0, 1)[None].float()
    with torch.inference_mode():
        maps = model.backbone.stages((pixels - model.mean) / model.std)[0].numpy()  # type: ignore[operator]
    channels, height, width = maps.shape
    att = np.empty((side, side, channels))
    for row in range(side):
        top, bottom = row * height // side, -(-(row + 1) * height // side)
        for column in range(side):
            left, right = column * width // side, -(-(column + 1) * width // side)
            for channel in range(channels):
                att[row, column, channel] = maps[channel, top:bottom, left:right].mean()
    return maps.mean(axis=(1, 2)), att


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["directory", "hdf5", "lmdb"])
@pytest.mark.parametrize(("side", "dtype"), [(7, "float32"), (14, "float16")])
def test_public_loaders_read_what_was_computed(
    model: EmbeddingModel,
    run: Path,
    photos: Path,
    layout: Layout,
    side: int,
    dtype: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["export", "captioning", str(run), "--images", str(photos), "--out", str(tmp_path), "--layout", layout]
    assert main([*command, "--att-size", str(side), "--dtype", dtype, "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    assert "7 images, " in shown.err
    assert f"7 x {side} x {side} x 192, {dtype}" in shown.out
    fc, att = readers(tmp_path, layout)
    for coco_id, path in {
        "0": photos / "val2014" / "COCO_val2014_000000000000.png",
        "3": photos / "val2014" / "COCO_val2014_000000000003.png",
        "391": photos / "train" / "000000391.png",
    }.items():
        wanted_fc, wanted_att = slow_features(model, path, side)
        assert fc(coco_id).dtype == np.float32
        assert fc(coco_id).shape == (192,)
        np.testing.assert_allclose(fc(coco_id), wanted_fc, atol=1e-4)
        assert att(coco_id).shape == (side, side, 192)
        assert att(coco_id).dtype == ("float32" if layout == "hdf5" else dtype)  # that loader converts
        np.testing.assert_allclose(att(coco_id), wanted_att, atol=1e-4 if dtype == "float32" else 2e-3, rtol=2e-3)
    with pytest.raises((KeyError, FileNotFoundError)):
        fc("000000000003")
    manifest = json.loads((tmp_path / "cocotalk_manifest.json").read_text())
    assert manifest["items"] == 7
    assert manifest["channels"] == 192
    assert manifest["made_with"]["trunk"] == backbone_fingerprint(model)
    assert {path.name for path in tmp_path.iterdir()} == {"cocotalk_manifest.json", *STORES[layout].parts("cocotalk")}


def test_compressed_features_are_smaller_and_the_same(model: EmbeddingModel, photos: Path, tmp_path: Path) -> None:
    images = ImageList.open(photos).with_coco_ids()
    for name in ("plain", "small"):
        options = CaptioningFeatures(name=name, compress=name == "small", att_size=14)
        export_captioning(model, images, tmp_path, options, quiet=True)
    sizes = [sum(path.stat().st_size for path in (tmp_path / f"{name}_att").iterdir()) for name in ("plain", "small")]
    assert sizes[1] < 0.9 * sizes[0]
    plain, small = (reader(tmp_path / f"{name}_att", ".npz")("390") for name in ("plain", "small"))
    np.testing.assert_array_equal(plain, small)


def test_a_centre_crop_has_the_models_size_and_keeps_the_aspect(tmp_path: Path) -> None:
    ramp = np.zeros((60, 120, 3), np.uint8)
    ramp[..., 0] = np.arange(120)[None]
    ramp[..., 1] = np.arange(60)[:, None]
    Image.fromarray(ramp).save(tmp_path / "1.png")
    pixels = CaptioningView("crop", (30, 30), 1280)(tmp_path / "1.png").astype(int)
    assert pixels.shape == (30, 30, 3)
    assert pixels[0, 0, :2] == pytest.approx([30.5, 0.5], abs=1)  # the middle 60 x 60, halved
    assert pixels[29, 29, :2] == pytest.approx([88.5, 58.5], abs=1)
    Image.new("RGB", (9000, 1), (1, 2, 3)).save(tmp_path / "line.png")
    assert (CaptioningView("crop", (30, 40), 1280)(tmp_path / "line.png") == [1, 2, 3]).all()


def test_odd_images_get_the_features_of_what_they_show(model: EmbeddingModel, tmp_path: Path) -> None:
    paths = draw_odd_images(tmp_path / "odd")
    images = ImageList.open(tmp_path / "odd").with_coco_ids()
    manifest = export_captioning(model, images, tmp_path, replace(NATIVE, longest=640), quiet=True)
    assert manifest["items"] == len(paths)
    assert manifest["scaled"] == 3  # the pixel, the line, the large one
    fc, att = readers(tmp_path, "directory")
    for kind in ("grey", "cmyk", "deep", "animated", "turned", "clear"):
        key = paths[kind].stem
        wanted_fc, wanted_att = slow_features(model, paths[kind], 7)
        np.testing.assert_allclose(fc(key), wanted_fc, atol=1e-4, err_msg=kind)
        np.testing.assert_allclose(att(key), wanted_att, atol=1e-4, err_msg=kind)
    view = CaptioningView("native", (32, 32), 640)
    assert view(paths["large"]).shape == (160, 640, 3)
    assert view(paths["line"]).shape == (32, 640, 3)
    assert view(paths["pixel"]).shape == (32, 32, 3)
    assert view(paths["turned"]).shape == (64, 48, 3)
    np.testing.assert_array_equal(fc("6"), fc("6"))


def test_order_of_sizes_and_batches_change_nothing(model: EmbeddingModel, photos: Path, tmp_path: Path) -> None:
    images = ImageList.open(photos).with_coco_ids()
    before = backbone_fingerprint(model)
    for name, batch_size in (("one", 1), ("many", 64)):
        model.train(name == "many")  # as a model comes out of its constructor; the export does not mind
        export_captioning(model, images, tmp_path, replace(NATIVE, name=name), batch_size=batch_size, quiet=True)
        assert model.training == (name == "many")
    model.eval()
    assert backbone_fingerprint(model) == before
    for key in images.item_ids:
        for part, extension in (("fc", ".npy"), ("att", ".npz")):
            one, many = (reader(tmp_path / f"{name}_{part}", extension)(key) for name in ("one", "many"))
            np.testing.assert_allclose(one, many, atol=1e-5)


@pytest.mark.parametrize("layout", ["directory", "hdf5", "lmdb"])
def test_a_stopped_export_is_continued(
    model: EmbeddingModel, layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cml.export.captioning.CHUNK", 4)
    draw_images(tmp_path / "photos", 17, name="{}.png", size=48)
    images = ImageList.open(tmp_path / "photos").with_coco_ids()
    options = replace(NATIVE, layout=layout)
    export_captioning(model, images, tmp_path / "whole", options, quiet=True)
    real, calls = STORES[layout].write, 0

    def full(self: FeatureStore, features: list[Any]) -> None:
        nonlocal calls
        calls += 1
        real(self, features[: 2 if calls == 3 else None])  # the disk fills up in mid-chunk
        if calls == 3:
            raise OSError(errno.ENOSPC, "No space left on device", "photos")

    with monkeypatch.context() as patch:
        patch.setattr(STORES[layout], "write", full)
        with pytest.raises(OSError, match="No space left"):
            export_captioning(model, images, tmp_path / "out", options, quiet=True)
    (work,) = (tmp_path / "out").iterdir()
    assert parse_line((work / "journal.jsonl").read_bytes().splitlines(keepends=True)[-1])["seen"] == 8
    seen = []
    done = EmbeddingModel.feature_maps

    def counted(self: EmbeddingModel, pixels: torch.Tensor) -> torch.Tensor:
        seen.append(len(pixels))
        return done(self, pixels)

    monkeypatch.setattr(EmbeddingModel, "feature_maps", counted)
    export_captioning(model, images, tmp_path / "out", options, quiet=True)
    assert sum(seen) == 1 + 9  # the first one counts the channels
    for path in sorted((tmp_path / "whole").rglob("*")):
        if path.is_file() and layout != "lmdb":  # LMDB's pages depend on its history, its content does not
            assert (tmp_path / "out" / path.relative_to(tmp_path / "whole")).read_bytes() == path.read_bytes(), path
    for whole, out in zip(readers(tmp_path / "whole", layout), readers(tmp_path / "out", layout), strict=True):
        for key in images.item_ids:
            np.testing.assert_array_equal(whole(key), out(key))


def test_a_failed_export_ends_its_threads_at_once(
    model: EmbeddingModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw_images(tmp_path / "photos", 9, name="{}.png", size=48)
    images = ImageList.open(tmp_path / "photos").with_coco_ids()

    calls, done = [], EmbeddingModel.feature_maps

    def broken(self: EmbeddingModel, pixels: torch.Tensor) -> torch.Tensor:
        calls.append(len(pixels))
        if len(calls) > 1:  # the first counts the channels
            raise OSError(errno.EIO, "Input/output error", "photos")
        return done(self, pixels)

    monkeypatch.setattr(EmbeddingModel, "feature_maps", broken)
    before = set(threading.enumerate())
    with pytest.raises(OSError, match="Input/output") as caught:
        export_captioning(model, images, tmp_path / "out", quiet=True)
    # the error keeps all frames: what is left to the garbage collector is still there
    assert {thread.name for thread in set(threading.enumerate()) - before if "tqdm" not in thread.name} == set()
    assert caught.value.errno == errno.EIO


@pytest.mark.slow
def test_sigkill_in_the_middle_of_an_hdf5_file(run: Path, model: EmbeddingModel, tmp_path: Path) -> None:
    draw_images(tmp_path / "photos", 9, name="{}.png", size=48)
    script = """
import os, signal, sys
from pathlib import Path
import cml.export.captioning as captioning
from cml.export.feature_stores import STORES
from cml.data.image_list import ImageList
from cml.export.trunk import open_trunk
Hdf5Store = STORES["hdf5"]
captioning.CHUNK, real, calls = 2, Hdf5Store.write, []
def write(self, features):
    calls.append(1)
    real(self, features[:1] if len(calls) == 3 else features)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
Hdf5Store.write = write
images = ImageList.open(sys.argv[2]).with_coco_ids()
options = captioning.CaptioningFeatures(layout="hdf5")
model = open_trunk(sys.argv[1], device="cpu").model
captioning.export_captioning(model, images, Path(sys.argv[3]), options, quiet=True)
"""
    command = [sys.executable, "-c", script, str(run), str(tmp_path / "photos"), str(tmp_path / "out")]
    assert subprocess.run(command, check=False, timeout=240).returncode == -signal.SIGKILL
    images = ImageList.open(tmp_path / "photos").with_coco_ids()
    for name in ("out", "whole"):
        export_captioning(model, images, tmp_path / name, CaptioningFeatures(layout="hdf5"), quiet=True)
    for out, whole in zip(readers(tmp_path / "out", "hdf5"), readers(tmp_path / "whole", "hdf5"), strict=True):
        for key in images.item_ids:
            np.testing.assert_allclose(out(key), whole(key), atol=1e-5)


@pytest.mark.parametrize(
    ("layout", "most"),
    [("directory", 30_000), ("hdf5", 150_000), ("lmdb", 150_000)],  # bytes: not one image's file, 3 of the 9 images
)
def test_a_file_that_the_system_does_not_let_grow(
    run: Path, model: EmbeddingModel, layout: Layout, most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_images(tmp_path / "photos", 9, name="{}.png", size=48)
    command = ["export", "captioning", str(run), "--images", str(tmp_path / "photos"), "--out", str(tmp_path / "out")]
    command += ["--layout", layout, "--device", "cpu"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        assert main(command) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert main(command) == 0
    fc, _ = readers(tmp_path / "out", layout)
    np.testing.assert_allclose(fc("8"), slow_features(model, tmp_path / "photos" / "8.png", 7)[0], atol=1e-4)


@pytest.mark.parametrize("layout", ["directory", "hdf5", "lmdb"])
def test_bad_images_stop_or_are_left_out(
    run: Path, layout: Layout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = draw_images(tmp_path / "photos", 5, name="{}.png", size=48)
    paths[2].write_bytes(b"torn")
    command = ["export", "captioning", str(run), "--images", str(tmp_path / "photos"), "--out", str(tmp_path / "out")]
    command += ["--layout", layout, "--device", "cpu"]
    assert main(command) == 2
    assert "2.png cannot be read" in capsys.readouterr().err
    assert main([*command, "--skip-bad"]) == 0
    shown = capsys.readouterr()
    assert "skipped: The image" in shown.err
    assert "1 images were skipped" in shown.out
    manifest = json.loads((tmp_path / "out" / "cocotalk_manifest.json").read_text())
    assert manifest["items"] == 4
    assert [entry["id"] for entry in manifest["skipped"]] == ["2"]
    for read in readers(tmp_path / "out", layout):
        assert np.isfinite(read("4")).all()
        with pytest.raises((KeyError, FileNotFoundError)):
            read("2")


@pytest.mark.parametrize("deleted", range(4))  # datasets of the 2 bad images, in two files
def test_an_hdf5_export_killed_while_it_leaves_bad_images_out_is_finished_by_the_same_command(
    model: EmbeddingModel, deleted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = draw_images(tmp_path / "photos", 9, name="{}.png", size=48)
    for path in (paths[2], paths[8]):
        path.write_bytes(b"torn")
    images = ImageList.open(tmp_path / "photos").with_coco_ids()
    options = replace(NATIVE, layout="hdf5")
    export_captioning(model, images, tmp_path / "whole", options, skip_bad=True, quiet=True)
    delete, calls = h5py.File.__delitem__, []

    def killed(self: h5py.File, key: str) -> None:
        if len(calls) == deleted:
            self.flush()
            with Path(self.filename).open("r+b") as file:  # a structure of which a part was written
                file.write(b"torn")
            raise SystemExit
        calls.append(key)
        delete(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(h5py.File, "__delitem__", killed)
        with pytest.raises(SystemExit):
            export_captioning(model, images, tmp_path / "out", options, skip_bad=True, quiet=True)
    export_captioning(model, images, tmp_path / "out", options, skip_bad=True, quiet=True)
    for path in (tmp_path / "whole").iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path
    with h5py.File(tmp_path / "out" / "cocotalk_fc.h5") as file:
        assert sorted(file) == ["0", "1", "3", "4", "5", "6", "7"]


def ids_of(folder: Path, listing: Path | None = None) -> tuple[str, ...]:
    return ImageList.open(folder).with_coco_ids(listing).item_ids


def test_coco_ids_are_read_off_names_or_a_list(tmp_path: Path) -> None:
    draw_images(tmp_path / "a", 2, name="COCO_train2014_00000000012{}.png")
    draw_images(tmp_path / "a", 1, name="000000000007.png")
    assert ids_of(tmp_path / "a") == ("7", "120", "121")
    draw_images(tmp_path / "b", 1, name="1000268201_693b08cb0e.png")
    with pytest.raises(DataError, match=r"1000268201_693b08cb0e\.png has no COCO id.*\(--ids\)"):
        ids_of(tmp_path / "b")
    draw_images(tmp_path / "c" / "x", 1, name="12.png")
    draw_images(tmp_path / "c" / "y", 1, name="0012.png")
    with pytest.raises(DataError, match=r"The COCO id 12 is not unique: .*x/12\.png and .*y/0012\.png"):
        ids_of(tmp_path / "c")

    coco = {"images": [{"id": 42, "file_name": "1000268201_693b08cb0e.png"}]}
    karpathy = {"images": [{"cocoid": 43, "imgid": 0, "filepath": "val", "filename": "1000268201_693b08cb0e.png"}]}
    for value, wanted in ((coco, "42"), (karpathy, "43")):
        (tmp_path / "ids.json").write_text(json.dumps(value))
        assert ids_of(tmp_path / "b", tmp_path / "ids.json") == (wanted,)
    draw_images(tmp_path / "b", 1, name="unlisted.png")
    assert ids_of(tmp_path / "b", tmp_path / "ids.json") == ("43",)  # only what is listed is taken
    for content, words in (
        ("[]", "should list images"),
        ('{"images": [{"id": 1}]}', "should list images"),
        ('{"images": [{"id": "x1", "file_name": "a"}]}', "should be a whole number. Got 'x1'"),
        ('{"images": [{"id": 1, "file_name": "a"}, {"id": 2, "file_name": "a"}]}', "two ids, 1 and 2"),
        (
            '{"images": [{"id": 1, "file_name": "a"}]}',
            "None of the 2 images .* like .*, those of the list like 'a'.* need no list",
        ),
        (
            '{"images": [{"id": 1, "file_name": "a"}, {"id": 2, "file_name": "unlisted.png"}]}',
            "1 of the 2 images that .* are not in .*, such as 'a'",
        ),
    ):
        (tmp_path / "ids.json").write_text(content)
        with pytest.raises(DataError, match=words):
            ids_of(tmp_path / "b", tmp_path / "ids.json")


def test_the_imagenet_trunk_differs_in_nothing_but_the_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    config = replace(
        cml.TrainConfig(),
        dimension=8,
        image_size=(32, 32),
        steps=1,
        workers=0,
        freeze_backbone=True,
        sampler="random(batch_size=8)",
        device="cpu",
    )
    images = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)
    cml.fit(images, np.arange(10.0), config, out=run, quiet=True)
    draw_images(tmp_path / "photos", 2, name="{}.png", size=70)
    for name, arguments in {
        "cap": [str(run)],
        "img": [str(run), "--imagenet"],
        "named": ["efficientnet-lite0"],
    }.items():
        command = [
            "export",
            "captioning",
            *arguments,
            "--images",
            str(tmp_path / "photos"),
            "--out",
            str(tmp_path / "o"),
        ]
        assert main([*command, "--name", name, "--device", "cpu"]) == 0
        assert ("its trunk is the published network" in capsys.readouterr().err) == (name == "cap")
    made = [json.loads((tmp_path / "o" / f"{name}_manifest.json").read_text()) for name in ("cap", "img", "named")]
    assert made[0]["made_with"] == made[1]["made_with"] == made[2]["made_with"]
    features = [reader(tmp_path / "o" / f"{name}_att", ".npz")("1") for name in ("cap", "img", "named")]
    np.testing.assert_array_equal(features[0], features[1])
    np.testing.assert_array_equal(features[0], features[2])
    trained = open_trunk(str(run), device="cpu").model
    next(trained.backbone.parameters()).data += 1
    assert backbone_fingerprint(trained) != made[0]["made_with"]["trunk"]


def test_wrong_trunks_are_said(run: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def failure(*arguments: object) -> str:
        command = ["export", "captioning", *arguments, "--images", photos, "--out", tmp_path / "o", "--device", "cpu"]
        assert main([str(one) for one in command]) == 2
        return capsys.readouterr().err

    assert "'resnet51'. Did you mean 'resnet50'?" in failure("resnet51")
    assert "has no published weights" in failure(run, "--imagenet")
    assert "is not a folder" in failure(tmp_path / "gone")
    assert "config.json is missing" in failure(photos)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "config.json").write_bytes((run / "config.json").read_bytes())
    assert "the run is not finished" in failure(tmp_path / "unfinished")
    assert "must be a plain file name" in failure(run, "--name", "../x")
    assert "'longest' must be 32" in failure(run, "--longest", 8)
    assert "written uncompressed" in failure(run, "--layout", "hdf5", "--compress")
    assert "must be 1 or more" in failure(run, "--batch-size", 0)
    assert not (tmp_path / "o").exists()


def test_space_is_asked_for_before_the_start(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Usage:
        free = 100_000

    monkeypatch.setattr("cml.export.captioning.shutil.disk_usage", lambda path: Usage)
    command = ["export", "captioning", str(run), "--images", str(photos), "--out", str(tmp_path / "o")]
    assert main(command) == 2
    assert "The features of 7 images take 315 kB, but" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
    assert main([*command, "--compress"]) == 0  # then the estimate is no more than a bound


@pytest.mark.parametrize("layout", ["directory", "hdf5", "lmdb"])
def test_the_estimate_is_no_less_than_what_is_written(
    model: EmbeddingModel, photos: Path, layout: Layout, tmp_path: Path
) -> None:
    images = ImageList.open(photos).with_coco_ids()
    told: list[Estimate] = []
    options = replace(NATIVE, layout=layout)
    export_captioning(model, images, tmp_path / "o", options, quiet=True, tell=told.append)
    assert told[0].images == 7
    written = sum(path.stat().st_size for path in (tmp_path / "o").rglob("*") if path.is_file())
    assert 0.8 * written < told[0].needed + 40_000  # LMDB's and HDF5's own pages
    assert told[0].needed < 1.5 * written + 100_000


def test_other_features_are_not_overwritten(model: EmbeddingModel, photos: Path, tmp_path: Path) -> None:
    images = ImageList.open(photos).with_coco_ids()
    (tmp_path / "cocotalk.json").write_text("{}")  # the folder holds other things of captioning code
    export_captioning(model, images, tmp_path, NATIVE, quiet=True)
    with pytest.raises(UserError, match=r"different settings .att_size was 7, now 14"):
        export_captioning(model, images, tmp_path, replace(NATIVE, att_size=14), quiet=True)
    os.rename(tmp_path / "cocotalk_manifest.json", tmp_path / "moved.json")
    with pytest.raises(UserError, match="cocotalk_fc already exists"):
        export_captioning(model, images, tmp_path, NATIVE, quiet=True)


def test_missing_extras_are_named(
    model: EmbeddingModel, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = ImageList.open(photos).with_coco_ids()
    for layout, module in (("hdf5", "h5py"), ("lmdb", "lmdb")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(UserError, match=rf"pip install .*\[{layout}\]'"):
                export_captioning(model, images, tmp_path, replace(NATIVE, layout=layout), quiet=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "shufflenet_v2_x0_5", "efficientnet-lite0"])
def test_the_map_is_what_the_pooled_features_are_the_mean_of(name: str) -> None:
    model = EmbeddingModel(ModelConfig(name, "none", dimension=2, normalize=True, image_size=(64, 96))).eval()
    images = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8)
    with torch.inference_mode():
        maps = model.feature_maps(images)
        torch.testing.assert_close(maps.mean(dim=(2, 3)), model.features(images), atol=1e-4, rtol=1e-4)
    assert maps.shape[2:] == (2, 3)


def test_networks_without_a_map_and_images_too_small_are_refused() -> None:
    images = torch.zeros(1, 3, 32, 32, dtype=torch.uint8)
    network = nn.Sequential(nn.Flatten(), nn.Linear(3072, 2))
    net = ModelConfig("net", "none", 2, True, (32, 32))
    with pytest.raises(UserError, match="'net' has no last convolution map"):
        EmbeddingModel(net, backbone=network).feature_maps(images)
    model = EmbeddingModel(ModelConfig("alexnet", "none", 2, True, (64, 64))).eval()
    with pytest.raises(DataError, match="cannot take images of 32 x 32 pixels"):
        model.feature_maps(images)
