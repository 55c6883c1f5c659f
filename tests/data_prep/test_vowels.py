"""``cml prepare vowels``: utterances of the published split as vectors, with their sequences as labels."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

import cml
from cml.data_prep.sources import vowels
from cml.distances import as_label_distance
from cml.errors import DataError, UserError

HEAD = "@problemName JapaneseVowels\n@timestamps false\n@classLabel true 1 2\n@data\n"


def write(folder: Path, **parts: list[np.ndarray]) -> Path:
    """Write the two files: arrays (T, 12) each."""
    folder.mkdir()
    for part, tracks in parts.items():
        lines = [":".join([*(",".join(map(repr, column)) for column in track.T.tolist()), "1"]) for track in tracks]
        (folder / f"JapaneseVowels_{part}.ts").write_text(HEAD + "\n".join(lines) + "\n")
    return folder


def draw(lengths: list[int], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(length, 12)).round(4) for length in lengths]


def test_labels_are_the_sequences_and_vectors_their_curves(tmp_path: Path) -> None:
    train, test = draw([7, 9, 24, 29], 0), draw([8, 12, 20], 1)
    dataset = cml.prepare("vowels", tmp_path / "set", source=write(tmp_path / "raw", TRAIN=train, TEST=test))
    assert dataset.info.queries_are_gallery
    assert list(dataset.split("query").item_ids) == ["test-000", "test-001", "test-002"]
    distance = as_label_distance(dataset.info.details["label_distance"])
    stored = distance.encode(dataset.split("train").labels)
    np.testing.assert_allclose(
        distance.pairwise(stored, stored), distance.pairwise(*[distance.encode(train)] * 2), rtol=1e-6
    )
    vectors = dataset.split("train").vectors
    assert vectors is not None
    rows = vectors.read(np.arange(4))
    assert rows.shape == (4, 12 * 24 + 1)
    np.testing.assert_allclose(rows[2, :-1].reshape(12, 24), train[2].T, rtol=1e-6)  # 24 steps are the curve itself
    np.testing.assert_allclose(rows[0, [0, 23]], train[0][[0, -1], 0], rtol=1e-6)
    assert rows[:, -1].tolist() == [7, 9, 24, 29]


BROKEN = {
    "an utterance should have 12 coefficients in each step": "1,2:3,4:1\n",
    "the coefficients should be finite": ":".join(["?"] * 12) + ":1\n",
    "should be a series of numbers and its class. Got 'x'": "x,2:3,4:1\n",
}


@pytest.mark.parametrize("message", BROKEN)
def test_a_broken_file_is_one_line(message: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "raw", TRAIN=draw([7, 8], 0), TEST=draw([8, 9], 1))
    (folder / "JapaneseVowels_TEST.ts").write_text(HEAD + BROKEN[message])
    with pytest.raises(DataError, match=re.escape(message)) as error:
        cml.prepare("vowels", tmp_path / "set", source=folder)
    assert "JapaneseVowels_TEST.ts:5" in str(error.value)
    assert not (tmp_path / "set").exists()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "raw", TRAIN=draw([7, 8], 0))
    with pytest.raises(DataError, match=r"JapaneseVowels_TEST\.ts cannot be read"):
        cml.prepare("vowels", tmp_path / "set", source=folder)


def test_the_package_holds_the_published_split(tmp_path: Path) -> None:
    if importlib.util.find_spec("aeon") is None:
        pytest.skip("aeon is not installed: pip install --no-deps aeon")
    dataset = cml.prepare("vowels", tmp_path / "set")
    assert (dataset.info.counts["train"], dataset.info.counts["query"]) == (270, 370)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vowels.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="pip install --no-deps aeon, or name the folder"):
        vowels.Vowels().prepare(tmp_path / "set")
