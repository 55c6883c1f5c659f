"""Graded training against binarised training, on captions of photographs and on drawn queries and documents.

``python tests/benchmarks/graded_search.py [--captions FILE] [--json FILE]``, where FILE is a captions file of COCO. A
query is a caption of one picture, a document a caption of another one; both are frozen sentence vectors (extra
``sentences``) with a trained linear head. The grade of a pair, 0 to 4, follows from the Word Mover's Distance (extra
``glove``) of three other captions of either picture, which nobody embeds: 4 for the nearest .2 % of all pairs, then up
to 1, 4 and 12 %. Binarised training takes grades of at least 1, 2, 3 or 4 as 1 and others as 0, and the best of these
on the test queries counts. 20 documents a query are judged in training; test queries are others, with all grades. The
defaults of ``cml.fit`` train, which were chosen on queries that neither train nor test.

``--end-to-end`` trains the whole sentence model instead, on the captions themselves and on drawn sentences: the label
distance of "7 red dogs" and "a photo of 12 blue cars in a field" depends on the numbers and colours alone, which the
untrained model hardly ranks by. ``--choose`` tests on the queries that choices are made on.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from numpy.typing import NDArray

import cml
from cml.graded.grades import Unjudged
from cml.graded.ranking import RankingEvaluation
from cml.word_vectors.sentence_model import PACKAGED, sentence_vectors

SHARES = np.array([0.12, 0.04, 0.01, 0.002])  # of all pairs, at least grade 1, 2, 3, 4
TRAINED = 3 / 8  # the first queries
CHOSEN_ON = 5 / 8, 13 / 16  # from where to where defaults were chosen; others are for the test
MEASURES = ["ndcg@10", "ndcg(gains=exponential)@10"]
THINGS = ["dog", "cat", "car", "tree", "house", "boat", "bird", "horse"]
COLOURS = ["red", "blue", "green", "black", "white", "yellow"]
WHOLE = {"backbone": "sentence-transformers/all-MiniLM-L6-v2", "device": "cpu"}
Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class GradedSet:
    """Queries and documents, as vectors or as texts with their sentence vectors, and all label distances (Q, D)."""

    queries: Vectors | list[str]
    documents: Vectors | list[str]
    vectors: tuple[Vectors, Vectors]
    distances: NDArray[np.float64]
    unjudged: Unjudged  # what suits pairs without a grade was chosen as the defaults were

    def some_queries(self, rows: NDArray[np.intp]) -> Vectors | list[str]:
        """Inputs of some queries."""
        return [self.queries[row] for row in rows] if isinstance(self.queries, list) else self.queries[rows]


def read_captions(path: Path, queries: int, documents: int, whole: bool) -> GradedSet:
    """Captions or their sentence vectors, with the Word Mover's Distance of other captions."""
    captions: dict[int, list[str]] = {}
    for annotation in json.loads(path.read_text(encoding="utf-8"))["annotations"]:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"].strip())
    pictures = [captions[image] for image in sorted(captions) if len(captions[image]) >= 5]
    order = np.random.default_rng(0).permutation(len(pictures))
    chosen = [pictures[row] for row in order[: queries + documents]]
    distance = cml.distances.get("captions(vectors=glove-6b-50d, empty_caption=drop)")
    labels = distance.encode([picture[2:5] for picture in chosen])
    distances = distance.pairwise(labels[:queries], labels[queries:])
    return embed([picture[0] for picture in chosen], queries, distances, "incomparable", whole)


def draw_texts(queries: int, documents: int) -> GradedSet:
    """Sentences that name a number, a colour and a thing; numbers and colours decide how far two of them are apart."""
    rng = np.random.default_rng(1)
    numbers, colours, things = (rng.integers(1, most, queries + documents) for most in (60, 7, 9))
    names = [f"{k} {COLOURS[c - 1]} {THINGS[t - 1]}s" for k, c, t in zip(numbers, colours, things, strict=True)]
    texts = [*names[:queries], *(f"a photo of {name} in a field" for name in names[queries:])]
    differences = np.abs(numbers[:queries, None] - numbers[queries:]) / 10
    distances = differences + (colours[:queries, None] != colours[queries:])
    return embed(texts, queries, distances + rng.exponential(0.1, distances.shape), "incomparable", True)


def embed(texts: list[str], queries: int, distances: NDArray[np.float64], unjudged: Unjudged, whole: bool) -> GradedSet:
    """Embed texts by the untrained sentence model, the queries first."""
    vectors = sentence_vectors(PACKAGED, texts)
    sides = vectors[:queries], vectors[queries:]
    first, second = (texts[:queries], texts[queries:]) if whole else sides
    return GradedSet(first, second, sides, distances, unjudged)


def draw(queries: int, documents: int) -> GradedSet:
    """Vectors of 64 numbers, of which a few directions decide how far a query is from a document."""
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(64, 6)) / 8
    query, document = (rng.normal(size=(count, 64)).astype(np.float32) for count in (queries, documents))
    own, theirs = query @ directions, document @ directions
    distances = np.linalg.norm(own[:, None] - theirs, axis=2) + rng.exponential(0.2, (queries, documents))
    return GradedSet(query, document, (query, document), distances, "zero")


def compare(
    data: GradedSet, choose: bool, seeds: int, losses: Sequence[str], cuts: Sequence[int], settings: Mapping[str, Any]
) -> dict[str, object]:
    """Train with grades and with each threshold, and compare on new queries."""
    count = len(data.queries)
    grades = np.digitize(-data.distances, -np.quantile(data.distances, SHARES)).astype(float)
    train, first, last = (int(share * count) for share in (TRAINED, *CHOSEN_ON))
    judged = judge(data.distances[:train], grades[:train])
    new = np.arange(first, last) if choose else np.array([*range(train, first), *range(last, count)])
    new = new[grades[new].max(axis=1) > 0]
    truth = cml.Grades.from_matrix(grades[new])
    queries, documents = data.vectors[0][new], data.vectors[1]
    frozen = [
        cml.Ranking.of_embeddings(a, b, 10).evaluate(truth, MEASURES)
        for a, b in ((queries, documents), tuple(map(_normalise, (queries, documents))))
    ]
    rows: dict[str, list[RankingEvaluation]] = {"frozen": [max(frozen, key=lambda one: one.values[:, 0].mean())]}
    thresholds = {"frozen": 0}
    begin = time.perf_counter()
    for loss in losses:
        for threshold in (None, *cuts):
            given = judged if threshold is None else np.where(np.isnan(judged), np.nan, judged >= threshold)
            kept = np.flatnonzero(np.nanmax(given, axis=1) > 0)
            name = f"{loss}, graded" if threshold is None else f"{loss}, at least {threshold}"
            known = cml.Grades.from_matrix(given[kept], unjudged=data.unjudged)
            inputs = data.some_queries(kept), data.documents
            rows[name], thresholds[name] = [], threshold or 0
            for seed in range(seeds):
                model = cml.fit(inputs, known, loss=loss, seed=seed, quiet=True, **settings)
                assert isinstance(model, cml.SearchModel)
                rows[name].append(model.rank(data.some_queries(new), data.documents, k=10).evaluate(truth, MEASURES))
            print(name, [round(one.means["ndcg@10"], 4) for one in rows[name]], file=sys.stderr, flush=True)
    seconds = time.perf_counter() - begin
    means = {
        name: {key: float(np.mean([one.means[key] for one in ones])) for key in MEASURES} for name, ones in rows.items()
    }
    binarised = {name: ones for name, ones in rows.items() if "at least" in name}
    differences: dict[str, object] = {}
    for loss in losses:
        same = {name: ones for name, ones in binarised.items() if name.startswith(f"{loss},")}
        for label, pool in (("frozen", {"frozen": rows["frozen"] * seeds}), ("same loss", same), ("any", binarised)):
            if not pool:
                continue  # no thresholds were asked for
            best = max(pool, key=lambda name: means[name]["ndcg@10"])
            differences[f"{loss}, {label}"] = {
                **subtract(rows[f"{loss}, graded"], pool[best]),
                "threshold": thresholds[best],
            }
    return {
        "queries": len(new),
        "training_queries": train,
        "documents": len(documents),
        "means": means,
        "differences": differences,
        "seconds": round(seconds),
    }


def judge(distances: NDArray[np.float64], grades: NDArray[np.float64]) -> NDArray[np.float64]:
    """Grade 20 documents of each query, NaN for others: half of them from the nearest 60, as of a first search."""
    rng = np.random.default_rng(2)
    judged = np.full(grades.shape, np.nan)
    for row, near in enumerate(np.argsort(distances, axis=1)[:, :60]):
        for column in [*rng.choice(near, 10, replace=False), *rng.choice(grades.shape[1], 10, replace=False)]:
            judged[row, column] = grades[row, column]
    return judged


def subtract(ones: Sequence[RankingEvaluation], others: Sequence[RankingEvaluation]) -> dict[str, float]:
    """The difference of nDCG@10, and its interval over queries, each with its mean over the seeds."""
    difference = np.mean([one.values - other.values for one, other in zip(ones, others, strict=True)], axis=0)
    low, high = RankingEvaluation(ones[0].queries, tuple(MEASURES), difference).intervals["ndcg@10"]
    return {"difference": float(difference[:, 0].mean()), "low": low, "high": high}


def _normalise(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captions", type=Path, help="captions file of COCO")
    parser.add_argument("--queries", type=int, default=1600)
    parser.add_argument("--documents", type=int, default=1200)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--end-to-end", action="store_true", help="train the whole sentence model")
    parser.add_argument("--batch-size", type=int, help="queries and documents of a batch")
    parser.add_argument("--learning-rate", type=float)
    parser.add_argument("--choose", action="store_true", help="test on the queries that choices are made on")
    parser.add_argument("--losses", nargs="+", default=["lambda-ndcg(temperature=0.2)"])
    parser.add_argument("--only", choices=["drawn", "captions"], help="one set alone")
    parser.add_argument("--cuts", nargs="*", type=int, default=[1, 2, 3, 4], help="thresholds of binarised training")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    settings: dict[str, Any] = {"steps": options.steps, **(WHOLE if options.end_to_end else {})}
    if options.batch_size is not None:
        settings["sampler"] = f"queries(batch_size={options.batch_size})"
    if options.learning_rate is not None:
        settings["learning_rate"] = options.learning_rate
    sizes = options.queries, options.documents
    chosen = options.choose, options.seeds, options.losses, options.cuts, settings
    results: dict[str, object] = {}
    if options.only != "captions":
        results["drawn"] = compare((draw_texts if options.end_to_end else draw)(*sizes), *chosen)
    if options.captions is not None and options.only != "drawn":
        results["captions"] = compare(read_captions(options.captions, *sizes, options.end_to_end), *chosen)
    print(json.dumps(results, indent=1))
    write_figures(options.json, results)


if __name__ == "__main__":
    main()
