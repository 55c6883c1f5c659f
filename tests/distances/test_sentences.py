"""Sentence vectors: their cache, the packaged model, and the distances against a slow sum."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from cml import distances
from cml.errors import DataError, UserError
from cml.word_vectors import sentence_model
from cml.word_vectors.sentence_model import sentence_vectors

IMAGES = [["a dog runs", "a running dog"], ["the stock market fell"], ["two dogs play", "dogs in the snow", "a dog"]]


def test_distances_equal_slow_sums() -> None:
    vectors = [sentence_vectors("all-minilm-l6-v2", image).astype(float) for image in IMAGES]
    for reduce in ("sum", "mean"):
        distance = distances.get("sentences", reduce=reduce)
        labels = distance.encode(IMAGES)
        found = distance.pairwise(labels, labels)
        for i, mine in enumerate(vectors):
            for j, theirs in enumerate(vectors):
                block = [[1 - a @ b for b in theirs] for a in mine]
                slow = sum(map(min, block)) + sum(map(min, zip(*block, strict=True)))
                if reduce == "mean":
                    a, b = mine.mean(axis=0), theirs.mean(axis=0)
                    slow = 1 - a @ b / np.linalg.norm(a) / np.linalg.norm(b)
                assert found[i, j] == pytest.approx(slow, abs=1e-5)
        assert found[0, 2] < found[0, 1]
        assert distance.encode(["a dog runs"]).fingerprint() == distance.encode([["a dog runs"]]).fingerprint()


def test_equal_texts_are_at_distance_0_whatever_they_were_embedded_beside() -> None:
    distance = distances.get("sentences")
    alone, beside = distance.encode(["a dog runs"]), distance.encode(["a dog runs", "a much longer sentence of a cat"])
    assert distance.pairwise(alone, beside)[0, 0] == 0
    assert distance.pairwise(alone, beside)[0, 1] > 0.1


def test_vectors_are_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["a cat", "a dog", "a cat"]
    expected = sentence_vectors("all-minilm-l6-v2", texts)
    assert np.array_equal(expected[0], expected[2])
    monkeypatch.setattr(sentence_model, "_open", lambda model: pytest.fail(f"{model} was opened again"))
    assert np.array_equal(sentence_vectors("all-minilm-l6-v2", texts), expected)
    assert np.array_equal(sentence_vectors("all-minilm-l6-v2", ["a dog", "a cat"]), expected[[1, 0]])


def test_another_packaged_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "all_minilm_l6_v2"
    package.mkdir()
    (package / "__init__.py").touch()
    with zipfile.ZipFile(package / "model.zip", "w") as archive:
        archive.writestr("../../outside", "x")
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(DataError, match=r"model\.zip has the SHA-256 .* instead of 0872f5d7d0e8\.\."):
        sentence_model._unpack_model()
    assert not (tmp_path / "cache").exists()


def test_models_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"The sentence model .* cannot be opened; take all-minilm-l6-v2") as caught:
        distances.get("sentences", model=str(tmp_path / "none")).encode(["a dog"])
    assert "\n" not in str(caught.value)
    with pytest.raises(DataError, match="not the one that these settings were saved with"):
        distances.get("sentences", model_sha256="0" * 64)
    with pytest.raises(UserError, match=r"'reduce' must be sum or mean\. Got 'max'"):
        distances.get("sentences", reduce="max")
    with pytest.raises(UserError, match=r"Label 0 has an empty text"):
        distances.get("sentences").encode([["a", " "]])
