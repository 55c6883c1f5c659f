"""BN-Inception: shapes, published pixels and weights read from a file; and the pooling of any network."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import cml
from cml import models
from cml.errors import DataError, UserError
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.training.config import TrainConfig


def published_network(seed: int) -> nn.Module:
    """The package's network with its classifier, and random weights in place of the published ones."""
    bninception = pytest.importorskip("pretrainedmodels.models.bninception")
    torch.manual_seed(seed)
    network: nn.Module = bninception.BNInception().eval()
    return network


def model(weights: str, name: str = "bn-inception") -> EmbeddingModel:
    return EmbeddingModel(ModelConfig(name, weights, dimension=8, normalize=True, image_size=(64, 64))).eval()


def slowly_pooled(maps: Tensor, pooling: str) -> Tensor:
    """The mean or maximum of each map, or their sum, number by number."""
    rows = []
    for item in maps:
        numbers = [channel.flatten().tolist() for channel in item]
        parts = {"mean": lambda each: sum(each) / len(each), "max": max}
        rows.append([sum(parts[part](each) for part in pooling.split("-")) for each in numbers])
    return torch.tensor(rows)


@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_published_weights_are_read_from_a_file_and_pixels_are_theirs(ending: str, tmp_path: Path) -> None:
    network = published_network(1)
    path = tmp_path / f"bn_inception{ending}"
    torch.save(network.state_dict(), path) if ending == ".pth" else save_file(network.state_dict(), path)
    made = model(str(path))
    images = torch.randint(0, 256, (2, 3, 64, 64), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    red, green, blue = images.float().unbind(dim=1)
    published = torch.stack([blue - 104, green - 117, red - 128], dim=1)  # BGR from 0 to 255
    with torch.no_grad():
        maps = network.features(published)  # type: ignore[operator]
        assert made.features(images).shape == (2, 1024)
        torch.testing.assert_close(made.feature_maps(images), maps, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(made.features(images), slowly_pooled(maps, "mean"), atol=1e-4, rtol=1e-4)
        for pooling in ("max", "mean-max"):
            pooled = model(str(path), f"bn-inception(pooling={pooling})").features(images)
            torch.testing.assert_close(pooled, slowly_pooled(maps, pooling), atol=1e-4, rtol=1e-4)
    for side in (224, 227):  # 227 is the side in the code of multi-similarity
        assert made.feature_maps(torch.zeros(1, 3, side, side)).shape == (1, 1024, 7, 7)


def test_it_trains_is_saved_and_opened_without_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bn_inception.pth"
    torch.save(published_network(2).state_dict(), path)
    levels = np.linspace(0, 255, 8)
    images = np.tile(levels[:, None, None, None], (1, 64, 64, 3)).astype(np.uint8)
    config = TrainConfig(
        backbone="bn-inception(pooling=mean-max)",
        weights=str(path),
        image_size=(64, 64),
        dimension=4,
        sampler="random(batch_size=8)",
        steps=1,
        workers=0,
    )
    trained = cml.fit(images, levels, config, out=tmp_path / "run", quiet=True)
    path.unlink()
    np.testing.assert_allclose(cml.load(tmp_path / "run").embed(images), trained.embed(images), atol=1e-6)


def test_nothing_is_downloaded_and_the_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pretrainedmodels")
    monkeypatch.setattr("torch.utils.model_zoo.load_url", lambda *_, **__: pytest.fail("it downloads"))
    monkeypatch.setattr("torch.hub.load_state_dict_from_url", lambda *_, **__: pytest.fail("it downloads"))
    assert models.get("bn-inception", "none").features == 1024
    for weights in ("imagenet", "IMAGENET1K_V1"):
        with pytest.raises(UserError, match=r"get http\S+bn_inception-52deb4733.pth and give the path"):
            models.get("bn-inception", weights)
    assert models.get("bn-inception", "imagenet", pretrained=False).features == 1024  # as a saved model opens it


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pretrainedmodels", None)
    monkeypatch.setitem(sys.modules, "pretrainedmodels.models.bninception", None)
    with pytest.raises(UserError, match=r"needs the extra 'bn-inception': pip install .*\[bn-inception\]'") as error:
        models.get("bn-inception", "none")
    assert "\n" not in str(error.value)


class Harmful:
    """What a pickle may hold: code that is run when it is read."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (Path("ran"),)


def test_files_that_do_not_fit_are_one_line_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.pth").write_text("no weights")
    torch.save({"a": Harmful()}, "harmful.pth")
    torch.save([torch.zeros(2)], "list.pth")
    few = dict(published_network(3).state_dict())
    few.pop("conv1_7x7_s2.weight")
    torch.save(few, "few.pth")
    for name, message in {
        "absent.pth": "The weights absent.pth of the backbone 'bn-inception' are missing",
        "text.pth": "are damaged or hold more than weights",
        "harmful.pth": "are damaged or hold more than weights",
        "list.pth": "must be a dictionary of tensors",
        "few.pth": "do not fit the backbone 'bn-inception': it lacks network.conv1_7x7_s2.weight",
    }.items():
        with pytest.raises(DataError, match=message) as error:
            models.get("bn-inception", name)
        assert "\n" not in str(error.value)
    assert not Path("ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pooling"),
    [("resnet18", "mean-max"), ("resnet18", "max"), ("googlenet", "mean-max"), ("regnet_y_400mf", "max")],
)
def test_mean_and_maximum_of_torchvisions_networks(name: str, pooling: str) -> None:
    torch.manual_seed(0)
    made = models.get(f"{name}(pooling={pooling})", "none")
    plain = models.get(name, "none")
    plain.module.load_state_dict(made.module.state_dict())
    pixels = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        maps = plain.feature_map(plain.module.eval(), pixels)
        assert maps is not None
        features = made.module.eval()(pixels)
        again = made.feature_map(made.module, pixels)
    torch.testing.assert_close(features, slowly_pooled(maps, pooling), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(again, maps)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet18(pooling=median)", "The 'pooling' of resnet18 must be one of mean, max, mean-max. Got 'median'"),
        ("bn-inception(pooling=1)", "The 'pooling' of bn-inception must be one of mean, max, mean-max. Got 1"),
        ("densenet121(pooling=mean-max)", "does not end in a mean over all positions"),
        ("vit_b_16(pooling=mean-max)", "does not end in a mean over all positions"),
    ],
)
def test_poolings_that_cannot_be_are_one_line(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        models.get(name, "none")
