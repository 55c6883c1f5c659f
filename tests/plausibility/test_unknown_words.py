"""Captions with many words that the word vectors do not know: cml check, prepare and fit say so, with a mend."""

from __future__ import annotations

import collections
import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import cml
from cml.cli import main
from cml.data.prepared import PreparedDataset
from cml.data_prep.sources.folder import Folder
from cml.distances.captions.distance import Captions
from cml.errors import ImplausibleData
from cml.plausibility.finding import find_unknown_words
from cml.word_vectors.word_vectors import CountedWords

GERMAN = ["Ein Hund läuft auf der Straße", "Zwei Kinder spielen im Park", "Eine Frau sitzt da und liest ein Buch"]
VIETNAMESE = ["Một con chó đang chạy trên bãi cỏ", "Hai đứa trẻ chơi bóng", "Một con mèo trắng ngủ trên ghế"]
MISSPELT = ["a hrose stnads in the grass", "two poeple at the beeach", "a dgo runs on grass"]
CLEAN = ["a dog runs on the grass", "two people sit at a table", "an old red bus on a street", "a cat sleeps"]


def prepare(folder: Path, captions: Sequence[str], count: int = 24) -> PreparedDataset:
    (folder / "photos").mkdir()
    lines = []
    for number in range(count):
        Image.new("RGB", (16, 12), (number * 9, 80, 10)).save(folder / "photos" / f"{number}.png")
        lines.append(json.dumps({"file_name": f"{number}.png", "caption": captions[number % len(captions)]}))
    (folder / "labels.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return cml.prepare(
        "folder", folder / "set", images=folder / "photos", labels=folder / "labels.jsonl", kind="captions"
    )


def check(dataset: PreparedDataset, capsys: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    main(["check", str(dataset.folder), "--json", *options])
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return [finding for finding in findings if finding["rule"] == "unknown-words"]


@pytest.mark.parametrize(
    ("captions", "example"), [(GERMAN, "läuft"), (VIETNAMESE, "chó"), (MISSPELT, "hrose")], ids=["de", "vi", "misspelt"]
)
def test_captions_of_unknown_words_are_named(
    captions: list[str], example: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = prepare(tmp_path, captions)
    said = capsys.readouterr()
    assert "Suspicious: unknown-words:" in said.out + said.err
    (finding,) = check(dataset, capsys)
    assert any(text.startswith(example) for text in finding["examples"])
    assert 0.05 * finding["total"] <= finding["count"] < finding["total"]
    assert "have no vector in glove-6b-50d" in finding["what"]
    assert "label-distance" in finding["mend"]
    assert check(dataset, capsys, "--skip", "unknown-words") == []


def test_english_captions_raise_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(prepare(tmp_path, CLEAN), capsys) == []


@pytest.mark.parametrize("count", [5, 40, 4000])
def test_captions_of_coco_raise_nothing(count: int, real_data: Callable[[str], Path]) -> None:
    lines = json.loads((real_data("coco_captions") / "captions_val2017_4000.json").read_text())["annotations"]
    captions: dict[int, list[str]] = collections.defaultdict(list)
    for line in lines:
        captions[line["image_id"]].append(line["caption"])
    distance, images = Captions("glove-6b-50d"), list(captions.values())
    for start in range(0, min(len(images), 20 * count), count):
        assert find_unknown_words(distance.count_words(images[start : start + count])) == []


def test_prepared_coco_raises_nothing(
    tmp_path: Path, real_data: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = cml.prepare("coco_captions", tmp_path / "set", source=real_data("coco_mini"))
    assert check(dataset, capsys) == []


def test_fit_warns_of_unknown_words() -> None:
    rows = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
    options: dict[str, Any] = {
        "label_distance": "captions(vectors=glove-6b-50d)",
        "steps": 1,
        "sampler": "random(batch_size=8)",
        "quiet": True,
    }
    with pytest.warns(ImplausibleData, match=r"unknown-words: .* \(läuft: 8 times, "):
        cml.fit(rows, [[GERMAN[number % 3]] for number in range(24)], **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ImplausibleData)
        cml.fit(rows, [[CLEAN[number % 4]] for number in range(24)], **options)


def test_labels_that_are_no_captions_have_no_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "photos").mkdir()
    lines = ["file_name,value"]
    for number in range(24):
        Image.new("RGB", (16, 12), (number * 9, 80, 10)).save(tmp_path / "photos" / f"{number}.png")
        lines.append(f"{number}.png,{number}")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    assert check(Folder(tmp_path / "photos", tmp_path / "labels.csv").prepare(tmp_path / "set"), capsys) == []


@pytest.mark.parametrize(("unknown", "total", "is_found"), [(3, 60, True), (2, 20, False), (3, 61, False)])
def test_what_is_many(unknown: int, total: int, is_found: bool) -> None:
    words = CountedWords(total, {f"word{number}": 1 for number in range(unknown)}, "vectors.txt")
    findings = find_unknown_words(words)
    assert bool(findings) == is_found
    if findings:
        text = "unknown-words: 3 of 60 words of the captions (5%) have no vector in vectors.txt, and are left out"
        assert str(findings[0]).startswith(f"{text} (word0, word1, word2). Correct them, or")


def test_captions_without_any_known_word_are_errors_beside_the_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = prepare(tmp_path, ["qwxz bbqqz", "a dog on grass", "ppqqzz qqwwx"])
    capsys.readouterr()
    assert main(["check", str(dataset.folder), "--json"]) == 2
    said = capsys.readouterr()
    assert "has 16 problems, listed above" in said.err
    result = json.loads(said.out)
    assert "has no caption with a known word: ['qwxz bbqqz']" in result["problems"][0]
    (finding,) = [finding for finding in result["findings"] if finding["rule"] == "unknown-words"]
    assert (finding["count"], finding["total"]) == (32, 48)
    assert main(["check", str(dataset.folder), "--skip", "unknown-words", "near-duplicates"]) == 2
    assert "unknown-words" not in capsys.readouterr().out
