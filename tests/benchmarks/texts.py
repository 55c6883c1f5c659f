"""Texts whose labels are numbers: log-ratio against the losses of sentence-transformers, at equal forward passes.

Run by hand: ``python tests/benchmarks/texts.py [--seeds 3] [--steps 30]``. Sentences name a number of animals or
things; the label is the number. Each way trains MiniLM (extra ``sentences``) on the same 300
sentences for the same number of steps of 32 texts: ``cml.fit`` and ``LabelDistanceLoss`` compare all pairs of them, the
losses of sentence-transformers 16 scored pairs. The score is that of 120 further sentences, 1 for a ranking by the
labels, 0 for one at random.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from figures_file import add_json_option, write_figures  # beside this file

import cml
from cml.retrieval import evaluate_embeddings
from cml.retrieval.evaluate_options import EvaluateOptions

THINGS = ["dog", "cat", "car", "tree", "house", "boat", "bird", "horse"]
BATCH, MOST = 32, 60


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--steps", type=int, default=30)
    options.add_argument("--items", type=int, default=300)
    options.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    add_json_option(options)
    chosen = options.parse_args(arguments)
    figures: dict[str, Any] = {}
    for name in chosen.ways:
        scores, seconds = [], []
        for seed in range(chosen.seeds):
            start = time.process_time()
            trained = WAYS[name](make(chosen.items, seed=0), chosen.steps, seed)
            seconds.append(time.process_time() - start)
            scores.append(score(trained))
        deviation = statistics.stdev(scores) if len(scores) > 1 else 0.0
        print(
            f"{name:24} {statistics.mean(scores):.3f} +- {deviation:.3f}, {statistics.mean(seconds):.0f} s", flush=True
        )
        figures[name] = {"score": statistics.mean(scores), "deviation": deviation, "seconds": statistics.mean(seconds)}
    write_figures(chosen.json, figures)


def make(count: int, seed: int) -> tuple[list[str], np.ndarray]:
    """Sentences and the numbers in them."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(1, MOST, count)
    return [f"a photo of {k} {rng.choice(THINGS)}s in a field" for k in numbers], numbers.astype(float)


def score(encode: Callable[[list[str]], np.ndarray]) -> float:
    texts, labels = make(120, seed=1)
    found = evaluate_embeddings(encode(texts), labels, options=EvaluateOptions(distance_ks=(10,), whole_ranking=False))
    return float(found.rows["embedding"]["score@10"].mean)


def open_model() -> Any:  # noqa: ANN401 - of a library without types
    from cml.word_vectors.sentence_model import open_sentence_model

    return open_sentence_model("all-minilm-l6-v2", download=False)


Encode = Callable[[list[str]], np.ndarray]


def encoder(model: Any) -> Encode:  # noqa: ANN401
    return lambda texts: np.asarray(model.encode(texts, normalize_embeddings=True, show_progress_bar=False))


def frozen(data: tuple[list[str], np.ndarray], steps: int, seed: int) -> Callable[[list[str]], np.ndarray]:
    return encoder(open_model())


def fit(data: tuple[list[str], np.ndarray], steps: int, seed: int) -> Callable[[list[str]], np.ndarray]:
    return cml.fit(
        *data,
        backbone="sentence-transformers/all-MiniLM-L6-v2",
        steps=steps,
        seed=seed,
        device="cpu",
        quiet=True,
        sampler=f"random(batch_size={BATCH})",
    ).embed


def with_trainer(
    rows: dict[str, list[Any]], batch: int, steps: int, seed: int, make_loss: Callable[[Any], Any]
) -> Encode:
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments

    torch.manual_seed(seed)
    model = open_model()
    with tempfile.TemporaryDirectory() as folder:
        settings = SentenceTransformerTrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch,
            learning_rate=2e-4,
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


def trainer(data: tuple[list[str], np.ndarray], steps: int, seed: int) -> Callable[[list[str]], np.ndarray]:
    from cml.sentence_transformers import LabelDistanceLoss

    rows = {"text": data[0], "label": data[1].tolist()}
    return with_trainer(rows, BATCH, steps, seed, lambda model: LabelDistanceLoss(model, "log-ratio"))


def scored_pairs(loss: str) -> Callable[[tuple[list[str], np.ndarray], int, int], Callable[[list[str]], np.ndarray]]:
    """A loss of sentence-transformers on 1 - |difference| / largest difference of random pairs."""

    def train(data: tuple[list[str], np.ndarray], steps: int, seed: int) -> Callable[[list[str]], np.ndarray]:
        from sentence_transformers.sentence_transformer import losses

        texts, labels = data
        drawn = np.random.default_rng(seed).integers(0, len(texts), (steps * BATCH // 2, 2))
        near = 1 - np.abs(labels[drawn[:, 0]] - labels[drawn[:, 1]]) / (MOST - 2)
        rows = {
            "first": [texts[row] for row in drawn[:, 0]],
            "second": [texts[row] for row in drawn[:, 1]],
            "label": near.tolist(),
        }
        return with_trainer(rows, BATCH // 2, steps, seed, getattr(losses, loss))

    return train


WAYS = {
    "frozen": frozen,
    "cml.fit": fit,
    "LabelDistanceLoss": trainer,
    "CoSENTLoss": scored_pairs("CoSENTLoss"),
    "CosineSimilarityLoss": scored_pairs("CosineSimilarityLoss"),
    "AnglELoss": scored_pairs("AnglELoss"),
}

if __name__ == "__main__":
    main()
