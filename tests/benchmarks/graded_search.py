"""Graded training against binarised training, on captions of photographs and on drawn queries and documents.

``python tests/benchmarks/graded_search.py [--captions FILE] [--json FILE]``, where FILE is a captions file of COCO. A
query is a caption of one picture, a document a caption of another one; both are frozen sentence vectors (extra
``sentences``) with a trained linear head. The grade of a pair, 0 to 4, follows from the Word Mover's Distance (extra
``glove``) of three other captions of either picture, which nobody embeds: 4 for the nearest .2 % of all pairs, then up
to 1, 4 and 12 %. Binarised training takes grades of at least 1, 2, 3 or 4 as 1 and others as 0, and the best of these
on the test queries counts. 20 documents a query are judged in training; test queries are others, with all grades.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file
from numpy.typing import NDArray

import cml
from cml.graded.ranking import RankingEvaluation
from cml.word_vectors.sentence_model import PACKAGED, sentence_vectors

SHARES = np.array([0.12, 0.04, 0.01, 0.002])  # of all pairs, at least grade 1, 2, 3, 4
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


def measure(
    model: cml.SearchModel, query: NDArray[np.float32], document: NDArray[np.float32], truth: cml.Grades
) -> RankingEvaluation:
    """The measures of new queries."""
    return model.rank(query, document, k=10).evaluate(truth, MEASURES)


def compare(
    sides: Sides, distances: NDArray[np.float64], steps: int, seeds: int, losses: Sequence[str]
) -> dict[str, object]:
    """Train with grades and with each threshold, and compare on new queries."""
    grades = np.digitize(-distances, -np.quantile(distances, SHARES)).astype(float)
    queries, document = sides
    train = int(0.7 * len(queries))
    rng = np.random.default_rng(2)
    judged = np.full((train, len(document)), np.nan)
    for row in range(train):  # half of those judged are the nearest of 60, as a first search would find them
        good = np.argsort(distances[row])[:60]
        for column in [*rng.choice(good, 10, replace=False), *rng.choice(len(document), 10, replace=False)]:
            judged[row, column] = grades[row, column]
    keep = np.flatnonzero(np.nanmax(judged, axis=1) > 0)
    new = np.flatnonzero(grades[train:].max(axis=1) > 0) + train
    truth = cml.Grades.from_matrix(grades[new])
    frozen = [
        cml.Ranking.of_embeddings(a, b, 10).evaluate(truth, MEASURES)
        for a, b in ((queries[new], document), tuple(map(_normalise, (queries[new], document))))
    ]
    rows: dict[str, list[RankingEvaluation]] = {"frozen": [max(frozen, key=lambda one: one.values[:, 0].mean())]}
    seconds = time.perf_counter()
    for loss in losses:
        for threshold in (None, 0, 1, 2, 3, 4):
            given = (
                judged[keep] if not threshold else np.where(np.isnan(judged[keep]), np.nan, judged[keep] >= threshold)
            )
            kept = np.flatnonzero(np.nanmax(given, axis=1) > 0)
            name = f"{loss}, at least {threshold}" if threshold else f"{loss}, graded"
            name += ", exponential" if threshold == 0 else ""
            rows[name] = []
            rule: Literal["exponential"] | None = "exponential" if threshold == 0 else None
            known = cml.Grades.from_matrix(given[kept], unjudged="zero", distance=rule)
            for seed in range(seeds):
                learned = cml.fit((queries[keep[kept]], document), known, loss=loss, steps=steps, seed=seed, quiet=True)
                assert isinstance(learned, cml.SearchModel)
                rows[name].append(measure(learned, queries[new], document, truth))
            print(name, [round(one.means["ndcg@10"], 4) for one in rows[name]], file=sys.stderr, flush=True)
    seconds = time.perf_counter() - seconds
    means = {
        name: {key: float(np.mean([one.means[key] for one in ones])) for key in MEASURES} for name, ones in rows.items()
    }
    results: dict[str, object] = {
        "queries": len(new),
        "items": len(document),
        "means": means,
        "seconds": round(seconds),
    }
    binarised = {name: ones for name, ones in rows.items() if "at least" in name}
    for loss in losses:
        graded = rows[f"{loss}, graded, exponential"]
        for label, pool in (
            ("the same loss", {n: o for n, o in binarised.items() if n.startswith(f"{loss},")}),
            ("any loss", binarised),
        ):
            best = max(pool, key=lambda name: means[name]["ndcg@10"])
            # the mean over seeds of each query, so that queries are what varies
            difference = np.mean([one.values - two.values for one, two in zip(graded, rows[best], strict=True)], axis=0)
            low, high = RankingEvaluation(graded[0].queries, tuple(MEASURES), difference).intervals["ndcg@10"]
            name = f"{loss}, graded, exponential, less the best binarised of {label}: {best}"
            results[name] = {"difference": float(difference[:, 0].mean()), "low": low, "high": high}
    return results


def _normalise(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main(arguments: list[str] | None = None) -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captions", type=Path, help="captions file of COCO")
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--documents", type=int, default=800)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--losses", nargs="+", default=["soft-target", "generalised-contrastive", "cosent"])
    parser.add_argument("--only", choices=["drawn", "captions"], help="one set alone")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    sets = {} if options.only == "captions" else {"drawn": draw(options.queries, options.documents)}
    if options.captions is not None and options.only != "drawn":
        sets["captions"] = read_captions(options.captions, options.queries, options.documents)
    results = {name: compare(*data, options.steps, options.seeds, options.losses) for name, data in sets.items()}
    print(json.dumps(results, indent=1))
    write_figures(options.json, results)


if __name__ == "__main__":
    main()
