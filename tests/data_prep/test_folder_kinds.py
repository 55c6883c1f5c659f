"""A user's own folder with captions, classes and masks; numbers are in test_data_prep.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
import cml.cli
from cml import distances, tasks
from cml.data.check_dataset import check_dataset
from cml.data.masks import read_mask
from cml.data.prepared import ROLES, PreparedDataset
from cml.data_prep.folder_split import deal_classes
from cml.data_prep.sources.folder import Folder
from cml.errors import DataError, UserError

COUNT = 24


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "sub").mkdir(parents=True)
    for number in range(COUNT):
        Image.new("RGB", (40, 30), (number * 10, 99, 5)).save(folder / name_of(number))
    return folder


def name_of(number: int) -> str:
    return f"sub/{number}.png" if number % 2 else f"{number}.jpg"


def written(folder: Path, header: str, rows: Callable[[int], str]) -> Path:
    path = folder / "labels.csv"
    path.write_text(header + "\n" + "".join(rows(number) + "\n" for number in range(COUNT)))
    return path


def labels_of(dataset: PreparedDataset) -> dict[str, Any]:
    splits = [dataset.split(role) for role in ROLES]
    return {item: label for one in splits for item, label in zip(one.item_ids, one.labels, strict=True)}


def refusal(folder: Path, **changes: Any) -> str:  # noqa: ANN401
    with pytest.raises(UserError) as caught:
        Folder(**changes).prepare(folder / "set")
    assert not (folder / "set").exists()
    return str(caught.value)


def test_captions_come_from_all_columns_and_all_lines(photos: Path, tmp_path: Path) -> None:
    twice = '{0},A dog  runs.,\n{0},,It is brown.\n{0},"A dog,\na big one",Third'
    labels = written(
        tmp_path, "file_name,one,two", lambda n: twice.format(name_of(n)) if n == 3 else f"{name_of(n)},cat {n},c"
    )
    dataset = Folder(photos, labels, "captions", label_columns=("one", "two")).prepare(tmp_path / "set")
    assert (dataset.info.task, dataset.info.label_column) == ("caption", "captions")
    assert check_dataset(dataset.folder) == []
    found = labels_of(dataset)
    assert len(found) == COUNT
    assert found["sub/3.png"] == ["A dog runs.", "It is brown.", "A dog, a big one", "Third"]
    assert found["4.jpg"] == ["cat 4", "c"]
    assert len(dataset.split("train")) == COUNT - round(0.3 * COUNT)
    assert tasks.get("caption").describe(found["4.jpg"], dataset.info) == "cat 4 / c"


def test_further_columns_are_kept_with_their_type(photos: Path, tmp_path: Path) -> None:
    labels = written(tmp_path, "file_name,value,site,dose", lambda n: f"{name_of(n)},{n},s{n % 3},{n / 4}")
    kept: dict[str, Any] = {"keep_columns": ("site", "dose"), "group_column": "site", "test_fraction": 0.6}
    dataset = Folder(photos, labels, **kept).prepare(tmp_path / "set")
    assert check_dataset(dataset.folder) == []
    for role in dataset.info.roles:
        for name, columns in zip(dataset.split(role).item_ids, dataset.read_further(role), strict=True):
            number = int(Path(name).stem)
            assert columns == {"site": f"s{number % 3}", "dose": number / 4}
    assert Folder(photos, labels, **kept).prepare(tmp_path / "set").fingerprint == dataset.fingerprint
    plain = Folder(photos, labels)
    assert "keep_columns" not in plain.origin()["settings"]  # datasets that were made before stay the same


def test_the_columns_of_an_image_are_those_of_its_first_row(photos: Path, tmp_path: Path) -> None:
    labels = written(tmp_path, "file_name,caption,by", lambda n: f"{name_of(n)},a {n},x{n}\n{name_of(n)},b,y")
    dataset = Folder(photos, labels, "captions", keep_columns=("by",)).prepare(tmp_path / "set")
    assert [columns["by"] for columns in dataset.read_further("train")] == [
        f"x{Path(name).stem}" for name in dataset.split("train").item_ids
    ]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("file_name", "keep_columns should not name 'file_name', a name that datasets use"),
        ("crop", "keep_columns should not name 'crop'"),
        ("value", "An extra column cannot be named 'value'; that name is reserved."),
        ("sites", "Did you mean 'site'?"),
    ],
)
def test_columns_that_cannot_be_kept_are_one_line(column: str, said: str, photos: Path, tmp_path: Path) -> None:
    labels = written(tmp_path, "file_name,value,site,crop", lambda n: f"{name_of(n)},{n},s,c")
    with pytest.raises(UserError, match=re.escape(said)):
        Folder(photos, labels, keep_columns=(column,)).prepare(tmp_path / "set")


def test_captions_of_a_jsonl_list_and_a_command_line(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = tmp_path / "labels.jsonl"
    labels.write_text(
        "\n".join(json.dumps({"file_name": name_of(n), "caption": ["a", f"b {n}"]}) for n in range(COUNT))
    )
    flags = ["--images", str(photos), "--labels", str(labels), "--kind", "captions", "--image-size", "16"]
    assert cml.cli.main(["prepare", "folder", *flags, "--out", str(tmp_path / "set")]) == 0
    assert "cml train caption" in capsys.readouterr().out
    dataset = PreparedDataset.open(tmp_path / "set")
    assert labels_of(dataset)["0.jpg"] == ["a", "b 0"]
    with Image.open(dataset.split("train").paths[0]) as image:
        assert image.size == (21, 16)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2.jpg, ,train", "labels.csv:3: caption should hold a caption, but is empty"),
        ("0.jpg,more,query", "labels.csv:3: '0.jpg' is 'query' here, but 'train' in .*labels.csv:2"),
        ("gone.jpg,a,train", "labels.csv:3: the image .*gone.jpg is missing; add it, or delete the line"),
        ("2.jpg,a,dev", "labels.csv:3: split should be one of train, query, gallery, test, val, validation. Got 'dev'"),
    ],
)
def test_broken_captions(photos: Path, tmp_path: Path, line: str, message: str) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text(f"file_name,caption,split\n0.jpg,a,train\n{line}\n4.jpg,a,query\n6.jpg,b,gallery\n8.jpg,b,train")
    source = Folder(photos, labels, "captions", split_column="split")
    with pytest.raises(DataError, match=message):
        source.prepare(tmp_path / "set")
    dataset = source.prepare(tmp_path / "set", skip_bad=True)
    skipped = dataset.info.details["skipped"]
    assert skipped["count"] == 1
    assert skipped["first"][0].startswith("labels.csv:3: ")  # as the input is called wherever it lies
    assert str(tmp_path) not in str(skipped)
    assert labels_of(dataset)["0.jpg"] == ["a"]


def test_classes_are_held_out_whole(photos: Path, tmp_path: Path) -> None:
    labels = written(tmp_path, "file_name,class", lambda n: f"{name_of(n)},kind {n % 6}")
    dataset = Folder(photos, labels, "classes").prepare(tmp_path / "set")
    assert (dataset.info.task, dataset.info.label_column) == ("classes", "class")
    train, query = set(dataset.split("train").labels), set(dataset.split("query").labels)
    assert (len(train), len(query), train & query) == (4, 2, set())
    assert dataset.split("gallery") == dataset.split("query")
    assert dataset.info.details["recall_ks"] == [1, 2, 4]  # of 8 test images one is the query
    assert check_dataset(dataset.folder) == []


def test_classes_with_a_split_have_a_gallery_of_their_own(photos: Path, tmp_path: Path) -> None:
    roles = ("train", "query", "gallery")
    labels = tmp_path / "labels.jsonl"
    rows = [{"file_name": name_of(n), "class": n % 2, "s": roles[n % 3]} for n in range(COUNT)]
    labels.write_text("\n".join(map(json.dumps, rows)))
    dataset = Folder(photos, labels, "classes", split_column="s").prepare(tmp_path / "set")
    assert dataset.info.counts == {"train": 8, "query": 8, "gallery": 8}
    assert set(labels_of(dataset).values()) == {"0", "1"}
    assert not dataset.info.queries_are_gallery


def test_classes_that_cannot_be(photos: Path, tmp_path: Path) -> None:
    two = written(tmp_path, "file_name,class", lambda n: f"{name_of(n)},{n % 2}")
    assert "at least 3 classes, as testing takes classes that were not trained on. Got '0', '1'; with fewer" in refusal(
        tmp_path, images=photos, labels=two, kind="classes"
    )
    two.write_text("file_name,class\n0.jpg, \n")
    assert "labels.csv:2: class should be the name" in refusal(tmp_path, images=photos, labels=two, kind="classes")
    assert deal_classes("abc", 0.01) < set("abc")
    assert len(deal_classes("abc", 0.99)) == 1
    assert len(deal_classes(map(str, range(100)), 0.3)) == 30


def test_masks_of_a_folder_need_no_file(photos: Path, tmp_path: Path) -> None:
    masks = photos / "masks"
    (masks / "sub").mkdir(parents=True)
    for number in range(COUNT):
        ids = np.full((30, 40), 7, np.uint8)
        ids[:10] = 3 * (number % 2) or 5
        ids[0, 0] = 0
        Image.fromarray(ids).save(masks / Path(name_of(number)).with_suffix(".png"))
    dataset = Folder(photos, kind="masks", masks=masks, ignore_id=0, image_size=16).prepare(tmp_path / "set")
    assert dataset.info.task == "layout"
    assert dataset.info.details["ids"] == {"3": "region 3", "5": "region 5", "7": "region 7"}
    assert check_dataset(dataset.folder) == []
    mask = read_mask(labels_of(dataset)["sub/1.png"])
    assert mask.shape == (16, 21)
    assert np.unique(mask).tolist() == [0, 3, 7]
    task = tasks.get("layout")
    distance = distances.get("layout", ignore=0, largest_id=7)
    assert task.label_distance(task.recipe, dataset.info) == "layout(ignore=0, largest_id=7)"
    packed = distance.encode(list(dataset.split("train").labels))
    assert distance.pairwise(packed, packed).max() > 0.3
    assert "region 3 31%" in task.describe(labels_of(dataset)["sub/1.png"], dataset.info)


def test_masks_of_a_column_with_names(photos: Path, tmp_path: Path) -> None:
    Image.new("L", (40, 30), 2).save(photos / "two.png")
    Image.new("L", (39, 30), 2).save(photos / "small.png")
    Image.new("L", (40, 30), 9).save(photos / "nine.png")
    labels = written(tmp_path, "file_name,where", lambda n: f"{name_of(n)},two.png")
    flags: dict[str, Any] = {"images": photos, "labels": labels, "kind": "masks", "label_columns": ("where",)}
    dataset = Folder(**flags, mask_names=("1=left wall", "2=floor")).prepare(tmp_path / "named")
    assert dataset.info.details["ids"] == {"1": "left wall", "2": "floor"}
    for name, message in (
        ("gone.png", "labels.csv:2: the mask .*gone.png is missing"),
        ("small.png", "labels.csv:2: The mask .*small.png is 39x30 pixels, but its image .*0.jpg is 40x30"),
        ("nine.png", "labels.csv:2: The mask .*nine.png holds the id 9; known ids: 1, 2"),
        ("../two.png", "labels.csv:2: the mask '../two.png' should be relative"),
        ("0.jpg", "labels.csv:2: The mask .*0.jpg is a JPEG"),
    ):
        labels.write_text(f"file_name,where\n0.jpg,{name}\n")
        with pytest.raises(DataError, match=message):
            Folder(**flags, mask_names=("1=left wall", "2=floor")).prepare(tmp_path / "set")


def written_people(folder: Path, people: list[tuple[str, Any]]) -> Path:
    path = folder / "people.jsonl"
    path.write_text("".join(json.dumps({"file_name": name, "keypoints": joints}) + "\n" for name, joints in people))
    return path


def test_people_are_cut_out_with_their_joints(photos: Path, tmp_path: Path) -> None:
    def joints(number: int) -> list[list[float]]:
        return [[5 + number, 4], [15, 24 - number / 2, 1], [10, 9], [0, 0, 0]]

    people = [(name_of(number), joints(number)) for number in range(COUNT)]
    people += [(name_of(3), [[30, 10], [32, 10], [31, 20], [31, 15]])]  # a second person on the fourth photograph
    names = ("l_hand", "r_hand", "neck", "head_top")
    source = Folder(photos, written_people(tmp_path, people), "keypoints", image_size=40, margin=0.5, joint_names=names)
    dataset = source.prepare(tmp_path / "set")
    assert check_dataset(dataset.folder) == []
    assert dataset.info.task == "pose"
    assert dataset.info.details["joints"] == list(names)
    found = labels_of(dataset)
    assert len(found) == COUNT + 1
    assert found["sub/3.png:25"] == [[18, 10, 1], [22, 10, 1], [20, 30, 1], [20, 20, 1]]  # a box of 20 pixels
    # 20 pixels and half of that on either side, 40 in all: a pixel of the photograph is one of the crop
    assert found["0.jpg"] == [[15, 10, 1], [25, 30, 1], [20, 15, 1], [0, 0, 0]]
    split = next(dataset.split(role) for role in ROLES if "0.jpg" in dataset.split(role).item_ids)
    with Image.open(split.paths[split.item_ids.index("0.jpg")]) as image:
        assert image.size == (40, 40)
    roles = {item: role for role in ROLES for item in dataset.split(role).item_ids}
    assert roles["sub/3.png:25"] == roles["sub/3.png"]  # one photograph is on one side
    task = tasks.get("pose")
    distance = distances.registry.make(task.label_distance(task.recipe, dataset.info))
    labels = distance.encode(dataset.split("train").labels)
    assert distance.pairwise(labels, labels).shape == (len(dataset.split("train")),) * 2
    assert task.mirror is not None
    assert task.mirror(found["0.jpg"], dataset.info)[0] == [15.0, 30.0, 1.0]  # the right hand of the mirrored image


@pytest.mark.parametrize(
    ("joints", "message"),
    [
        ("5,6", "people.jsonl:1: keypoints should be a list of joints, each .* Got '5,6' instead"),
        ([], "people.jsonl:1: keypoints should be a list of joints"),
        ([[1, 2, 3, 4]], "people.jsonl:1: keypoints should be a list of joints"),
        ([[1, 2], [3, "x"]], "people.jsonl:1: keypoints should be a finite number. Got 'x'"),
        ([[1, 2], [3, 4, 0], [5, 6]], "should have at least 3 visible joints. Got 2 instead"),
        ([[1, 2], [3, 90], [5, 6]], r"joint 2 at \(3.0, 90.0\) lies outside the image of 40 x 30 pixels"),
    ],
)
def test_joints_that_cannot_be(photos: Path, tmp_path: Path, joints: object, message: str) -> None:
    good = [(name_of(number), [[1, 2], [3, 4], [5, 6]]) for number in range(1, COUNT)]
    labels = written_people(tmp_path, [(name_of(0), joints), *good])
    assert re.search(message, refusal(tmp_path, images=photos, labels=labels, kind="keypoints"))
    dataset = Folder(photos, labels, "keypoints").prepare(tmp_path / "rest", skip_bad=True)
    assert len(labels_of(dataset)) == COUNT - 1


def test_people_with_other_joints_than_named(photos: Path, tmp_path: Path) -> None:
    labels = written_people(tmp_path, [(name_of(number), [[1, 2], [3, 4], [5, 6]]) for number in range(COUNT)])
    for names, message in ((("a", "b"), "should have 2 joints"), (("a", "a"), "should differ from each other")):
        assert message in refusal(tmp_path, images=photos, labels=labels, kind="keypoints", joint_names=names)
    uneven = written_people(
        tmp_path, [(name_of(n), [[1, 2], [3, 4], [5, 6], [7, 8]][: 3 + (n == 5)]) for n in range(COUNT)]
    )
    assert re.search(
        "people.jsonl:6: the label is .* but the first",
        refusal(tmp_path, images=photos, labels=uneven, kind="keypoints"),
    )


def test_settings_that_do_not_fit(photos: Path, tmp_path: Path) -> None:
    labels = written(tmp_path, "file_name,value", lambda n: f"{name_of(n)},{n}")

    def message(**changes: Any) -> str:  # noqa: ANN401
        return refusal(tmp_path, **{"images": photos, "labels": labels, **changes})

    assert "'labels' is missing" in message(labels=None)
    assert "'masks' is missing" in message(labels=None, kind="masks")
    assert "unit belongs to numbers" in message(unit="years", kind="classes")
    assert "belong to --kind masks" in message(ignore_id=0)
    assert "should name one column" in message(kind="classes", label_columns=("a", "b"))
    assert "Got '300=x'" in message(kind="masks", masks=photos, labels=None, mask_names=("300=x",))
    assert "no column 'caption'. There are: file_name, value" in message(kind="captions")
    labels.write_text("file_name,value\n0.jpg,a dog\n")
    assert "Got 'a dog' instead; for texts take --kind captions" in message()


ROTATED = "x,y,z,w"
QUATERNION = "0,0,0.6,0.8"


@pytest.mark.parametrize(
    ("kind", "header", "row", "expected", "label"),
    [
        ("angle", "angle", "350", "circular", 350.0),
        ("rotation", ROTATED, QUATERNION, "rotation", [0, 0, 0.6, 0.8]),
        ("rotation", "yaw,pitch,roll", "90,0,5", "rotation(form=euler)", [90, 0, 5]),
        ("rotation", "a,b,c,d,e,f,g,h,i", "1,0,0,0,1,0,0,0,1", "rotation(form=matrix)", [1, 0, 0, 0, 1, 0, 0, 0, 1]),
        ("place", "latitude,longitude", "48.1,-11.5", "haversine", [48.1, -11.5]),
        ("place", "lat,lon,heading", "48.1,11.5,270", "place", [48.1, 11.5, 270]),
    ],
)
def test_a_kind_of_numbers_brings_its_label_distance(
    photos: Path, tmp_path: Path, kind: Any, header: str, row: str, expected: str, label: Any  # noqa: ANN401
) -> None:  # fmt: skip
    labels = written(tmp_path, f"file_name,{header}", lambda n: f"{name_of(n)},{row}")
    dataset = Folder(photos, labels, kind, label_columns=tuple(header.split(","))).prepare(tmp_path / "set")
    task = tasks.get(dataset.info.task)
    assert task.label_distance(task.recipe, dataset.info) == expected
    assert labels_of(dataset)["0.jpg"] == label
    assert check_dataset(dataset.folder) == []
    picture = Image.new("RGB", (300, 200))
    drawn = task.draw(picture, label, dataset.info)
    assert drawn.size == picture.size
    assert drawn.tobytes() != picture.tobytes()
    assert task.describe(label, dataset.info)


def test_boxes_are_lines_of_an_image_in_shares_of_it(photos: Path, tmp_path: Path) -> None:
    rows = "{0},big bed,0,0,20,15\n{0},desk,10,15,40,30"
    labels = written(tmp_path, "file_name,class,x0,y0,x1,y1", lambda n: rows.format(name_of(n)))
    dataset = Folder(photos, labels, "boxes", image_size=16).prepare(tmp_path / "set")
    task, label = tasks.get(dataset.info.task), labels_of(dataset)["0.jpg"]
    assert label == ["big bed 0 0 0.5 0.5", "desk 0.25 0.5 1 1"]
    assert check_dataset(dataset.folder) == []
    distance = distances.as_label_distance(task.label_distance(task.recipe, dataset.info))
    packed = distance.encode([label, label[:1]])
    assert distance.pairwise(packed, packed).tolist() == [[0, 0.5], [0.5, 0]]
    assert task.describe(label, dataset.info) == "1 big bed, 1 desk"
    drawn = np.asarray(task.draw(Image.new("RGB", (400, 300)), label, dataset.info))
    assert drawn[140:152, 60:90].max() > 0  # the lower side of the bed
    assert drawn[100, 300].max() == 0


def test_angles_of_another_period(photos: Path, tmp_path: Path) -> None:
    labels = written(tmp_path, "file_name,angle", lambda n: f"{name_of(n)},{n}")
    dataset = Folder(photos, labels, "angle", unit="h", label_distance="circular(period=24)").prepare(tmp_path / "set")
    assert (dataset.info.label_unit, dataset.info.details["label_distance"]) == ("h", "circular(period=24)")


@pytest.mark.parametrize("choice", ["circular(period=24)", "cosine", "of-a-plugin"])
def test_any_label_distance_that_reads_nothing_else_may_be_named(photos: Path, tmp_path: Path, choice: str) -> None:
    try:
        distances.registry.register("of-a-plugin")(lambda a, b: abs(a[0] - b[0]))
        labels = written(tmp_path, "file_name,a,b", lambda n: f"{name_of(n)},{n + 1},2")
        settings: dict[str, Any] = {"label_columns": ("a", "b"), "label_distance": choice}
        dataset = cml.prepare("folder", tmp_path / "set", images=photos, labels=labels, **settings)
        task = tasks.get(dataset.info.task)
        assert task.label_distance(task.recipe, dataset.info) == choice
    finally:
        distances.registry._entries.pop("of-a-plugin", None)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("circle", "Unknown label distance 'circle'"),
        ("precomputed(path='/etc/passwd')", "should be a label distance that reads nothing outside the dataset"),
        ("captions(vectors='/tmp/own.txt')", "captions(vectors='/tmp/own.txt')"),
    ],
)
def test_a_label_distance_that_dataset_json_may_not_name_is_refused(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], choice: str, message: str
) -> None:
    labels = written(tmp_path, "file_name,angle", lambda n: f"{name_of(n)},{n}")
    settings: dict[str, Any] = {"images": photos, "labels": labels, "kind": "angle", "label_distance": choice}
    with pytest.raises(UserError, match=re.escape(message)):
        cml.prepare("folder", tmp_path / "set", **settings)
    command = ["prepare", "folder", "--out", str(tmp_path / "set"), "--images", str(photos), "--labels", str(labels)]
    assert cml.cli.main([*command, "--kind", "angle", "--label-distance", choice]) != 0
    assert message in capsys.readouterr().err
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize(
    ("kind", "header", "row", "message"),
    [
        ("angle", "angle", "north", "labels.csv:3: angle should be a finite number. Got 'north'"),
        ("angle", "angle", "nan", "labels.csv:3: angle should be a finite number. Got 'nan'"),
        ("place", "latitude,longitude", "200,5", "csv:3: the latitude should be in -90..90 degrees. Got 200 instead"),
        ("rotation", ROTATED, "0,0,0,0", "csv:3: x y z w should be a quaternion x, y, z, w of length 1. Got 0 0 0 0"),
        ("boxes", "class,x0,y0,x1,y1", "bed,5,5,2,9", "csv:3: x0 y0 x1 y1 should be left, top, right, bottom. Got 5 5"),
        ("boxes", "class,x0,y0,x1,y1", "bed,5,5,41,9", "csv:3: x1 should be in the image, 0 to 40 pixels. Got 41"),
        ("boxes", "class,x0,y0,x1,y1", ",5,5,40,9", "labels.csv:3: class should be the name of a class"),
    ],
)  # fmt: skip
def test_a_broken_value_names_its_row(
    photos: Path, tmp_path: Path, kind: Any, header: str, row: str, message: str  # noqa: ANN401
) -> None:  # fmt: skip
    good = {"angle": "5", "place": "5,5", "rotation": QUATERNION, "boxes": "bed,0,0,9,9"}[kind]
    labels = written(tmp_path, f"file_name,{header}", lambda n: f"{name_of(n)},{row if n == 1 else good}")
    assert re.search(message, refusal(tmp_path, images=photos, labels=labels, kind=kind))


def test_settings_of_numbers_that_do_not_fit(photos: Path, tmp_path: Path) -> None:
    labels = written(tmp_path, "file_name,a,b", lambda n: f"{name_of(n)},5,6")
    settings = {"images": photos, "labels": labels}
    for kind, changes, message in (
        ("captions", {"label_distance": "circular"}, "Labels of kind 'captions' have a label distance already"),
        ("angle", {"label_distance": "circular(period"}, "should read 'name' or 'name\\(setting=value"),
        ("boxes", {"label_columns": ("a", "b")}, "label_columns of boxes should name five columns"),
        ("place", {"label_columns": ("a",)}, "the name of 'a' does not say which is which"),
        ("boxes", {"unit": "degrees"}, "A unit belongs to numbers and angles"),
        ("rotation", {"unit": "metres"}, "of kind 'rotation' is degrees or radians. Got 'metres'"),
    ):
        with pytest.raises(UserError, match=message):
            Folder(**settings, kind=kind, **changes).prepare(tmp_path / "set")  # type: ignore[arg-type]


def test_images_without_a_row_are_counted(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = list(map(name_of, range(COUNT)))
    rows = "\n".join(f"{name},{number}" for number, name in enumerate(listed[:-2]))
    (tmp_path / "labels.csv").write_text(f"file_name,age\n{rows}\n")
    settings = {"images": photos, "labels": tmp_path / "labels.csv", "label_columns": ("age",)}
    cml.prepare("folder", tmp_path / "few", **settings)
    said = f"2 images have no row in {tmp_path / 'labels.csv'} and are left out."
    assert said in capsys.readouterr().err
    (tmp_path / "labels.csv").write_text(f"file_name,age\n{rows}\n{listed[-2]},1\n{listed[-1]},2\n")
    cml.prepare("folder", tmp_path / "all", **settings)
    assert "have no row" not in capsys.readouterr().err
