"""Features of texts by a frozen backbone: each text is embedded once, and damaged files are told."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from cml.array_types import Float32
from cml.feature_store.text_features import frozen_text_features


class Counting:
    """Stands for a model of texts, whose features are their lengths; keeps what it was asked for."""

    def __init__(self, weights: str = "imagenet", seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.config = SimpleNamespace(weights=weights)
        self.backbone = torch.nn.Linear(2, 2)
        self.asked: list[str] = []

    def extract(self, texts: list[str], *, bar: str = "") -> Float32:
        """The features (N, 2)."""
        self.asked += texts
        return np.array([[len(text), ord(text[0])] for text in texts], np.float32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("CML_CACHE", str(tmp_path))
    return tmp_path


def test_each_text_is_embedded_once_by_each_network(cache: Path) -> None:
    model: Any = Counting()
    first = frozen_text_features(model, ["a", "bb", "a"])
    np.testing.assert_array_equal(first, [[1, 97], [2, 98], [1, 97]])
    np.testing.assert_array_equal(frozen_text_features(model, ["ccc", "bb"]), [[3, 99], [2, 98]])
    assert model.asked == ["a", "bb", "ccc"]
    other: Any = Counting(seed=1)
    frozen_text_features(other, ["a"])
    assert other.asked == ["a"]
    own: Any = Counting("none")  # of which nothing is kept
    frozen_text_features(own, ["a"])
    frozen_text_features(own, ["a"])
    assert own.asked == ["a", "a"]


def test_damaged_features_are_computed_again(cache: Path) -> None:
    model: Any = Counting()
    frozen_text_features(model, ["a"])
    (path,) = cache.rglob("*.safetensors")
    content = path.read_bytes()
    for damaged in (content[:-1] + bytes([content[-1] ^ 1]), content[:20], b""):
        model.asked.clear()
        path.write_bytes(damaged)
        np.testing.assert_array_equal(frozen_text_features(model, ["a"]), [[1, 97]])
        assert model.asked == ["a"]
        assert path.read_bytes() == content
