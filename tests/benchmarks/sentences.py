"""Sentence vectors against the Word Mover's Distance as label distances of captions.

    python tests/benchmarks/sentences.py [--images 4000] [--pairs 40000] [--seeds 3]

Prints the time of both on the captions of COCO's 4,000 photographs, the rank correlation of their distances over
random pairs and query by query, how much of the 10 nearest they share, and what a head on frozen EfficientNet-Lite0
features retrieves on 159 COCO photographs when it is trained on either and measured by both. Needs the extras ``glove``
and ``sentences`` and the data of ../shared/data.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from captions_neighbors import coco_captions, data_folder
from scipy.stats import spearmanr

import cml
from cml.distances import LabelDistance, as_label_distance

WMD = "captions(vectors=glove-6b-50d, empty_caption=drop)"
CHOICES = {"WMD": WMD, "sentences, sum": "sentences", "sentences, mean": "sentences(reduce=mean)"}
QUERIES = 40


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--pairs", type=int, default=40_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args(arguments)
    captions = coco_captions()[: options.images]
    rng = np.random.default_rng(0)
    queries = rng.choice(len(captions), min(QUERIES, len(captions)), replace=False)
    blocks, pairs = {}, rng.integers(0, len(captions), (2, options.pairs))
    print("| label distance | encode s | the same again s | pairs a second |\n|---|---:|---:|---:|")
    for name, text in CHOICES.items():
        distance = as_label_distance(text)
        start = time.perf_counter()
        labels = distance.encode(captions)
        encoded = time.perf_counter()
        distance.encode(captions)
        again = time.perf_counter()
        distance.pairwise(labels[:2], labels[:2])  # compiled
        begun = time.perf_counter()
        blocks[name] = distance.pairwise(labels[queries], labels)  # (queries, N)
        speed = blocks[name].size / (time.perf_counter() - begun)
        blocks[f"{name} pairs"] = _of_pairs(distance, labels, pairs)
        print(f"| {name} | {encoded - start:.1f} | {again - encoded:.1f} | {speed:,.0f} |")
    print("\n| against WMD | Spearman over pairs | mean Spearman of a query | of the 10 nearest shared |")
    print("|---|---:|---:|---:|")
    for name in list(CHOICES)[1:]:
        whole = spearmanr(blocks[f"{name} pairs"], blocks["WMD pairs"]).statistic
        rows = [spearmanr(*both).statistic for both in zip(blocks[name], blocks["WMD"], strict=True)]
        shared = np.mean([_shared(*both) for both in zip(blocks[name], blocks["WMD"], strict=True)])
        print(f"| {name} | {whole:.3f} | {np.mean(rows):.3f} | {shared:.2f} |")
    if options.seeds:
        retrieval(options.seeds, options.steps)


def _of_pairs(distance: LabelDistance, labels: cml.distances.Labels, pairs: np.ndarray) -> np.ndarray:
    """Distances of pairs, by blocks of random images: 200 first ones with all their partners in a chunk."""
    found = []
    for part in np.array_split(pairs, max(1, pairs.shape[1] // 400), axis=1):
        block = distance.pairwise(labels[part[0][:20]], labels[part[1]])
        found.append(block.ravel())
    return np.concatenate(found)


def _shared(a: np.ndarray, b: np.ndarray) -> float:
    """Share of the 10 nearest of one row that are among those of the other; the nearest is the query itself."""
    nearest = [set(np.argsort(row, kind="stable")[1:11].tolist()) for row in (a, b)]
    return len(nearest[0] & nearest[1]) / 10


def retrieval(seeds: int, steps: int) -> None:
    """Train a head on either distance and measure what it retrieves by both."""
    from cml.retrieval import embedding_ranker, evaluate

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        dataset = cml.prepare("coco_captions", out / "set", source=data_folder() / "coco_mini")
        query, gallery = dataset.split("query"), dataset.split("gallery")
        print("\n| trained on | measured by | score@10 | Spearman |\n|---|---|---:|---:|")
        for name, text in CHOICES.items():
            found: dict[str, list[tuple[float, float]]] = {}
            for seed in range(seeds):
                run = cml.train(
                    "caption", dataset, out / f"{name}-{seed}", label_distance=text, freeze_backbone=True, seed=seed,
                    steps=steps, sampler="random(batch_size=40)", workers=0, device="cpu", quiet=True,
                )  # fmt: skip
                ranker = embedding_ranker(run.model.embed(query.paths), run.model.embed(gallery.paths))
                for by, measure in CHOICES.items():
                    judge = as_label_distance(measure)
                    labels = [judge.encode(list(split.labels)) for split in (query, gallery)]
                    same = dataset.info.queries_are_gallery
                    row = evaluate({"ours": ranker}, judge, *labels, same_items=same).rows["ours"]
                    score = next(row[key].mean for key in row if key.startswith("score@"))
                    found.setdefault(by, []).append((score, row["spearman_rho"].mean))
            for by, values in found.items():
                means, spread = np.mean(values, axis=0), np.std(values, axis=0)
                print(f"| {name} | {by} | {means[0]:.3f} ± {spread[0]:.3f} | {means[1]:.3f} ± {spread[1]:.3f} |")


if __name__ == "__main__":
    main()
