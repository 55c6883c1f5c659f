"""Models of timm, tiny ones with random weights, through everything that cml does with a backbone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from export_runs import draw_images
from first_gradients import assert_same_direction, first_gradients
from safetensors.torch import load_file, save_file

import cml
from cml import models
from cml.cli import main
from cml.errors import DataError, UserError
from cml.feature_store.frozen_features import frozen_features
from cml.models.embedding import EmbeddingModel, ModelConfig

timm, onnxruntime = pytest.importorskip("timm"), pytest.importorskip("onnxruntime")

KINDS = ["timm/test_vit", "timm/test_resnet"]
CONFIG = cml.TrainConfig(
    weights="none",
    dimension=8,
    image_size=(32, 48),
    steps=3,
    checkpoint_every=2,
    workers=0,
    sampler="random(batch_size=16)",
    device="cpu",
)
IMAGES = np.random.default_rng(0).integers(0, 256, (24, 32, 48, 3), np.uint8)
LABELS = np.arange(24.0)


def shape(backbone: str, size: tuple[int, int] = (32, 32), weights: str = "none") -> ModelConfig:
    return ModelConfig(backbone, weights, dimension=4, normalize=True, image_size=size)


@pytest.fixture(scope="module", params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on arrays."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    cml.fit(IMAGES, LABELS, replace(CONFIG, backbone=request.param), out=folder, quiet=True)
    return folder


def test_a_run_is_loaded_as_it_was_trained(run: Path) -> None:
    model = cml.load(run, device="cpu")
    saved = load_file(run / "model.safetensors")
    assert {name.removeprefix("backbone.") for name in saved if name.startswith("backbone.")} == set(
        timm.create_model(model.config.backbone.removeprefix("timm/"), num_classes=0).state_dict()
    )
    embeddings = model.embed(IMAGES)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(model.embed(IMAGES[:3], batch_size=1), embeddings[:3], atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The network has batch normalisation")
@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("options", [{"micro_batch": 5}, {"precision": "bfloat16"}, {"freeze_backbone": True}], ids=str)
def test_every_way_of_training(name: str, options: dict[str, object], tmp_path: Path) -> None:
    config = replace(CONFIG, backbone=name, **options)  # type: ignore[arg-type]
    before = timm.create_model(
        name.removeprefix("timm/"), num_classes=0, **({"img_size": (32, 48)} if "vit" in name else {})
    )
    torch.manual_seed(config.seed)
    model = cml.fit(IMAGES, LABELS, config, quiet=True)
    assert np.isfinite(model.embed(IMAGES)).all()
    names = [one for one, _ in before.named_parameters()]
    assert names == [one for one, _ in model.network.backbone.named_parameters()]
    assert all(
        parameter.requires_grad != bool(options.get("freeze_backbone"))
        for parameter in model.network.backbone.parameters()
    )


def test_micro_batches_give_a_vision_transformer_the_gradient_of_the_whole_batch() -> None:
    whole, parts = (
        first_gradients(partial(cml.fit, IMAGES, LABELS, replace(CONFIG, backbone="timm/test_vit", micro_batch=size)))
        for size in (None, 5)
    )
    assert_same_direction(parts, whole)


@pytest.mark.slow
def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    config = replace(CONFIG, backbone="timm/test_vit", steps=4)
    whole = cml.fit(IMAGES, LABELS, config, out=tmp_path / "whole", quiet=True).network.state_dict()
    cml.fit(IMAGES, LABELS, replace(config, steps=4), out=tmp_path / "cut", quiet=True)
    (tmp_path / "cut" / "model.safetensors").unlink()
    again = cml.fit(IMAGES, LABELS, config, out=tmp_path / "cut", resume=True, quiet=True).network.state_dict()
    assert all(torch.equal(whole[name], again[name]) for name in whole)


@pytest.mark.slow
def test_embed_onnx_hub_and_captioning_features_of_a_run(run: Path, tmp_path: Path) -> None:
    model = cml.load(run, device="cpu")
    paths = draw_images(tmp_path / "photos", 3, name="{}.png", size=70)

    def done(*command: object) -> None:
        assert main([str(one) for one in command]) == 0

    done("embed", run, "--images", tmp_path / "photos", "--out", tmp_path / "embeddings", "--device", "cpu")
    embedded = np.load(tmp_path / "embeddings" / "embeddings.npy")
    np.testing.assert_allclose(embedded, model.embed(paths), atol=1e-5)

    done("export", "onnx", run, "--out", tmp_path / "onnx")
    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    for count in (1, 4):
        got = session.run(None, {"images": IMAGES[:count]})[0]
        np.testing.assert_allclose(got, model.embed(IMAGES[:count]), atol=1e-4)

    done("export", "hub", run, "--out", tmp_path / "hub")
    np.testing.assert_array_equal(cml.load(tmp_path / "hub", device="cpu").embed(IMAGES), model.embed(IMAGES))
    assert model.config.backbone in (tmp_path / "hub" / "README.md").read_text()

    for view in ("native", "crop"):
        out = tmp_path / view
        done("export", "captioning", run, "--images", tmp_path / "photos", "--out", out, "--view", view)
        manifest = json.loads((out / "cocotalk_manifest.json").read_text())
        channels = int(model.network.feature_maps(torch.zeros(1, 3, 32, 48)).shape[1])
        assert (manifest["items"], manifest["channels"]) == (3, channels)
        assert np.load(out / "cocotalk_fc" / "1.npy").shape == (channels,)
        assert np.load(out / "cocotalk_att" / "1.npz")["feat"].shape == (7, 7, channels)


def test_a_backbone_of_timm_is_a_trunk_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cml.export.trunk import open_trunk

    made = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **options: made(name, **options | {"pretrained": False}))
    trunk = open_trunk("timm/test_vit", device="cpu")
    assert trunk.title == "timm/test_vit, ImageNet"
    with pytest.raises(UserError, match="no run folder 'timm/tset_vit', and as a backbone: timm has no model"):
        open_trunk("timm/tset_vit")
    with pytest.raises(DataError, match="is not a folder"):
        open_trunk("runs/nowhere")


def test_tokens_make_the_map_and_the_first_ones_are_left_out() -> None:
    model = EmbeddingModel(shape("timm/test_vit", (48, 64))).eval()
    pixels = torch.randint(0, 256, (2, 3, 48, 64)).float()
    with torch.inference_mode():
        maps = model.feature_maps(pixels)
        tokens = model.backbone.forward_features(model._normalize(pixels))  # (B, 1 + 3 * 4, C)
    assert maps.shape == (2, 64, 3, 4)
    torch.testing.assert_close(maps, tokens[:, 1:].reshape(2, 3, 4, 64).permute(0, 3, 1, 2))


@pytest.mark.parametrize(
    "name", ["timm/test_resnet", "timm/test_convnext", "timm/test_mambaout", "timm/test_efficientnet"]
)
def test_maps_of_convolutions_are_what_is_pooled(name: str) -> None:
    model = EmbeddingModel(shape(name, (64, 96))).eval()
    pixels = torch.randint(0, 256, (2, 3, 64, 96)).float()
    with torch.inference_mode():
        maps, pooled = model.feature_maps(pixels), model.backbone.forward_features(model._normalize(pixels))
    assert maps.shape[2:] == (2, 3)
    assert maps.mean(dim=(2, 3)).sum().item() == pytest.approx(
        pooled.mean(dim=(1, 2) if name == "timm/test_mambaout" else (2, 3)).sum().item(), rel=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *timm.list_models("test_*"),
        *("eva02_tiny_patch14_224", "hiera_tiny_224", "levit_128", "mixer_s32_224", "mobilenetv3_small_050"),
        *("swin_tiny_patch4_window7_224", "vit_small_patch16_dinov3", "xcit_nano_12_p8_224"),
    ],
)
def test_models_of_every_kind_give_the_features_that_they_state_and_a_map(name: str) -> None:
    made = models.get(f"timm/{name}", "none", image_size=(64, 96))
    network = made.module.eval()
    with torch.inference_mode():
        assert network(torch.zeros(2, 3, 64, 96)).shape == (2, made.features)
        maps = made.feature_map(network, torch.zeros(2, 3, 64, 96))
    assert maps is not None
    assert maps.ndim == 4
    assert maps.shape[2] < maps.shape[3] <= 14
    assert not any("classifier" in one or one.startswith("head.fc") for one in network.state_dict())


def test_pixels_are_normalised_as_the_weights_ask_for() -> None:
    made = models.get(
        "timm/vit_small_patch16_224", "dino", pretrained=False
    )  # the tag decides, also where a run is read
    assert made.mean == pytest.approx((0.485, 0.456, 0.406))
    assert models.get("timm/vit_small_patch16_224", "none").mean == (0.5, 0.5, 0.5)
    assert models.get("timm/vit_small_patch14_dinov2.lvd142m", "none").std == pytest.approx((0.229, 0.224, 0.225))


def test_the_model_has_the_size_of_the_images() -> None:
    made = models.get("timm/vit_tiny_patch16_224", "none", image_size=(32, 64)).module
    assert made.patch_embed.grid_size == (2, 4)
    with torch.inference_mode():
        for size in ((32, 64), (70, 50), (224, 224)):  # and takes others, as captioning features need
            assert made.eval()(torch.zeros(1, 3, *size)).shape == (1, 192)
    with pytest.raises(
        UserError, match=r"coatnet_.*70 x 90 pixels \(The size .*\): set image_size to 224 224, the size"
    ):
        models.get("timm/coatnet_pico_rw_224", "none", image_size=(70, 90))
    with pytest.raises(
        UserError, match=r"cannot take .* \(Model only handles square inputs\): set image_size to 224 224"
    ):
        models.get("timm/nest_tiny", "none", image_size=(64, 96))
    with pytest.raises(UserError, match=r"at most 4096 pixels per side. Got 65536 x 65536 instead"):
        models.get("timm/test_vit", "none", image_size=(65536, 65536))
    model = EmbeddingModel(shape("timm/hiera_tiny_224", (64, 96)))
    with pytest.raises(DataError, match=r"'timm/hiera_tiny_224' cannot take .* 90 x 70 pixels: .*--view crop"):
        model.feature_maps(torch.zeros(1, 3, 70, 90))


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("timm/resnet81", "none", r"timm has no model 'resnet81'. Did you mean 'resnet\d+'"),
        ("timm", "none", "'timm' needs the setting 'model'"),
        ("timm/resnet18.x", "none", "'timm/resnet18.x' has no weights 'x'. Set weights to .* one of a1_in1k"),
        ("timm/resnet18", "a1_in2k", "no weights 'a1_in2k'. Did you mean 'a1_in1k'"),
        ("timm/resnet18.tv_in1k", "a1_in1k", "contains its weights: set weights to 'imagenet' or 'none'"),
        ("timm/test_vit4", "imagenet", "no published weights: set weights to 'none'"),
        ("timm/../resnet18", "none", "should read 'name'"),
        ("timm//resnet18", "none", "should read 'name'"),
        ("timm/hf-hub:x/y", "none", "should read 'name'"),
    ],
)
def test_wrong_names_and_tags_are_one_line(name: str, weights: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        models.get(name, weights)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "weights", "asked"),
    [
        ("timm/resnet18", "imagenet", "resnet18"),
        ("timm/resnet18", "tv_in1k", "resnet18.tv_in1k"),
        ("timm/resnet18.tv_in1k", "imagenet", "resnet18.tv_in1k"),
    ],
)
def test_published_weights_are_asked_for_by_tag(
    name: str, weights: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, bool]] = []
    made: Callable[..., torch.nn.Module] = timm.create_model

    def create(name: str, pretrained: bool, **options: object) -> torch.nn.Module:
        given.append((name, pretrained))
        return made(name, **options)

    monkeypatch.setattr(timm, "create_model", create)
    models.get(name, weights)
    models.get(name, weights, pretrained=False)
    assert given == [(asked, True), (asked, False)]


def test_without_network_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise FileNotFoundError("cannot find\nthe requested files")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", offline)
    message = (
        r"'timm/resnet18' could not be downloaded \(cannot find the requested files\). Download .*timm/resnet18.a1_in1k"
    )
    with pytest.raises(UserError, match=message) as error:
        models.get("timm/resnet18")
    assert "\n" not in str(error.value)


def test_features_of_a_frozen_network_are_kept_by_its_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CML_CACHE", str(tmp_path / "cache"))
    paths = draw_images(tmp_path / "photos", 3)

    def features(seed: int, name: str = "w") -> np.ndarray:
        torch.manual_seed(seed)
        path = tmp_path / f"{name}.safetensors"
        save_file(timm.create_model("test_vit", img_size=(32, 32)).state_dict(), path)  # with its classifier
        model = EmbeddingModel(shape("timm/test_vit", weights=str(path)))
        found = frozen_features(model, paths)
        np.testing.assert_array_equal(found, model.extract(paths))
        return found

    def kept() -> int:
        return len(list((tmp_path / "cache" / "features").iterdir()))

    first = features(0)
    assert kept() == 1
    assert not np.array_equal(features(1), first)  # other weights under the same name
    assert kept() == 2
    np.testing.assert_array_equal(features(0, "other name"), first)
    assert kept() == 2


@pytest.mark.slow
def test_a_head_on_frozen_weights_of_a_file_by_the_command_line(tmp_path: Path) -> None:
    photos = draw_images(tmp_path / "photos", 40)
    rows = [f"{path.name},{n},{('train', 'train', 'query', 'gallery')[n % 4]}" for n, path in enumerate(photos)]
    (tmp_path / "labels.csv").write_text("\n".join(["file_name,age,split", *rows]) + "\n")
    weights = tmp_path / "w.safetensors"
    save_file(timm.create_model("test_vit", img_size=(32, 32)).state_dict(), weights)

    def done(*command: object) -> None:
        assert main([str(one) for one in command]) == 0

    done("prepare", "folder", "--images", tmp_path / "photos", "--labels", tmp_path / "labels.csv", "--label-columns",
         "age", "--split-column", "split", "--unit", "years", "--out", tmp_path / "ages")  # fmt: skip
    run = tmp_path / "run"
    done("train", "value", "--data", tmp_path / "ages", "--out", run, "--backbone", "timm/test_vit", "--weights",
         weights, "--freeze-backbone", "--image-size", 32, 32, "--steps", 3, "--workers", 0, "--device", "cpu",
         "--sampler", "random(batch_size=16)")  # fmt: skip
    weights.rename(tmp_path / "elsewhere.safetensors")
    done("evaluate", run, "--device", "cpu")
    done("export", "hub", run, "--out", tmp_path / "hub")
    shared = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert shared["model"]["weights"] == shared["train"]["weights"] == "w.safetensors"
    assert str(tmp_path) not in (tmp_path / "hub" / "config.json").read_text()
