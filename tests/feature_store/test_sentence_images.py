"""Images through a sentence-transformers model: a tiny CLIP with random weights, made here; nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from export_runs import draw_images
from PIL import Image

import cml
from cml.cli import main
from cml.data.open_image import read_upright
from cml.errors import UserError
from cml.feature_store.store import FeatureStore


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model of one layer of text and two of images, as safetensors."""
    transformers = pytest.importorskip("transformers")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.base.modules import Transformer

    folder = tmp_path_factory.mktemp("clip")
    letters = "abcdefghijklmnopqrstuvwxyz"
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "projection_dim": 12}
    ends = {"bos_token_id": len(tokens) - 2, "eos_token_id": len(tokens) - 1, "pad_token_id": len(tokens) - 1}
    config = transformers.CLIPConfig(
        text_config={**shape, **ends, "num_hidden_layers": 1, "vocab_size": len(tokens), "max_position_embeddings": 77},
        vision_config={**shape, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8},
        projection_dim=12,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.CLIPModel(config).eval().save_pretrained(folder / "parts")
    transformers.CLIPProcessor(
        transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        transformers.CLIPTokenizer(vocab={token: number for number, token in enumerate(tokens)}, merges=[]),
    ).save_pretrained(folder / "parts")
    whole = sentence_transformers.SentenceTransformer(modules=[Transformer(str(folder / "parts"))], device="cpu")
    whole.save(str(folder / "model"), create_model_card=False)
    return folder / "model"


def test_features_are_those_of_the_model(clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sentence_transformers import SentenceTransformer

    photos = draw_images(tmp_path / "photos", 70)
    words = [
        "features",
        "--images",
        tmp_path / "photos",
        "--backbone",
        f"sentences/{clip}",
        "--out",
        tmp_path / "store",
    ]
    assert main([str(word) for word in [*words, "--json"]]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "folder": str(tmp_path / "store"), "items": 70, "features": 12, "dtype": "float32",
    }  # fmt: skip
    store = FeatureStore.open(tmp_path / "store")
    model = SentenceTransformer(str(clip), device="cpu")
    slow = np.stack([model.encode([read_upright(path)], normalize_embeddings=True)[0] for path in photos])
    np.testing.assert_allclose(np.asarray(store.rows)[store.find(photos)], slow, atol=1e-5)
    pixels = [np.asarray(read_upright(path)) for path in photos[:3]]
    for number, items in enumerate((pixels, [Image.fromarray(array) for array in pixels])):
        other = cml.features(items, backbone=f"sentences/{clip}", out=tmp_path / str(number), quiet=True)
        np.testing.assert_allclose(np.asarray(other.rows), slow[:3], atol=1e-5)
    texts = cml.features(["two dogs"], backbone=f"sentences/{clip}", out=tmp_path / "texts", quiet=True)
    np.testing.assert_allclose(np.asarray(texts.rows), model.encode(["two dogs"], normalize_embeddings=True), atol=1e-5)


def test_a_dataset_of_images_is_trained_on(clip: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = cml.prepare("people", tmp_path / "people", count=40, size=32)
    store = cml.features(people, backbone=f"sentences/{clip}", out=tmp_path / "store", quiet=True)
    run = cml.train(
        "pose", people, tmp_path / "run", features=str(store.folder), sampler="random(batch_size=12)", steps=2,
        dimension=8, device="cpu",
    )  # fmt: skip
    assert f"'cml features --images FOLDER --backbone sentences/{clip} --out STORE' computes" in capsys.readouterr().err
    assert run.model.config.inputs.shape == (12,)
    assert "vectors" in run.evaluate().rows


def test_what_does_not_fit_is_one_line(clip: Path, tmp_path: Path) -> None:
    draw_images(tmp_path / "photos", 2)
    with pytest.raises(UserError, match="The sentence model 'all-minilm-l6-v2' takes texts, not images"):
        cml.features(tmp_path / "photos", backbone="sentences/all-minilm-l6-v2", out=tmp_path / "x", quiet=True)
    with pytest.raises(UserError, match=r"must be a path, a Pillow image or uint8 \(H, W, 3\)\. Got float64 \(4, 4\)"):
        cml.features([np.ones((4, 4))], backbone=f"sentences/{clip}", out=tmp_path / "x", quiet=True)
    (tmp_path / "photos" / "9.png").write_bytes(b"no image")
    with pytest.raises(UserError, match=r"9\.png .*cannot be read"):
        cml.features(tmp_path / "photos", backbone=f"sentences/{clip}", out=tmp_path / "y", quiet=True)
