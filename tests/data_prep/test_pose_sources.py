"""MPII and COCO people: real files where they are at hand, small files in the true form, broken input of every kind."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from cml import cli, tasks
from cml.array_types import Float64
from cml.data.check_dataset import check_dataset
from cml.data.prepared import ROLES, PreparedDataset
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.sources.coco_keypoints import COCO_JOINTS, CocoKeypoints, read_coco
from cml.data_prep.sources.coco_keypoints import JOINTS as COCO
from cml.data_prep.sources.mpii import JOINTS as MPII
from cml.data_prep.sources.mpii import Mpii, Person, read_people, read_split
from cml.errors import DataError, UserError

RealData = Callable[[str], Path]
WIDTH, HEIGHT = 160, 120


def labels_of(dataset: PreparedDataset) -> dict[str, list[list[float]]]:
    return {
        item_id: label
        for role in ROLES
        for item_id, label in zip(dataset.split(role).item_ids, dataset.split(role).labels, strict=True)
    }


def roles_of(dataset: PreparedDataset) -> dict[str, str]:
    return {item_id: role for role in ROLES for item_id in dataset.split(role).item_ids}


def _lines(folder: Path) -> list[str]:
    return (folder / "metadata.jsonl").read_text().splitlines()


def crops_of(dataset: PreparedDataset) -> dict[str, list[float]]:
    lines = [line for name in ("train", "test") for line in _lines(dataset.folder / name)]
    return {entry["item_id"]: entry["crop"] for entry in map(json.loads, lines)}


def random_joints(seed: int, count: int) -> Float64:
    """(count, 2) whole pixels well inside a photograph."""
    rng = np.random.default_rng(seed)
    return np.column_stack([rng.integers(30, WIDTH - 30, count), rng.integers(20, HEIGHT - 20, count)]).astype(float)


def photo(path: Path, joints: Float64, seed: int = 0) -> None:
    """A dark photograph with a white square of 5 px around each of (J, 2) pixels, counted from 0."""
    pixels = np.random.default_rng(seed).integers(0, 30, (HEIGHT, WIDTH, 3), np.uint8)
    for x, y in joints.astype(int):
        pixels[max(y - 2, 0) : y + 3, max(x - 2, 0) : x + 3] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95)


def spots_in_place(dataset: PreparedDataset) -> int:
    """Compare each joint that stands alone in its photograph with the bright spot there; how many were compared."""
    size = dataset.info.details["image_size"][0]
    labels, crops, compared = labels_of(dataset), crops_of(dataset), 0
    paths = {path.stem: path for role in ROLES for path in dataset.split(role).paths}
    drawn: dict[str, list[list[float]]] = {}  # joints by photograph, in its frame
    for item_id, label in labels.items():
        left, top, side = crops[item_id]
        places = [[x * side / size + left, y * side / size + top] for x, y, visible in label if visible]
        drawn.setdefault(item_id.rpartition("_")[0], []).extend(places)
    for item_id, label in labels.items():
        left, top, side = crops[item_id]
        with Image.open(paths[item_id]) as image:
            pixels = (np.asarray(image.convert("L")).astype(float) - 60).clip(0)
        rows, columns = np.mgrid[:size, :size] + 0.5
        for x, y, visible in label:
            gaps = np.abs(np.array(drawn[item_id.rpartition("_")[0]]) - (x * side / size + left, y * side / size + top))
            reach = 4.5 * size / side
            inside = reach < x < size - reach and reach < y < size - reach
            if visible and inside and np.sort(gaps.max(axis=1))[1] > 9:
                near = np.where((abs(columns - x) <= reach) & (abs(rows - y) <= reach), pixels, 0)
                found = (near * columns).sum() / near.sum(), (near * rows).sum() / near.sum()
                assert found == pytest.approx((x, y), abs=0.25), item_id
                compared += 1
    return compared


# ---- MPII: small files in both forms


def mpii_people(count: int = 24) -> list[dict[str, Any]]:
    """People as the json holds them, two to an image, counted from pixel 1; the last joints of some are missing."""
    people = []
    for number in range(count):
        joints = random_joints(number, 16) + 1
        vis = [1] * 16
        for joint in range(16 - number % 3 * 3, 16):
            joints[joint], vis[joint] = -1, 0
        center = joints[np.array(vis) == 1].mean(axis=0).round(1).tolist()
        entry = {"image": f"{number // 2:09d}.jpg", "joints": joints.tolist(), "joints_vis": vis}
        people.append({**entry, "center": center, "scale": 0.4 + number / 100})
    return people


def empty() -> Float64:
    return np.zeros((0, 0))


def structs(entries: list[dict[str, Any]]) -> NDArray[Any]:
    """A MATLAB struct array; fields that an entry lacks are empty."""
    names = list(dict.fromkeys(name for entry in entries for name in entry)) or ["none"]
    array = np.empty((1, len(entries)), [(name, object) for name in names])
    for row, entry in enumerate(entries):
        for name in names:
            array[0, row][name] = entry.get(name, empty())
    return array


def mat_person(person: dict[str, Any], flags: tuple[Any, ...] = ("1", "0", 1, 0)) -> dict[str, Any]:
    """A person as annorect of the official file holds it: the flag of visibility is a text, a number or empty."""
    points = [
        {"x": x, "y": y, "id": joint, **({} if joint in (8, 9) else {"is_visible": flags[joint % len(flags)]})}
        for joint, (x, y) in enumerate(person["joints"])
        if person["joints_vis"][joint]
    ]
    objpos = structs([{"x": person["center"][0], "y": person["center"][1]}])
    head = {"x1": 1, "y1": 2, "x2": 3, "y2": 4}
    annopoints = structs([{"point": structs(points)}])
    return {**head, "scale": person["scale"], "objpos": objpos, "annopoints": annopoints}


def write_mat(path: Path, people: list[dict[str, Any]], videos: list[int] | None = None) -> Path:
    """The official form; each image also has a person without joints, as test images have."""
    images: dict[str, list[dict[str, Any]]] = {}
    for person in people:
        images.setdefault(person["image"], []).append(person)
    entries: list[dict[str, Any]] = []
    for row, (name, group) in enumerate(images.items()):
        rects = [mat_person(person) for person in group]
        rects.append({"scale": 1.5, "objpos": structs([{"x": 50, "y": 60}])})
        entry = {"image": structs([{"name": name}]), "annorect": structs(rects), "frame_sec": 3}
        entries.append(entry if videos is None else {**entry, "vididx": videos[row]})
    entries.append({"image": structs([{"name": "empty.jpg"}])})  # nobody there
    single = structs([{"point": structs([{"x": 9, "y": 9, "id": 3, "is_visible": ""}])}])
    entries.append({"image": structs([{"name": "single.jpg"}]), "annorect": structs([{"annopoints": single}])})
    bare = structs([{"scale": 1, "annopoints": empty()}])
    entries.append({"image": structs([{"name": "bare.jpg"}]), "annorect": bare})
    release = {"annolist": structs(entries), "img_train": np.ones((1, len(entries))), "version": "12", "act": empty()}
    savemat(path, {"RELEASE": release})
    return path


def mpii_folder(folder: Path, people: list[dict[str, Any]]) -> Mpii:
    folder.mkdir(parents=True)
    (folder / "mpii.json").write_text(json.dumps(people))
    for seed, name in enumerate(dict.fromkeys(person["image"] for person in people)):
        joints = [np.array(person["joints"]) - 1 for person in people if person["image"] == name]
        photo(folder / "images" / name, np.concatenate(joints), seed)
    return Mpii(folder / "mpii.json", folder / "images", image_size=64, test_fraction=0.5, query_fraction=0.4)


def good(path: Path) -> list[Person]:
    people = [person for _, _, person in read_people(path)]
    assert all(isinstance(person, Person) for person in people), people
    return [person for person in people if isinstance(person, Person)]


def test_mpii_on_the_real_photographs(real_data: RealData, tmp_path: Path) -> None:
    folder = real_data("mpii_hrnet_fixture")
    names = ["005808361.jpg", "052475643.jpg", "051423444.jpg", "004645041.jpg", "060754485.jpg"]
    split = tmp_path / "split.txt"
    split.write_text("# the first test person queries\n\n" + "".join(f"{name} 1 train\n" for name in names[:2]))
    with split.open("a") as lines:
        lines.write("051423444.jpg test # without the person's number\n004645041.jpg test\n060754485.jpg 1 gallery\n")
    source = Mpii(folder / "test_mpii.json", folder, split=split, queries=1)
    dataset = source.prepare(tmp_path / "set")
    assert dataset.info.counts == {"train": 2, "query": 1, "gallery": 2}
    assert dataset.info.details["joints"] == list(MPII)
    assert dataset.info.details["image_size"] == [288, 288]
    raw = {entry["image"].removesuffix(".jpg") + "_1": entry for entry in json.loads(source.annotations.read_text())}
    labels, crops = labels_of(dataset), crops_of(dataset)
    assert set(labels) == set(raw)
    for item_id, entry in raw.items():
        label, (left, top, side) = np.array(labels[item_id]), crops[item_id]
        visible = np.array(entry["joints_vis"]) == 1
        assert np.array_equal(label[:, 2] == 1, visible)
        assert (label[~visible] == 0).all()
        back = label[visible, :2] * side / 288 + (left, top)
        assert np.allclose(back, np.array(entry["joints"])[visible] - 0.5, atol=0.1)
        assert side == pytest.approx(1.25 * 200 * entry["scale"] * 288 / 224, abs=0.01)
        box = (label[visible, :2] >= 32).all() and (label[visible, :2] <= 256).all()
        assert box, "every joint lies in the centre box of 224 px"
        assert left + side / 2 == pytest.approx(entry["center"][0] - 0.5, abs=0.02)
        assert top + side / 2 == pytest.approx(entry["center"][1] - 0.5 + 15 * entry["scale"], abs=0.02)
    assert check_dataset(dataset.folder) == []
    full = dataclasses.replace(source, full_body=True)
    with pytest.raises(UserError, match="no query items"):  # the one query lacks its ankles
        full.prepare(tmp_path / "full")


def test_a_role_without_people_is_one_line_with_the_mend(real_data: RealData, tmp_path: Path) -> None:
    folder = real_data("mpii_hrnet_fixture")
    source = Mpii(folder / "test_mpii.json", folder)
    said = (
        r"no query items; .* Got 3 train, 2 gallery instead\. "
        r"Raise query_fraction \(--query-fraction, 0\.1935 so far\), or give more data\.$"
    )
    with pytest.raises(UserError, match=said):
        source.prepare(tmp_path / "set")
    mended = dataclasses.replace(source, query_fraction=0.4).prepare(tmp_path / "set")
    assert dict(mended.info.counts) == {"train": 3, "query": 1, "gallery": 1}
    with pytest.raises(UserError, match=r"Lower test_fraction \(--test-fraction, 0\.99 so far\)"):
        dataclasses.replace(source, test_fraction=0.99, query_fraction=0.4).prepare(tmp_path / "other")
    (tmp_path / "split.txt").write_text("004645041.jpg train\n")
    with pytest.raises(UserError, match=r"Got 1 train instead\. Change the split, or give more data\.$"):
        dataclasses.replace(source, split=tmp_path / "split.txt").prepare(tmp_path / "third")


def test_both_forms_of_mpii_give_the_same_people(tmp_path: Path) -> None:
    people = mpii_people()
    (tmp_path / "a.json").write_text(json.dumps(people))
    from_json = good(tmp_path / "a.json")
    from_mat = good(write_mat(tmp_path / "a.mat", people))
    assert [person.image for person in from_mat[-2:]] == ["single.jpg", "bare.jpg"]
    assert from_mat[-2].joints.tolist()[3] == [8.5, 8.5, 1]
    assert from_mat[-2].center is None
    assert from_mat[-2].height is None
    assert not from_mat[-1].joints.any()
    labelled = [person for person in from_mat[:-2] if person.joints.any()]
    assert len(labelled) == len(from_json) == len(people)
    for a, b, entry in zip(labelled, from_json, people, strict=True):
        assert (a.image, a.number, a.group) == (b.image, b.number, b.group)
        assert a.center is not None
        assert b.center is not None
        assert np.allclose(a.center, b.center)
        assert np.allclose(a.center, np.array(entry["center"]) - 0.5)
        assert a.height == b.height == 200 * entry["scale"]
        assert np.array_equal(a.joints, b.joints)
        present = np.array(entry["joints_vis"]) == 1
        assert np.array_equal(a.joints[present, :2], np.array(entry["joints"])[present] - 0.5)
        assert not a.joints[~present].any()
    for videos in ([1] * 12, list(range(12))):
        groups = [person.group for person in good(write_mat(tmp_path / "b.mat", people, videos)) if person.joints.any()]
        assert len(set(groups)) == len(set(videos)) + 1  # the last ones tell no video


def test_mpii_crops_hold_the_joints(tmp_path: Path) -> None:
    source = dataclasses.replace(mpii_folder(tmp_path / "in", mpii_people()), image_size=192)
    dataset = source.prepare(tmp_path / "set")
    assert dataset.info.details["left_out"] == {}
    assert len(labels_of(dataset)) == 24
    assert spots_in_place(dataset) > 20


def test_mpii_leaves_out_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = mpii_people()
    folder = tmp_path / "in"
    source = mpii_folder(folder, people)
    mat = dataclasses.replace(source, annotations=write_mat(folder / "mpii.mat", people))
    for name in ("single", "bare"):
        shutil.copy(folder / "images/000000000.jpg", folder / f"images/{name}.jpg")
    dataset = mat.prepare(tmp_path / "mat")
    assert dataset.info.details["left_out"] == {"without joints": 13, "fewer than 8 joints": 1}
    assert labels_of(dataset).keys() == labels_of(source.prepare(tmp_path / "json")).keys()
    assert roles_of(dataset) == roles_of(PreparedDataset.open(tmp_path / "json"))
    full = dataclasses.replace(source, full_body=True).prepare(tmp_path / "full")
    assert full.info.details["left_out"] == {"without all 16 joints": 16}
    assert all(np.array(label)[:, 2].all() for label in labels_of(full).values())
    del people[5]["joints"]  # as all of the file of HRNet's test images
    (folder / "mpii.json").write_text(json.dumps(people))
    arguments = ["prepare", "mpii", "--annotations", str(folder / "mpii.json"), "--images", str(folder / "images")]
    assert cli.main([*arguments, "--out", str(tmp_path / "cli"), "--min-joints", "11"]) == 0
    printed = capsys.readouterr().out
    assert "left out: 7 (fewer than 11 joints)" in printed
    assert "left out: 1 (without joints)" in printed


def test_mpii_roles_by_hash_keep_images_and_videos_together(tmp_path: Path) -> None:
    people = mpii_people()
    source = mpii_folder(tmp_path / "in", people)
    for item_id, role in roles_of(source.prepare(tmp_path / "set")).items():
        assert role == split_by_hash(f"{item_id[:9]}.jpg", 0.5, 0.4)
    videos = [row // 3 for row in range(12)]
    mat = dataclasses.replace(source, annotations=write_mat(tmp_path / "in/mpii.mat", people, videos), min_joints=2)
    mat = dataclasses.replace(mat, test_fraction=0.5, query_fraction=0.4)
    for item_id, role in roles_of(mat.prepare(tmp_path / "videos")).items():
        assert role == split_by_hash(f"video {int(item_id[:9]) // 3}", 0.5, 0.4)
    share = [split_by_hash(f"{n:09d}.jpg", 0.445, 0.1935) for n in range(20_000)]
    assert share.count("train") / 20_000 == pytest.approx(12_366 / 22_285, abs=0.01)
    assert share.count("query") / 20_000 == pytest.approx(1_919 / 22_285, abs=0.01)


def test_split_files(tmp_path: Path) -> None:
    people = mpii_people(8)
    source = mpii_folder(tmp_path / "in", people)
    path = tmp_path / "split.txt"
    path.write_text("000000000.jpg train\n000000001.jpg 2 test\n000000002.jpg test\n000000003.jpg 1 query\n")
    dataset = dataclasses.replace(source, split=path, queries=1).prepare(tmp_path / "set")
    assert roles_of(dataset) == {
        "000000000_1": "train",
        "000000000_2": "train",
        "000000001_2": "query",
        "000000002_1": "gallery",
        "000000002_2": "gallery",
        "000000003_1": "query",
    }
    assert dataset.info.details["left_out"] == {"not in the split file": 2}
    with pytest.raises(UserError, match="of different settings"):  # the split is part of what it is made with
        source.prepare(tmp_path / "set")
    for text, message in (
        ("a.jpg\n", r"split.txt:1: should be IMAGE \[PERSON\] ROLE.*Got 'a.jpg'"),
        ("a.jpg train\na.jpg 0 train\n", "split.txt:2: should be"),
        ("a.jpg one train", "split.txt:1: should be"),
        ("a.jpg 1 2 train", "split.txt:1: should be"),
        ("a.jpg 1 val", "split.txt:1: should be"),
        ("a.jpg 1 train\n\na.jpg 1 test", "split.txt:3: is already in .*split.txt:1"),
        ("# nothing\n", "lists no people"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_split(path, 1)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="should be UTF-8"):
        read_split(path, 1)
    with pytest.raises(DataError, match=r"gone.txt cannot be read"):
        read_split(tmp_path / "gone.txt", 1)
    path.write_text("000000000.jpg train\nother.jpg 3 test\n")
    with pytest.raises(DataError, match=r"split.txt:2: person 3 of other.jpg is not in .*mpii.json"):
        dataclasses.replace(source, split=path).prepare(tmp_path / "bad")


def _of_person(number: int, **changes: Any) -> Callable[[Path, list[dict[str, Any]]], None]:  # noqa: ANN401
    def put(folder: Path, people: list[dict[str, Any]]) -> None:
        people[number] |= changes
        (folder / "mpii.json").write_text(json.dumps(people))

    return put


def _joint(number: int, joint: int, place: list[Any]) -> Callable[[Path, list[dict[str, Any]]], None]:
    def put(folder: Path, people: list[dict[str, Any]]) -> None:
        people[number]["joints"][joint] = place
        (folder / "mpii.json").write_text(json.dumps(people))

    return put


def _cut(name: str, share: float) -> Callable[[Path, list[dict[str, Any]]], None]:
    def put(folder: Path, people: list[dict[str, Any]]) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return put


IMAGE = "images/000000001.jpg"
WHO = "mpii.json: image 000000001.jpg, person 1"
BROKEN_PEOPLE: dict[str, tuple[Callable[[Path, list[dict[str, Any]]], object], str]] = {
    "image missing": (lambda folder, _: (folder / IMAGE).unlink(), f"{WHO}: the image .*{IMAGE} is missing"),
    "image cut": (_cut(IMAGE, 0.7), f"{WHO}: The image .*{IMAGE} cannot be read.*truncated"),
    "image empty": (_cut(IMAGE, 0), f"{IMAGE} cannot be read"),
    "joint outside": (_joint(2, 3, [200.0, 50.0]), rf"{WHO}: l_hip at \(199.5, 49.5\) lies outside .* 160 x 120"),
    "joint above": (_joint(2, 3, [20.0, -50.0]), rf"{WHO}: l_hip at \(19.5, -50.5\) lies outside"),
    "joints cut off": (_of_person(2, joints=[[1, 2]]), f"{WHO}: joints should be 16 x 2 finite numbers"),
    "joint nan": (_joint(2, 3, [math.nan, 5]), f"{WHO}: joints should be 16 x 2 finite numbers"),
    "joint text": (_joint(2, 3, ["a", 5]), f"{WHO}: joints should be 16 x 2 finite numbers"),
    "flags": (_of_person(2, joints_vis=[2] * 16), f"{WHO}: joints_vis should be 0 or 1"),
    "no flags": (_of_person(2, joints_vis=None), f"{WHO}: joints_vis should be 16 finite numbers. Got None"),
    "scale": (_of_person(2, scale=-1.0), f"{WHO}: the scale should be a number above 0. Got -1"),
    "huge scale": (_of_person(2, scale=1e5), f"{WHO}: its scale is out of proportion to an image of 160 x 120"),
    "no scale": (_of_person(2, scale=None), f"{WHO}: the scale should be a number above 0. Got None"),
    "center": (_of_person(2, center=[1]), f"{WHO}: center should be 2 finite numbers"),
    "center elsewhere": (_of_person(2, center=[9e3, 9e3]), f"{WHO}: none of its joints lies in the crop"),
    "absolute": (
        _of_person(2, image="/etc/a.jpg"),
        "image /etc/a.jpg, person 1: the image '/etc/a.jpg' should be relative",
    ),
    "upwards": (_of_person(2, image="../a.jpg"), "image ../a.jpg, person 1: the image '../a.jpg' should be relative"),
    "no image": (_of_person(2, image=None), "mpii.json: entry 3 should name its image"),
}


@pytest.mark.parametrize("kind", BROKEN_PEOPLE)
def test_a_bad_person_is_an_error_or_skipped(tmp_path: Path, kind: str) -> None:
    spoil, message = BROKEN_PEOPLE[kind]
    people = mpii_people()
    source = mpii_folder(tmp_path / "in", people)
    spoil(tmp_path / "in", people)
    with pytest.raises(DataError, match=f"{message}.*--skip-bad"):
        source.prepare(tmp_path / "set")
    assert not (tmp_path / "set").exists()
    dataset = source.prepare(tmp_path / "set", skip_bad=True)
    both = 1 + kind.startswith("image")  # two people share the image
    assert dataset.info.details["skipped"]["count"] == both
    assert sum(dataset.info.counts.values()) == 24 - both


def test_mpii_files_that_are_bad_as_a_whole(tmp_path: Path) -> None:
    source = mpii_folder(tmp_path / "in", mpii_people())
    whole = source.annotations.read_text()
    for text, message in (
        (whole[: len(whole) // 2], "mpii.json should hold a list of people as JSON, but cannot be parsed"),
        ("", "mpii.json should hold a list of people as JSON"),
        ("{}", r"mpii.json should be a list of people. Got \{\}"),
        ("[]", "mpii.json should be a list of people"),
    ):
        source.annotations.write_text(text)
        with pytest.raises(DataError, match=message):
            source.prepare(tmp_path / "set", skip_bad=True)
    source.annotations.write_text(whole)
    for file, images, message in (
        ("in/mpii.json", "gone", "gone should be a folder"),
        ("gone.json", "in", "gone.json cannot be read"),
        ("gone.mat", "in", "gone.mat cannot be read"),
        ("in/mpii.json", "in", r"image 000000000.jpg, person 1: the image .*in/000000000.jpg is missing"),
    ):
        with pytest.raises(DataError, match=message):
            Mpii(tmp_path / file, tmp_path / images).prepare(tmp_path / "set")
    with pytest.raises(UserError, match=r"no train items.*24 bad items were skipped"):  # a wrong folder of images
        dataclasses.replace(source, images=tmp_path / "in").prepare(tmp_path / "set", skip_bad=True)
    for changes in ({"image_size": 4}, {"min_joints": 1}, {"room": 0.0}, {"queries": 0}, {"test_fraction": 1.0}):
        with pytest.raises(UserError, match="should be"):
            dataclasses.replace(source, **changes)


def test_broken_mat_files(tmp_path: Path) -> None:
    people = mpii_people(6)
    mat = write_mat(tmp_path / "mpii.mat", people)
    content = mat.read_bytes()
    for share in (0.0, 0.01, 0.3, 0.8, 0.999):
        mat.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(DataError, match=r"mpii.mat (cannot be read as a .mat file|should hold a variable)"):
            list(read_people(mat))
    savemat(mat, {"joints": np.ones(3)})
    with pytest.raises(DataError, match="should hold a variable 'RELEASE'"):
        list(read_people(mat))
    savemat(mat, {"RELEASE": {"version": "12"}})
    with pytest.raises(DataError, match="annolist should list the images"):
        list(read_people(mat))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 16}, "id should be 0 to 15. Got 16"),
        ({"id": 1.5}, "id should be 0 to 15. Got 1.5"),
        ({"id": empty()}, "id should be 0 to 15. Got None"),
        ({"id": 0}, "r_ankle is there twice"),
        ({"x": empty()}, "r_knee has no finite place"),
        ({"y": math.nan}, "r_knee has no finite place"),
        ({"is_visible": 2}, "r_knee should be visible 0, 1 or nothing. Got 2"),
        ({"is_visible": "yes"}, "r_knee should be visible 0, 1 or nothing. Got 'yes'"),
    ],
)
def test_a_bad_joint_of_the_mat_file(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    points: list[dict[str, Any]] = [{"x": 5, "y": 6, "id": 0, "is_visible": 1}]
    points.append({"x": 7, "y": 8, "id": 1, "is_visible": 1} | change)
    rects: list[dict[str, Any]] = [
        {"scale": 1, "annopoints": structs([{"point": structs(points)}])},
        {"scale": -2},
        {"scale": 2},
    ]
    entry = {"image": structs([{"name": "a.jpg"}]), "annorect": structs(rects)}
    nameless = {"image": empty(), "annorect": structs([{"scale": 1}])}
    savemat(tmp_path / "a.mat", {"RELEASE": {"annolist": structs([entry, nameless])}})
    first, second, third, last = (person for _, _, person in read_people(tmp_path / "a.mat"))
    assert isinstance(first, DataError)
    assert f"a.mat: image a.jpg, person 1: {message}" in str(first).replace("joint's ", "").replace("a id", "id")
    assert "person 2: the scale should be a number above 0. Got -2" in str(second)
    assert isinstance(third, Person)
    assert third.number == 3
    assert "annolist(2) has no image.name" in str(last)


# ---- COCO


def coco_folder(folder: Path, count: int = 10) -> Path:
    """A train and a val file of people, two to a photograph, in the official form."""
    category = {"id": 1, "name": "person", "keypoints": list(COCO_JOINTS), "skeleton": [[1, 2]]}
    for start, name in ((0, "train2017"), (100, "val2017")):
        photos, people = [], []
        for number in range(start, start + count):
            file = f"{number:012d}.jpg"
            photos.append({"id": number, "file_name": file, "height": HEIGHT, "width": WIDTH})
            all_joints = []
            for person in range(2):
                joints = random_joints(10 * number + person, 17)
                flags = np.array([2, 1, 2, 2] * 4 + [2])
                flags[: person * 5] = 0
                points = np.where(flags[:, None] > 0, joints, 0)
                all_joints.append(joints[flags > 0])
                low, high = joints[flags > 0].min(axis=0), joints[flags > 0].max(axis=0)
                people.append(
                    {
                        "id": 1000 * number + person,
                        "image_id": number,
                        "category_id": 1,
                        "iscrowd": 0,
                        "area": 5000.5,
                        "bbox": [*low.tolist(), *(high - low).tolist()],
                        "num_keypoints": int((flags > 0).sum()),
                        "keypoints": np.column_stack([points, flags]).astype(int).ravel().tolist(),
                    }
                )
            photo(folder / name / file, np.concatenate(all_joints), number)
        people.append({**people[-1], "id": start + 7, "iscrowd": 1, "keypoints": [], "segmentation": {"size": [1, 1]}})
        people.append({**people[-2], "id": start + 8, "keypoints": [0] * 51, "num_keypoints": 0})
        people.append({**people[-3], "id": start + 9, "area": 100})
        path = folder / "annotations" / f"person_keypoints_{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"images": photos, "annotations": people, "categories": [category]}))
    return folder


def test_coco_on_the_real_photographs(real_data: RealData, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = CocoKeypoints(real_data("coco_mini"))
    dataset = source.prepare(tmp_path / "set")
    assert dataset.info.counts == {"train": 27, "query": 7, "gallery": 24}
    assert dataset.info.details["joints"] == list(COCO)
    assert dataset.info.details["left_out"] == {"fewer than 8 joints": 184, "fewer than 4096 pixels": 42, "crowds": 6}
    labels, crops, roles = labels_of(dataset), crops_of(dataset), roles_of(dataset)
    kept = 0
    for name in ("train2017", "val2017"):
        raw = json.loads((source.source / f"annotations/person_keypoints_{name}.json").read_text())
        for person in raw["annotations"]:
            item_id = f"{person['image_id']:012d}_{person['id']}"
            if item_id not in labels:
                assert person["iscrowd"] or person["num_keypoints"] < 8 or person["area"] < 4096
                continue
            kept += 1
            joints = np.array(person["keypoints"], float).reshape(17, 3)
            label, (left, top, side) = np.array(labels[item_id]), crops[item_id]
            assert np.array_equal(label[:, 2], joints[:, 2] > 0)
            placed = label[:, 2] == 1
            assert np.allclose(label[placed, :2] * side / 288 + (left, top), joints[placed, :2] + 0.5, atol=0.05)
            assert not label[~placed].any()
            assert side == pytest.approx(1.5 * max(person["bbox"][2:]), abs=0.01)
            assert (roles[item_id] == "train") == (name == "train2017")
            assert roles[item_id] == "train" or roles[item_id] == split_by_hash(f"{person['image_id']:012d}", 1.0, 0.2)
    assert kept == len(labels) == 58
    assert check_dataset(dataset.folder) == []
    assert "annotations" not in capsys.readouterr().out


def test_coco_crops_hold_the_joints_and_one_file_is_enough(tmp_path: Path) -> None:
    folder = coco_folder(tmp_path / "in")
    source = CocoKeypoints(folder, image_size=192, test_fraction=0.5, query_fraction=0.5)
    dataset = source.prepare(tmp_path / "set")
    assert dataset.info.details["left_out"] == {"crowds": 2, "fewer than 8 joints": 2, "fewer than 4096 pixels": 2}
    assert len(labels_of(dataset)) == 40
    assert spots_in_place(dataset) > 20
    (folder / "annotations/person_keypoints_train2017.json").unlink()
    alone = dataclasses.replace(source, test_fraction=0.6, query_fraction=0.4).prepare(tmp_path / "alone")
    assert len(labels_of(alone)) == 20
    for item_id, role in roles_of(alone).items():
        assert role == split_by_hash(item_id[:12], 0.6, 0.4)  # two people of a photograph stay together


def test_poses_of_coco_are_drawn_and_mirrored(tmp_path: Path) -> None:
    dataset = CocoKeypoints(coco_folder(tmp_path / "in"), image_size=64, query_fraction=0.5).prepare(tmp_path / "set")
    task = tasks.get("pose")
    split = dataset.split("train")
    label = next(label for label in split.labels if all(joint[2] for joint in label))
    with Image.open(split.paths[0]) as image:
        drawn = np.asarray(task.draw(image.convert("L").convert("RGB"), label, dataset.info)).astype(int)
    assert drawn.shape == (192, 192, 3)
    x, y = (np.mean([label[joint][axis] for joint in (0, 1)]) * 3 for axis in (0, 1))  # between nose and left eye
    assert np.ptp(drawn[int(y) - 1 : int(y) + 2, int(x) - 1 : int(x) + 2], axis=2).max() > 60  # there is colour
    assert task.mirror is not None
    twin = task.mirror(label, dataset.info)
    assert twin[0][:2] == [64 - label[0][0], label[0][1]]
    for joint, name in enumerate(COCO):
        other = COCO.index({"l_": "r_", "r_": "l_"}.get(name[:2], name[:2]) + name[2:])
        assert (other == joint) == (name == "nose")
        assert twin[other] == [64 - label[joint][0], *label[joint][1:]]
    assert np.allclose(task.mirror(twin, dataset.info), label)


def test_every_joint_of_a_pose_set_has_a_bone() -> None:
    from cml.tasks.pose import BONES

    ends = {joint for bone in BONES for joint in bone}
    assert set(COCO) <= ends
    assert set(MPII) - {"pelvis"} <= ends
    assert len({frozenset(bone) for bone in BONES}) == len(BONES)


def _coco(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def put(folder: Path) -> None:
        path = folder / "annotations/person_keypoints_train2017.json"
        value = json.loads(path.read_text())
        change(value)
        path.write_text(json.dumps(value))

    return put


def _of_annotation(**changes: Any) -> Callable[[Path], None]:  # noqa: ANN401
    return _coco(lambda value: value["annotations"][2].update(changes))


def _of_point(position: int, number: float) -> Callable[[Path], None]:
    return _coco(lambda value: value["annotations"][2]["keypoints"].__setitem__(position, number))


ANNOTATION = "person_keypoints_train2017.json: annotation 1000"
COCO_IMAGE = "train2017/000000000001.jpg"
BROKEN_COCO: dict[str, tuple[Callable[[Path], object], str]] = {
    "image missing": (lambda folder: (folder / COCO_IMAGE).unlink(), f"{ANNOTATION}: the image .*{COCO_IMAGE} is mis"),
    "image cut": (
        lambda folder: (folder / COCO_IMAGE).write_bytes((folder / COCO_IMAGE).read_bytes()[:2000]),
        f"{ANNOTATION}: The image .*{COCO_IMAGE} cannot be read.*truncated",
    ),
    "image of another size": (
        lambda folder: Image.new("RGB", (50, 40)).save(folder / COCO_IMAGE),
        f"{ANNOTATION}: the image .*{COCO_IMAGE} has 50 x 40 pixels, but should have 160 x 120",
    ),
    "joint outside": (_of_point(0, 400), rf"{ANNOTATION}, image .*{COCO_IMAGE}: nose at \(400.5, .*lies outside"),
    "flag": (_of_point(2, 3), f"{ANNOTATION}: the third number of a joint should be 0, 1 or 2"),
    "too few numbers": (_of_annotation(keypoints=[1, 2, 3]), f"{ANNOTATION}: keypoints should be 51 finite numbers"),
    "no keypoints": (_of_annotation(keypoints=None), f"{ANNOTATION}: keypoints should be 51 finite numbers"),
    "flat box": (_of_annotation(bbox=[1, 2, 0, 5]), f"{ANNOTATION}: the bbox should have a width and a height"),
    "box": (_of_annotation(bbox="box"), f"{ANNOTATION}: bbox should be 4 finite numbers"),
    "area": (_of_annotation(area=None), f"{ANNOTATION}: the area should be a number"),
    "no such image": (_of_annotation(image_id=77), f"{ANNOTATION}: no entry of images has its image_id 77"),
    "upwards": (
        _coco(lambda value: value["images"][1].update(file_name="../val2017/000000000101.jpg")),
        f"{ANNOTATION}: the image .* (is missing|should be relative)",
    ),
}


@pytest.mark.parametrize("kind", BROKEN_COCO)
def test_a_bad_annotation_is_an_error_or_skipped(tmp_path: Path, kind: str) -> None:
    spoil, message = BROKEN_COCO[kind]
    folder = coco_folder(tmp_path / "in")
    spoil(folder)
    source = CocoKeypoints(folder, image_size=64, query_fraction=0.5)
    with pytest.raises(DataError, match=f"{message}.*--skip-bad"):
        source.prepare(tmp_path / "set")
    dataset = source.prepare(tmp_path / "set", skip_bad=True)
    both = 1 + (kind.startswith("image") or kind == "upwards")
    assert dataset.info.details["skipped"]["count"] == both
    assert sum(dataset.info.counts.values()) == 40 - both


def test_coco_files_that_are_bad_as_a_whole(tmp_path: Path) -> None:
    folder = coco_folder(tmp_path / "in")
    source = CocoKeypoints(folder, image_size=64)
    path = folder / "annotations/person_keypoints_train2017.json"
    content = path.read_bytes()
    for share in (0.0, 0.001, 0.5, 0.999):
        path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(DataError, match=r"train2017.json should (be COCO's JSON|hold COCO annotations)"):
            source.prepare(tmp_path / "set", skip_bad=True)
    for text in ("[]", "{}", '{"categories": 3}', '{"categories": [], "images": [], "annotations": [3]}', "7"):
        path.write_text(text)
        with pytest.raises(DataError, match=r"train2017.json"):
            read_coco(path)
    value = json.loads(content)
    value["categories"] = [{"id": 1, "name": "person"}]  # as in instances_train2017.json
    path.write_text(json.dumps(value))
    with pytest.raises(DataError, match=r"train2017.json has no category with COCO's 17 keypoints"):
        read_coco(path)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"annotations/person_keypoints_train2014.json is missing.*COCO 2014"):
        dataclasses.replace(source, year=2014).prepare(tmp_path / "set")
    with pytest.raises(DataError, match=r"person_keypoints_train2017.json is missing"):
        CocoKeypoints(tmp_path).prepare(tmp_path / "set")
    shutil.rmtree(folder / "val2017")
    with pytest.raises(DataError, match=r"val2017 should be a folder of images"):
        source.prepare(tmp_path / "set")
    for changes in (
        {"image_size": 4},
        {"min_joints": 1},
        {"margin": -1},
        {"min_area": math.nan},
        {"query_fraction": 0},
    ):
        with pytest.raises(UserError, match="should be"):
            dataclasses.replace(source, **changes)
