"""Sources of room layouts: LSUN on small files in the true format, the real ZInD views, and what is wrong with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from cml.array_types import UInt8
from cml.cli import main
from cml.data.check_dataset import check_dataset
from cml.data.dataset_info import METADATA
from cml.data.masks import read_mask
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.lsun_layout import LsunLayout, Room, read_index, read_layout
from cml.data_prep.sources.zind_layouts import ZindLayouts
from cml.distances.layout.distance import Layout
from cml.errors import DataError, UserError
from cml.tasks.layout import TASK, label_distance

FIELDS = ("image", "scene", "type", "point", "resolution")  # cml goes by their order, whatever their names


def layout(seed: int, height: int, width: int) -> UInt8:
    """Ceiling, left, front and right wall, floor; here and there an ignored pixel."""
    rng = np.random.default_rng(seed)
    top, bottom = int(height * rng.uniform(0.1, 0.4)), int(height * rng.uniform(0.6, 0.9))
    left, right = int(width * rng.uniform(0.1, 0.4)), int(width * rng.uniform(0.6, 0.9))
    mask = np.ones((height, width), np.uint8)
    mask[:, :left], mask[:, right:] = 2, 3
    mask[:top], mask[bottom:] = 5, 4
    mask[0, :3] = 0
    return mask


def write_index(path: Path, rooms: list[tuple[Any, ...]]) -> None:
    records = np.zeros((1, len(rooms)), dtype=[(name, object) for name in FIELDS])
    for place, room in enumerate(rooms):
        records[0, place] = room
    savemat(path, {path.stem: records})


def write_lsun(folder: Path, train: int = 8, validation: int = 12, size: tuple[int, int] = (40, 60)) -> Path:
    """A tiny LSUN folder: struct arrays 1 x N, JPEG photographs, compressed and plain masks."""
    (folder / "images").mkdir(parents=True)
    (folder / "layout_seg").mkdir()
    number = 0
    for split, count in (("training", train), ("validation", validation), ("testing", 3)):
        rooms: list[tuple[Any, ...]] = []
        for _ in range(count):
            name, (height, width) = f"{number:02x}room_{split}", (size[0] + 2 * (number % 3), size[1])
            rooms.append((name, "bedroom", number % 11, np.ones((4, 2)) * number, np.array([[height, width]])))
            if split != "testing":
                rng = np.random.default_rng(number)
                photo = rng.integers(0, 256, (height, width, 3), np.uint8)
                Image.fromarray(photo).save(folder / f"images/{name}.jpg")
                mask = {"layout": layout(number, height, width)}
                savemat(folder / f"layout_seg/{name}.mat", mask, do_compression=number % 2 == 0)
            number += 1
        if split == "testing":
            rooms = [(name, scene, np.array([]), np.array([]), size) for name, scene, _, _, size in rooms]
        write_index(folder / f"{split}.mat", rooms)
    return folder


@pytest.fixture
def lsun(tmp_path: Path) -> Path:
    return write_lsun(tmp_path / "lsun")


def names(folder: Path, split: str) -> list[str]:
    return [room.name for room in read_index(folder / f"{split}.mat") if isinstance(room, Room)]


# ---- LSUN


def test_lsun_is_prepared(lsun: Path, tmp_path: Path) -> None:
    made = LsunLayout(lsun, image_size=20).prepare(tmp_path / "out")
    assert list(made.split("train").item_ids) == names(lsun, "training")
    test = {*made.split("query").item_ids, *made.split("gallery").item_ids}
    assert test == set(names(lsun, "validation"))
    assert made.info.details["left_out"] == {"test rooms, which have no labels": 3}
    assert made.info.task == "layout"
    assert check_dataset(made.folder) == []
    for image, label, name in zip(
        made.split("train").paths, made.split("train").labels, names(lsun, "training"), strict=True
    ):
        with Image.open(image) as picture:
            width, height = picture.size
        assert min(width, height) == 20
        raw, mask = read_layout(lsun / f"layout_seg/{name}.mat"), read_mask(label)
        assert mask.shape == (height, width)
        for row, column in ((0, width - 1), (height - 1, 0), (height // 2, width // 2), (3, 7)):
            nearest = raw[int((row + 0.5) * raw.shape[0] / height), int((column + 0.5) * raw.shape[1] / width)]
            assert mask[row, column] == nearest
    first = json.loads((made.folder / "train" / METADATA).read_text().splitlines()[2])
    assert (first["scene"], first["layout_type"]) == ("bedroom", 2)


def test_small_photographs_are_kept_byte_for_byte(lsun: Path, tmp_path: Path) -> None:
    made = LsunLayout(lsun).prepare(tmp_path / "out")
    name = names(lsun, "training")[0]
    assert made.split("train").paths[0].read_bytes() == (lsun / f"images/{name}.jpg").read_bytes()
    np.testing.assert_array_equal(
        read_mask(made.split("train").labels[0]), read_layout(lsun / f"layout_seg/{name}.mat")
    )


def test_roles_of_validation_rooms_depend_on_their_names_alone(lsun: Path, tmp_path: Path) -> None:
    made = LsunLayout(lsun).prepare(tmp_path / "out")
    index = read_index(lsun / "validation.mat")
    kept = [room for room in index if isinstance(room, Room)][3:]
    fewer = shutil.copytree(lsun, tmp_path / "fewer")
    write_index(fewer / "validation.mat", [(room.name, "bedroom", 1, np.ones((4, 2)), [[40, 60]]) for room in kept])
    again = LsunLayout(fewer).prepare(tmp_path / "again")
    for role in ("query", "gallery"):
        assert set(again.split(role).item_ids) <= set(made.split(role).item_ids)


def test_preparing_again_does_nothing_and_other_masks_are_noticed(
    lsun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LsunLayout(lsun).prepare(tmp_path / "out")
    moved = shutil.copytree(lsun / "layout_seg", tmp_path / "elsewhere")
    LsunLayout(lsun, layouts=moved).prepare(tmp_path / "out")
    assert "already prepared" in capsys.readouterr().err
    with pytest.raises(UserError, match="different settings"):
        LsunLayout(lsun, image_size=20).prepare(tmp_path / "out")
    savemat(lsun / "layout_seg" / f"{names(lsun, 'training')[0]}.mat", {"layout": layout(1, 40, 61)})
    with pytest.raises(UserError, match="different settings"):
        LsunLayout(lsun).prepare(tmp_path / "out")


def test_original_labels_are_matched_and_warned_of(
    lsun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = LsunLayout(lsun, labels="original").prepare(tmp_path / "out")
    assert "matching=hungarian" in capsys.readouterr().err
    assert "matching='hungarian'" in label_distance(TASK.recipe, made.info)
    assert TASK.mirror is not None
    label = made.split("train").labels[0]
    np.testing.assert_array_equal(TASK.mirror(label, made.info), read_mask(label)[:, ::-1])  # no id is left or right


def test_original_labels_passed_off_as_corrected_are_noticed(
    lsun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    LsunLayout(lsun).prepare(tmp_path / "sound")
    assert "warning" not in capsys.readouterr().err
    for number, name in enumerate(names(lsun, "training")):
        mask = read_layout(lsun / f"layout_seg/{name}.mat")
        turned = np.array([0, 1, 3, 2, 4, 5] if number % 2 else [0, 1, 2, 3, 5, 4], np.uint8)[mask]
        savemat(lsun / f"layout_seg/{name}.mat", {"layout": turned})
    LsunLayout(lsun).prepare(tmp_path / "wrong")
    assert "in 40% of the masks" in capsys.readouterr().err


def test_masks_of_whole_float_numbers_are_ids(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"layout": layout(0, 8, 9).astype(float)})
    np.testing.assert_array_equal(read_layout(tmp_path / "a.mat"), layout(0, 8, 9))


def _replace_mask(mask: Any) -> Callable[[Path, str], None]:  # noqa: ANN401
    return lambda folder, name: savemat(folder / f"layout_seg/{name}.mat", {"layout": mask})


def _write(what: str, content: bytes) -> Callable[[Path, str], None]:
    def write(folder: Path, name: str) -> None:
        (folder / what.format(name)).write_bytes(content)

    return write


def _cut(folder: Path, name: str) -> None:
    path = folder / f"layout_seg/{name}.mat"
    path.write_bytes(path.read_bytes()[:150])


BAD_ROOMS: dict[str, tuple[Callable[[Path, str], None], str]] = {
    "no image": (
        lambda folder, name: (folder / f"images/{name}.jpg").unlink(),
        r"training\.mat: room 2: the image .*\.jpg is missing",
    ),
    "no mask": (
        lambda folder, name: (folder / f"layout_seg/{name}.mat").unlink(),
        r"room 2: the mask .*\.mat is missing",
    ),
    "another size": (
        _replace_mask(layout(1, 40, 60)),
        r"The mask .*{name}\.mat is 60x40 pixels, but its image .*{name}\.jpg is 60x42",
    ),
    "strange ids": (
        _replace_mask(np.full((42, 60), 6, np.uint8)),
        r"The mask .*{name}\.mat holds the id 6; known ids: 0, 1, 2, 3, 4, 5",
    ),
    "ids below 0": (_replace_mask(np.full((42, 60), -1)), r"{name}\.mat: layout holds -1 to -1; ids should be"),
    "half ids": (_replace_mask(np.full((42, 60), 1.5)), r"{name}\.mat: layout holds 1\.5 to 1\.5"),
    "nothing that counts": (_replace_mask(np.zeros((42, 60), np.uint8)), r"{name}\.mat has only ignored pixels"),
    "three axes": (
        _replace_mask(np.ones((4, 6, 3), np.uint8)),
        r"{name}\.mat: layout should be a mask of ids\. Got .*\(4, 6, 3\)",
    ),
    "text": (_replace_mask("front"), r"{name}\.mat: layout should be a mask"),
    "no variable": (
        lambda folder, name: savemat(folder / f"layout_seg/{name}.mat", {"seg": np.ones((2, 2))}),
        r"{name}\.mat should hold a variable 'layout', but has seg",
    ),
    "cut mask": (_cut, r"{name}\.mat cannot be read as a \.mat file"),
    "no mat file": (_write("layout_seg/{}.mat", b"<html>404</html>"), r"{name}\.mat cannot be read as a \.mat file"),
    "broken image": (_write("images/{}.jpg", b"<html>404</html>"), r"{name}\.jpg cannot be read"),
}


@pytest.mark.parametrize("fault", BAD_ROOMS)
def test_a_bad_room_is_one_error_or_skipped_and_counted(fault: str, lsun: Path, tmp_path: Path) -> None:
    change, message = BAD_ROOMS[fault]
    name = names(lsun, "training")[1]
    change(lsun, name)
    with pytest.raises(DataError, match=message.replace("{name}", name)) as error:
        LsunLayout(lsun).prepare(tmp_path / "out")
    assert "--skip-bad" in str(error.value)
    made = LsunLayout(lsun).prepare(tmp_path / "out", skip_bad=True)
    assert len(made.split("train")) == 7
    assert made.info.details["skipped"]["count"] == 1


@pytest.mark.parametrize(
    ("room", "message"),
    [
        (("", "a", 1, 0, 0), r"room 1: its first field should be the image's name"),
        (
            ("../secret", "a", 1, 0, 0),
            r"its first field should be the image's name without extension\. Got '\.\./secret'",
        ),
        ((np.arange(3), "a", 1, 0, 0), r"its first field should be"),
        (("x", "a", 11, 0, 0), r"room 1, x: its layout type should be 0 to 10\. Got 11"),
        (("x", "a", np.array([]), 0, 0), r"its layout type should be 0 to 10"),
        (("x", "a", "four", 0, 0), r"its layout type should be 0 to 10"),
        (("x", "a", np.nan, 0, 0), r"its layout type should be 0 to 10"),
    ],
)
def test_a_bad_line_of_the_index(room: tuple[Any, ...], message: str, tmp_path: Path) -> None:
    write_index(tmp_path / "training.mat", [room, ("y", "b", 2, 0, 0)])
    first, second = read_index(tmp_path / "training.mat")
    assert second == Room("y", "b", 2)
    with pytest.raises(DataError, match=message):
        raise first if isinstance(first, DataError) else AssertionError(first)


def test_an_index_of_a_single_room(tmp_path: Path) -> None:
    write_index(tmp_path / "training.mat", [("only", "hall", 3.0, 0, 0)])
    assert read_index(tmp_path / "training.mat") == [Room("only", "hall", 3)]


def test_folders_and_files_that_are_not_lsun(lsun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("images", "layout_seg", "validation.mat", "training.mat"):
        (lsun / missing).rename(tmp_path / "away")
        message = rf"{missing} is missing: .*lsun should be the folder of the LSUN room layouts"
        with pytest.raises(DataError, match=message):
            LsunLayout(lsun).prepare(tmp_path / "out")
        (tmp_path / "away").rename(lsun / missing)
    with pytest.raises(DataError, match="is missing"):
        LsunLayout(tmp_path / "nowhere").prepare(tmp_path / "out")
    path = tmp_path / "training.mat"
    savemat(path, {"training": np.ones((2, 3))})
    with pytest.raises(DataError, match=r"training\.mat: training should be a struct array .* Got 2 x 3 of float64"):
        read_index(path)
    savemat(path, {"other": 1})
    with pytest.raises(DataError, match=r"training\.mat should hold a variable 'training', but has other"):
        read_index(path)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"training\.mat cannot be read as a \.mat file"):
        read_index(path)
    write_index(path, [("x", "a", 1, 0, 0)] * 3)
    monkeypatch.setattr("cml.data_prep.sources.lsun_layout._INDEX_BYTES", 100)
    with pytest.raises(DataError, match="over 100 bytes, more than such a file has"):
        read_index(path)


def test_large_masks_are_refused_before_they_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    savemat(tmp_path / "a.mat", {"layout": np.ones((300, 400), np.uint8)}, do_compression=True)
    monkeypatch.setattr("cml.data_prep.mat_file.MOST_UNPACKED", 1000)
    monkeypatch.setattr("scipy.io.loadmat", lambda *a, **k: pytest.fail("unpacked"))
    with pytest.raises(DataError, match="unpacked it has over 1,000 bytes"):
        read_layout(tmp_path / "a.mat")


@pytest.mark.parametrize(
    ("chosen", "message"), [({"image_size": 8}, "at least 16"), ({"query_fraction": 1.0}, "below 1")]
)
def test_bad_settings(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LsunLayout(Path(), **chosen)


def test_the_command_reaches_both_sources(lsun: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "lsun_layout", "--source", str(lsun), "--out", str(tmp_path / "out")]) == 0
    assert "8 train" in capsys.readouterr().out
    assert main(["prepare", "zind_layouts", "--source", str(lsun), "--out", str(tmp_path / "zind")]) == 2
    assert "labels.json is missing" in capsys.readouterr().err


# ---- ZInD


@pytest.mark.slow
def test_real_rooms_are_split_by_room_and_panorama(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    source = real_data("zind_layouts")
    alone = ZindLayouts(source).prepare(tmp_path / "alone")
    assert [len(alone.split(role)) for role in ("train", "query", "gallery")] == [198, 64, 64]
    assert alone.info.queries_are_gallery
    kept = json.loads((source / "groups.json").read_text())["suggested_split"]
    assert alone.info.details["rooms"]["query"] == sorted(kept["test_rooms"])
    made = ZindLayouts(source, gallery_rooms=("complete_room_01",)).prepare(tmp_path / "out")
    assert [len(made.split(role)) for role in ("train", "query", "gallery")] == [198, 27, 37]
    assert made.split("train").item_ids == alone.split("train").item_ids
    sides: dict[str, dict[str, str]] = {"room": {}, "pano": {}}
    for folder in ("train", "test"):
        for line in (made.folder / folder / METADATA).read_text().splitlines():
            entry = json.loads(line)
            for kind, roles in sides.items():
                assert roles.setdefault(entry[kind], entry["role"]) == entry["role"]
    assert len(sides["pano"]) == 23
    item = made.split("query")
    assert item.paths[0].read_bytes() == (source / "images" / f"{item.item_ids[0]}.jpg").read_bytes()
    distance = Layout(resolution=None)
    mine, theirs = distance.encode(item.labels), distance.encode([source / "masks" / f"{n}.png" for n in item.item_ids])
    assert mine.fingerprint() == theirs.fingerprint()


def write_zind(folder: Path) -> Path:
    """Three rooms of two views each."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    views, rooms = [], {}
    for number in range(3):
        crops = [f"p{number}_{turn}" for turn in range(2)]
        rooms[f"room{number}"] = {"panos": {f"p{number}": crops}}
        for crop in crops:
            Image.new("RGB", (12, 10)).save(folder / f"images/{crop}.jpg")
            Image.fromarray(layout(number, 10, 12)).save(folder / f"masks/{crop}.png")
            view = {"image": f"images/{crop}.jpg", "mask": f"masks/{crop}.png"}
            views.append({**view, "room": f"room{number}", "pano": f"p{number}"})
    (folder / "labels.json").write_text(json.dumps(views))
    split = {"test_rooms": ["room1", "room2"]}
    (folder / "groups.json").write_text(json.dumps({"rooms": rooms, "suggested_split": split}))
    return folder


@pytest.fixture
def zind(tmp_path: Path) -> Path:
    return write_zind(tmp_path / "zind")


def change_view(folder: Path, **changes: Any) -> None:  # noqa: ANN401
    views = json.loads((folder / "labels.json").read_text())
    views[0].update(changes)
    (folder / "labels.json").write_text(json.dumps(views))


def change_groups(folder: Path, change: Callable[[Any], Any]) -> None:
    groups = json.loads((folder / "groups.json").read_text())
    change(groups)
    (folder / "groups.json").write_text(json.dumps(groups))


def test_rooms_of_each_role_can_be_chosen(zind: Path, tmp_path: Path) -> None:
    made = ZindLayouts(zind, test_rooms=("room0", "room2"), gallery_rooms=("room2",)).prepare(tmp_path / "out")
    assert made.split("query").item_ids == ("p0_0", "p0_1")
    assert made.split("gallery").item_ids == ("p2_0", "p2_1")
    assert made.split("train").item_ids == ("p1_0", "p1_1")
    assert not made.info.queries_are_gallery
    with pytest.raises(
        UserError, match=r"gallery_rooms should be among the rooms for testing, room1, room2\. Got 'room0'"
    ):
        ZindLayouts(zind, gallery_rooms=("room0",)).prepare(tmp_path / "other")
    with pytest.raises(DataError, match=r"has no room 'attic'\. There are: room0, room1, room2"):
        ZindLayouts(zind, test_rooms=("attic",)).prepare(tmp_path / "other")


BAD_VIEWS: dict[str, tuple[Callable[[Path], object], str]] = {
    "no mask": (lambda folder: (folder / "masks/p0_0.png").unlink(), r"view 1: the mask .*p0_0\.png is missing"),
    "no image": (lambda folder: (folder / "images/p0_0.jpg").unlink(), r"view 1: the image .*p0_0\.jpg is missing"),
    "upwards": (
        lambda folder: change_view(folder, mask="../x.png"),
        r"the mask '../x.png' should be relative to .*zind and without",
    ),
    "absolute": (
        lambda folder: change_view(folder, image="/etc/passwd"),
        r"the image '/etc/passwd' should be relative to",
    ),
    "number": (lambda folder: change_view(folder, room=7), r"view 1 should have the texts image, mask, room, pano"),
    "unknown room": (lambda folder: change_view(folder, room="attic"), r"does not list its panorama 'p0' in 'attic'"),
    "unknown pano": (lambda folder: change_view(folder, pano="p9"), r"does not list its panorama 'p9' in 'room0'"),
    "another size": (
        lambda folder: Image.new("L", (12, 11), 1).save(folder / "masks/p0_0.png"),
        r"The mask .*p0_0\.png is 12x11 pixels, but its image .*p0_0\.jpg is 12x10",
    ),
    "strange id": (
        lambda folder: Image.new("L", (12, 10), 9).save(folder / "masks/p0_0.png"),
        r"The mask .*p0_0\.png holds the id 9",
    ),
    "colours": (
        lambda folder: Image.new("RGB", (12, 10)).save(folder / "masks/p0_0.png"),
        r"The mask .*p0_0\.png is of mode RGB",
    ),
}


@pytest.mark.parametrize("fault", BAD_VIEWS)
def test_a_bad_view_is_one_error_or_skipped(fault: str, zind: Path, tmp_path: Path) -> None:
    change, message = BAD_VIEWS[fault]
    change(zind)
    with pytest.raises(DataError, match=message):
        ZindLayouts(zind).prepare(tmp_path / "out")
    made = ZindLayouts(zind).prepare(tmp_path / "out", skip_bad=True)
    assert made.split("train").item_ids == ("p0_1",)
    assert isinstance(made, PreparedDataset)


BAD_ZIND: dict[str, tuple[Callable[[Path], object], str]] = {
    "no labels": (
        lambda folder: (folder / "labels.json").unlink(),
        r"labels\.json is missing: .*should be a folder with",
    ),
    "no groups": (lambda folder: (folder / "groups.json").unlink(), r"groups\.json is missing"),
    "no json": (
        lambda folder: (folder / "labels.json").write_text("["),
        r"labels\.json should hold .* cannot be parsed",
    ),
    "no list": (lambda folder: (folder / "labels.json").write_text("{}"), r"labels\.json should be a list of views"),
    "no rooms": (lambda folder: (folder / "groups.json").write_text("[]"), r"groups\.json should hold rooms"),
    "no split": (
        lambda folder: change_groups(folder, lambda groups: groups.pop("suggested_split")),
        r"groups\.json should hold rooms, each with its panos and their views, and suggested_split",
    ),
    "a panorama on both sides": (
        lambda folder: change_groups(folder, lambda groups: groups["rooms"]["room1"]["panos"].update(p0=["p0_0"])),
        r"the panorama 'p0' is listed in rooms with the roles train and",
    ),
    "no masks": (lambda folder: shutil.rmtree(folder / "masks"), r"masks should be a folder"),
}


@pytest.mark.parametrize("fault", BAD_ZIND)
def test_a_bad_folder_is_one_error(fault: str, zind: Path, tmp_path: Path) -> None:
    change, message = BAD_ZIND[fault]
    change(zind)
    with pytest.raises(DataError, match=message):
        ZindLayouts(zind).prepare(tmp_path / "out", skip_bad=True)
