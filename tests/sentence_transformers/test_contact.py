"""Models of cml in sentence-transformers, and losses of cml in its trainer."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from PIL import Image
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from transformers import ViTConfig, ViTImageProcessor, ViTModel

import cml
from cml.cli import main
from cml.data.input_form import InputForm
from cml.models.backbones.sentence_transformers import SentenceEncoder, wrap_foreign
from cml.retrieval import evaluate_embeddings
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.sentence_transformers import LabelDistanceLoss, LabelSampler, RetrievalEvaluator

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from test_text_backbones import LABELS, OPTIONS, TEXTS, tiny_transformer

ROWS = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
IMAGES = np.random.default_rng(0).integers(0, 256, (60, 12, 12, 3), np.uint8)


def tiny_sentence_transformer() -> SentenceTransformer:
    return wrap_foreign(tiny_transformer()).sentence_transformer


@pytest.mark.parametrize("loss", ["log-ratio", "log-ratio(normalize=false)"])
def test_a_model_of_texts_is_one_of_sentence_transformers_alone(loss: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    model = cml.fit(TEXTS, LABELS, backbone=tiny_transformer(), dimension=4, loss=loss, out=run, **OPTIONS)
    for folder in (model.save(tmp_path / "model"), run):
        assert "cml." not in (folder / "modules.json").read_text()
        pooling = json.loads((folder / "backbone" / "1_Pooling" / "config.json").read_text())
        assert pooling.keys() == {"word_embedding_dimension", "pooling_mode", "include_prompt"}  # names of version 5.0
        assert json.loads((folder / "backbone" / "sentence_bert_config.json").read_text()) == {}  # likewise
        loaded = SentenceTransformer(str(folder), device="cpu")
        np.testing.assert_allclose(loaded.encode(TEXTS), model.embed(TEXTS), atol=1e-6)
        assert loaded.get_embedding_dimension() == 4
        assert loaded.similarity_fn_name == ("cosine" if loss == "log-ratio" else "euclidean")
    model.export_hub(tmp_path / "shared")
    shared = SentenceTransformer(str(tmp_path / "shared"), device="cpu")
    np.testing.assert_allclose(shared.encode(TEXTS), model.embed(TEXTS), atol=1e-6)


@pytest.mark.parametrize("kind", ["images", "vectors", "own"])
def test_other_models_are_a_module_of_cml(kind: str, tmp_path: Path) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU())
    inputs = IMAGES if kind == "images" else ROWS
    options = {
        "images": {"backbone": "small-cnn", "weights": "none", "image_size": (12, 12), "workers": 0},
        "vectors": {},
        "own": {"backbone": network},
    }[kind]
    model = cml.fit(inputs, LABELS, dimension=5, **options, **OPTIONS)
    folder = model.save(tmp_path / "model")
    given = {"model_kwargs": {"backbone": network}} if kind == "own" else {}
    loaded = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True, **given)
    np.testing.assert_allclose(loaded.encode(list(inputs)), model.embed(inputs), atol=1e-6)
    assert loaded.get_embedding_dimension() == 5
    loaded.save(str(tmp_path / "again"))
    again = SentenceTransformer(str(tmp_path / "again"), device="cpu", trust_remote_code=True, **given)
    np.testing.assert_allclose(again.encode(list(inputs)), model.embed(inputs), atol=1e-6)


def test_versions_that_are_too_old_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("cml.sentence_transformers")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sentence_transformers.base", None)
    with pytest.raises(ImportError, match=r"needs sentence-transformers 5\.4 or newer"):
        importlib.import_module("cml.sentence_transformers.module")


def test_own_backbones_leave_python_as_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU())
    model = cml.fit(ROWS, LABELS, backbone=network, out=tmp_path / "run", **OPTIONS)
    assert model.export_onnx(tmp_path / "model.onnx").cosine > 0.9999
    assert cml.open_run(tmp_path / "run", backbone=network, device="cpu").model.digest == model.digest
    plugin = tmp_path / "own_network.py"
    plugin.write_text(
        "import cml, torch\n\n@cml.models.register('custom')\ndef network() -> torch.nn.Module:\n"
        "    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU())\n"
    )
    with pytest.raises(cml.UserError, match=r"--plugin FILE, a file that registers it by @cml.models.register"):
        cml.load(tmp_path / "run")
    for name in ("_entries", "_origins"):  # other tests shall not find what the plugin registers
        monkeypatch.setattr(cml.models.registry, name, dict(getattr(cml.models.registry, name)))
    for kind, out in (("onnx", "by_command.onnx"), ("hub", "by_command")):
        assert main(["export", kind, f"{tmp_path / 'run'}", "--out", f"{tmp_path / out}", "--plugin", f"{plugin}"]) == 0
    exported = cml.load(tmp_path / "by_command", device="cpu")
    np.testing.assert_allclose(exported.embed(ROWS), model.embed(ROWS), atol=1e-6)
    assert "the dataset is not at hand" in " ".join(model.export_hub(tmp_path / "shared", licence="mit"))


def test_images_pass_the_preprocessing_of_a_sentence_transformer(tmp_path: Path) -> None:
    folder = tmp_path / "vit"
    torch.manual_seed(0)
    shape = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    ViTModel(ViTConfig(**shape, image_size=16, patch_size=8)).save_pretrained(folder)
    ViTImageProcessor(size={"height": 16, "width": 16}, image_mean=[0.1] * 3).save_pretrained(folder)
    encoder = SentenceTransformer(str(folder), device="cpu")
    wanted = encoder.encode([Image.fromarray(pixels) for pixels in IMAGES])
    options = {"image_size": (12, 12), "workers": 0, "dimension": 5, **OPTIONS}
    frozen = cml.fit(IMAGES, LABELS, backbone=encoder, freeze_backbone=True, **options)
    np.testing.assert_allclose(frozen.network.extract(IMAGES), wanted, atol=1e-5)
    encoder = SentenceTransformer(str(folder), device="cpu")  # the other one is frozen
    model = cml.fit(IMAGES, LABELS, backbone=encoder, **options)
    loaded = cml.load(model.save(tmp_path / "model"), device="cpu")
    np.testing.assert_allclose(loaded.embed(IMAGES), model.embed(IMAGES), atol=1e-6)
    whole = SentenceTransformer(str(tmp_path / "model"), device="cpu", trust_remote_code=True)
    np.testing.assert_allclose(whole.encode(list(IMAGES)), model.embed(IMAGES), atol=1e-6)
    assert np.abs(model.network.extract(IMAGES) - wanted).max() > 0
    named = cml.models.get(f"sentence-transformers(model={str(folder)!r})", form=InputForm())
    assert isinstance(named.module, SentenceEncoder)
    assert named.module.kinds == ("images",)
    with pytest.raises(cml.UserError, match="takes images, but the inputs are texts"):
        cml.models.get(f"sentence-transformers(model={str(folder)!r})")
    with pytest.raises(cml.UserError, match="The inputs are texts, and no files: give a backbone of texts"):
        cml.fit(TEXTS, LABELS, backbone=encoder, **OPTIONS)
    with pytest.raises(cml.UserError, match="is no part of a graph"):
        model.export_onnx(tmp_path / "model.onnx")


def train(tmp_path: Path, model: SentenceTransformer, rows: dict[str, Any], loss: object, **options: Any) -> None:  # noqa: ANN401
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path / "out"),
        max_steps=4,
        per_device_train_batch_size=12,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_steps=2,
        eval_steps=2,
        **options.pop("arguments", {}),
    )
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=Dataset.from_dict(rows), loss=loss, **options
    ).train()


@pytest.mark.parametrize("loss", ["log-ratio", pytest.param("cosent(scale=2.0)", marks=pytest.mark.slow)])
def test_losses_of_label_distances_train_there(loss: str, tmp_path: Path) -> None:
    model = tiny_sentence_transformer()
    measured = EvaluateOptions(distance_ks=(5,), whole_ranking=False)
    evaluator = RetrievalEvaluator(TEXTS, LABELS, name="held-out", options=measured)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    arguments = {
        "eval_strategy": "steps",
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_held-out_score@5",
    }
    rows = {"text": TEXTS, "label": LABELS}
    train(tmp_path, model, rows, LabelDistanceLoss(model, loss), evaluator=evaluator, arguments=arguments)
    assert evaluator.primary_metric == "held-out_score@5"
    assert any(not torch.equal(value, before[name]) for name, value in model.state_dict().items())
    rows = evaluate_embeddings(model.encode(TEXTS, normalize_embeddings=True), LABELS, options=measured).rows
    assert evaluator(model)["held-out_score@5"] == pytest.approx(rows["embedding"]["score@5"].mean)


def test_batches_there_are_drawn_by_labels(tmp_path: Path) -> None:
    names = [["few", "some", "many"][row % 3] for row in range(60)]
    rows = {"text": TEXTS, "label": [float(row) for row in range(60)]}
    sampler = LabelSampler("per-class", "classes", labels=names)
    for batch in sampler(rows, 12, seed=1):
        assert all(sum(names[row] == name for row in batch) % 4 == 0 for name in ("few", "some", "many"))
    assert next(iter(sampler(rows, 12, seed=1))) == next(iter(sampler(rows, 12, seed=1, drop_last=True)))
    model = tiny_sentence_transformer()
    loss = LabelDistanceLoss(model, "log-ratio", "classes", labels=names)
    train(tmp_path, model, rows, loss, arguments={"batch_sampler": sampler, "num_train_epochs": 2})
    with pytest.raises(cml.UserError, match="no column 'label'"):
        sampler({"text": TEXTS}, 12)
    with pytest.raises(cml.UserError, match="holds 60, no number of one of 60 labels"):
        sampler({"label": [1, 60]}, 12)


def test_numbers_of_rows_stand_for_labels_of_any_kind(tmp_path: Path) -> None:
    words = ["few", "some", "many"]
    names = [words[row % 3] for row in range(60)]
    rows = {"text": TEXTS, "other": TEXTS[::-1][::-1], "label": [float(row) for row in range(60)]}
    for loss in ("log-ratio", "proxy-anchor"):
        model = tiny_sentence_transformer()
        train(tmp_path / loss, model, rows, LabelDistanceLoss(model, loss, "classes", labels=names, views=2))
    with pytest.raises(cml.UserError, match=r"2 columns of inputs, but the loss takes 1: set views=2 .*PairJudgements"):
        train(tmp_path / "pairs", model, rows, LabelDistanceLoss(model, "log-ratio"))
    with pytest.raises(cml.UserError, match=r"does not fit the label distance 'jaccard': .* given as labels="):
        train(tmp_path / "sets", model, {"text": TEXTS, "label": LABELS}, LabelDistanceLoss(model, distance="jaccard"))
    with pytest.raises(cml.UserError, match=r"takes the SentenceTransformer first, then the loss\. Got 'log-ratio'"):
        LabelDistanceLoss("log-ratio")
    with pytest.raises(cml.UserError, match="give labels="):
        LabelDistanceLoss(model, "proxy-anchor", "classes")
    with pytest.raises(cml.UserError, match="holds 60, which is no number of one of 60 labels"):
        LabelDistanceLoss(model, "log-ratio", "classes", labels=names)(
            [model.preprocess(TEXTS[:2])], torch.tensor([1.0, 60.0])
        )


def test_the_gradient_is_that_of_the_loss_on_the_embeddings() -> None:
    model = tiny_sentence_transformer().eval()
    distances = np.abs(np.subtract.outer(LABELS[:12], LABELS[:12]))
    loss = cml.losses.LogRatioLoss().fit("euclidean", LABELS)
    own = LabelDistanceLoss(model, loss)([model.preprocess(TEXTS[:12])], torch.tensor(LABELS[:12]))
    own.backward()
    gradients = [one.grad.clone() for one in model.parameters() if one.grad is not None]
    model.zero_grad()
    embeddings = model(model.preprocess(TEXTS[:12]))["sentence_embedding"]
    loss(embeddings, torch.tensor(distances)).backward()
    wanted = [one.grad for one in model.parameters() if one.grad is not None]
    for mine, theirs in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-4)
