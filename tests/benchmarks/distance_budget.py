"""Neighbour lists and embeddings from few calls of a slow label distance, beside frozen vectors and NN-descent.

    python tests/benchmarks/distance_budget.py [--sets captions tracks molecules function] [--items 4000]
        [--budgets 1% 2%] [--seconds 60s] [--json FILE]

Bars: the true 10 within the 100 nearest in the embedding at least .99 with 1 % of the calls; recall@10 of the lists at
least .96 with 2 %. "frozen" asks for the nearest pairs of the vectors in the form that does best, "random" for random
pairs, and NN-descent (pynndescent, an optional package) for what it likes. All distances are known here, so that calls
are looked up.
``--seconds`` adds a budget in time, of a function that sleeps, and reports the time taken over the time allowed.

The sets: Word Mover's Distance of the captions of COCO photographs, from mean word vectors, mean sentence vectors and
square roots of word counts (``CML_DATA``, extras ``glove`` and ``sentences``); dynamic time warping of drawn tracks,
from their coordinates; Tanimoto distance of molecules (extra ``molecules``), from folded fingerprints of 2,048 bits;
and a function of a hidden shape of vectors, from the vectors beside noise.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numba
import numpy as np
from captions_neighbors import coco_captions  # beside this file
from figures_file import add_json_option, write_figures  # beside this file
from sklearn.decomposition import PCA

import cml
from cml.array_types import Float32, Int64, Integer
from cml.distances.captions.distance import Captions
from cml.distances.captions.tokens import stop_words, tokenize
from cml.retrieval.feature_forms import normalize_rows
from cml.runs.approximation.budget import Budget
from cml.word_vectors.open import open_word_vectors
from cml.word_vectors.packaged_glove import PACKAGED
from cml.word_vectors.sentence_model import PACKAGED as SENTENCE_MODEL
from cml.word_vectors.sentence_model import sentence_vectors

K, NEAR = 10, 100
_COMPONENTS = 400


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--items", type=int, default=4000)
    parser.add_argument("--budgets", nargs="+", default=["1%", "2%"])
    parser.add_argument("--seconds", default="")
    parser.add_argument("--matrix", type=Path, help="where the matrix of the captions is kept between calls")
    parser.add_argument("--no-descent", action="store_true", help="leave out NN-descent, which compiles for minutes")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    figures: dict[str, dict[str, float]] = {}
    for name in options.sets:
        matrix, vectors = SETS[name](options)
        rows = compare(name, matrix, vectors, options.budgets, with_descent=not options.no_descent)
        figures |= {f"{name}, {row}": cells for row, cells in rows.items()}
    if options.seconds:
        figures["seconds"] = {"taken / allowed": measure_seconds(options.seconds)}
        print(f"{options.seconds} of a sleeping function: {figures['seconds']['taken / allowed']:.3f} of it taken")
    write_figures(options.json, figures)


def compare(
    name: str, matrix: Float32, vectors: Float32, budgets: Sequence[str], *, with_descent: bool
) -> dict[str, dict[str, float]]:
    """Measure each way of asking on one set."""
    n, rows = len(matrix), {}
    truth = nearest(matrix, min(K, n - 2))
    frozen = best_frozen(vectors, truth)
    distance = cml.distances.as_label_distance(matrix)
    with tempfile.TemporaryDirectory() as folder:
        for budget in budgets:
            began = time.process_time()
            found = cml.distances.approximate(
                distance, range(n), vectors, budget, k=truth.shape[1], out=Path(folder) / budget, quiet=True
            )
            took = time.process_time() - began
            estimate = found.spent.recall
            rows[f"approximate, {budget}"] = {
                "share of calls": found.spent.calls / found.spent.pairs,
                "recall@10": recall(truth, found.neighbors.ids),
                "10 in 100": recall(truth, nearest(square_distances(found.embeddings), min(NEAR, n - 2))),
                "10 in 100 candidates": recall(truth, found.candidates(min(NEAR, n - 2))),
                "estimated recall@10": -1.0 if estimate is None else estimate.value,
                "estimate, low": -1.0 if estimate is None else estimate.low,
                "estimate, high": -1.0 if estimate is None else estimate.high,
                "processor seconds": took,
            }
            share = found.spent.calls / found.spent.pairs
            rows[f"frozen, {budget}"] = {
                "share of calls": share,
                "recall@10": asked_recall(truth, frozen, share),
                "10 in 100": recall(truth, nearest(frozen, min(NEAR, n - 2))),
            }
            shuffled = np.random.default_rng(0).random((n, n)).astype(np.float32)
            rows[f"random, {budget}"] = {"share of calls": share, "recall@10": asked_recall(truth, shuffled, share)}
    rows |= descend(matrix, truth) if with_descent else {}
    for row, cells in rows.items():
        text = "  ".join(f"{key} {value:.4f}" for key, value in cells.items())
        print(f"{name:10} {row:22} {text}", flush=True)
    return rows


def best_frozen(vectors: Float32, truth: Int64) -> Float32:
    """Squared distances of the vectors in the form whose nearest hold most true neighbours."""
    centred = vectors - vectors.mean(axis=0)
    forms = [vectors, normalize_rows(vectors), normalize_rows(centred), standardized(vectors)]
    distances = [square_distances(rows) for rows in forms]
    depth = min(NEAR, len(vectors) - 2)
    return max(distances, key=lambda one: recall(truth, nearest(one, depth)))


def descend(matrix: Float32, truth: Int64) -> dict[str, dict[str, float]]:
    """NN-descent on the same distances; nothing where pynndescent is not installed."""
    try:
        from pynndescent import NNDescent
    except ImportError:
        return {}
    asked: set[tuple[int, int]] = set()

    @ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)
    def ask(a: float, b: float) -> float:
        asked.add((int(min(a, b)), int(max(a, b))))
        return float(matrix[int(a), int(b)])

    @numba.njit  # type: ignore[untyped-decorator]
    def look_up(a: Float32, b: Float32) -> float:
        return ask(a[0], b[0])

    n, k = len(matrix), truth.shape[1]
    items = np.arange(n, dtype=np.float32)[:, None]
    index = NNDescent(items, metric=look_up, n_neighbors=k + 1, tree_init=False, random_state=0, n_jobs=1)
    ids = index.neighbor_graph[0]
    share = sum(a != b for a, b in asked) / (n * (n - 1) / 2)
    return {"NN-descent": {"share of calls": share, "recall@10": recall(truth, ids)}}


def nearest(matrix: Float32, k: int) -> Int64:
    """The k nearest others of each item, by a matrix of distances."""
    others = matrix.copy()
    np.fill_diagonal(others, np.inf)
    return np.argsort(others, axis=1, kind="stable")[:, :k]


def recall(truth: Int64, ids: Integer) -> float:
    """The share of the true neighbours that lists hold."""
    return float(np.mean([np.isin(wanted, row).mean() for wanted, row in zip(truth, ids, strict=True)]))


def asked_recall(truth: Int64, order: Float32, share: float) -> float:
    """The share of the true neighbours among the pairs that come first by a matrix, each item's nearest in turn."""
    n = len(order)
    ranked = nearest(order, n - 1)
    firsts = np.repeat(np.arange(n)[None], n - 1, axis=0)  # the nearest of all, then the second nearest, ..
    keys = np.minimum(firsts, ranked.T) * n + np.maximum(firsts, ranked.T)
    _, places = np.unique(keys.ravel(), return_index=True)
    chosen = keys.ravel()[np.sort(places)[: int(share * n * (n - 1) / 2)]]
    asked = np.zeros((n, n), np.bool_)
    asked[chosen // n, chosen % n] = asked[chosen % n, chosen // n] = True
    return float(np.take_along_axis(asked, truth, axis=1).mean())


def square_distances(rows: Float32) -> Float32:
    """Squared distances of all rows."""
    lengths = np.square(rows).sum(axis=1)
    squared: Float32 = lengths[:, None] + lengths - 2 * rows @ rows.T
    return squared


def captions(options: argparse.Namespace) -> tuple[Float32, Float32]:
    """Word Mover's Distance of the captions of photographs, and mean vectors of their words and sentences."""
    labels = coco_captions()[: options.items]
    distance = Captions(PACKAGED, empty_caption="drop")
    if options.matrix is not None and options.matrix.exists():
        matrix = np.load(options.matrix)
    else:
        encoded = distance.encode(labels)
        matrix = distance.pairwise(encoded, encoded)
        if options.matrix is not None:
            np.save(options.matrix, matrix)
    left_out = stop_words("english")
    words = [
        [[word for word in tokenize(text, rule="words", lower=True) if word not in left_out] for text in label]
        for label in labels
    ]
    glove = open_word_vectors(PACKAGED)
    known = glove.find({word for label in words for text in label for word in text})
    table = normalize_rows(np.asarray(glove.rows(np.array(list(known.values()))), np.float32))
    places = {word: place for place, word in enumerate(known)}
    means = np.stack(
        [
            np.mean([table[known_words].mean(axis=0) for known_words in find_words(label, places)], axis=0)
            for label in words
        ]
    )
    texts = sentence_vectors(SENTENCE_MODEL, [text for label in labels for text in label], False)
    parts = np.split(texts, np.cumsum([len(label) for label in labels])[:-1])
    both = [normalize_rows(standardized(rows)) for rows in (means, np.stack([part.mean(axis=0) for part in parts]))]
    counted = 2 * normalize_rows(word_counts([find_words(label, places) for label in words], len(places)))
    return matrix, np.concatenate([*both, counted], axis=1).astype(np.float32)


def word_counts(labels: list[list[list[int]]], words: int) -> Float32:
    """The leading principal components of square roots of word frequencies, which weigh frequent words less."""
    counts = np.zeros((len(labels), words), np.float32)
    for row, texts in zip(counts, labels, strict=True):
        for text in texts:
            np.add.at(row, text, 1 / (len(text) * len(texts)))
    roots = np.sqrt(counts)
    size = min(_COMPONENTS, len(labels) - 1, words - 1)
    return np.asarray(PCA(size, svd_solver="randomized", random_state=0).fit_transform(roots), np.float32)


def find_words(label: list[list[str]], places: dict[str, int]) -> list[list[int]]:
    """The places of the known words of each text that has any."""
    found = [[places[word] for word in text if word in places] for text in label]
    return [text for text in found if text]


def standardized(rows: Float32) -> Float32:
    """Columns of mean 0 and standard deviation 1."""
    scaled: Float32 = (rows - rows.mean(axis=0)) / (rows.std(axis=0) + 1e-9)
    return scaled


@numba.njit  # type: ignore[untyped-decorator]
def warp(a: Float32, b: Float32) -> float:
    """Dynamic time warping of two tracks (T, 2)."""
    cost = np.full((len(a) + 1, len(b) + 1), np.inf)
    cost[0, 0] = 0
    for i in range(len(a)):
        for j in range(len(b)):
            step = np.sqrt((a[i, 0] - b[j, 0]) ** 2 + (a[i, 1] - b[j, 1]) ** 2)
            cost[i + 1, j + 1] = step + min(cost[i, j], cost[i, j + 1], cost[i + 1, j])
    return float(cost[-1, -1])


def tracks(options: argparse.Namespace) -> tuple[Float32, Float32]:
    """Dynamic time warping of drawn tracks of uneven speed, and their coordinates."""
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(options.items):
        time_points = np.sort(rng.uniform(0, 2 * np.pi, 32))
        phases, sizes = rng.uniform(0, 2 * np.pi, (3, 2)), rng.normal(0, [[1], [0.7], [0.4]], (3, 2))
        waves = np.sin(np.arange(1, 4)[:, None, None] * time_points[:, None] + phases[:, None])
        drawn.append((sizes[:, None] * waves).sum(axis=0).astype(np.float32))
    return fill(drawn, warp), np.stack(drawn).reshape(options.items, -1)


def molecules(options: argparse.Namespace) -> tuple[Float32, Float32]:
    """Tanimoto distance of molecules by all their substructures, and folded fingerprints of 2,048 bits."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = cml.prepare("molecules", Path(folder) / "set", label="structure", count=options.items, size=2048)
        splits = [dataset.split(role) for role in dataset.info.roles]
        labels = [label for split in splits for label in split.labels]
        vectors = np.concatenate(
            [split.vectors.read(np.arange(len(split))) for split in splits if split.vectors is not None]
        )
    distance = cml.distances.get("jaccard")
    encoded = distance.encode(labels)
    return distance.pairwise(encoded, encoded), (vectors > 0).astype(np.float32)


def function(options: argparse.Namespace) -> tuple[Float32, Float32]:
    """A function of 4 of 24 directions, and vectors of all of them."""
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(options.items, 4)).astype(np.float32)
    noise = 0.7 * rng.normal(size=(options.items, 20)).astype(np.float32)
    turn, _ = np.linalg.qr(rng.normal(size=(24, 24)))
    matrix = np.abs(hidden[:, None] - hidden).sum(axis=2) ** 0.5
    return matrix, (np.concatenate([hidden, noise], axis=1) @ turn).astype(np.float32)


def fill(labels: Sequence[Float32], distance: Callable[[Float32, Float32], float]) -> Float32:
    """All distances of a symmetric function."""
    matrix = np.zeros((len(labels),) * 2, np.float32)
    for row, label in enumerate(labels):
        for column in range(row):
            matrix[row, column] = matrix[column, row] = distance(label, labels[column])
    return matrix


def measure_seconds(budget: str) -> float:
    """Seconds taken over seconds allowed, of a function that sleeps 5 ms."""
    rows = np.random.default_rng(0).normal(size=(400, 8)).astype(np.float32)

    def sleep(a: float, b: float) -> float:
        time.sleep(0.005)
        return abs(a - b)

    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        cml.distances.approximate(sleep, rows[:, 0].tolist(), rows, budget, out=Path(folder) / "out", quiet=True)
        took = time.monotonic() - began
    return took / (Budget.parse(budget).seconds or 1.0)


SETS = {"captions": captions, "tracks": tracks, "molecules": molecules, "function": function}

if __name__ == "__main__":
    main()
