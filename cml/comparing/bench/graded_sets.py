"""The set of graded search: drawn sentences as queries and documents, as vectors of a sentence model, and grades.

A query is "7 red dogs", a document "a photo of 12 blue cars in a field". Their numbers, in tens, and whether their
colours differ say how far apart they are, with some noise; the thing does not count. The grade of a pair, 0 to 4,
follows from that: 4 for the nearest .2 % of all pairs, 3, 2 and 1 up to 1, 4 and 12 %. In training, 20 documents of
each query are judged, half of them near ones, as from a first search; in validation and test, all are. Documents are
the same in all parts, as in a search.
"""

from pathlib import Path

import numpy as np

from cml.array_types import Float64, Int64
from cml.comparing.bench.bench_set import BenchSet, Part, digest_split, standardise_by
from cml.comparing.bench.suite import SetSpec, Suite
from cml.data.vectors import Vectors
from cml.graded.distance import GradedDistance
from cml.graded.grades import Grades
from cml.task import ReportedUnit
from cml.word_vectors.sentence_model import PACKAGED, sentence_vectors

_SHARES = (0.12, 0.04, 0.01, 0.002)  # of all pairs, at least grade 1, 2, 3, 4
_JUDGED, _NEAR = 20, 60  # judged documents of a training query; half of them are drawn from so many nearest
_THINGS = ("dog", "cat", "car", "tree", "house", "boat", "bird", "horse")
_COLOURS = ("red", "blue", "green", "black", "white", "yellow")
_MOST = 60  # below which numbers are
_VALIDATING = 0.4  # share of the validation items that are queries


def deal_queries(name: str, spec: SetSpec, suite: Suite, cache: Path) -> BenchSet:
    """Draw the queries and documents of a suite, and deal them to its parts."""
    documents = min(suite.gallery, suite.train // 2)
    validating = round(_VALIDATING * suite.validation)
    counts = suite.train - documents, validating, suite.queries
    trained, validated, tested = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1])
    texts, distances = draw_texts(sum(counts), documents)
    distance = GradedDistance(
        Grades.from_matrix(judge_some(grade_pairs(distances), distances, counts[0]), unjudged="zero")
    )
    gallery = sum(counts) + np.arange(documents)
    vectors = Vectors(sentence_vectors(PACKAGED, texts))
    standardise = standardise_by(vectors.subset(np.append(trained, gallery)))

    def part(rows: Int64) -> Part:
        ids = [f"document {row - sum(counts)}" if row >= sum(counts) else f"query {row}" for row in rows.tolist()]
        return Part(ids, [], distance.encode(rows.tolist()), standardise(vectors.subset(rows)))

    parts = {
        "train": part(np.append(trained, gallery)),
        "validation": part(np.append(validated, gallery[: suite.validation - validating])),
        "query": part(tested),
        "gallery": part(gallery),
    }
    split = digest_split(suite, name, distance, parts)
    train, validation, *test = parts.values()
    unit = ReportedUnit(1.0, distance.unit)
    where = split, distance.fingerprint(), cache, cache
    return BenchSet(name, spec, distance, distance.name, unit, train, validation, *where, (test[0], test[1]))


def draw_texts(queries: int, documents: int) -> tuple[list[str], Float64]:  # texts, the queries first; (Q, D)
    """Draw sentences, and how far each query is from each document."""
    rng = np.random.default_rng(1)
    highs = _MOST, len(_COLOURS), len(_THINGS)
    numbers, colours, things = (rng.integers(0, high, queries + documents) for high in highs)
    names = [
        f"{number} {_COLOURS[colour]} {_THINGS[thing]}s"
        for number, colour, thing in zip(numbers.tolist(), colours.tolist(), things.tolist(), strict=True)
    ]
    texts = [*names[:queries], *(f"a photo of {name} in a field" for name in names[queries:])]
    apart = np.abs(numbers[:queries, None] - numbers[queries:]) / 10
    differs = colours[:queries, None] != colours[queries:]
    return texts, apart + differs + rng.exponential(0.1, (queries, documents))


def grade_pairs(distances: Float64) -> Float64:  # (Q, D) both
    """Grade pairs from 0 to 4, by how near they are among all."""
    return np.digitize(-distances, -np.quantile(distances, _SHARES)).astype(np.float64)


def judge_some(grades: Float64, distances: Float64, trained: int) -> Float64:  # (Q, D) all
    """Leave out, with NaN, most grades of the first queries, which are trained on."""
    rng = np.random.default_rng(2)
    judged = grades.copy()
    for row, near in enumerate(np.argsort(distances[:trained], axis=1, kind="stable")[:, :_NEAR]):
        half = rng.choice(near, min(_JUDGED // 2, len(near)), replace=False)
        known = np.union1d(half, rng.choice(grades.shape[1], _JUDGED // 2, replace=False))
        judged[row, np.setdiff1d(np.arange(grades.shape[1]), known)] = np.nan
    return judged
