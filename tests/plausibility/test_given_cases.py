"""Small inputs that used to be read as something else: each is drawn here, and read where real ones are at hand."""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.cli import main
from cml.data.images import native_size, read_image
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.coco_keypoints import COCO_JOINTS
from cml.distances.captions.distance import Captions
from cml.errors import UserError

GIVEN = Path(__file__).parents[2].parent / "shared" / "cases" / "data"
RNG = np.random.default_rng(0)


def picture(width: int = 32, height: int = 32) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, (height, width, 3), np.uint8))


def write_table(path: Path, values: list[Any], header: str = "file_name,value", mark: str = ",") -> None:
    rows = [f"{number:02d}.png{mark}{value}" for number, value in enumerate(values)]
    path.write_text("\n".join([*filter(None, [header]), *rows]))


def write_people(path: Path, change: Callable[[int, list[Any]], list[Any]]) -> None:
    lines = []
    for number in range(8):
        joints = np.random.default_rng(number).integers(40, 190, (6, 2)).tolist()
        lines.append(json.dumps({"file_name": f"{number}.jpg", "keypoints": change(number, joints)}))
    path.write_text("\n".join(lines))


def write_orientation(path: Path, value: bytes) -> None:
    """A photograph of 60 x 40 whose EXIF orientation is a tag of any type."""
    content = io.BytesIO()
    picture(60, 40).save(content, "JPEG")
    exif = b"Exif\0\0" + b"II*\0" + struct.pack("<IH", 8, 1) + value + bytes(4)
    head = b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif
    path.write_bytes(content.getvalue()[:2] + head + content.getvalue()[2:])


def write_parquet(folder: Path, labels: list[int]) -> None:
    import datasets

    folder.mkdir()
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c", "d"])})
    rows = {"image": [picture() for _ in labels], "label": labels}
    datasets.Dataset.from_dict(rows, features=features).to_parquet(folder / "train.parquet")


def write_coco(folder: Path) -> None:
    (folder / "val2017").mkdir(parents=True)
    (folder / "annotations").mkdir()
    photos, people = [], []
    for number in range(1, 9):
        picture(200, 300).save(folder / "val2017" / f"{number:012d}.jpg")
        photos.append({"id": number, "file_name": f"{number:012d}.jpg", "width": 200, "height": 300})
        keypoints = [value for x, y in RNG.integers(20, 180, (17, 2)).tolist() for value in (x, y, 2)]
        about = {"id": number, "image_id": number, "category_id": 1, "iscrowd": 0, "area": 20000.0}
        people.append({**about, "bbox": [10, 10, 170, 170], "keypoints": keypoints})
    photos.append({**photos[-1], "id": 1})
    content = {"images": photos, "annotations": people, "categories": [{"id": 1, "keypoints": list(COCO_JOINTS)}]}
    (folder / "annotations" / "person_keypoints_val2017.json").write_text(json.dumps(content))


def draw_cases(folder: Path) -> None:
    """The inputs, under the names that the given ones have."""
    for name in ("images12", "pose_images", "odd_images", "masks_antialias/images", "masks_antialias/masks"):
        (folder / name).mkdir(parents=True)
    for number in range(12):
        picture().save(folder / "images12" / f"{number:02d}.png")
    for number in range(8):
        picture(200, 300).save(folder / "pose_images" / f"{number}.jpg")
        picture(64, 64).save(folder / "masks_antialias" / "images" / f"{number}.jpg")
        mask = np.where(np.arange(64)[None] < 20 + 3 * number, 40, 200).repeat(64, axis=0).astype(np.uint8)
        turned = Image.fromarray(mask).rotate(11 + number, Image.Resampling.BICUBIC, fillcolor=40)
        turned.save(folder / "masks_antialias" / "masks" / f"{number}.png")
    numbers = [3 * number for number in range(12)]
    write_table(folder / "csv_thousands.csv", [f'"{1 + n},2{n:02d}"' for n in range(12)])
    write_table(
        folder / "csv_mixed_german.csv", [500, *(f"{n / 2 + 0.5:.3f}" for n in range(1, 12))], "file_name;value", ";"
    )
    write_table(folder / "csv_missing.csv", [*numbers[:5], "", *numbers[6:]])
    write_table(folder / "csv_percent.csv", [f"{n}%" for n in numbers])
    write_table(folder / "csv_no_header.csv", numbers, "")
    write_table(folder / "csv_imdb_ages.csv", [25, 31, 2014, -31, 44, 18, 62, 70, 33, 29, 51, 40])
    write_table(folder / "csv_constant.csv", [7] * 12)
    write_table(folder / "angle_rad.csv", np.linspace(-3.1, 2.9, 12).tolist(), "file_name,angle")
    turns = np.column_stack([np.linspace(-3.1, 2.9, 12), RNG.uniform(-0.9, 0.9, (12, 2))]).tolist()
    write_table(folder / "rot_euler_rad.csv", [",".join(map(str, turn)) for turn in turns], "file_name,yaw,pitch,roll")
    places = RNG.uniform([11, 48], [12, 49], (12, 2)).tolist()
    write_table(folder / "place_swapped.csv", [f"{x},{y}" for x, y in places], "file_name,longitude,latitude")
    write_people(folder / "kp_null.jsonl", lambda n, joints: [*joints[:5], [None, None]] if n % 3 == 0 else joints)
    write_people(folder / "kp_zero.jsonl", lambda n, joints: [*joints[:5], [0, 0]] if n % 3 == 0 else joints)
    write_people(folder / "kp_normalised.jsonl", lambda _, joints: [[x / 200, y / 300] for x, y in joints])
    write_people(
        folder / "kp_conf.jsonl", lambda _, joints: [[x, y, 0.03 if n == 1 else 0.9] for n, (x, y) in enumerate(joints)]
    )
    write_orientation(folder / "odd_images" / "exif9.jpg", struct.pack("<HHIHH", 0x112, 3, 1, 9, 0))
    write_orientation(folder / "odd_images" / "exif_65535.jpg", struct.pack("<HHIHH", 0x112, 3, 1, 65535, 0))
    write_orientation(folder / "odd_images" / "exif_ascii.jpg", struct.pack("<HHI4s", 0x112, 2, 2, b"6\0\0\0"))
    write_orientation(folder / "odd_images" / "exif6.jpg", struct.pack("<HHIHH", 0x112, 3, 1, 6, 0))
    ramp = np.linspace(0, 1, 32 * 32).reshape(32, 32)
    Image.fromarray((ramp * 65535).astype(np.uint16)).save(folder / "odd_images" / "l16.png")
    Image.fromarray((ramp * 1023).astype(np.uint16)).save(folder / "odd_images" / "l16_10bit.png")
    files = ["exif9.jpg", "exif_65535.jpg", "exif_ascii.jpg", "exif6.jpg"]
    rows = [f"{name},{number},{'train' if number < 2 else 'query'}" for number, name in enumerate(files)]
    (folder / "exif9.csv").write_text("\n".join(["file_name,value,split", *rows]))
    person = {"file_name": "exif9.jpg", "keypoints": [[5, 5], [55, 30], [30, 20]]}
    (folder / "exif9_keypoints.jsonl").write_text(json.dumps(person))
    pairs = ["a red fire truck | a red truck", "four cats | six cats", "a full bowl | an empty bowl"]
    (folder / "captions_pairs.txt").write_text("\n".join(pairs))
    write_parquet(folder / "hf_classlabel", [n % 4 for n in range(24)])
    write_parquet(folder / "hf_minus1", [-1 if n == 5 else n % 4 for n in range(24)])
    write_coco(folder / "coco_dup_image")


@pytest.fixture(scope="module", params=["drawn", "given"])
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "given":
        if not GIVEN.is_dir():
            pytest.skip("the given inputs are not here; the drawn ones say the same")
        return GIVEN
    folder = tmp_path_factory.mktemp("cases")
    draw_cases(folder)
    return folder


def labels_of(dataset: PreparedDataset) -> dict[str, Any]:
    roles = ("train", "query")
    splits = [dataset.split(role) for role in roles]
    return {item: label for split in splits for item, label in zip(split.item_ids, split.labels, strict=True)}


def options_of(cases: Path, name: str) -> list[str]:
    """The arguments of ``cml prepare`` for an input."""
    special = {
        "hf_classlabel": [f"hf:{cases / 'hf_classlabel'}"],
        "hf_minus1": [f"hf:{cases / 'hf_minus1'}"],
        "coco_dup_image": ["coco_keypoints", "--source", str(cases / "coco_dup_image")],
    }
    if name in special:
        return special[name]
    if name == "masks_antialias":
        folders = ["--images", str(cases / name / "images"), "--masks", str(cases / name / "masks")]
        return ["folder", *folders, "--kind", "masks"]
    if name.startswith("kp_"):
        labels = ["--labels", str(cases / f"{name}.jsonl"), "--kind", "keypoints"]
        return ["folder", "--images", str(cases / "pose_images"), *labels]
    kinds = {
        "angle_rad": ["--kind", "angle"],
        "rot_euler_rad": ["--kind", "rotation", "--label-columns", "yaw", "pitch", "roll"],
        "place_swapped": ["--kind", "place", "--label-columns", "longitude", "latitude"],
    }
    labels = ["--labels", str(cases / f"{name}.csv"), *kinds.get(name, [])]
    return ["folder", "--images", str(cases / "images12"), *labels]


REFUSED = {
    "csv_thousands": r'it may be 1200 or 1\.2\d\d: say which by --thousands "," or --decimal ","',
    "csv_missing": r"csv_missing\.csv:7: value .* the cell is empty: fill it, or delete the line",
    "csv_percent": r"write the number without the percent sign",
    "csv_no_header": r"csv_no_header\.csv:1: .*put a line with the names of the columns above it",
    "kp_normalised": r"between 0 and 1; they seem to be fractions of width and height",
    "kp_conf": r"should be 0, 1 or 2\..* --min-confidence 0\.3",
    "hf_minus1": r"train:5: label should be the number of a class, 0 to 3\. Got -1",
    "coco_dup_image": r"the image id 1 is listed twice",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_right_reading_is_refused_with_the_mend(
    cases: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", *options_of(cases, name), "--out", str(tmp_path / "set")]) == 2
    error = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("error:"))
    assert re.search(REFUSED[name], error), error


NAMED = {
    "csv_mixed_german": ("thousands", r"--decimal \W+,\W+ --thousands \W+\."),
    "csv_imdb_ages": ("outliers", "2014"),
    "csv_constant": ("constant-labels", "7"),
    "angle_rad": ("radians", "--unit radians"),
    "rot_euler_rad": ("radians", "--unit radians"),
    "masks_antialias": ("stray-ids", "antialiased"),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_is_suspicious_is_named(
    cases: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", *options_of(cases, name), "--out", str(tmp_path / "set")]) == 0
    assert f"Suspicious: {NAMED[name][0]}" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "set"), "--json"]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    (finding,) = [finding for finding in findings if finding["rule"] != "lone-queries"]
    assert finding["rule"] == NAMED[name][0]
    assert re.search(NAMED[name][1], json.dumps(finding))


def prepare(cases: Path, name: str, out: Path, *more: str) -> PreparedDataset:
    assert main(["prepare", *options_of(cases, name), *more, "--out", str(out)]) == 0
    return PreparedDataset.open(out)


def test_thousands_and_decimals_are_read_as_asked(cases: Path, tmp_path: Path) -> None:
    assert labels_of(prepare(cases, "csv_thousands", tmp_path / "a", "--thousands", ","))["00.png"] == 1200
    assert labels_of(prepare(cases, "csv_thousands", tmp_path / "b", "--decimal", ","))["00.png"] == 1.2
    german = prepare(cases, "csv_mixed_german", tmp_path / "c", "--decimal", ",", "--thousands", ".")
    assert sorted(labels_of(german).values())[:3] == [500, 1000, 1500]


def test_radians_are_read_as_asked(cases: Path, tmp_path: Path) -> None:
    angles = prepare(cases, "angle_rad", tmp_path / "a", "--unit", "radians")
    assert str(angles.info.details["label_distance"]).startswith("circular(period=6.28")
    degrees = prepare(cases, "rot_euler_rad", tmp_path / "b", "--unit", "radians")
    first = (cases / "rot_euler_rad.csv").read_text().splitlines()[1].split(",")
    assert labels_of(degrees)["00.png"] == pytest.approx(np.degrees([float(cell) for cell in first[1:]]).tolist())


def test_columns_of_places_are_taken_by_their_names(cases: Path, tmp_path: Path) -> None:
    latitude, longitude = labels_of(prepare(cases, "place_swapped", tmp_path / "set"))["00.png"]
    assert 47 < latitude < 50
    assert 10 < longitude < 13


@pytest.mark.parametrize("name", ["kp_null", "kp_zero"])
def test_joints_that_were_not_seen_are_hidden(cases: Path, name: str, tmp_path: Path) -> None:
    labels = labels_of(prepare(cases, name, tmp_path / "set"))
    given = [json.loads(line) for line in (cases / f"{name}.jsonl").read_text().splitlines()]
    for entry in given:
        missing = [joint in ([None, None], [0, 0]) for joint in entry["keypoints"]]
        assert [joint[2] == 0 for joint in labels[entry["file_name"]]] == missing
    assert any(joint in ([None, None], [0, 0]) for entry in given for joint in entry["keypoints"])


def test_confidences_have_a_threshold(cases: Path, tmp_path: Path) -> None:
    labels = labels_of(prepare(cases, "kp_conf", tmp_path / "set", "--min-confidence", "0.3"))
    for line in (cases / "kp_conf.jsonl").read_text().splitlines():
        entry = json.loads(line)
        visible = [joint[2] >= 0.3 for joint in entry["keypoints"]]
        assert [joint[2] == 1 for joint in labels[entry["file_name"]]] == visible


def test_class_labels_are_classes_and_bad_ones_are_left_out(cases: Path, tmp_path: Path) -> None:
    dataset = prepare(cases, "hf_classlabel", tmp_path / "a")
    assert dataset.info.task == "classes"
    assert not {*dataset.split("train").labels} & {*dataset.split("query").labels}
    skipped = prepare(cases, "hf_minus1", tmp_path / "b", "--skip-bad")
    assert sum(skipped.info.counts.values()) == 23


@pytest.mark.parametrize("name", ["exif9.jpg", "exif_65535.jpg", "exif_ascii.jpg"])
def test_other_orientations_than_1_to_8_are_upright(cases: Path, name: str, tmp_path: Path) -> None:
    path = cases / "odd_images" / name
    with Image.open(path) as image:
        assert native_size(path) == (image.height, image.width)
        assert read_image(path).shape[:2] == (image.height, image.width)
    labels = (cases / "exif9_keypoints.jsonl").read_text().replace("exif9.jpg", name)
    (tmp_path / "people.jsonl").write_text(labels)
    source: dict[str, Any] = {"images": cases / "odd_images", "labels": tmp_path / "people.jsonl", "kind": "keypoints"}
    with pytest.raises(UserError, match=r"no (train|query) items"):  # joints are inside: one item is too few
        cml.prepare("folder", tmp_path / "set", **source)


def test_photographs_are_stored_without_wrong_turns(cases: Path, tmp_path: Path) -> None:
    source: dict[str, Any] = {"labels": cases / "exif9.csv", "split_column": "split", "image_size": 20}
    dataset = cml.prepare("folder", tmp_path / "set", images=cases / "odd_images", **source)
    train, query = dataset.split("train"), dataset.split("query")
    sizes = {path.stem: read_image(path).shape[:2] for split in (train, query) for path in split.paths}
    assert (sizes["exif9"], sizes["exif_65535"], sizes["exif6"]) == ((20, 30), (20, 30), (30, 20))


def test_captions_that_differ_in_a_word_are_apart(cases: Path) -> None:
    distance = Captions("glove-6b-50d")
    for line in (cases / "captions_pairs.txt").read_text().splitlines():
        labels = distance.encode([[caption] for caption in line.split(" | ")])
        assert distance.pairwise(labels, labels)[0, 1] > 0.1, line


def test_a_quarter_turn_is_applied(cases: Path) -> None:
    path = cases / "odd_images" / "exif6.jpg"
    with Image.open(path) as image:
        assert native_size(path) == (image.width, image.height)


def test_ten_bits_in_sixteen_are_named_and_scaled(
    cases: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").mkdir()
    for number in range(6):
        pixels = np.asarray(Image.open(cases / "odd_images" / "l16_10bit.png"))
        Image.fromarray(np.roll(pixels, 5 * number, axis=0)).save(tmp_path / "images" / f"{number:02d}.png")
    write_table(tmp_path / "labels.csv", list(range(6)))
    options = ["folder", "--images", str(tmp_path / "images"), "--labels", str(tmp_path / "labels.csv")]
    assert main(["prepare", *options, "--out", str(tmp_path / "dark")]) == 0
    capsys.readouterr()
    assert main(["check", str(tmp_path / "dark"), "--json"]) == 0
    rules = [finding["rule"] for finding in json.loads(capsys.readouterr().out).get("findings", [])]
    assert [rule for rule in rules if rule != "lone-queries"] == ["depth"]
    assert main(["prepare", *options, "--bits", "10", "--out", str(tmp_path / "set")]) == 0
    assert read_image(PreparedDataset.open(tmp_path / "set").split("train").paths[0]).max() > 240
