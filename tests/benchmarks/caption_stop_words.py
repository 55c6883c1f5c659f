"""Which stop words a distance of captions should leave out, by signals that know nothing of the list.

Run: python tests/benchmarks/caption_stop_words.py [--images 1000] [--parts 3] [--queries 400] [--seeds 3]
     [--judged sis_val.csv] [--lists english function none] [--kept in on at by]

On captions of 4,000 COCO photographs and on 159 photographs with their annotated objects, for each list:

- own captions: the first caption of each photograph is a query, its next four are an item of the gallery, in
  ``--parts`` sets of ``--images`` photographs: recall@1 and recall@10.
- other captions: distances between the first three captions of photographs, against distances of sentence vectors
  between their other two: the rank correlation of a query with all photographs, and how many of the 10 nearest agree.
- objects: the rank correlation with 1 - shared kinds of annotated objects / all kinds, and with the sum over all kinds
  of the difference of log(1 + count).
- heads: score@10 of linear heads of 64 dimensions, trained by log-ratio with 300 batches of 64, on sentence vectors of
  first captions and the distance between the next two, scored by sentence vectors of the last two; and on frozen
  EfficientNet-Lite0 features of 80 photographs, scored by the kinds of objects of 79 others.
- judged: the rank correlation with human judgements of pairs, where a file in the form of Crisscrossed Captions is
  given.
- the share of captions that lose a word of number, place or state, and pairs of photographs a second on one thread.

Values of queries and of seeds are followed by the mean difference from the first list and its standard error. Needs the
extras ``glove`` and ``sentences`` and the data of ../shared/data.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from captions_neighbors import data_folder  # beside this file
from equal_labels import Vectors, score_losses
from figures_file import add_json_option, write_figures
from scipy.stats import spearmanr
from sklearn.preprocessing import StandardScaler

import cml
from cml import distances
from cml.array_types import Float32, Float64
from cml.data_prep.coco_cxc import read_pairs
from cml.distances.captions.function_words import FUNCTION_WORDS
from cml.distances.captions.tokens import stop_words, tokenize
from cml.errors import DataError
from cml.word_vectors.sentence_model import sentence_vectors

Values = dict[str, Float64]
LISTS = ("english", "function", "none")
CONTENT = frozenset(
    {"two", "three", "four", "five", "six", "eight", "nine", "ten", "full", "empty", "without", "fire", "computer"}
    | {"front", "top", "bottom", "side", "back", "behind", "above", "below", "under", "over", "across", "through"}
    | {"down", "up", "off", "out", "inside", "between", "around", "along", "near", "few", "many", "several"}
)
_CAPTIONS = 5  # of a photograph; a few have more
_MODEL = "all-minilm-l6-v2"
_TRAINING, _HEAD_QUERIES, _HEAD_GALLERY = 1600, 100, 500  # photographs of heads on sentence vectors
_WIDTH = 1280  # the heads of the benchmark start for its backbone: columns of zeros change nothing


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each list of stop words."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1000, help="photographs of a part")
    parser.add_argument("--parts", type=int, default=3)
    parser.add_argument("--queries", type=int, default=400, help="photographs that are compared with all others")
    parser.add_argument("--seeds", type=int, default=3, help="of heads; 0 trains none")
    parser.add_argument("--judged", type=Path, help="CSV file with the columns image1, image2 and agg_score")
    parser.add_argument("--lists", nargs="+", choices=LISTS, default=LISTS)
    parser.add_argument("--kept", nargs="+", help="one list more: the function words without these")
    parser.add_argument("--vectors", default="glove-6b-50d")
    add_json_option(parser)
    options = parser.parse_args(arguments)
    captions = read_captions(data_folder() / "coco_captions" / "captions_val2017_4000.json")
    images = list(captions.values())
    parts = [images[start : start + options.images] for start in range(0, len(images), options.images)]
    compared = images[: options.parts * options.images]
    others = Sentences(compared, min(options.queries, len(compared)))
    lists: dict[str, str | tuple[str, ...]] = {name: name for name in options.lists}
    if options.kept:
        lists[f"function without {' '.join(options.kept)}"] = tuple(sorted(FUNCTION_WORDS - set(options.kept)))
    figures, first = {}, None
    for name, words in lists.items():
        distance = distances.get("captions", vectors=options.vectors, stop_words=words, empty_caption="drop")
        values = rank_own(parts[: options.parts], distance)
        values |= compare_with_sentences(compared, others, distance)
        values |= compare_with_objects(distance)
        if options.seeds:
            values |= train_on_sentences(images, distance, options.seeds)
            values |= train_on_photographs(distance, options.seeds)
        if options.judged is not None:
            values["judged"] = np.array([compare_with_judgements(captions, options.judged, distance)])
        values["losing"] = lose_content(images, words)
        values["pairs_per_second"] = np.array([measure_speed(images, distance)])
        first = values if first is None else first
        print(name, *(describe(key, value, first[key]) for key, value in values.items()), sep="\n  ", flush=True)
        figures[name] = {key: float(value.mean()) for key, value in values.items()}
    write_figures(options.json, {"images": options.images, "parts": options.parts, "stop_words": figures})


def describe(name: str, values: Float64, first: Float64) -> str:
    """A value, and its mean difference from that of the first list with its standard error."""
    difference = values - first
    if len(values) < 2 or not difference.any():
        return f"{name}: {values.mean():.4g}"
    error = difference.std(ddof=1) / len(values) ** 0.5
    return f"{name}: {values.mean():.4f} ({difference.mean():+.4f} +- {error:.4f})"


def read_captions(path: Path) -> dict[int, list[str]]:
    """The five captions of each photograph of a COCO annotation file, by its id."""
    captions: dict[int, list[str]] = defaultdict(list)
    for annotation in json.loads(path.read_text("utf-8"))["annotations"]:
        captions[annotation["image_id"]].append(annotation["caption"])
    return {image: texts[:_CAPTIONS] for image, texts in captions.items() if len(texts) >= _CAPTIONS}


def rank_own(parts: Sequence[Sequence[list[str]]], distance: distances.LabelDistance) -> Values:
    """Whether the first caption of each photograph finds its others first, and among the first ten."""
    ranks = []
    for images in parts:
        queries = distance.encode([captions[:1] for captions in images])
        between = distance.pairwise(queries, distance.encode([captions[1:] for captions in images]))
        ranks.append((between < np.diag(between)[:, None]).sum(axis=1))
    place = np.concatenate(ranks)
    return {"own captions, recall@1": (place < 1).astype(float), "own captions, recall@10": (place < 10).astype(float)}


class Sentences:
    """Distances of sentence vectors from some photographs to all, by captions that no list is asked about.

    Args:
        images: The captions of N photographs.
        queries: The number of photographs that are compared with all.
    """

    def __init__(self, images: Sequence[list[str]], queries: int) -> None:
        self.queries = np.random.default_rng(0).permutation(len(images))[:queries]
        distance = distances.get("sentences", model=_MODEL)
        labels = distance.encode([captions[3:] for captions in images])
        rows = [distance.pairwise(labels[some], labels) for some in np.array_split(self.queries, 1 + queries // 20)]
        self.distances = np.concatenate(rows)  # (queries, N)


def compare_with_sentences(
    images: Sequence[list[str]], sentences: Sentences, distance: distances.LabelDistance
) -> Values:
    """Rank correlation with sentence vectors of other captions, and how many of the 10 nearest are the same."""
    labels = distance.encode([captions[:3] for captions in images])
    block = distance.pairwise(labels[sentences.queries], labels)
    correlations, shared = [], []
    for query, ours, theirs in zip(sentences.queries.tolist(), block, sentences.distances, strict=True):
        ours, theirs = np.delete(ours, query), np.delete(theirs, query)
        correlations.append(spearmanr(ours, theirs).statistic)
        nearest = [set(np.argsort(side, kind="stable")[:10].tolist()) for side in (ours, theirs)]
        shared.append(len(nearest[0] & nearest[1]) / 10)
    return {"other captions, correlation": np.array(correlations), "other captions, shared": np.array(shared)}


def read_objects() -> tuple[list[str], list[list[str]], dict[str, Float32]]:
    """The files, captions and distances between annotated objects of 159 photographs, the 80 to train on first."""
    base = data_folder() / "coco_mini"
    files, captions, counts = [], [], []
    for part in ("train2017", "val2017"):
        texts = read_captions(base / "annotations" / f"captions_{part}.json")
        listed = json.loads((base / "annotations" / f"instances_{part}.json").read_text("utf-8"))
        of_image: dict[int, Counter[int]] = defaultdict(Counter)
        for annotation in listed["annotations"]:
            of_image[annotation["image_id"]][annotation["category_id"]] += 1
        for image in listed["images"]:
            if image["id"] in texts:
                files.append(str(base / part / image["file_name"]))
                captions.append(texts[image["id"]])
                counts.append(of_image[image["id"]])
    kinds = sorted({kind for count in counts for kind in count})
    table = np.array([[count[kind] for kind in kinds] for count in counts], float)
    there = table > 0
    shared, either = ((there[:, None] & there).sum(axis=2), (there[:, None] | there).sum(axis=2))
    logs = np.log1p(table)
    by = {
        "kinds": (1 - shared / np.maximum(either, 1)).astype(np.float32),
        "counts": np.abs(logs[:, None] - logs).sum(axis=2).astype(np.float32),
    }
    return files, captions, by


def compare_with_objects(distance: distances.LabelDistance) -> Values:
    """The rank correlation of each photograph's distances with those of the objects in them."""
    _, captions, references = read_objects()
    labels = distance.encode(captions)
    block = distance.pairwise(labels, labels)
    others = ~np.eye(len(block), dtype=bool)
    return {
        f"objects, {name}": np.array(
            [spearmanr(block[row, others[row]], by[row, others[row]]).statistic for row in range(len(block))]
        )
        for name, by in references.items()
    }


def train_on_sentences(images: Sequence[list[str]], distance: distances.LabelDistance, seeds: int) -> Values:
    """Heads on sentence vectors of first captions; the score of each seed."""
    ends = np.cumsum([min(_TRAINING, len(images) - _HEAD_QUERIES - _HEAD_GALLERY), _HEAD_QUERIES, _HEAD_GALLERY])
    images = images[: ends[-1]]
    rows = sentence_vectors(_MODEL, [captions[0] for captions in images])
    judge = distances.get("sentences", model=_MODEL)
    test = judge.encode([captions[3:] for captions in images[ends[0] :]])
    labels = distance.encode([captions[1:3] for captions in images[: ends[0]]])
    reference = judge.pairwise(test[:_HEAD_QUERIES], test[_HEAD_QUERIES:])
    return {"head on sentences": _train(np.split(rows, ends[:2]), distance.pairwise(labels, labels), reference, seeds)}


def train_on_photographs(distance: distances.LabelDistance, seeds: int) -> Values:
    """Heads on features of photographs; the score of each seed."""
    files, captions, references = read_objects()
    with tempfile.TemporaryDirectory() as folder:
        store = cml.features(files, backbone="efficientnet-lite0", out=f"{folder}/store", device="cpu", quiet=True)
        rows = np.array(store.rows, np.float32)
    labels = distance.encode(captions[:80])
    parts = np.split(rows, [80, 110])
    reference = references["kinds"][80:110, 110:]
    return {"head on photographs": _train(parts, distance.pairwise(labels, labels), reference, seeds)}


def _train(parts: Sequence[Float32], label_distances: Float32, reference: Float32, seeds: int) -> Float64:
    scaler = StandardScaler().fit(parts[0])
    scaled = [scaler.transform(part).astype(np.float32) for part in parts]
    train, queries, gallery = (np.pad(part, ((0, 0), (0, _WIDTH - part.shape[1]))) for part in scaled)
    vectors = Vectors(train, label_distances, queries, gallery, reference)
    (scores,) = score_losses(vectors, ["log-ratio"], [1e-3], seeds, 300).values()
    return np.array(scores)


def compare_with_judgements(captions: Mapping[int, list[str]], path: Path, distance: distances.LabelDistance) -> float:
    """Rank correlation of the distance with how alike people find two photographs."""
    pairs = [pair for pair in read_pairs(path) if not isinstance(pair, DataError)]
    known = [(int(one), int(other), score) for one, other, score in pairs if {int(one), int(other)} <= captions.keys()]
    labels = {image: distance.encode([captions[image]]) for pair in known for image in pair[:2]}
    between = [float(distance.pairwise(labels[one], labels[other])[0, 0]) for one, other, _ in known]
    return float(spearmanr(between, [-score for _, _, score in known]).statistic)


def lose_content(images: Sequence[list[str]], words: str | tuple[str, ...]) -> Float64:
    """Whether a word of ``CONTENT`` is left out of each caption."""
    lost = CONTENT & stop_words(words)
    cut = (set(tokenize(text, rule="words", lower=True)) for captions in images for text in captions)
    return np.array([bool(lost & caption) for caption in cut], float)


def measure_speed(images: Sequence[list[str]], distance: distances.LabelDistance) -> float:
    """Pairs of photographs a second of processor time, with all their captions."""
    labels = distance.encode(images[:1000])
    distance.pairwise(labels[:2], labels[:2])  # compiled
    before = time.process_time()
    block = distance.pairwise(labels[:40], labels)
    return float(block.size / (time.process_time() - before))


if __name__ == "__main__":
    main()
