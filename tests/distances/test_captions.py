from __future__ import annotations

import collections
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import ot
import pytest
from gensim.models import KeyedVectors
from hypothesis import given, settings
from hypothesis import strategies as st

import cml.distances
from cml.array_types import Float32
from cml.distances.captions import blocks as captions_blocks
from cml.distances.captions import transport
from cml.distances.captions.distance import Captions
from cml.distances.captions.tokens import tokenize
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError
from cml.distances.nearest import nearest_columns
from cml.errors import DataError, UserError

Documents = list[list[list[str]]]
Numbers = np.ndarray[Any, Any]
# 18 words on a grid: equal vectors (a, b), many equal distances, and none of length 0
PLACES = [(0.0, 0.0)] + [(float(x), float(y)) for y in range(3) for x in range(6)]
GRID = dict(zip("abcdefghijklmnopqr", PLACES[:18], strict=True))


def write_vectors(path: Path, vectors: Mapping[str, Any]) -> str:
    np.save(path, np.array(list(vectors.values()), np.float64))
    path.with_suffix(".txt").write_text("\n".join(vectors), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_vectors(tmp_path_factory.mktemp("grid") / "grid.npy", GRID)


@pytest.fixture(scope="module")
def coco(real_data: Callable[[str], Path]) -> list[list[str]]:
    lines = json.loads((real_data("coco_captions") / "captions_val2017_4000.json").read_text())["annotations"]
    captions: dict[int, list[str]] = collections.defaultdict(list)
    for line in lines:
        captions[line["image_id"]].append(line["caption"])
    return list(captions.values())


@pytest.fixture(scope="module")
def drawn(coco: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> str:
    """Vectors of all words of the captions, drawn at random."""
    words = {word for image in coco for text in image for word in tokenize(text, rule="words", lower=True)}
    vectors = np.random.default_rng(0).standard_normal((len(words), 20)) + 0.5
    return write_vectors(tmp_path_factory.mktemp("drawn") / "drawn.npy", dict(zip(sorted(words), vectors, strict=True)))


def plain(vectors: str, **options: object) -> dict[str, Any]:
    return {"vectors": vectors, "stop_words": "none", "tokens": "whitespace", "normalize": False, **options}


def texts(documents: Documents) -> list[list[str]]:
    return [[" ".join(caption) for caption in image] for image in documents]


def slow(a: Documents, b: Documents, vectors: dict[str, Any]) -> Numbers:
    """The distance with plain loops and POT."""
    out = np.empty((len(a), len(b)))
    for i, one in enumerate(a):
        for j, two in enumerate(b):
            moved = np.empty((len(one), len(two)))
            for x, y in np.ndindex(*moved.shape):
                first, second = collections.Counter(one[x]), collections.Counter(two[y])
                cost = np.array([[np.linalg.norm(np.subtract(vectors[v], vectors[w])) for w in second] for v in first])
                p, q = (np.array(list(bag.values())) / bag.total() for bag in (first, second))
                moved[x, y] = ot.emd2(p, q, cost)
            out[i, j] = moved.min(axis=0).sum() + moved.min(axis=1).sum()
    return out


def test_by_hand(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "v.npy", {"a": (0.0, 0.0), "b": (3.0, 4.0), "c": (3.0, 0.0)})
    distance = Captions(**plain(path))
    labels = distance.encode([["a"], ["b"], ["a b", "c"], ["A  a B b"]])
    # a - b is 5, a - c is 3, b - c is 4. From {a b, c} to b: 2.5 and 4, and back 2.5
    expected = [[0, 10, 2.5 + 3 + 2.5, 5], [10, 0, 2.5 + 4 + 2.5, 5], [8, 9, 0, 3.5], [5, 5, 3.5, 0]]
    np.testing.assert_allclose(distance.pairwise64(labels, labels), expected, rtol=0, atol=1e-12)
    unit = Captions(**plain(write_vectors(tmp_path / "u.npy", {"a": (2.0, 0.0), "b": (0.0, 9.0)}), normalize=True))
    labels = unit.encode([["a"], ["b"]])
    np.testing.assert_allclose(unit.pairwise64(labels, labels), [[0, 2 * 2**0.5], [2 * 2**0.5, 0]], rtol=0, atol=1e-12)


captions = st.lists(st.lists(st.sampled_from(list(GRID)), min_size=1, max_size=7), min_size=1, max_size=9)


@settings(deadline=None, max_examples=25)
@given(st.lists(captions, min_size=1, max_size=4), st.lists(captions, min_size=1, max_size=3), st.integers(0, 3))
def test_equals_the_slow_version(grid: str, a: Documents, b: Documents, shared: int) -> None:
    b = b + a[:shared]
    distance = Captions(**plain(grid))
    labels, others = distance.encode(texts(a)), distance.encode(texts(b))
    found = distance.pairwise64(labels, others)
    np.testing.assert_allclose(found, slow(a, b, GRID), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(distance.pairwise64(others, labels), found.T)
    itself = distance.pairwise64(labels, labels)
    assert (itself.diagonal() == 0).all()
    np.testing.assert_array_equal(itself, itself.T)


@pytest.mark.parametrize(("stop", "is_apart"), [("english", False), ("function", True)])
def test_function_words_keep_numbers_and_states_apart(stop: str, is_apart: bool) -> None:
    distance = Captions("glove-6b-50d", stop_words=stop)
    labels = distance.encode([["two dogs"], ["three dogs"], ["a full glass"], ["an empty glass"], ["the two dogs"]])
    between = distance.pairwise(labels, labels)
    assert (between[0, 1] > 0.1) == is_apart
    assert (between[2, 3] > 0.1) == is_apart
    assert between[0, 4] == 0


# captions that differ in a word of content: number, state, negation, place, thing
APART = pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a red fire truck", "a red truck"),
        ("four cats", "six cats"),
        ("a full bowl", "an empty bowl"),
        ("a bus with passengers", "a bus without passengers"),
        ("a computer and a lamp", "a lamp"),
        ("a bird above the water", "a bird below the water"),
        ("the front of a train", "the back of a train"),
        ("seven horses", "eight horses"),
        ("a parked car", "no parked car"),
        ("a boat beside the pier", "a boat off the pier"),
        ("a dog and another dog", "a dog"),
        ("a can on a shelf", "a shelf"),
        ("a still lake", "a lake"),
        ("someone riding a bike", "a bike that is ridden"),
        ("a cat jumps into the box", "a cat jumps over the box"),
        ("the top shelf", "the bottom shelf"),
        ("several people", "few people"),
    ],
)


@APART
def test_captions_that_differ_in_a_content_word_are_apart_by_default(one: str, other: str) -> None:
    distance = Captions("glove-6b-50d")
    labels = distance.encode([[one], [other]])
    assert distance.pairwise(labels, labels)[0, 1] > 0.1


def test_the_default_list_is_of_grammar_alone() -> None:
    assert Captions("glove-6b-50d").settings()["stop_words"] == "function"
    words = cml.distances.captions.tokens.stop_words("function")
    grammar = "a an the this his her it is are was being has does and or while of for to with about very also could"
    assert set(grammar.split()) <= words
    numbers = "one two three ten no not n't without neither nor none both all many few several another more same"
    places = "under over behind beside near into onto upon through above below up down off out top side front inside"
    things = "can us mine someone something fire computer bill full empty still done alone"
    assert not set(f"{numbers} {places} {things}".split()) & words
    labels = Captions("glove-6b-50d").encode([["There is a dog, which is on the grass."], ["dog grass"]])
    assert Captions("glove-6b-50d").pairwise(labels, labels)[0, 1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["numba", "pot"])
@pytest.mark.parametrize("stop", ["none", "english", "function"])
def test_real_captions(coco: list[list[str]], drawn: str, stop: str, backend: Literal["numba", "pot"]) -> None:
    images = coco[:7] + [[text] for text in coco[7][:2]] + [coco[8] + coco[9] + coco[10], ["dog"], ["Dog dog"]]
    distance = Captions(drawn, stop_words=stop, backend=backend)
    words = drawn.replace(".npy", ".txt")
    matrix = np.load(drawn)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    vectors = dict(zip(Path(words).read_text(encoding="utf-8").splitlines(), matrix, strict=True))
    left_out = cml.distances.captions.tokens.stop_words(stop)
    documents = [
        [[w for w in tokenize(text, rule="words", lower=True) if w not in left_out] for text in image]
        for image in images
    ]
    labels = distance.encode(images)
    found = distance.pairwise64(labels, labels)
    np.testing.assert_allclose(found, slow(documents, documents, vectors), rtol=0, atol=1e-9)
    np.testing.assert_array_equal(found, found.T)
    assert (found.diagonal() == 0).all()
    assert found[-1, -2] == 0


def test_pruned_equals_all_pairs_solved(coco: list[list[str]], drawn: str) -> None:
    images = coco[20:32]
    distance = Captions(drawn)
    alone = distance.encode([[text] for image in images for text in image])  # nothing to prune: each needs its one pair
    moved = distance.pairwise64(alone, alone) / 2
    ends = np.cumsum([len(image) for image in images])[:-1]
    expected = [
        [part.min(axis=0).sum() + part.min(axis=1).sum() for part in np.split(rows, ends, axis=1)]
        for rows in np.split(moved, ends, axis=0)
    ]
    labels = distance.encode(images)
    np.testing.assert_allclose(distance.pairwise64(labels, labels), expected, rtol=0, atol=1e-12)


def test_threads_blocks_and_order_change_no_bit(
    coco: list[list[str]], drawn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    distance = Captions(drawn, stop_words="none")
    labels = distance.encode(coco[:30] + coco[3:5])
    whole = distance.pairwise64(labels, labels)
    np.testing.assert_array_equal(whole, whole.T)
    np.testing.assert_array_equal(distance.pairwise64(labels, labels, threads=3), whole)
    for i in range(0, 30, 7):
        np.testing.assert_array_equal(distance.pairwise64(labels[i : i + 1], labels)[0], whole[i])
    rows, columns = np.array([4, 9, 4, 31]), np.array([9, 4, 3, 9, 30, 12])
    np.testing.assert_array_equal(distance.pairwise64(labels[rows], labels[columns]), whole[rows][:, columns])
    monkeypatch.setattr(captions_blocks, "TABLE_BYTES", 1)  # one row at a time
    np.testing.assert_array_equal(distance.pairwise64(labels, labels), whole)
    np.testing.assert_array_equal(distance.pairwise(labels, labels), whole.astype(np.float32))


def brute(distance: LabelDistance, labels: cml.distances.Labels, k: int) -> tuple[Any, Float32]:
    block = distance.pairwise(labels, labels)
    np.fill_diagonal(block, np.inf)
    return nearest_columns(block, k)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "threads", "block_bytes"), [(1, 1, 1), (5, 3, 4000), (10, 2, 1 << 26), (59, 1, 1 << 26)])
def test_nearest_of_real_captions(coco: list[list[str]], drawn: str, k: int, threads: int, block_bytes: int) -> None:
    for stop in ("none", "english"):
        distance = Captions(drawn, stop_words=stop)
        labels = distance.encode(coco[:50] + coco[40:50])  # the last ten twice
        done: list[int] = []
        found = distance.neighbors(labels, k, threads=threads, block_bytes=block_bytes, progress=done.append)
        ids, distances = brute(distance, labels, k)
        np.testing.assert_array_equal(found.ids, ids)
        np.testing.assert_array_equal(found.distances, distances)
        assert sum(done) == len(labels)


@settings(deadline=None, max_examples=30)
@given(st.lists(captions, min_size=2, max_size=12), st.data())
def test_nearest_with_ties(grid: str, images: Documents, data: st.DataObject) -> None:
    distance = Captions(**plain(grid))
    labels = distance.encode(texts(images))
    k = data.draw(st.integers(1, len(images) - 1))
    found = distance.neighbors(labels, k)
    ids, distances = brute(distance, labels, k)
    np.testing.assert_array_equal(found.ids, ids)
    np.testing.assert_array_equal(found.distances, distances)
    assert found.ids.dtype == np.int32
    assert found.distances.dtype == np.float32


def solve(cost: Numbers, supply: Numbers, demand: Numbers, limit: float = 1e30) -> float:
    n, m = cost.shape
    room = -(-max(n, m) // 8) * 8
    reals, wholes = transport.make_scratch(room)
    padded = np.full((n, -(-m // 8) * 8), transport.FAR)
    padded[:, :m] = cost
    reals[transport.COST * room :][: padded.size] = padded.ravel()
    wholes[transport.SUPPLY * room :][:n] = supply
    wholes[transport.DEMAND * room :][:m] = demand
    return float(transport.solve(reals, wholes, room, n, m, limit))


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 2**31), st.integers(1, 24), st.integers(1, 24), st.sampled_from(["drawn", "tied", "equal", "zero"])
)
def test_solver(seed: int, n: int, m: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    cost = {
        "drawn": rng.random((n, m)),
        "tied": rng.integers(0, 3, (n, m)).astype(float),
        "equal": np.full((n, m), 0.7),
        "zero": np.zeros((n, m)),
    }[kind]
    supply = rng.integers(1, 6, n) * m
    demand = np.full(m, supply.sum() // m)
    demand[0] += supply.sum() - demand.sum()
    expected = ot.emd2(supply / supply.sum(), demand / demand.sum(), cost) * supply.sum()
    np.testing.assert_allclose(solve(cost, supply, demand), expected, rtol=1e-12, atol=1e-9)
    np.testing.assert_allclose(solve(cost.T.copy(), demand, supply), expected, rtol=1e-12, atol=1e-9)
    for share in (0.0, 0.5, 0.99):
        assert expected == 0 or solve(cost, supply, demand, expected * share) == -1
    assert solve(cost, supply, demand, expected * 1.01 + 1e-9) >= 0


def test_gensims_semantics(coco: list[list[str]], drawn: str) -> None:
    words = Path(drawn.replace(".npy", ".txt")).read_text(encoding="utf-8").splitlines()
    keyed = KeyedVectors(20)
    keyed.add_vectors(words, np.load(drawn).astype(np.float32))
    images = coco[:4]
    distance = Captions.gensim(drawn)
    labels = distance.encode(images)
    for i, j in ((0, 1), (2, 3), (1, 1)):
        moved = np.array([[keyed.wmdistance(a.split(), b.split()) for b in images[j]] for a in images[i]])
        expected = moved.min(axis=0).sum() + moved.min(axis=1).sum()
        assert distance.pairwise64(labels[i : i + 1], labels[j : j + 1])[0, 0] == pytest.approx(expected, abs=1e-5)


def test_where_gensim_gives_infinity(tmp_path: Path) -> None:
    path = write_vectors(tmp_path / "v.npy", {"grey": (1.0, 2.0), "gray": (1.0, 2.0), "the": (0.0, 0.0)})
    distance = Captions.gensim(path)
    labels = distance.encode([["grey"], ["gray"]])
    assert distance.pairwise64(labels, labels).tolist() == [[0, 0], [0, 0]]
    with pytest.raises(DataError, match=r"v\.npy row 2: the vector of 'the' is all zeros .*add the word to stop_words"):
        distance.encode([["the grey"]])
    assert len(Captions(**plain(path)).encode([["the grey"]])) == 1
    assert len(Captions(**plain(path, stop_words=["the"], normalize=True)).encode([["the grey"]])) == 1


@pytest.mark.parametrize(
    ("label", "options", "error"),
    [
        ("a dog", {}, r"Label 1 should be a list of one or more captions\. Got 'a dog' instead"),
        ([], {}, r"Label 1 should be a list of one or more captions\. Got \[\] instead"),
        (["a", 3], {}, r"Label 1 should be a list of one or more captions"),
        (["a", "xyzzy plugh"], {}, r"Label 1 caption 1, 'xyzzy plugh', has no word left that .*grid\.npy knows.*=drop"),
        (["a", ""], {}, r"Label 1 caption 1, '', has no word left"),
        (["xyzzy", ""], {"empty_caption": "drop"}, r"Label 1 has no caption with a known word: \['xyzzy', ''\]"),
        (["a xyzzy"], {"out_of_vocabulary": "error"}, r"Label 1 caption 0 has the word 'xyzzy', which .*does not know"),
    ],
)
def test_bad_labels(grid: str, label: object, options: dict[str, Any], error: str) -> None:
    with pytest.raises(LabelError, match=error) as caught:
        Captions(**plain(grid, **options)).encode([["a"], label])
    assert caught.value.position == 1


@pytest.mark.filterwarnings("ignore:.* caption.s. of which")
def test_dropped_captions_and_words(grid: str) -> None:
    distance = Captions(**plain(grid, empty_caption="drop"))
    labels = distance.encode([["xyzzy", "a c", "", "A xyzzy c"], ["c a", "a c"]])
    assert distance.pairwise64(labels[:1], labels[1:]).tolist() == [[0.0]]
    labels = distance.encode([["d"], ["xyzzy", "d"]])
    assert distance.pairwise64(labels, labels).tolist() == [[0, 0], [0, 0]]


def test_the_installed_vectors_are_taken_by_themselves() -> None:
    assert cml.distances.get("captions") == Captions("glove-6b-50d")
    assert Captions.is_self_contained({})


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"vectors": ""}, r"need word vectors\. Take vectors='glove-6b-50d' .*pip install .*\[glove\]'"),
        ({"vectors": "nowhere.txt"}, r"'nowhere\.txt' cannot be read: No such file"),
        ({"stop_words": "german"}, r"'stop_words' must be none, function, english or a list of words\. Got 'german'"),
        ({"stop_words": [1]}, r"'stop_words' must be none, function, english or a list"),
        ({"backend": "gpu"}, r"'backend' must be numba or pot\. Got 'gpu'"),
        ({"empty_caption": "keep"}, r"'empty_caption' must be error or drop"),
        ({"vectors_sha256": "0" * 64}, r"are not those that these settings were saved with"),
    ],
)
def test_bad_settings(grid: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(UserError, match=error):
        Captions(**{"vectors": grid, **options}).encode([["a"]])


def test_bad_k(grid: str) -> None:
    distance = Captions(**plain(grid))
    with pytest.raises(UserError, match=r"k must be at least 1 and below the number of items, 2\. Got k=2"):
        distance.neighbors(distance.encode([["a"], ["c"]]), 2)


def test_fingerprint_follows_content_and_not_place(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    here = Captions(write_vectors(tmp_path / "v.npy", GRID))
    there = Captions(write_vectors(tmp_path / "other" / "w.npy", GRID))
    assert here.fingerprint() == there.fingerprint()
    changed = Captions(write_vectors(tmp_path / "x.npy", {**GRID, "r": (9, 9)}))
    assert changed.fingerprint() != here.fingerprint()
    same = json.loads(json.dumps(here.settings()))
    assert cml.distances.get("captions", **same) == here
    assert cml.distances.get("captions", **same).fingerprint() == here.fingerprint()
    variants: list[dict[str, Any]] = [
        {"lower": False},
        {"stop_words": "none"},
        {"stop_words": ["a"]},
        {"normalize": False},
        {"out_of_vocabulary": "error"},
        {"empty_caption": "drop"},
        {"tokens": "whitespace"},
    ]
    prints = {Captions(**{**same, **variant}).fingerprint() for variant in variants}
    assert len(prints | {here.fingerprint()}) == len(variants) + 1


def test_travels_to_another_process(grid: str) -> None:
    distance = Captions(**plain(grid))
    labels = distance.encode([["a c", "d"], ["q r"]])
    script = (
        "import pickle, sys; distance, labels = pickle.load(sys.stdin.buffer); "
        "sys.stdout.write(distance.pairwise64(labels, labels).tobytes().hex())"
    )
    sent = pickle.dumps((distance, labels))
    result = subprocess.run([sys.executable, "-c", script], input=sent, capture_output=True, check=True, timeout=240)
    assert result.stdout.decode() == distance.pairwise64(labels, labels).tobytes().hex()


def test_pot_does_without_numba(grid: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name == "numba" or (name.startswith("cml.distances.captions.") and not name.endswith(".distance")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)  # importing it fails
    distance = Captions(**plain(grid, backend="pot"))
    labels = distance.encode([["a"], ["d"]])
    assert distance.pairwise(labels, labels).tolist() == [[0, 4], [4, 0]]
    numba = Captions(**plain(grid))
    with pytest.raises(ImportError):
        numba.pairwise(labels, labels)


def test_kernels_work_where_no_folder_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "kernel.py").write_text(
        "from cml.distances.compile_loop import compile_loop\n\n@compile_loop()\ndef double(x):\n    return 2 * x\n"
    )
    script = "import kernel; print(kernel.double(4), kernel.double._cache.__class__.__name__)"
    environment = {
        "NUMBA_CACHE_DIR": str(tmp_path / "file" / "below"),
        "NUMBA_CACHE_LOCATOR_CLASSES": "_UserProvidedCacheLocator",
        "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}",
    }
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=environment, timeout=240
    )
    assert result.stdout.split() == ["8", "NullCache"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("A man's T-shirt.", ["a", "man", "'s", "t-shirt"]),
        ("They DON'T, can\N{RIGHT SINGLE QUOTATION MARK}t!", ["they", "do", "n't", "ca", "n't"]),
        ('"naïve" 3 -- snow_board/ski', ["naïve", "3", "snow", "board", "ski"]),
        ("...", []),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert tokenize(text, rule="words", lower=True) == words
    assert tokenize(text, rule="whitespace", lower=False) == text.split()
