"""How captions are cut into words: any Unicode normal form, and scripts with combining marks."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cml.distances.captions.distance import Captions
from cml.distances.captions.tokens import stop_words, tokenize

# a text in any form, and its words
MARKED = {
    "Hindi": ("दो कुत्ते दौड़ रहे हैं।", ["दो", "कुत्ते", "दौड़", "रहे", "हैं"]),
    "Bengali": ("একটি বিড়াল ঘুমাচ্ছে", ["একটি", "বিড়াল", "ঘুমাচ্ছে"]),
    "Tamil": ("நாய் ஓடுகிறது", ["நாய்", "ஓடுகிறது"]),
    "Thai": ("แมว นั่ง บน โต๊ะ", ["แมว", "นั่ง", "บน", "โต๊ะ"]),
    "Arabic with marks": ("كَلْبٌ يَجْرِي", ["كَلْبٌ", "يَجْرِي"]),
    "Hebrew points": ("שָׁלוֹם, עוֹלָם!", ["שָׁלוֹם", "עוֹלָם"]),
    "Vietnamese": ("Một con chó đang chạy", ["một", "con", "chó", "đang", "chạy"]),
    "Persian joiner": ("سگ می\u200cدود", ["سگ", "می\u200cدود"]),
    "Turkish dotted i": ("İki köpek", ["i̇ki", "köpek"]),
    "French": ("le café d\u2019été", ["le", "café", "d", "'été"]),
    "no composed form": ("x̄ and y", ["x̄", "and", "y"]),
}


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("script", MARKED)
def test_words_are_not_cut_at_combining_marks(script: str, form: str) -> None:
    text, words = MARKED[script]
    expected = [unicodedata.normalize("NFC", word) for word in words]
    assert tokenize(unicodedata.normalize(form, text), rule="words", lower=True) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1\ufe0f\u20e3 dog \u2764\ufe0f", ["1", "dog"]),  # emoji with variation selectors
        ("\u0301acute", ["acute"]),  # a mark without a letter
        ("a\u0301_b-c\u0301", ["á", "b-ć"]),
        ("wasn't, naïve-ish man's", ["was", "n't", "naïve-ish", "man", "'s"]),
        ("zero\u200bwidth", ["zero", "width"]),  # a zero width space does end a word
    ],
)
def test_marks_that_belong_to_no_word(text: str, words: list[str]) -> None:
    assert tokenize(text, rule="words", lower=True) == words


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["words", "whitespace"]), st.booleans())
def test_normal_forms_have_the_same_words(text: str, rule: str, lower: bool) -> None:
    composed, decomposed = (
        tokenize(unicodedata.normalize(form, text), rule=rule, lower=lower) for form in ("NFC", "NFD")
    )
    assert composed == decomposed
    assert all(unicodedata.is_normalized("NFC", word) for word in composed)


def test_stop_words_are_compared_in_one_form() -> None:
    assert stop_words(("cafe\u0301",)) == {"café"}


WORDS = {"chó": (1.0, 0.0), "mèo": (0.0, 1.0), "कुत्ते": (1.0, 1.0), "दो": (0.5, 0.0), "नाय": (0.0, 0.5)}
SAME = [("chó", "mèo"), ("một chó mèo", "chó"), ("दो कुत्ते", "दो"), ("mèo chó", "mèo mèo")]


@pytest.mark.parametrize("form_of_vectors", ["NFC", "NFD"])
@pytest.mark.parametrize(("one", "other"), SAME)
def test_normal_forms_of_captions_and_vectors_change_no_distance(
    one: str, other: str, form_of_vectors: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "v.npy", np.array(list(WORDS.values())))
    listed = "\n".join(unicodedata.normalize(form_of_vectors, word) for word in WORDS)
    (tmp_path / "v.txt").write_text(listed, encoding="utf-8")
    distance = Captions(str(tmp_path / "v.npy"), stop_words="none")
    texts = [[unicodedata.normalize(form, text)] for text in (one, other) for form in ("NFC", "NFD")]
    labels = distance.encode(texts)
    between = distance.pairwise(labels, labels)
    assert between[0, 1] == between[2, 3] == 0
    assert between[0, 2] == between[1, 3] == between[1, 2] > 0


def test_unknown_words_are_counted_without_stop_words(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("dog\ncat\nruns", encoding="utf-8")
    np.save(tmp_path / "v.npy", np.eye(3))
    distance = Captions(str(tmp_path / "v.npy"), stop_words=["the"])
    counts = distance.count_words([["The dog runs", "the ferret"], ["a ferret", "the cat"]])
    assert counts.total == 6
    assert list(counts.unknown.items()) == [("ferret", 2), ("a", 1)]
    assert counts.vectors == str(tmp_path / "v.npy")
