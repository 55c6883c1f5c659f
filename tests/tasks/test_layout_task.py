"""The task of room layouts: masks as labels from the prepared dataset to pictures, mirroring, and every bad mask."""

from __future__ import annotations

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cml import distances, losses, sampling, tasks
from cml.array_types import UInt8
from cml.cli import main
from cml.data.check_dataset import check_dataset
from cml.data.dataset_info import DatasetInfo
from cml.data.images import Images
from cml.data.masks import MaskFault, check_ids, check_size, read_mask
from cml.data.prepared import PreparedDataset
from cml.data.prepared_writer import Item, write_dataset
from cml.data_prep.layout_masks import DETAILS
from cml.data_prep.synthetic.rooms.rooms import draw_rooms
from cml.data_prep.synthetic.rooms.source import Rooms
from cml.distances.dataset_labels import encode_labels
from cml.distances.layout.distance import Layout
from cml.doors.trained_run import TrainedRun
from cml.errors import DataError, UserError
from cml.items import LabelledItems
from cml.registry import Choice
from cml.reporting.sheet import add_legend
from cml.sampling.random import RandomSampler
from cml.tasks.layout import TASK, describe, draw, label_distance, legend, mirror, surfaces
from cml.training.batches import BatchSource
from cml.training.config import TrainConfig

SMALL = ["--backbone", "small-cnn", "--weights", "none", "--image-size", "32", "32", "--workers", "0"]
BUDGET = ["--steps", "2", "--dimension", "8", "--sampler", "random(batch_size=12)"]


def info(**details: Any) -> DatasetInfo:  # noqa: ANN401
    return DatasetInfo("tiny", "layout", "layout_file_name", "id", "", "drawn", "MIT", details={**DETAILS, **details})


def saved(folder: Path, mask: Any, name: str = "mask.png") -> Path:  # noqa: ANN401
    Image.fromarray(np.asarray(mask, np.uint8)).save(folder / name)
    return folder / name


@pytest.fixture(scope="module")
def rooms(tmp_path_factory: pytest.TempPathFactory) -> PreparedDataset:
    return Rooms(count=48, size=32).prepare(tmp_path_factory.mktemp("data") / "rooms")


@pytest.fixture
def broken(rooms: PreparedDataset, tmp_path: Path) -> Path:
    return Path(shutil.copytree(rooms.folder, tmp_path / "rooms"))


# ---- the whole way


def test_train_evaluate_gallery_and_check(
    rooms: PreparedDataset, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainedRun, "frozen", {})  # seconds of a large network, tested elsewhere
    run = tmp_path / "run"
    assert main(["check", "--data", str(rooms.folder)]) == 0
    assert main(["train", "layout", "--data", str(rooms.folder), "--out", str(run), *SMALL, *BUDGET]) == 0
    config = json.loads((run / "config.json").read_text())
    assert config["train"]["flip"] == "image"
    saved_distance = Choice.parse(config["label_distance"])
    assert saved_distance.settings["largest_id"] == 5
    assert saved_distance.settings["ignore"] == 0
    capsys.readouterr()
    assert main(["evaluate", str(run)]) == 0
    table = capsys.readouterr().out
    assert "1 - mIoU" in table
    assert "oracle" in table
    assert main(["report", str(run), "--queries", "3"]) == 0
    page = (run / "retrieval_report.html").read_text()
    assert "ceiling" in page
    assert "1 - mIoU" in page


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_compare(rooms: PreparedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainedRun, "frozen", {})
    out = tmp_path / "runs"
    some = ["--variants", "log-ratio", "dense triplet"]
    assert (
        main(
            [
                "compare",
                "layout",
                "--data",
                str(rooms.folder),
                "--out",
                str(out),
                *SMALL,
                *BUDGET,
                "--seeds",
                "1",
                *some,
            ]
        )
        == 0
    )
    assert "log-ratio" in (out / "table.md").read_text()


def test_masks_are_labels_as_paths(rooms: PreparedDataset) -> None:
    split = rooms.split("query")
    assert all(isinstance(label, Path) and label.is_file() for label in split.labels)
    drawn = draw_rooms(48, size=32).masks[32:36]
    distance = Layout(resolution=None)
    same = distance.encode(list(drawn))
    assert distance.encode(split.labels).fingerprint() == same.fingerprint()
    assert encode_labels(distance, rooms, "query").fingerprint() == same.fingerprint()


def test_real_rooms(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    source = str(real_data("zind_layouts"))
    assert main(["prepare", "zind_layouts", "--source", source, "--out", str(tmp_path / "zind")]) == 0
    data = PreparedDataset.open(tmp_path / "zind")
    labels = encode_labels(distances.registry.make(label_distance(TASK.recipe, data.info)), data, "train")
    assert len(labels) == 198
    drawn = draw(Image.open(data.split("query").paths[0]), data.split("query").labels[0], data.info)
    assert drawn.size == (320, 240)
    assert TASK.legend(data.info).keys() >= {"floor", "ceiling"}  # what the colours mean stands once a page


# ---- the recipe


def test_entry_point_and_variants() -> None:
    assert tasks.get("layout") is TASK
    assert TASK.recipe.flip == "image"
    assert max(TASK.recipe.scale_jitter, TASK.recipe.shift_jitter) < 0.05  # borders move in the picture alone
    for changes in TASK.variants.values():
        config = replace(TASK.recipe, **changes)
        losses.registry.make(config.loss)
        sampling.registry.make(config.sampler)
    assert "label_exponent=1.0" in TASK.variants["log-ratio, the paper's"]["loss"]


def test_the_dataset_decides_ids_ignored_id_and_matching() -> None:
    made = distances.registry.make(label_distance(TASK.recipe, info()))
    assert isinstance(made, Layout)
    assert (made.ignore, made.largest_id, made.matching, made.resolution) == (0, 5, "fixed", 64)
    own = replace(TASK.recipe, label_distance="layout(ignore=None, resolution=32)")
    made = distances.registry.make(label_distance(own, info(ignore_id=3, ids_differ=True)))
    assert isinstance(made, Layout)
    assert (made.ignore, made.matching, made.resolution) == (None, "hungarian", 32)
    other = replace(TASK.recipe, label_distance="combined(parts='x')")
    assert label_distance(other, info()) == "combined(parts='x')"


@pytest.mark.parametrize("ids", [None, {}, {"1": 2}, {"one": "front"}, {"300": "front"}, ["front"]])
def test_a_dataset_that_does_not_name_its_ids_is_refused(ids: object) -> None:
    with pytest.raises(DataError, match=r"dataset\.json of 'tiny' must name the masks' ids under details\.ids"):
        surfaces(info(ids=ids))


# ---- mirroring


def test_mirroring_flips_the_mask_and_exchanges_left_and_right(tmp_path: Path) -> None:
    path = saved(tmp_path, [[5, 5, 5], [2, 1, 3], [2, 4, 0]])
    assert mirror(path, info()).tolist() == [[5, 5, 5], [2, 1, 3], [0, 4, 3]]
    names = {"1": "left", "2": "right", "7": "floor"}  # the names decide, not the numbers
    assert mirror(saved(tmp_path, [[1, 7, 2, 2]], "other.png"), info(ids=names)).tolist() == [[1, 1, 7, 2]]
    nameless = {str(number): f"surface {number}" for number in range(1, 6)}
    assert mirror(path, info(ids=nameless)).tolist() == [[5, 5, 5], [3, 1, 2], [0, 4, 2]]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_mirrored_rooms_are_as_far_apart_as_the_rooms(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("masks")
    masks = draw_rooms(3, size=16, seed=seed).masks
    paths = [saved(folder, mask, f"{number}.png") for number, mask in enumerate(masks)]
    distance = Layout(resolution=None)
    plain = distance.encode(paths)
    turned = distance.encode([mirror(path, info()) for path in paths])
    np.testing.assert_array_equal(distance.pairwise(turned, turned), distance.pairwise(plain, plain))
    for path, mask in zip(paths, masks, strict=True):
        np.testing.assert_array_equal(mirror(saved(folder, mirror(path, info()), "twice.png"), info()), mask)


def test_a_batch_mirrored_image_by_image_has_the_distances_of_the_mirrored_masks(rooms: PreparedDataset) -> None:
    distance = Layout(resolution=32)
    split = rooms.split("train")
    both = encode_labels(distance, rooms, "train", lambda label: mirror(label, rooms.info))
    images = Images(split.paths, (32, 32))
    data = LabelledItems(images, both[: len(split)], distance, both[len(split) :])
    nearest = np.empty((len(split), 0), np.int32)
    config = TrainConfig(seed=3, image_size=(32, 32), flip="image")
    source = BatchSource(data, RandomSampler(batch_size=12), nearest, config)
    for step in range(3):
        pictures, found, _ = source[step]
        items = RandomSampler(batch_size=12).batch(nearest, seed=3, step=step).items
        plain = images.read(items)
        masks = []
        flipped = 0
        for picture, original, item in zip(pictures.permute(0, 2, 3, 1).numpy(), plain, items.tolist(), strict=True):
            turned = not np.array_equal(picture, original)
            flipped += turned
            np.testing.assert_array_equal(picture, original[:, ::-1] if turned else original)
            masks.append(mirror(split.labels[item], rooms.info) if turned else read_mask(split.labels[item]))
        assert 0 < flipped < 12
        labels = distance.encode(masks)
        np.testing.assert_array_equal(found, distance.pairwise(labels, labels))


def test_masks_and_their_mirrored_ones_are_packed_alike_whatever_ids_they_hold(tmp_path: Path) -> None:
    masks = [np.full((16, 16), number % 2 + 1, np.uint8) for number in range(6)]  # front and left: mirrored, right
    roles = ["train", "train", "train", "train", "query", "gallery"]
    picture = Image.new("RGB", (16, 16))
    items = [Item(f"{n}", role, picture, Image.fromarray(masks[n])) for n, role in enumerate(roles)]
    made = write_dataset(tmp_path / "set", info(), items)
    both = encode_labels(Layout(), made, "train", lambda label: mirror(label, made.info))
    assert len(both) == 8
    assert Layout().pairwise(both, both)[:, 1].tolist() == [1, 0, 1, 0, 1, 1, 1, 1]


# ---- pictures


def test_drawing_tints_the_surfaces_and_names_their_colours(tmp_path: Path) -> None:
    image = Image.new("RGB", (200, 200), "#808080")
    before = image.tobytes()
    path = saved(tmp_path, np.repeat(np.repeat([[5, 0], [2, 3]], 20, axis=0), 20, axis=1))
    drawn = draw(image, path, info())
    assert image.tobytes() == before
    assert drawn.size == (200, 200)
    pixels = np.asarray(drawn).astype(int)
    assert pixels[150, 50, 2] > pixels[150, 50, 0] + 20  # the left wall is blue
    assert pixels[50, 50, 0] > pixels[50, 50, 1] + 8  # the ceiling is pink
    assert pixels[50, 150].tolist() == [128, 128, 128]  # ignored
    assert pixels[150, 100].tolist() == [255, 255, 255]  # a border
    named = legend(info())  # of all surfaces, though this mask has not all
    assert (named["front"], named["floor"]) == ("#f0e442", "#009e73")
    strip = np.asarray(add_legend(drawn, named))[200:]
    assert len(strip) > 8
    for colour in ((0xF0, 0xE4, 0x42), (0x00, 0x9E, 0x73)):
        assert (strip == colour).all(axis=2).sum() > 10


def test_description_says_the_shares(tmp_path: Path) -> None:
    path = saved(tmp_path, [[5, 5, 2, 3], [5, 5, 2, 0]])
    assert describe(path, info()) == "0 12%, left 25%, right 12%, ceiling 50%"


def test_legend_fits_and_keeps_the_picture() -> None:
    image = Image.new("RGB", (96, 40), "#123456")
    words = {"front": "#ff0000", "a much longer word than fits": "#00ff00", "floor": "#0000ff"}
    framed = add_legend(image, words)
    assert framed.width == 96
    assert np.array_equal(np.asarray(framed)[:40], np.asarray(image))
    assert (np.asarray(framed)[40:] == (255, 0, 0)).all(axis=2).any()
    assert add_legend(image, {}).size == image.size


# ---- masks


def grey_png(mask: UInt8, bits: int) -> bytes:
    """A PNG of few bits a pixel, as tools that save space write them."""
    height, width = mask.shape
    rows = np.zeros((height, -(-width * bits // 8) * 8 // bits), np.uint8)
    rows[:, :width] = mask
    bytes_of = rows.reshape(height, -1, 8 // bits)
    shifts = np.arange(8 - bits, -1, -bits)
    packed = (bytes_of.astype(int) << shifts).sum(axis=2).astype(np.uint8)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    content = b"".join(b"\0" + row.tobytes() for row in packed)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_grey_of_few_bits_gives_ids_and_not_their_stretched_greys(bits: int, tmp_path: Path) -> None:
    mask = (np.arange(21).reshape(3, 7) % min(6, 2**bits)).astype(np.uint8)
    (tmp_path / "mask.png").write_bytes(grey_png(mask, bits))
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), mask)


@pytest.mark.parametrize("bits", [4, 8])
def test_palette_indices_are_the_ids(bits: int, tmp_path: Path) -> None:
    mask = (np.arange(21).reshape(3, 7) % 6).astype(np.uint8)
    image = Image.fromarray(mask).convert("P")
    image.putdata(mask.ravel().tolist())
    image.putpalette([90, 200, 30] * 256)
    image.save(tmp_path / "mask.png", bits=bits)
    np.testing.assert_array_equal(read_mask(tmp_path / "mask.png"), mask)


def test_files_that_hold_no_ids_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "colour.png")
    Image.new("L", (4, 4), 3).save(tmp_path / "lossy.jpg")
    Image.new("I;16", (4, 4), 3).save(tmp_path / "deep.png")
    Image.new("1", (4, 4), 1).save(tmp_path / "flags.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "colour.png").read_bytes()[:30])
    for name, fault in (
        ("colour.png", "is of mode RGB; it should be an 8-bit grey or palette image"),
        ("lossy.jpg", "is a JPEG; it should be"),
        ("deep.png", "is of mode I;16"),
        ("flags.png", "is of mode 1"),
        ("cut.png", "cannot be read"),
        ("none.png", "is missing"),
        ("", "cannot be read"),
    ):
        with pytest.raises(MaskFault, match=fault):
            read_mask(tmp_path / name)
    large = saved(tmp_path, np.ones((4, 4)))
    monkeypatch.setattr("cml.data.open_image.MAX_PIXELS", 15)
    with pytest.raises(MaskFault, match=r"has 4 x 4 pixels; the limit is 15"):
        read_mask(large)


def test_ids_and_sizes_are_checked(tmp_path: Path) -> None:
    mask = np.array([[1, 5], [0, 0]], np.uint8)
    check_ids(mask, {"1": "a", "5": "b"}, 0)
    check_ids(mask, None, None)
    with pytest.raises(MaskFault, match="holds the id 0; known ids: 1, 5"):
        check_ids(mask, {"1": "a", "5": "b"}, None)
    with pytest.raises(MaskFault, match=r"only ignored pixels \(id 0\)"):
        check_ids(np.zeros((2, 2), np.uint8), None, 0)
    Image.new("RGB", (2, 3)).save(tmp_path / "image.png")
    check_size((3, 2), tmp_path / "image.png")
    with pytest.raises(MaskFault, match=r"is 3x2 pixels, but its image .*image\.png is 2x3"):
        check_size((2, 3), tmp_path / "image.png")


BAD: dict[str, tuple[UInt8, str]] = {
    "another size": (np.ones((31, 32), np.uint8), r"is 32x31 pixels, but its image .*/images/00040\.png is 32x32"),
    "a strange id": (np.full((32, 32), 6, np.uint8), r"holds the id 6"),
    "nothing that counts": (np.zeros((32, 32), np.uint8), r"has only ignored pixels \(id 0\)"),
    "colours": (np.zeros((32, 32, 3), np.uint8), r"is of mode RGB"),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_mask_is_one_error_that_names_its_file(
    fault: str, broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask, message = BAD[fault]
    Image.fromarray(mask).save(broken / "test/layout/00040.png")
    (problem,) = check_dataset(broken)
    assert problem.startswith(f"{broken}/test/metadata.jsonl:9: The mask {broken}/test/layout/00040.png ")
    data = PreparedDataset.open(broken)
    distance = distances.registry.make(label_distance(TASK.recipe, data.info))
    encode_labels(distance, data, "train")
    with pytest.raises(DataError, match=rf"role gallery, item '00040': its .*mask .*layout/00040\.png,? .*{message}"):
        encode_labels(distance, data, "gallery")
    shutil.copy(broken / "test/layout/00040.png", broken / "train/layout/00002.png")
    run = str(tmp_path / "run")
    assert main(["train", "layout", "--data", str(broken), "--out", run, *SMALL, *BUDGET]) == 2
    assert "layout/00002.png" in capsys.readouterr().err


def test_a_mask_without_its_file_or_outside_of_the_dataset_is_one_error(broken: Path) -> None:
    (broken / "train/layout/00003.png").unlink()
    with pytest.raises(DataError, match=r"train/metadata.jsonl:4: layout_file_name .*names a missing file"):
        PreparedDataset.open(broken)
    assert [problem for problem in check_dataset(broken) if "00003" in problem]
    lines = (broken / "train/metadata.jsonl").read_text().replace("layout/00003.png", "../test/layout/00040.png")
    (broken / "train/metadata.jsonl").write_text(lines)
    with pytest.raises(DataError, match=r"train/metadata.jsonl:4: layout_file_name .*without '\.\.'"):
        PreparedDataset.open(broken)


def test_a_stray_mask_is_found(broken: Path) -> None:
    saved(broken / "train/layout", np.ones((4, 4)), "stray.png")
    assert check_dataset(broken) == [
        f"{broken}/train/layout/stray.png: no metadata.jsonl lists this image; list it or delete it."
    ]


def test_ids_above_the_largest_are_refused_and_the_ignored_one_is_not() -> None:
    distance = Layout(largest_id=5, ignore=255, resolution=None)
    distance.encode([[[1, 255]]])
    with pytest.raises(DataError, match="Label 1 holds the id 6; ids should be 0 to 5"):
        distance.encode([[[1, 255]], [[6, 255]]])
    with pytest.raises(UserError, match="'largest_id' must be from 0 to 255"):
        Layout(largest_id=256)
