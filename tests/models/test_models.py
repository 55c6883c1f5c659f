from __future__ import annotations

import contextlib
import os
import shutil
import urllib.error
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from cml.data.images import Images
from cml.errors import UserError
from cml.feature_store.frozen_features import frozen_features
from cml.models import get
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.storage.resumable_output import resumable_output


@pytest.mark.filterwarnings("ignore:The default weight initialization of GoogleNet")
@pytest.mark.parametrize(
    ("name", "features", "side"),
    [
        ("small-cnn", 256, 64),
        ("small-cnn(grid=1)", 256, 64),
        ("small-cnn(grid=3, norm=group)", 256, 40),
        ("small-cnn(grid=2, layers=4)", 256, 40),
        ("resnet18", 512, 64),
        ("mobilenet_v3_small", 1024, 64),
        ("googlenet", 1024, 64),  # has side classifiers
    ],
)
def test_backbones_give_the_features_they_state(name: str, features: int, side: int) -> None:
    made = get(name, "none")
    assert made.features == features
    assert made.module.train()(torch.zeros(2, 3, side, side)).shape == (2, features)


def test_of_a_grid_of_one_cell_the_place_does_not_matter() -> None:
    dot = torch.zeros(1, 3, 192, 192)
    dot[..., 96, 96] = 9.0
    shifted = dot.roll((32, -32), (2, 3))  # by whole cells of the last map, out of the edges' reach
    for grid, same in ((1, True), (4, False)):
        network = get(f"small-cnn(grid={grid})", "none").module.eval()
        with torch.no_grad():
            assert torch.allclose(network(dot), network(shifted), atol=1e-5) == same


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("grid=0", "'grid' of small-cnn must be from 1 to 16. Got 0"),
        ("grid=17", "must be from 1 to 16. Got 17"),
        ("layers=5", "'layers' of small-cnn must be 4 or 6. Got 5"),
        ("norm=layer", "'norm' of small-cnn must be batch or group. Got 'layer'"),
    ],
)
def test_a_small_cnn_that_cannot_be_is_refused(settings: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        get(f"small-cnn({settings})", "none")


def test_packaged_weights_know_imagenet() -> None:
    made = get("efficientnet-lite0")
    assert made.features == 1280
    fresh = get("efficientnet-lite0", "none").module.state_dict()
    loaded = made.module.state_dict()
    assert fresh.keys() == loaded.keys()
    assert not torch.equal(fresh["network._conv_stem.weight"], loaded["network._conv_stem.weight"])
    assert not any("_fc" in name for name in loaded)


def test_published_weights_come_from_torchs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    state = torchvision.models.resnet18().state_dict()
    file = tmp_path / "hub" / "checkpoints" / "resnet18-f37072fd.pth"
    file.parent.mkdir(parents=True)
    torch.save(state, file)
    loaded = get("resnet18").module.state_dict()
    assert torch.equal(loaded["layer4.1.conv2.weight"], state["layer4.1.conv2.weight"])

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "owned"),)

    torch.save({"conv1.weight": Evil()}, file)
    with pytest.raises(UserError, match="damaged or hold more than weights"):
        get("resnet18")
    assert not (tmp_path / "owned").exists()


def test_without_network_the_error_says_where_to_put_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise urllib.error.URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", offline)
    with pytest.raises(UserError, match=r"could not be downloaded.*resnet18-f37072fd\.pth at .*efficientnet-lite0"):
        get("resnet18")


def test_backbone_without_a_classifier_is_refused() -> None:
    with pytest.raises(UserError, match="does not end in a linear classifier"):
        get("squeezenet1_0", "none")


def shape(**changes: object) -> ModelConfig:
    fields: dict[str, object] = {
        "backbone": "small-cnn",
        "weights": "none",
        "dimension": 8,
        "normalize": True,
        "image_size": (16, 16),
        "crop": 1.0,
    }
    return ModelConfig(**(fields | changes))  # type: ignore[arg-type]


def test_embedding_is_normalised_exactly_when_the_config_says_so() -> None:
    images = np.random.default_rng(0).integers(0, 255, (5, 16, 16, 3), np.uint8)
    norms = np.linalg.norm(EmbeddingModel(shape()).embed(images), axis=1)
    np.testing.assert_allclose(norms, 1, atol=1e-5)
    norms = np.linalg.norm(EmbeddingModel(shape(normalize=False)).embed(images), axis=1)
    assert np.abs(norms - 1).min() > 1e-3


def test_head_starts_as_in_the_paper() -> None:
    head = EmbeddingModel(shape(dimension=128)).head
    assert head.bias.abs().max() == 0
    assert head.weight.std().item() == pytest.approx((2 / 128) ** 0.5, rel=0.05)  # kaiming, fan-out


def test_embedding_depends_on_neither_batch_size_nor_mode() -> None:
    images = np.random.default_rng(0).integers(0, 255, (7, 20, 20, 3), np.uint8)
    model = EmbeddingModel(shape(crop=0.8)).train()
    whole = model.embed(images)
    assert model.training
    np.testing.assert_allclose(model.embed(images, batch_size=2), whole, atol=1e-5)
    np.testing.assert_allclose(model.eval().embed(Images(images, (20, 20))), whole, atol=1e-5)
    assert model.embed(images[:0]).shape == (0, 8)


def test_frozen_features_are_computed_once_per_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from PIL import Image

    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "a.png"
    Image.new("RGB", (32, 32), (200, 10, 10)).save(path)
    model = EmbeddingModel(shape(backbone="efficientnet-lite0", weights="imagenet", image_size=(32, 32)))
    first = frozen_features(model, [path])
    assert first.shape == (1, 1280)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("read from the cache instead")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddingModel, "extract", never)
        np.testing.assert_array_equal(frozen_features(model, [path]), first)
    Image.new("RGB", (32, 32), (10, 200, 10)).save(path)
    os.utime(path, ns=(1, 1))
    assert not np.array_equal(frozen_features(model, [path]), first)
    second = frozen_features(model, [path])
    for file in (tmp_path / "cache" / "features").rglob("*.npy"):
        damaged = bytearray(file.read_bytes())
        damaged[-5] ^= 1
        file.write_bytes(damaged)
    np.testing.assert_array_equal(frozen_features(model, [path]), second)
    for file in (tmp_path / "cache" / "features").rglob("*.json"):
        file.write_bytes(b"damaged")
    np.testing.assert_array_equal(frozen_features(model, [path]), second)
    for file in (tmp_path / "cache" / "features").rglob("*.json"):
        file.unlink()
    np.testing.assert_array_equal(frozen_features(model, [path]), second)
    for folder in (tmp_path / "cache" / "features").iterdir():  # begun by another version
        shutil.rmtree(folder)
        with contextlib.suppress(KeyboardInterrupt), resumable_output(folder, {"made_by": "another"}, ["x"]) as output:
            output.record({"rows": 1})
            raise KeyboardInterrupt
    np.testing.assert_array_equal(frozen_features(model, [path]), second)


@pytest.mark.parametrize(("name", "least"), [("efficientnet-lite0", 32), ("alexnet", 63)])
def test_images_too_small_for_the_backbone_are_one_error_that_says_the_least(name: str, least: int) -> None:
    model = EmbeddingModel(ModelConfig(name, "none", 4, True, (16, 16)))
    with pytest.raises(UserError, match=f"'{name}' cannot take images of 16 x 20 pixels; .* have {least} x {least}:"):
        model.features(torch.zeros(2, 3, 16, 20))
    assert model.training
    assert model.eval().features(torch.zeros(2, 3, least, least)).shape[0] == 2
    with pytest.raises(RuntimeError, match="4 channels"):  # not a matter of size
        model.backbone(torch.zeros(2, 4, 64, 64))
