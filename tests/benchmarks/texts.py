"""Texts with graded similarity: log-ratio against the losses of sentence-transformers, at equal forward passes.

Run by hand: ``python tests/benchmarks/texts.py [--captions FILE] [--json FILE]``, where FILE is a captions
file of COCO. Two tasks: sentences that name a number of things, whose label is the number; and, with FILE, one caption
of a photograph, whose label is its four other captions (Word Mover's Distance, extra ``glove``). Each way trains MiniLM
(extra ``sentences``) for the same number of steps of 32 texts: ``cml.fit`` and ``LabelDistanceLoss`` compare all pairs
of them, the losses of sentence-transformers 16 pairs with a score. The learning rate of each way is the best one of the
same grid on further texts, with one seed; the score@10 of new texts is 1 for a ranking by the labels, 0 for a random
one. The intervals of log-ratio's lead are over seeds and texts, and simultaneous for all other ways.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

import cml
from cml.retrieval import evaluate_embeddings
from cml.retrieval.best_methods import MethodScores
from cml.retrieval.evaluate_options import EvaluateOptions
from cml.retrieval.item_influences import ItemInfluences
from cml.retrieval.metric_result import MetricResult

THINGS = ["dog", "cat", "car", "tree", "house", "boat", "bird", "horse"]
BATCH, MOST = 32, 60
RATES = {"numbers": [3e-5, 1e-4, 3e-4, 1e-3], "captions": [3e-6, 1e-5, 3e-5, 1e-4, 3e-4]}
OURS = ["LabelDistanceLoss", "cml.fit"]
Encode = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class Task:
    """Texts with labels, in parts: for training, for the choice of a rate, and new ones."""

    texts: list[str]
    labels: Sequence[Any]
    parts: Mapping[str, range]
    distance: cml.distances.LabelDistance
    steps: int

    def part(self, name: str) -> tuple[list[str], list[Any]]:
        """Texts and labels of a part."""
        rows = self.parts[name]
        return [self.texts[row] for row in rows], [self.labels[row] for row in rows]

    def score(self, encode: Encode, part: str) -> MetricResult:
        """score@10 of the texts of a part among each other."""
        texts, labels = self.part(part)
        options = EvaluateOptions(distance_ks=(10,), whole_ranking=False)
        found = evaluate_embeddings(encode(texts), labels, label_distance=self.distance, options=options)
        return found.rows["embedding"]["score@10"]


def make_numbers(items: int, others: int, steps: int) -> Task:
    """Sentences and the numbers in them."""
    count = items + 2 * others
    rng = np.random.default_rng(0)
    numbers = rng.integers(1, MOST, count)
    texts = [f"a photo of {k} {rng.choice(THINGS)}s in a field" for k in numbers]
    return Task(texts, numbers.astype(float), split(items, others), cml.distances.get("euclidean"), steps)


def read_captions(path: Path, items: int, others: int, steps: int) -> Task:
    """The first caption of each photograph, and its other ones."""
    captions: dict[int, list[str]] = {}
    for annotation in json.loads(path.read_text(encoding="utf-8"))["annotations"]:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"].strip())
    pictures = [captions[image] for image in sorted(captions) if len(captions[image]) >= 5]
    order = np.random.default_rng(0).permutation(len(pictures))[: items + 2 * others]
    texts, labels = ([pictures[row][0] for row in order], [pictures[row][1:5] for row in order])
    return Task(texts, labels, split(items, others), cml.distances.get("captions(vectors=glove-6b-50d)"), steps)


def split(items: int, others: int) -> dict[str, range]:
    """The rows of each part."""
    return {
        "train": range(items),
        "rate": range(items, items + others),
        "new": range(items + others, items + 2 * others),
    }


def open_model() -> Any:  # noqa: ANN401 - of a library without types
    from cml.word_vectors.sentence_model import open_sentence_model

    return open_sentence_model("all-minilm-l6-v2", download=False)


def encoder(model: Any) -> Encode:  # noqa: ANN401
    return lambda texts: np.asarray(model.encode(texts, normalize_embeddings=True, show_progress_bar=False))


def fit(task: Task, rate: float, seed: int) -> Encode:
    """Train with ``cml.fit``, whose backbone has a tenth of the head's learning rate."""
    texts, labels = task.part("train")
    model = cml.fit(
        texts,
        labels,
        label_distance=task.distance,
        backbone="sentence-transformers/all-MiniLM-L6-v2",
        learning_rate=10 * rate,
        steps=task.steps,
        seed=seed,
        device="cpu",
        quiet=True,
        sampler=f"random(batch_size={BATCH})",
    )
    return model.embed


def train(
    rows: dict[str, list[Any]], batch: int, task: Task, rate: float, seed: int, make_loss: Callable[[Any], Any]
) -> Encode:
    """Train with ``SentenceTransformerTrainer``."""
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    torch.manual_seed(seed)
    model = open_model()
    with tempfile.TemporaryDirectory() as folder:
        settings = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=task.steps,
            warmup_steps=task.steps // 10,
            per_device_train_batch_size=batch,
            learning_rate=rate,
            seed=seed,
            report_to=[],
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            logging_steps=1_000_000,
        )
        SentenceTransformerTrainer(
            model=model, args=settings, train_dataset=Dataset.from_dict(rows), loss=make_loss(model)
        ).train()
    return encoder(model)


def compare_all(task: Task, rate: float, seed: int) -> Encode:
    """Train with log-ratio on all pairs of a batch."""
    from cml.sentence_transformers import LabelDistanceLoss

    texts, labels = task.part("train")
    rows = {"text": texts, "label": list(range(len(texts)))}
    make_loss = lambda model: LabelDistanceLoss(model, "log-ratio", task.distance, labels=labels)  # noqa: E731
    return train(rows, BATCH, task, rate, seed, make_loss)


def scored_pairs(loss: str) -> Callable[[Task, float, int], Encode]:
    """A loss of sentence-transformers on pairs, whose score is 1 - distance / almost the largest distance."""

    def run(task: Task, rate: float, seed: int) -> Encode:
        from sentence_transformers.sentence_transformer import losses

        texts, labels = task.part("train")
        encoded = task.distance.encode(labels)
        some = encoded[np.arange(min(300, len(texts)))]
        largest = np.quantile(task.distance.pairwise(some, some), 0.99)
        drawn = np.random.default_rng(seed).integers(0, len(texts), (task.steps, 2, BATCH // 2))
        distances = [np.diag(task.distance.pairwise(encoded[one], encoded[other])) for one, other in drawn]
        first, second = drawn[:, 0].ravel(), drawn[:, 1].ravel()
        rows = {
            "first": [texts[row] for row in first],
            "second": [texts[row] for row in second],
            "label": (1 - np.clip(np.concatenate(distances) / largest, 0, 1)).tolist(),
        }
        return train(rows, BATCH // 2, task, rate, seed, getattr(losses, loss))

    return run


WAYS = {
    "cml.fit": fit,
    "LabelDistanceLoss": compare_all,
    "CoSENTLoss": scored_pairs("CoSENTLoss"),
    "CosineSimilarityLoss": scored_pairs("CosineSimilarityLoss"),
    "AnglELoss": scored_pairs("AnglELoss"),
}


def compare(task: Task, ways: Sequence[str], rates: Sequence[float], seeds: int) -> dict[str, Any]:
    """Choose the rate of each way, train it with each seed, and compare the new texts."""
    results = {"frozen": [task.score(encoder(open_model()), "new")]}
    figures: dict[str, Any] = {"frozen": {"score": results["frozen"][0].mean}}
    for name in ways:
        # one seed beside those of the comparison
        tried = {rate: task.score(WAYS[name](task, rate, seeds), "rate").mean for rate in rates}
        rate = max(tried, key=lambda each: tried[each])
        print(name, {f"{each:g}": round(value, 4) for each, value in tried.items()}, file=sys.stderr, flush=True)
        start = time.process_time()
        results[name] = [task.score(WAYS[name](task, rate, seed), "new") for seed in range(seeds)]
        seconds = (time.process_time() - start) / seeds
        scores = [result.mean for result in results[name]]
        deviation = statistics.stdev(scores) if seeds > 1 else 0.0
        figures[name] = {
            "score": statistics.mean(scores),
            "deviation": deviation,
            "scores": scores,
            "rate": rate,
            "rates": list(tried.values()),
            "seconds": seconds,
        }
        print(f"{name:24} {statistics.mean(scores):.3f} +- {deviation:.3f}, {seconds:.0f} s", flush=True)
    for own in [name for name in OURS if name in ways]:
        figures[own]["ahead"] = measure_leads(results, own)
    return figures


def measure_leads(results: Mapping[str, Sequence[MetricResult]], own: str) -> dict[str, list[float]]:
    """How far one way is ahead of each other one, with the ends of its interval."""
    others = [name for name in results if name not in OURS]
    scores = MethodScores.of(
        [
            ItemInfluences.stack([result.influences for result in results[name] if result.influences is not None])
            for name in [own, *others]
        ]
    )
    behind = scores.compare_with(0)
    probability = scores.simultaneous_probability(0, two_sided=True)
    leads = {}
    for column, name in enumerate(others):
        low, high = behind.select(column).intervals(2 * probability - 1)[0].tolist()
        leads[name] = [-float(behind.mean[column]), -high, -low]
        print(f"{own} ahead of {name}: {leads[name][0]:+.3f} [{-high:+.3f}, {-low:+.3f}]", flush=True)
    return leads


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--captions", type=Path)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--items", type=int, nargs=2, default=[300, 1300], help="texts of either task for training")
    options.add_argument("--others", type=int, nargs=2, default=[120, 400], help="new texts of either task")
    options.add_argument("--steps", type=int, nargs=2, default=[30, 60])
    options.add_argument(
        "--rates", type=float, nargs="+", help="learning rates to choose from, by default of each task"
    )
    options.add_argument("--tasks", nargs="+", default=list(RATES), choices=list(RATES))
    options.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    add_json_option(options)
    chosen = options.parse_args(arguments)
    sizes = list(zip(chosen.items, chosen.others, chosen.steps, strict=True))
    tasks = {"numbers": make_numbers(*sizes[0])} if "numbers" in chosen.tasks else {}
    if chosen.captions and "captions" in chosen.tasks:
        tasks["captions"] = read_captions(chosen.captions, *sizes[1])
    figures = {}
    for name, task in tasks.items():
        print(name, flush=True)
        figures[name] = compare(task, chosen.ways, chosen.rates or RATES[name], chosen.seeds)
    write_figures(chosen.json, figures)


if __name__ == "__main__":
    main()
