"""Saved models in other environments: ``SentenceTransformer(folder).encode`` against ``model.embed``.

``python saved_for_elsewhere.py write FOLDER`` here, then ``OTHER/bin/python saved_for_elsewhere.py read FOLDER`` in an
environment with another version of sentence-transformers, with cml or without it: there, texts are read alone. It
prints the largest differences, and fails above 1e-6.
"""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

ALLOWED = 1e-6
TEXT_KINDS = ("texts", "minilm")


def own_network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU())


def write(folder: Path) -> None:
    """Train and save a model of each kind, with its inputs and embeddings."""
    from tiny_texts import LABELS, TEXTS, tiny_transformer  # of tests/stand_ins

    import cml

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(len(TEXTS), 8)).astype(np.float32)
    images = rng.integers(0, 256, (len(TEXTS), 12, 12, 3), np.uint8)
    of_images = {"backbone": "small-cnn", "weights": "none", "image_size": (12, 12), "workers": 0}
    cases: dict[str, tuple[Any, dict[str, Any]]] = {
        "texts": (TEXTS, {"backbone": tiny_transformer()}),
        "minilm": (TEXTS, {"backbone": "sentence-transformers/all-MiniLM-L6-v2"}),
        "images": (images, of_images),
        "vectors": (rows, {}),
        "own": (rows, {"backbone": own_network()}),
    }
    for name, (inputs, options) in cases.items():
        options |= {"steps": 3, "sampler": "random(batch_size=12)", "quiet": True, "device": "cpu", "dimension": 5}
        model = cml.fit(inputs, LABELS, **options)
        model.save(folder / name)
        np.save(folder / f"{name}.npy", model.embed(inputs))
    np.save(folder / "of_vectors.npy", rows)
    np.save(folder / "of_images.npy", images)
    (folder / "of_texts.json").write_text(json.dumps(list(TEXTS)))


def read(folder: Path) -> None:
    """Load each of them by sentence-transformers alone, and compare."""
    import sentence_transformers

    has_cml = importlib.util.find_spec("cml") is not None
    print(f"sentence-transformers {sentence_transformers.__version__}, {'with' if has_cml else 'without'} cml")
    texts, rows = json.loads((folder / "of_texts.json").read_text()), list(np.load(folder / "of_vectors.npy"))
    images = list(np.load(folder / "of_images.npy"))
    cases = {"texts": texts, "minilm": texts} | ({"images": images, "vectors": rows, "own": rows} if has_cml else {})
    for name, inputs in cases.items():
        given: dict[str, Any] = {} if name in TEXT_KINDS else {"trust_remote_code": True}
        if name == "own":
            given["model_kwargs"] = {"backbone": own_network()}
        encoder = sentence_transformers.SentenceTransformer(str(folder / name), device="cpu", **given)
        difference = float(np.abs(encoder.encode(inputs) - np.load(folder / f"{name}.npy")).max())
        print(f"{name}: largest difference {difference:.1e}", flush=True)
        if not difference <= ALLOWED:
            sys.exit(f"{name}: above {ALLOWED}")


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](Path(sys.argv[2]))
