from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from export_runs import CONFIG, draw_images, make_run
from PIL import Image

import cml
from cml.cli import main
from cml.data.images import read_image
from cml.errors import UserError, install_hint
from cml.export.onnx_graph import _compare, _Graph, _image_batches, export_onnx
from cml.models.embedding import EmbeddingModel, ModelConfig


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "value")


def test_the_graph_gives_the_embeddings_of_files_at_any_batch_size(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "onnx"
    assert main(["export", "onnx", str(run), "--out", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["path"] == str(out / "model.onnx")
    assert result["cosine"] >= 0.99999
    assert result["error"] <= 1e-4

    config = json.loads((out / "config.json").read_text())
    session = onnxruntime.InferenceSession(out / "model.onnx", providers=["CPUExecutionProvider"])
    (given,), (made,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape[1:]) == ("images", "tensor(uint8)", config["input"]["shape"][1:])
    assert (made.name, made.shape[1:]) == ("embeddings", [CONFIG.dimension])
    assert isinstance(given.shape[0], str)
    assert isinstance(made.shape[0], str)
    metadata = {entry.key: entry.value for entry in onnx.load(out / "model.onnx").metadata_props}
    assert json.loads(metadata["cml"]) == config

    # what config.json tells a user to do, without cml
    paths = draw_images(tmp_path / "photos", 7, size=500, name="{:03}.jpg")
    size = config["input"]["resize"]["width"], config["input"]["resize"]["height"]
    resize = config["input"]["resize"]["pillow"]
    pixels = np.stack([np.asarray(eval(resize, {"Image": Image, "image": Image.open(path)})) for path in paths])
    wanted = cml.load(run, device="cpu").embed(paths)
    for count in (1, 2, 7):
        (got,) = session.run(None, {"images": pixels[:count]})
        np.testing.assert_allclose(got, wanted[:count], atol=1e-5)
        assert np.linalg.norm(got - wanted[:count], axis=1).max() <= 1e-5
    np.testing.assert_array_equal(pixels[0], read_image(paths[0], (size[1], size[0])))


@pytest.mark.slow
def test_embeddings_that_are_not_normalised_are_compared_by_their_size(tmp_path: Path) -> None:
    config = ModelConfig("small-cnn", "none", dimension=4, normalize=False, image_size=(33, 65))
    model = EmbeddingModel(config).train()
    made = export_onnx(model, tmp_path / "deep" / "m.onnx")
    assert sorted(path.name for path in (tmp_path / "deep").iterdir()) == ["m.json", "m.onnx"]
    assert made.error <= 1e-4
    assert model.training  # the model itself is as it was
    images = np.random.default_rng(0).integers(0, 256, (3, 33, 65, 3), np.uint8)
    session = onnxruntime.InferenceSession(made.path, providers=["CPUExecutionProvider"])
    wanted = model.embed(images)
    np.testing.assert_allclose(session.run(None, {"images": images})[0], wanted, atol=1e-4 * np.abs(wanted).max())


@pytest.mark.slow
def test_a_graph_that_differs_from_torch_is_not_kept(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrong:
        def run(self, names: object, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [np.ones((len(inputs["images"]), CONFIG.dimension), np.float32)]

    model = cml.load(run, device="cpu").network
    with pytest.raises(UserError, match=r"differs from torch: least cosine .* Nothing was written"):
        _compare(_Graph(model), Wrong(), "images", _image_batches(model))
    monkeypatch.setattr("cml.export.onnx_graph.LARGEST_ERROR", -1.0)
    assert main(["export", "onnx", str(run), "--out", str(tmp_path / "out")]) == 2
    assert "Nothing was written" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_stands_in_the_way_is_said(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    assert main(["export", "onnx", str(run), "--out", str(tmp_path / "full")]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["export", "onnx", str(tmp_path), "--out", str(tmp_path / "x")]) == 2
    assert "config.json is missing" in capsys.readouterr().err
    assert main(["export", "tensorrt", str(run)]) == 2
    assert "Unknown kind 'tensorrt'. Known: captioning, hub, onnx." in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert main(["export", "onnx", str(run), "--out", str(tmp_path / "x")]) == 2
    assert install_hint("onnx") in capsys.readouterr().err
