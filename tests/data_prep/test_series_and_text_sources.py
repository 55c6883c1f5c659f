"""``cml prepare series`` against a slow reading of its labels, and ``text`` against the vectors of each text alone."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.data_prep.sources import text as text_source
from cml.errors import DataError


def test_the_phase_of_a_series_is_that_of_its_third_harmonic(tmp_path: Path) -> None:
    dataset = cml.prepare("series", tmp_path / "set", count=60, label="phase", noise=0.0)
    assert dataset.info.details["label_distance"] == "circular"
    split = dataset.split("train")
    assert split.vectors is not None
    for series, label in zip(split.vectors.read(np.arange(len(split))), split.labels, strict=True):
        time = np.arange(len(series)) / len(series)
        sine, cosine = (series @ wave(2 * np.pi * 3 * time) for wave in (np.sin, np.cos))
        phase = np.degrees(np.arctan2(cosine, sine))
        assert abs((phase - label + 180) % 360 - 180) < 12  # the trend moves it a little


def test_the_frequency_of_a_series_is_the_peak_of_its_spectrum(tmp_path: Path) -> None:
    dataset = cml.prepare("series", tmp_path / "set", count=60, noise=0.0)
    split = dataset.split("train")
    assert split.vectors is not None
    for series, label in zip(split.vectors.read(np.arange(len(split))), split.labels, strict=True):
        time = np.arange(len(series)) / len(series) - 0.5
        level = series - np.polyval(np.polyfit(time, series, 1), time)
        spectrum = np.abs(np.fft.rfft(level, 16 * len(series))) / 1.0
        assert abs(np.argmax(spectrum) / 16 - label) < 0.5


def test_the_shape_of_a_series_is_what_is_left_without_trend_and_noise(tmp_path: Path) -> None:
    dataset = cml.prepare("series", tmp_path / "set", count=60, label="shape", noise=0.0)
    assert dataset.info.details["label_distance"] == "dtw(band=4)"
    split = dataset.split("train")
    assert split.vectors is not None
    for series, label in zip(split.vectors.read(np.arange(len(split))), split.labels, strict=True):
        steps = np.linspace(0, len(series) - 1, 32).round().astype(int)
        trend = series[steps] - np.array([float(step) for step in label])
        np.testing.assert_allclose(trend, np.polyval(np.polyfit(steps, trend, 1), steps), atol=1e-5)  # a line


def test_series_do_not_depend_on_how_many_there_are(tmp_path: Path) -> None:
    few, many = (cml.prepare("series", tmp_path / str(count), count=count) for count in (20, 40))
    first = dict(zip(many.split("train").item_ids, many.split("train").labels, strict=True))
    assert all(first[name] == label for name, label in zip(*_columns(few.split("train")), strict=True))


def _columns(split: Any) -> tuple[list[str], list[float]]:  # noqa: ANN401 - a split
    return list(split.item_ids), list(split.labels)


def letters(model: str, texts: list[str], download: bool = True) -> np.ndarray[Any, Any]:
    """Vectors of texts that need no model: counts of letters."""
    return np.array([[text.count(letter) for letter in "abcdefgh"] for text in texts], np.float32)


def write(path: Path, rows: list[tuple[str, Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "stars"), *rows])
    return path


@pytest.fixture
def sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_source, "sentence_vectors", letters)


@pytest.mark.usefixtures("sentences")
def test_texts_become_vectors_in_their_order(tmp_path: Path) -> None:
    texts = [f"{'abcdefgh'[n % 8]} bad cafe {n}" for n in range(40)]
    source = write(tmp_path / "texts.csv", [(text, n % 5) for n, text in enumerate(texts)])
    dataset = cml.prepare("text", tmp_path / "set", source=source, label_columns=("stars",), model="letters")
    for role in dataset.info.roles:
        split = dataset.split(role)
        assert split.vectors is not None
        numbers = [int(name) for name in split.item_ids]
        np.testing.assert_array_equal(
            split.vectors.read(np.arange(len(split))), letters("", [texts[number] for number in numbers])
        )
        assert list(split.labels) == [number % 5 for number in numbers]
    captions = cml.prepare("text", tmp_path / "wmd", source=source, kind="captions", label_columns=("text",))
    assert captions.info.task == "caption"
    assert captions.split("train").labels[0] == [texts[int(captions.split("train").item_ids[0])]]


@pytest.mark.usefixtures("sentences")
@pytest.mark.parametrize("model", ["", "letters"])
def test_a_row_without_text_is_a_bad_item(model: str, tmp_path: Path) -> None:
    texts = [f"{'abcdefgh'[n % 8]} {n}" for n in range(40)]
    texts[3] = "  "
    source = write(tmp_path / "texts.csv", [(text, n) for n, text in enumerate(texts)])
    options: dict[str, Any] = {"source": source, "label_columns": ("stars",), "model": model}
    with pytest.raises(DataError, match=r"texts.csv:5: text should be a text. Got '  ' instead"):
        cml.prepare("text", tmp_path / "set", **options)
    dataset = cml.prepare("text", tmp_path / "set", skip_bad=True, **options)
    assert sum(dataset.info.counts.values()) == 39
    with pytest.raises(DataError, match="there is no column 'words'"):
        cml.prepare("text", tmp_path / "other", text_column="words", **options)


def test_a_kept_column_cannot_take_the_place_of_the_text(tmp_path: Path) -> None:
    source = write(tmp_path / "texts.csv", [("a", 1)])
    with pytest.raises(cml.UserError, match="keeps the texts of 'review' in its column 'text'"):
        cml.prepare("text", tmp_path / "set", source=source, text_column="review", keep_columns=("text",))
