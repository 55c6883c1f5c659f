"""Texts as inputs, by networks of sentence-transformers and transformers; other types of weights; wrapped modules."""

import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_texts import LABELS, TEXTS, tiny_transformer

import cml
from cml.data.input_form import InputForm
from cml.data.texts import Texts
from cml.models.backbones.sentence_transformers import SentenceEncoder, wrap_foreign
from cml.models.weights import plain_state

huggingface_hub = pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="no sentence-transformers")

OPTIONS: dict[str, Any] = {"steps": 3, "sampler": "random(batch_size=12)", "quiet": True, "device": "cpu"}


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    """The small transformer as a backbone, as it is before training."""
    wrapped = wrap_foreign(tiny_transformer())
    assert isinstance(wrapped, SentenceEncoder)
    return wrapped


@pytest.fixture(scope="module")
def model() -> cml.Model:
    """A model that was trained end to end."""
    return cml.fit(TEXTS, LABELS, backbone=tiny_transformer(), dimension=4, **OPTIONS)


def test_texts_train_a_transformer_that_loads_without_it(model: cml.Model, tmp_path: Path) -> None:
    folder = model.save(tmp_path / "model")
    loaded = cml.load(folder, device="cpu")
    assert str(loaded) == "Model(sentence-transformers, texts -> 4 numbers, L2-normalised)"
    np.testing.assert_allclose(loaded.embed(TEXTS), model.embed(TEXTS), atol=1e-6)
    assert loaded.digest == model.digest
    np.testing.assert_allclose(model.embed(TEXTS[1:2]), model.embed(TEXTS[:3])[1:2], atol=1e-6)  # padding is masked
    assert model.search(TEXTS[:2], TEXTS, k=1)[1].max() < 1e-3
    assert "embedding" in model.evaluate(TEXTS, LABELS).rows

    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel

    plain = SentenceTransformer(str(folder / "backbone"), device="cpu")
    np.testing.assert_allclose(plain.encode(TEXTS), loaded.network.extract(TEXTS), atol=1e-6)
    assert AutoModel.from_pretrained(folder / "backbone").config.hidden_size == 16


def test_training_changes_the_transformer_and_freezing_does_not(encoder: SentenceEncoder, model: cml.Model) -> None:
    before = plain_state(encoder)
    trained = plain_state(model.network.backbone)
    assert any(not torch.equal(before[name], trained[name]) for name in before)
    frozen = cml.fit(TEXTS, LABELS, backbone=tiny_transformer(), freeze_backbone=True, **OPTIONS)
    after = plain_state(frozen.network.backbone)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_head_begins_with_the_distances_of_the_features(encoder: SentenceEncoder) -> None:
    options = OPTIONS | {"steps": 1, "learning_rate": 1e-12, "dimension": 16, "loss": "log-ratio(normalize=false)"}
    start = cml.fit(TEXTS, LABELS, backbone=encoder, **options)
    features, embeddings = start.network.extract(TEXTS), start.embed(TEXTS)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), np.linalg.norm(features, axis=1), rtol=1e-4)


def test_a_run_of_texts_continues_and_loads(tmp_path: Path) -> None:
    frame = [{"text": text, "y": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    run = tmp_path / "run"
    model = cml.fit(frame, backbone=tiny_transformer(), features="text", label="y", out=run, micro_batch=5, **OPTIONS)
    np.testing.assert_allclose(cml.load(run, device="cpu").embed(frame), model.embed(TEXTS), atol=1e-6)


def test_damaged_weights_of_a_saved_backbone_are_found(model: cml.Model, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = model.save(tmp_path / "model")
    path = folder / "backbone" / "model.safetensors"
    tensors = load_file(path)
    next(iter(tensors.values())).view(-1)[0] += 1
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(cml.UserError, match="checksum is wrong"):
        cml.load(folder, device="cpu")
    (folder / "backbone" / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "os.system"}]')
    with pytest.raises(cml.UserError, match=r"names 'os.system', no module of sentence-transformers"):
        cml.load(folder, device="cpu")


def test_texts_without_a_text_backbone_are_told_from_missing_files() -> None:
    with pytest.raises(cml.UserError, match="The inputs are texts, and no files: give a backbone of texts"):
        cml.fit(TEXTS, LABELS, backbone=torch.nn.Linear(2, 2), **OPTIONS)
    with pytest.raises(cml.UserError, match=r"missing\.jpg"):
        cml.fit(["missing.jpg"] * 60, LABELS, backbone="small-cnn", weights="none", **OPTIONS)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((60, 8, 8, 3), np.uint8), "takes texts, but input 0 is of type ndarray"),
        ([*TEXTS[:7], " ", *TEXTS[8:]], "Input 7 is an empty text"),
        ([*TEXTS[:7], None, *TEXTS[8:]], "input 7 is of type NoneType"),
    ],
)
def test_what_is_no_text_is_named(encoder: SentenceEncoder, values: object, message: str) -> None:
    with pytest.raises(cml.UserError, match=message):
        cml.fit(values, LABELS, backbone=encoder, **OPTIONS)


def test_a_text_backbone_on_images_is_named_with_the_mend() -> None:
    with pytest.raises(cml.UserError, match="takes texts, but the inputs are images: choose one for images"):
        cml.models.get("sentence-transformers/all-MiniLM-L6-v2", form=InputForm())
    images = np.zeros((60, 8, 8, 3), np.uint8)
    options = {"input_kind": "images", "image_size": (8, 8), "workers": 0, **OPTIONS}
    with pytest.raises(cml.UserError, match="takes texts, but the inputs are images: choose one for images"):
        cml.fit(images, LABELS, backbone="sentence-transformers/all-MiniLM-L6-v2", **options)


def test_texts_longer_than_the_model_takes_are_counted_once(encoder: SentenceEncoder) -> None:
    long = ["many cats in the snow in the snow in the snow", *TEXTS[:3]]
    with pytest.warns(UserWarning, match="1 of 4 texts of a batch reach the 8 tokens"):
        encoder(long)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder(long)


def test_a_model_that_is_not_to_be_had_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("no route to host\nmore")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", refuse)
    message = r"The sentence model 'nobody/nothing' cannot be opened; .* available from the hub \(no route to host\)\.$"
    with pytest.raises(cml.UserError, match=message):
        cml.fit(TEXTS, LABELS, backbone="sentence-transformers/nobody/nothing", **OPTIONS)


def test_a_transformer_needs_a_tokenizer_that_fits() -> None:
    network, tokenizer = tiny_transformer()
    with pytest.raises(cml.UserError, match=r"in this order: backbone=\(model, tokenizer\)"):
        cml.fit(TEXTS, LABELS, backbone=(tokenizer, network), **OPTIONS)
    with pytest.raises(cml.UserError, match="A transformer needs its tokenizer"):
        wrap_foreign(network)
    tokenizer.add_tokens(["rain", "fog"])
    with pytest.raises(cml.UserError, match="The tokenizer knows 12 tokens, the model 10"):
        wrap_foreign((network, tokenizer))


def test_texts_are_subsets_without_copies() -> None:
    texts = Texts.of(np.array(TEXTS)).subset(slice(10, 50)).subset(np.array([3, 0]))
    assert texts.read(np.array([0, 1])) == [TEXTS[13], TEXTS[10]]
    assert len(texts) == 2


class Words(torch.nn.Module):
    """A module of one's own from batches of words."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(50, 16, dtype=dtype)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        """Features (B, 16)."""
        return self.words(batch["words"]).mean(1)


def collate(rows: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"words": torch.stack(rows)}


ROWS = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_backbones_of_half_precision_train(dtype: torch.dtype) -> None:
    items = [torch.full((5,), row % 3) for row in range(60)]
    with pytest.warns(UserWarning, match=r"float16 weights, of which steps .* are rounded away"):
        model = cml.fit(items, LABELS, backbone=Words(dtype), collate=collate, **OPTIONS)
    assert np.isfinite(model.embed(items)).all()
    frozen = OPTIONS | {"freeze_backbone": True}  # of which there is nothing to warn
    model = cml.fit(ROWS, LABELS, backbone=torch.nn.Linear(8, 16, dtype=dtype), **frozen)
    assert model.network.backbone.weight.dtype == dtype
    assert np.isfinite(model.embed(ROWS)).all()


def test_parts_of_joined_items_have_the_gradient_of_the_whole_batch() -> None:
    items = [torch.full((5,), row % 3) for row in range(60)]
    results = []
    for micro_batch in (None, 5):
        torch.manual_seed(0)
        model = cml.fit(items, LABELS, backbone=Words(), collate=collate, micro_batch=micro_batch, **OPTIONS)
        results.append(model.embed(items))
    np.testing.assert_allclose(results[0], results[1], atol=1e-4)


@pytest.mark.parametrize("wrapper", ["compiled", "parallel"])
def test_weights_of_wrapped_modules_load_without_the_wrapper(wrapper: str, tmp_path: Path) -> None:
    def network() -> torch.nn.Sequential:
        return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU())

    def wrap() -> torch.nn.Module:
        if wrapper == "parallel":
            return torch.nn.DataParallel(network())
        return torch.compile(network(), backend="eager")  # type: ignore[return-value]

    model = cml.fit(ROWS, LABELS, backbone=wrap(), **OPTIONS)
    folder = model.save(tmp_path / "model")
    for given in (network(), wrap()):
        loaded = cml.load(folder, backbone=given, device="cpu")
        np.testing.assert_allclose(loaded.embed(ROWS), model.embed(ROWS), atol=1e-6)
        assert loaded.digest == model.digest
