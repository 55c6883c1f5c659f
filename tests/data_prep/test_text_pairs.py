"""Pairs of texts with a similarity, as STS-B has them, as judged pairs of the texts."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cml
from cml.data_prep.text_pairs import find_text_pair
from cml.errors import DataError, UserError

TEXTS = [f"{who} {does} {what}" for who in ("a man", "a dog", "two girls") for does in ("plays", "eats") for what in (
    "a guitar", "an apple", "with a ball", "in the park")]  # fmt: skip


def count_letters(model: str, texts: list[str]) -> Any:  # noqa: ANN401
    """Vectors of texts that need no model."""
    return np.array([[text.count(letter) for letter in "abcdefgh"] for text in texts], np.float32)


@pytest.mark.parametrize("names", [("sentence1", "sentence2", "score"), ("text_a", "text_b", "similarity_score")])
def test_pairs_of_texts_are_prepared(
    names: tuple[str, str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cml.word_vectors.sentence_model.sentence_vectors", count_letters)
    pairs = [(a, b, len(set(a.split()) & set(b.split()))) for a, b in itertools.combinations(TEXTS, 2)]
    table = tmp_path / "sts.tsv"
    table.write_text("\n".join(["\t".join(names), *("\t".join(map(str, pair)) for pair in pairs)]))
    dataset = cml.prepare("judgements", tmp_path / "set", pairs=table, texts=True)
    assert sum(dataset.info.counts.values()) == len(TEXTS)
    assert dataset.info.details["label_distance"] == "judged-pairs"
    assert f"reads {names[0]} and {names[1]} as texts, and {names[2]} as their similarity" in capsys.readouterr().err
    assert {row["text"] for row in dataset.read_further("train")} <= set(TEXTS)
    with table.open("a") as file:
        file.write("\n\ta man\t1\n")
    with pytest.raises(DataError, match=f"{names[0]} should be a text. Got '' instead"):
        cml.prepare("judgements", tmp_path / "bad", pairs=table, texts=True)


def test_columns_that_leave_the_texts_open_are_refused(tmp_path: Path) -> None:
    for names in (["a", "b", "score"], ["sentence1", "score"], ["sentence1", "sentence2", "score", "label"]):
        with pytest.raises(DataError, match="should have two columns of texts"):
            find_text_pair(names, "t.csv")
    with pytest.raises(UserError, match="for pairs of texts give --texts"):
        cml.prepare("judgements", tmp_path / "set", pairs=tmp_path / "t.csv")
