"""Labels that repeat, people of a few pixels and queries among no items are named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.array_types import UInt8
from cml.cli import main
from cml.data.prepared import PreparedDataset

SIZE = 64


def draw(seed: int, side: int = SIZE) -> UInt8:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)


def findings_of(dataset: PreparedDataset, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["check", str(dataset.folder), "--json", *more]) == 0
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return findings


def prepare(
    folder: Path,
    pictures: Sequence[UInt8],
    rows: Sequence[dict[str, Any]],
    **options: Any,  # noqa: ANN401
) -> PreparedDataset:
    images = folder / "images"
    images.mkdir(parents=True)
    lines = []
    for number, (picture, row) in enumerate(zip(pictures, rows, strict=True)):
        Image.fromarray(picture).save(images / f"{number:02d}.png")
        lines += [json.dumps({"file_name": f"{number:02d}.png", **one}) for one in row.pop("rows", [row])]
    (folder / "labels.jsonl").write_text("\n".join(lines))
    return cml.prepare("folder", folder / "set", images=images, labels=folder / "labels.jsonl", **options)


SPLIT = ["train"] * 12 + ["test"] * 8


def values(numbers: Sequence[float]) -> list[dict[str, Any]]:
    return [{"value": number, "split": split} for number, split in zip(numbers, SPLIT, strict=True)]


REPEATS: dict[str, tuple[list[tuple[int, int]], Callable[[int], float], int, str]] = {
    "one of the training images twice": ([(1, 5)], lambda n: 5.0 if n in (1, 5) else n, 2, "the same label"),
    "contradicting ages": ([(1, 5)], float, 2, "contradicting labels"),
    "one query thrice": ([(14, 15), (14, 17)], lambda n: 3.0 if n > 12 else n, 3, "the same label"),
    "two test images": ([(14, 15), (18, 19)], float, 4, "contradicting labels"),
}


@pytest.mark.parametrize("kind", REPEATS)
def test_an_image_that_is_listed_several_times_is_named(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copies, label, count, which = REPEATS[kind]
    pictures = [draw(seed) for seed in range(20)]
    for one, other in copies:
        pictures[other] = pictures[one]
    dataset = prepare(tmp_path, pictures, values([label(n) for n in range(20)]), split_column="split")
    (finding,) = findings_of(dataset, capsys)
    assert (finding["rule"], finding["count"]) == ("repeated-labels", count)
    assert which in finding["what"]
    assert f"{copies[0][0]:02d}.png and {copies[0][1]:02d}.png" in finding["examples"][0]
    assert findings_of(dataset, capsys, "--skip", "repeated-labels") == []


def test_a_frame_of_a_film_may_be_there_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures = [draw(seed, 16) for seed in range(60)]
    pictures[12] = pictures[11]
    rows = [{"value": n, "split": "train" if n < 40 else "test"} for n in range(60)]
    assert findings_of(prepare(tmp_path, pictures, rows, split_column="split"), capsys) == []


def captions(number: int, doubled: bool) -> dict[str, Any]:
    texts = [f"a photo of {number} cats", f"{number} cats", "some cats on a mat"]
    return {"rows": [{"caption": text} for text in (*texts, *texts[: 2 * doubled])]}


@pytest.mark.parametrize("doubled", [20, 4])
def test_captions_that_an_image_has_twice_are_named(
    tmp_path: Path, doubled: int, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [captions(number, number < doubled) for number in range(20)]
    dataset = prepare(tmp_path, [draw(seed) for seed in range(20)], rows, kind="captions")
    (finding,) = findings_of(dataset, capsys)
    assert (finding["rule"], finding["count"], finding["total"]) == ("repeated-labels", doubled, 20)


def test_boxes_that_an_image_has_twice_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def box(number: int) -> dict[str, Any]:
        return {"class": "cat", "x0": number, "y0": 3, "x1": number + 30, "y1": 40}

    rows = [{"rows": [box(number), box(number)]} for number in range(20)]
    dataset = prepare(tmp_path, [draw(seed) for seed in range(20)], rows, kind="boxes")
    assert [finding["rule"] for finding in findings_of(dataset, capsys)] == ["repeated-labels"]


def test_one_caption_twice_is_usual(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [captions(number, number == 3) for number in range(20)]
    dataset = prepare(tmp_path, [draw(seed) for seed in range(20)], rows, kind="captions")
    assert findings_of(dataset, capsys) == []


def person(side: float, left: float = 10.0) -> list[list[float]]:
    return [[left, 10.0], [left + side, 11.0], [left + side / 2, 10.0 + side], [left + side / 3, 10.0 + side / 2]]


@pytest.mark.parametrize(("small", "side"), [([3], 9.0), ([0, 1, 2, 14], 12.0), (list(range(20)), 4.0)])
def test_people_of_a_few_pixels_are_named(
    tmp_path: Path, small: list[int], side: float, capsys: pytest.CaptureFixture[str]
) -> None:
    people = [{"keypoints": person(side if n in small else 30.0 + n, 4.0)} for n in range(20)]
    people[5]["keypoints"][3][1] += 0.5
    dataset = prepare(tmp_path, [draw(seed) for seed in range(20)], people, kind="keypoints")
    (finding,) = findings_of(dataset, capsys, "--skip", "frame")  # they stand in one corner
    assert (finding["rule"], finding["count"], finding["total"]) == ("tiny-people", len(small), 20)
    assert finding["examples"][0].endswith(f": {side * 1.5:g}")
    assert findings_of(dataset, capsys, "--skip", "tiny-people", "frame") == []


def test_people_of_a_usual_size_raise_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = [{"keypoints": [*person(20.0 + n, 4.0), [30.0, 12.0]]} for n in range(20)]
    dataset = prepare(tmp_path, [draw(seed) for seed in range(20)], people, kind="keypoints")
    assert findings_of(dataset, capsys) == []


@pytest.mark.parametrize(
    ("splits", "what"), [("query", "1 query has no items"), ("query query", "each of 2 queries has only one item")]
)
def test_queries_that_are_searched_among_no_items_are_named(
    tmp_path: Path, splits: str, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    roles = ["train"] * 8 + ["test"] * len(splits.split())
    rows = [{"value": n, "split": role} for n, role in enumerate(roles)]
    dataset = prepare(tmp_path, [draw(seed) for seed in range(len(rows))], rows, split_column="split")
    assert f"Suspicious: lone-queries: {what} to retrieve, so nothing" in capsys.readouterr().err
    (finding,) = findings_of(dataset, capsys)
    assert finding["rule"] == "lone-queries"
    assert finding["what"].startswith(what)
    assert findings_of(dataset, capsys, "--skip", "lone-queries") == []


def test_one_query_in_a_gallery_of_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"value": n, "split": role} for n, role in enumerate(["train"] * 8 + ["query", "gallery"])]
    dataset = prepare(tmp_path, [draw(seed) for seed in range(10)], rows, split_column="split")
    (finding,) = findings_of(dataset, capsys)
    assert (finding["rule"], finding["count"]) == ("lone-queries", 1)
