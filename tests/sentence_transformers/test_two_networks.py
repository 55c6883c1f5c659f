"""Models of queries and documents in sentence-transformers: ``encode_query`` and ``encode_document``."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer

import cml
from cml.cli import main
from cml.models.backbones.sentence_transformers import wrap_foreign

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from tiny_texts import TEXTS, tiny_transformer

ROWS = np.random.default_rng(0).normal(size=(len(TEXTS), 8)).astype(np.float32)
MATRIX = np.random.default_rng(1).integers(0, 4, (12, len(TEXTS))).astype(float)
OPTIONS: dict[str, Any] = {"steps": 3, "dimension": 4, "quiet": True, "device": "cpu"}


def check(folder: Path, model: cml.SearchModel, queries: Any, documents: Any, **options: Any) -> SentenceTransformer:  # noqa: ANN401
    """Compare both sides with the model's own embeddings."""
    loaded = SentenceTransformer(str(folder), device="cpu", **options)
    for inputs, side, encode in (
        (queries, "queries", loaded.encode_query),
        (documents, "documents", loaded.encode_document),
        (documents, "documents", loaded.encode),
    ):
        np.testing.assert_allclose(encode(list(inputs)), model.embed(inputs, side=side), atol=1e-6)  # type: ignore[arg-type]
    assert loaded.get_embedding_dimension() == 4
    return loaded


def fit(queries: Any, documents: Any, backbone: Any, **options: Any) -> cml.SearchModel:  # noqa: ANN401
    model = cml.fit((queries, documents), cml.Grades.from_matrix(MATRIX), backbone=backbone, **OPTIONS, **options)
    assert isinstance(model, cml.SearchModel)
    return model


def prompted(default: str) -> SentenceTransformer:
    """A text model that begins all texts alike, and queries in another way unless cml trains it."""
    encoder = wrap_foreign(tiny_transformer()).sentence_transformer
    encoder.prompts = {"query": "question ", "document": "", "own": "numbers "}
    encoder.default_prompt_name = default or None
    assert isinstance(encoder, SentenceTransformer)
    return encoder


@pytest.mark.parametrize(
    ("default", "two"),
    [("", False), ("own", True), *(pytest.param(*one, marks=pytest.mark.slow) for one in (("", True), ("own", False)))],
)
def test_texts_on_both_sides_need_no_module_of_cml(tmp_path: Path, *, two: bool, default: str) -> None:
    run = tmp_path / "run"
    backbone: Any = (prompted(default), tiny_transformer()) if two else prompted(default)
    model = fit(TEXTS[:12], TEXTS, backbone, out=run)
    for folder in (model.save(tmp_path / "model"), run):
        assert "cml." not in (folder / "modules.json").read_text()
        loaded = check(folder, model, TEXTS[:12], TEXTS)
    loaded.save(str(tmp_path / "again"))
    check(tmp_path / "again", model, TEXTS[:12], TEXTS)
    assert main(["export", "hub", str(run), "--out", str(tmp_path / "hub")]) == 0
    model.export_hub(tmp_path / "shared", licence="mit")
    for name in ("hub", "shared"):
        check(tmp_path / name, model, TEXTS[:12], TEXTS)
        again = cml.load(tmp_path / name)
        assert isinstance(again, cml.SearchModel)
        np.testing.assert_allclose(again.embed(TEXTS, side="queries"), model.embed(TEXTS, side="queries"), atol=1e-6)
        card = (tmp_path / name / "README.md").read_text()
        assert ('side="queries"' in card) == two


def test_vectors_and_texts_are_a_module_of_each_kind(tmp_path: Path) -> None:
    model = fit(ROWS[:12], TEXTS, ("mlp(6)", tiny_transformer()))
    check(model.save(tmp_path / "model"), model, ROWS[:12], TEXTS, trust_remote_code=True)
    model = fit(ROWS[:12], ROWS[:, :5], ("none", "none"))
    loaded = check(model.save(tmp_path / "vectors"), model, ROWS[:12], ROWS[:, :5], trust_remote_code=True)
    loaded.save(str(tmp_path / "again"))
    check(tmp_path / "again", model, ROWS[:12], ROWS[:, :5], trust_remote_code=True)


def test_modules_of_ones_own_are_given_for_both_sides(tmp_path: Path) -> None:
    networks = torch.nn.Linear(8, 6), torch.nn.Linear(5, 6)
    model = fit(ROWS[:12], ROWS[:, :5], networks)
    folder = model.save(tmp_path / "model")
    given = {"backbone": networks}
    check(folder, model, ROWS[:12], ROWS[:, :5], trust_remote_code=True, model_kwargs=given)
    model.export_hub(tmp_path / "shared")
    check(tmp_path / "shared", model, ROWS[:12], ROWS[:, :5], trust_remote_code=True, model_kwargs=given)
