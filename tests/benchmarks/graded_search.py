"""Graded training against binarised training, on captions of photographs and on drawn queries and documents.

``python tests/benchmarks/graded_search.py [--captions FILE] [--json FILE]``, where FILE is a captions file of COCO. A
query is a caption of one picture, a document a caption of another one; both are frozen sentence vectors (extra
``sentences``) with a trained linear head. The grade of a pair, 0 to 4, follows from the Word Mover's Distance (extra
``glove``) of three other captions of either picture, which nobody embeds: 4 for the nearest .2 % of all pairs, then up
to 1, 4 and 12 %. Binarised training takes grades of at least 1, 2, 3 or 4 as 1 and others as 0, and the best of these
on the test queries counts. 20 documents a query are judged in training; test queries are others, with all grades. The
defaults of ``cml.fit`` train, which were chosen on queries that neither train nor test.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

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
Sides = tuple[NDArray[np.float32], NDArray[np.float32]]


def read_captions(path: Path, queries: int, documents: int) -> tuple[Sides, NDArray[np.float64]]:
    """Sentence vectors of queries and documents, and all label distances (Q, D)."""
    captions: dict[int, list[str]] = {}
    for annotation in json.loads(path.read_text(encoding="utf-8"))["annotations"]:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"].strip())
    pictures = [captions[image] for image in sorted(captions) if len(captions[image]) >= 5]
    order = np.random.default_rng(0).permutation(len(pictures))
    chosen = [pictures[row] for row in order[: queries + documents]]
    distance = cml.distances.get("captions(vectors=glove-6b-50d, empty_caption=drop)")
    labels = distance.encode([picture[2:5] for picture in chosen])
    vectors = sentence_vectors(PACKAGED, [picture[0] for picture in chosen])
    return (vectors[:queries], vectors[queries:]), distance.pairwise(labels[:queries], labels[queries:])


def draw(queries: int, documents: int) -> tuple[Sides, NDArray[np.float64]]:
    """Vectors of 64 numbers, of which a few directions decide how far a query is from a document."""
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(64, 6)) / 8
    query, document = (rng.normal(size=(count, 64)).astype(np.float32) for count in (queries, documents))
    own, theirs = query @ directions, document @ directions
    return (query, document), np.linalg.norm(own[:, None] - theirs, axis=2) + rng.exponential(0.2, (queries, documents))


def compare(
    sides: Sides, distances: NDArray[np.float64], unjudged: Unjudged, steps: int, seeds: int, losses: Sequence[str]
) -> dict[str, object]:
    """Train with grades and with each threshold, and compare on new queries."""
    grades = np.digitize(-distances, -np.quantile(distances, SHARES)).astype(float)
    queries, document = sides
    train, first, last = (int(share * len(queries)) for share in (TRAINED, *CHOSEN_ON))
    judged = judge(distances[:train], grades[:train])
    new = np.array([*range(train, first), *range(last, len(queries))])
    new = new[grades[new].max(axis=1) > 0]
    truth = cml.Grades.from_matrix(grades[new])
    frozen = [
        cml.Ranking.of_embeddings(a, b, 10).evaluate(truth, MEASURES)
        for a, b in ((queries[new], document), tuple(map(_normalise, (queries[new], document))))
    ]
    rows: dict[str, list[RankingEvaluation]] = {"frozen": [max(frozen, key=lambda one: one.values[:, 0].mean())]}
    thresholds = {"frozen": 0}
    begin = time.perf_counter()
    for loss in losses:
        for threshold in (None, 1, 2, 3, 4):
            given = judged if threshold is None else np.where(np.isnan(judged), np.nan, judged >= threshold)
            kept = np.flatnonzero(np.nanmax(given, axis=1) > 0)
            name = f"{loss}, graded" if threshold is None else f"{loss}, at least {threshold}"
            known = cml.Grades.from_matrix(given[kept], unjudged=unjudged)
            rows[name], thresholds[name] = [], threshold or 0
            for seed in range(seeds):
                model = cml.fit((queries[kept], document), known, loss=loss, steps=steps, seed=seed, quiet=True)
                assert isinstance(model, cml.SearchModel)
                rows[name].append(model.rank(queries[new], document, k=10).evaluate(truth, MEASURES))
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
            best = max(pool, key=lambda name: means[name]["ndcg@10"])
            differences[f"{loss}, {label}"] = {
                **subtract(rows[f"{loss}, graded"], pool[best]),
                "threshold": thresholds[best],
            }
    return {
        "queries": len(new),
        "training_queries": train,
        "documents": len(document),
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
    parser.add_argument("--losses", nargs="+", default=["lambda-ndcg(temperature=0.2)"])
    parser.add_argument("--only", choices=["drawn", "captions"], help="one set alone")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    # what suits pairs without a grade was chosen as the defaults were
    results: dict[str, object] = {}
    chosen = options.steps, options.seeds, options.losses
    if options.only != "captions":
        results["drawn"] = compare(*draw(options.queries, options.documents), "zero", *chosen)
    if options.captions is not None and options.only != "drawn":
        data = read_captions(options.captions, options.queries, options.documents)
        results["captions"] = compare(*data, "incomparable", *chosen)
    print(json.dumps(results, indent=1))
    write_figures(options.json, results)


if __name__ == "__main__":
    main()
