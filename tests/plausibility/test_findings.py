"""What all values of a dataset together say: suspicious data is named, clean data never."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import cml
from cml.array_types import Float64, UInt8
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.folder import Folder
from cml.errors import ImplausibleData
from cml.plausibility.dataset_rules import find_in_dataset
from cml.plausibility.label_rules import find_in_labels
from cml.plausibility.near_duplicates import match_thumbnails

Draw = Callable[[np.random.Generator, int], Float64]


def rules_of(labels: Any, distance: str = "") -> list[str]:  # noqa: ANN401 - labels of any kind
    return [finding.rule for finding in find_in_labels(labels, distance=distance)]


def ages(count: int = 60) -> list[float]:
    return np.random.default_rng(0).integers(16, 80, count).astype(float).tolist()


CITY: list[list[float]] = np.random.default_rng(0).normal([48.137, 11.575], [0.04, 0.06], (60, 2)).tolist()
SUSPICIOUS: list[tuple[str, Any, str]] = [
    ("constant-labels", [7] * 12, ""),
    ("constant-labels", [[1.5, 2.5]] * 9, ""),
    ("constant-labels", [[n, 0.0, n * n] for n in range(20)], ""),
    ("constant-labels", ["a photo"] * 12, ""),
    ("constant-labels", [["a photo", "a picture"]] * 12, ""),
    ("constant-labels", np.ones((12, 5, 3)), ""),
    ("constant-labels", np.ones((12, 40)).tolist(), ""),
    ("sentinels", [*ages(), -1, -1, -1], ""),
    ("sentinels", [*ages(), -999, -999], ""),
    ("sentinels", [*ages(), 0, 0, 0], ""),
    ("sentinels", [*ages(), 999, 999], ""),
    ("sentinels", np.r_[np.random.default_rng(0).normal(20, 5, 300), [-9999] * 4], ""),
    ("sentinels", [*np.random.default_rng(0).uniform(0, 360, 40), -999, -999], "circular"),
    ("sentinels", [*np.random.default_rng(0).uniform([40, -9], [60, 30], (40, 2)), [0, 0], [0, 0]], "haversine"),
    ("sentinels", [*np.random.default_rng(0).uniform([-60, -9], [60, 30], (40, 2)), [0, 0], [0, 0]], "haversine"),
    ("swapped-places", [*CITY[:40], CITY[40][::-1]], "haversine"),
    ("swapped-places", [*CITY[:20], *[place[::-1] for place in CITY[20:26]]], "haversine(unit=km)"),
    (
        "swapped-places",
        [[*place[::-1], 90.0] if n == 3 else [*place, 5.0 * n] for n, place in enumerate(CITY)],
        "place",
    ),
    ("outliers", [*ages(12), 2014], ""),
    ("outliers", [*ages(), -41], ""),
    ("outliers", [*ages(200), -31], ""),
    ("outliers", np.r_[np.random.default_rng(0).lognormal(0, 1, 1000), 1e12], ""),
    ("outliers", np.r_[np.random.default_rng(0).normal(0, 1, 1000), 1e4, -2e4], ""),
    ("radians", np.random.default_rng(0).uniform(-math.pi, math.pi, 12), "circular"),
    ("radians", np.random.default_rng(0).uniform(0, 2 * math.pi, 200), "circular(period=360)"),
    ("radians", np.random.default_rng(0).uniform(-3, 3, (40, 3)) * [1, 0.3, 0.3], "rotation(form=euler)"),
]


@pytest.mark.parametrize(("rule", "labels", "distance"), SUSPICIOUS)
def test_suspicious_labels_are_named(rule: str, labels: Any, distance: str) -> None:  # noqa: ANN401
    assert rules_of(labels, distance) == [rule]
    assert find_in_labels(labels, distance=distance, skip=[rule]) == []


CLEAN: dict[str, Draw] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "temperatures": lambda rng, n: rng.normal(10, 8, n),
    "lognormal": lambda rng, n: rng.lognormal(0, 2, n),
    "exponential": lambda rng, n: rng.exponential(size=n),
    "pareto": lambda rng, n: rng.pareto(1.5, n),
    "counts": lambda rng, n: rng.poisson(3, n).astype(float),
    "long counts": lambda rng, n: rng.geometric(0.05, n).astype(float),
    "ages": lambda rng, n: np.clip(rng.normal(40, 15, n).round(), 0, 100),
    "steering": lambda rng, n: np.clip(rng.normal(0, 0.7, n), -1, 1),
    "rain": lambda rng, n: rng.lognormal(0, 1, n) * (rng.random(n) > 0.4),
    "two modes": lambda rng, n: rng.beta(0.3, 0.3, n),
    "ratings": lambda rng, n: rng.integers(-1, 12, n).astype(float),
    "years": lambda rng, n: rng.integers(1900, 2025, n).astype(float),
    "shares": lambda rng, n: rng.random(n).round(2),
    "two levels": lambda rng, n: rng.integers(0, 2, n) * 999.0,
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean_labels_raise_nothing(name: str) -> None:
    rng = np.random.default_rng(1)
    alarms = [find_in_labels(CLEAN[name](rng, count)) for count in (12, 50, 300, 3000) for _ in range(20)]
    assert [str(finding) for findings in alarms for finding in findings] == []


@pytest.mark.parametrize(
    "degrees", [(48.1, 11.6, 0.05), (-33.9, 151.2, 0.3), (20, 0, 60), (45, 40, 5), (0.3, 6.6, 0.05)]
)
def test_sound_places_raise_nothing(degrees: tuple[float, float, float]) -> None:
    latitude, longitude, spread = degrees
    for seed in range(10):
        places = np.random.default_rng(seed).normal([latitude, longitude], [spread / 2, spread], (300, 2))
        places[:, 0] = places[:, 0].clip(-90, 90)
        assert rules_of(places, "haversine") == []


def test_angles_in_degrees_are_no_radians() -> None:
    rng = np.random.default_rng(0)
    assert rules_of(rng.uniform(0, 360, 100), "circular") == []
    assert rules_of(rng.normal(0, 0.8, 100), "circular") == []  # a steering wheel that is held straight
    assert rules_of(rng.integers(-3, 4, 100), "circular") == []
    assert rules_of(rng.uniform(-3.1, 3.1, 100), f"circular(period={2 * math.pi})") == []


@pytest.mark.parametrize(
    "labels", [["a", "b"] * 10, [["a dog", "a cat"], ["a dog"]] * 10, [object()] * 5, [], [1.0], [np.nan] * 20]
)
def test_labels_that_are_no_numbers_pass(labels: Sequence[Any]) -> None:
    assert find_in_labels(labels) == []


def test_a_message_names_rule_count_examples_and_mend() -> None:
    labels = [*ages(), 2014.0]
    names = [f"{place}.jpg" for place in range(len(labels))]
    text = str(find_in_labels(labels, items=names, columns=["age"])[0])
    assert text.startswith("outliers: 1 of 61 numbers in 'age' lie far away from the others")
    assert "(60.jpg: 2014)" in text
    assert text.endswith("Correct them, or leave these items out.")


@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(0, 40), st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_matching_thumbnails_is_exact(seed: int, count: int, known_count: int, farthest: int) -> None:
    rng = np.random.default_rng(seed)
    known = rng.integers(0, 256, (known_count, 9)).astype(np.uint8)
    asked = rng.integers(0, 256, (count, 9)).astype(np.uint8)
    for row in range(0, count if known_count else 0, 2):  # every second one is near a known one
        shifted = known[row % known_count].astype(int) + rng.integers(-farthest - 1, farthest + 2, 9)
        asked[row] = np.clip(shifted, 0, 255)
    differences = np.abs(asked[:, None].astype(int) - known[None].astype(int)).max(axis=2, initial=0)
    near = differences <= farthest
    found = match_thumbnails(asked, known, farthest)
    np.testing.assert_array_equal(found >= 0, near.any(axis=1))
    for row in np.flatnonzero(found >= 0):
        assert near[row, found[row]]


def test_matching_2000_thumbnails_is_exact() -> None:
    rng = np.random.default_rng(0)
    known = np.repeat(rng.integers(90, 120, (2000, 1)), 256, axis=1) + rng.integers(-6, 7, (2000, 256))
    asked = known[rng.permutation(2000)] + rng.integers(-3, 5, (2000, 1))  # some are 4 levels off
    near = np.array([(np.abs(known - row).max(axis=1) <= 3).any() for row in asked])
    found = match_thumbnails(asked.astype(np.uint8), known.astype(np.uint8))
    assert 0 < near.sum() < 2000
    np.testing.assert_array_equal(found >= 0, near)


def photo(seed: int, size: int = 64) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (8, 8, 3), np.uint8)
    return Image.fromarray(small).resize((size, size), Image.Resampling.BICUBIC)


def prepare_photos(
    folder: Path, pictures: Sequence[Image.Image], splits: Sequence[str], suffix: str = "png"
) -> PreparedDataset:
    images = folder / "images"
    images.mkdir(parents=True)
    lines = ["file_name,value,split"]
    for number, (picture, split) in enumerate(zip(pictures, splits, strict=True)):
        picture.save(images / f"{number:02d}.{suffix}")
        lines.append(f"{number:02d}.{suffix},{number},{split}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return Folder(images, folder / "labels.csv", split_column="split").prepare(folder / "set")


def check(dataset: PreparedDataset, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["check", str(dataset.folder), "--json", *more]) == 0
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return findings


SPLITS = ["train"] * 12 + ["query"] * 4 + ["gallery"] * 4


@pytest.mark.parametrize("copy", ["same", "jpeg", "smaller"])
def test_a_test_image_that_is_a_training_image_is_named(
    tmp_path: Path, copy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = [photo(seed) for seed in range(20)]
    if copy == "jpeg":
        pictures[3].save(tmp_path / "copy.jpg", quality=80)
        pictures[14] = Image.open(tmp_path / "copy.jpg")
    else:
        pictures[14] = pictures[3] if copy == "same" else pictures[3].resize((48, 48), Image.Resampling.LANCZOS)
    dataset = prepare_photos(tmp_path / "a", pictures, SPLITS)
    (finding,) = check(dataset, capsys)
    assert (finding["rule"], finding["count"], finding["total"]) == ("near-duplicates", 1, 8)
    assert finding["examples"] == ["14.png and 03.png"]
    assert check(dataset, capsys, "--skip", "near-duplicates") == []


def test_different_photographs_are_no_duplicates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(prepare_photos(tmp_path, [photo(seed) for seed in range(20)], SPLITS), capsys) == []


def test_one_photograph_under_all_names_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (finding,) = check(
        prepare_photos(tmp_path, [photo(0)] * 15 + [photo(seed) for seed in range(1, 6)], SPLITS), capsys
    )
    assert (finding["rule"], finding["count"]) == ("same-images", 15)
    assert "look exactly the same" in finding["what"]


@pytest.mark.parametrize("shared", [20, 11])
def test_images_that_are_all_the_same_are_named(
    tmp_path: Path, shared: int, capsys: pytest.CaptureFixture[str]
) -> None:
    black = Image.new("RGB", (64, 64))
    pictures = [black] * shared + [photo(seed) for seed in range(20 - shared)]
    (finding,) = check(prepare_photos(tmp_path, pictures, SPLITS), capsys)
    assert (finding["rule"], finding["count"], finding["total"]) == ("same-images", shared, 20)
    assert "of one colour" in finding["what"]


def masks_dataset(folder: Path, draw: Callable[[int], UInt8], **settings: Any) -> PreparedDataset:  # noqa: ANN401
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for number in range(10):
        photo(number).save(folder / "images" / f"{number}.png")
        Image.fromarray(draw(number)).save(folder / "masks" / f"{number}.png")
    return Folder(folder / "images", kind="masks", masks=folder / "masks", **settings).prepare(folder / "set")


def halves(number: int, other: int = 2) -> UInt8:
    mask = np.full((64, 64), 1, np.uint8)
    mask[:, 10 + number :] = other
    return mask


def antialiased(number: int) -> UInt8:
    large = Image.fromarray(halves(number, 200)).rotate(10 + number, fillcolor=1, resample=Image.Resampling.BICUBIC)
    return np.asarray(large)


def scaled(number: int) -> UInt8:
    large = np.kron(halves(number, 200), np.ones((3, 3), np.uint8))[: 3 * 64, : 3 * 64 - 2 * number]
    return np.asarray(Image.fromarray(large).rotate(20, fillcolor=1).resize((64, 64), Image.Resampling.LANCZOS))


def compressed(number: int) -> UInt8:
    content = io.BytesIO()
    Image.fromarray(halves(number, 180)).rotate(15 + number, fillcolor=1).save(content, "JPEG", quality=70)
    return np.asarray(Image.open(content))


@pytest.mark.parametrize("draw", [antialiased, scaled, compressed])
def test_masks_whose_edges_are_blended_are_named(
    tmp_path: Path, draw: Callable[[int], UInt8], capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = check(masks_dataset(tmp_path, draw), capsys)
    assert finding["rule"] == "stray-ids"
    assert "antialiased" in finding["mend"]


def bordered(number: int) -> UInt8:
    mask = halves(number)
    mask[:, 9 + number] = 255
    return mask


def many_classes(number: int) -> UInt8:
    mask = np.tile(np.arange(64, dtype=np.uint8) // 8 + number, (64, 1))
    mask[:5] = 255
    return mask


@pytest.mark.parametrize("draw", [lambda number: halves(number, 255), bordered, many_classes])
def test_255_among_small_ids_is_asked_about(
    tmp_path: Path, draw: Callable[[int], UInt8], capsys: pytest.CaptureFixture[str]
) -> None:
    (finding,) = check(masks_dataset(tmp_path / "a", draw), capsys)
    assert "--ignore-id 255" in finding["mend"]
    mended = masks_dataset(tmp_path / "b", draw, ignore_id=255)
    assert check(mended, capsys) == []


def test_whole_masks_raise_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(masks_dataset(tmp_path, halves), capsys) == []


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        ("people", {"count": 60, "size": 32}),
        ("heads", {"count": 60, "size": 32}),
        ("rooms", {"count": 60, "size": 32}),
        pytest.param("scenes", {"count": 60, "size": 32}, marks=pytest.mark.slow),  # compiles the distance of captions
        pytest.param("digits", {}, marks=pytest.mark.slow),  # 1,797 images
        ("diabetes", {}),
    ],
)
def test_sources_raise_nothing(
    tmp_path: Path, source: str, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = cml.prepare(source, tmp_path / "set", **settings)
    assert check(dataset, capsys) == []
    assert find_in_dataset(dataset) == []


def test_points_that_may_separate_thousands_are_asked_about(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = tmp_path / "images"
    images.mkdir()
    numbers = ["500", *(f"{n}.{n * 37 % 1000:03d}" for n in range(1, 12))]
    for number in range(12):
        photo(number).save(images / f"{number}.png")

    def write(cells: Sequence[str], delimiter: str = ";") -> Path:
        path = tmp_path / "labels.csv"
        path.write_text(
            "\n".join([f"file_name{delimiter}value", *(f"{n}.png{delimiter}{x}" for n, x in enumerate(cells))])
        )
        return path

    for name, cells in {
        "prices": numbers,
        "negative": ["-500", *(f"-{number}" for number in numbers[1:])],
        "areas": ["90", "75", *(f"{n * 13 % 400 + 1}.{n * 37 % 1000:03d}" for n in range(10))],
    }.items():
        (finding,) = check(Folder(images, write(cells)).prepare(tmp_path / name), capsys)
        assert finding["rule"] == "thousands"
        assert finding["examples"][:2] == [cells[0], next(cell for cell in cells if "." in cell)]
    assert check(Folder(images, write(numbers), decimal=",", thousands=".").prepare(tmp_path / "b"), capsys) == []
    assert check(Folder(images, write(numbers, ",")).prepare(tmp_path / "c"), capsys) == []
    assert check(Folder(images, write([*numbers[:-1], "0.5"])).prepare(tmp_path / "d"), capsys) == []


def test_prepare_says_what_is_suspicious(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = tmp_path / "images"
    images.mkdir()
    lines = ["file_name,value"]
    for number in range(12):
        photo(number).save(images / f"{number}.png")
        lines.append(f"{number}.png,7")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    labels = ["--labels", str(tmp_path / "labels.csv"), "--out", str(tmp_path / "set")]
    assert main(["prepare", "folder", "--images", str(images), *labels]) == 0
    assert "Suspicious: constant-labels: all 12 labels are equal, 7." in capsys.readouterr().err


def test_fit_takes_the_period_of_its_label_distance_into_account() -> None:
    angles = np.random.default_rng(0).uniform(-3.1, 3.1, 40)
    rows = np.stack([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
    options: dict[str, Any] = {"steps": 2, "sampler": "random(batch_size=20)", "quiet": True}
    with pytest.warns(ImplausibleData, match="radians: all 40 angles"):
        cml.fit(rows, angles, label_distance="circular", **options)
    with warnings.catch_warnings(action="error", category=ImplausibleData):
        cml.fit(rows, angles, label_distance=f"circular(period={2 * math.pi})", **options)


def test_fit_warns_of_suspicious_labels() -> None:
    labels = [*ages(40), 2014.0]
    rows = np.random.default_rng(0).normal(size=(41, 5)).astype(np.float32)
    with pytest.warns(ImplausibleData, match=r"outliers: 1 of 41 .* \(item 40: 2014\)"):
        cml.fit(rows, labels, steps=2, sampler="random(batch_size=20)", quiet=True)
