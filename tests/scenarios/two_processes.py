"""What one process and two do alike, for test_distributed.py; run as a script by torchrun, it does it in two.

Every function takes the ranks and gives what this process found; with ``Ranks()`` it is the one-process answer.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import cml
from cml import distances, losses, sampling
from cml.cli import main
from cml.data.images import Images
from cml.distributed import gradient_cache
from cml.errors import DataError, UserError
from cml.items import LabelledItems
from cml.losses.cross_batch_memory import CrossBatchMemory
from cml.losses.loss import Loss
from cml.processes.init_processes import init_processes
from cml.processes.ranks import Ranks, share_batch_norm
from cml.retrieval import EvaluateOptions, embedding_ranker, evaluate
from cml.training.batches import BatchSource
from cml.training.checkpoint import CHECKPOINT, Checkpoint

ITEMS = 13  # two processes have 7 and 6 of them
WORDS = ("red", "green", "blue", "grey")
CONFIG = cml.TrainConfig(
    backbone="small-cnn", weights="none", image_size=(16, 16), dimension=8, sampler="random(batch_size=15)", steps=8,
    checkpoint_every=4, workers=0, flip="list", random_crop="place", crop=0.9, memory=20, optimizer="sgd",
    learning_rate=0.001, warmup=3, clip_gradient_value=1.0, clip_gradient=5.0, ema_decay=0.9,
)  # fmt: skip


def bars(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of a bright bar, labelled with its place."""
    places = np.random.default_rng(0).uniform(2, 14, count)
    images = 255 * np.exp(-((np.arange(16)[None, :] - places[:, None]) ** 2) / 4)
    return np.tile(images[:, None, :, None], (1, 16, 1, 3)).astype(np.uint8), places


def word_file(folder: Path) -> Path:
    """Word vectors of the four class names."""
    rows = np.random.default_rng(0).normal(size=(len(WORDS), 5))
    lines = [f"{word} {' '.join(f'{number:.6f}' for number in row)}" for word, row in zip(WORDS, rows, strict=True)]
    (folder / "words.txt").write_text("\n".join(lines) + "\n")
    return folder / "words.txt"


def make_loss(name: str, words: Path) -> Loss:
    """A registered loss in float64, with settings that let every kind learn from a small batch."""
    settings: dict[str, Any] = {
        "binary": {"loss": "multi-similarity", "rule": "nearest", "k": 3},
        "binary-triplet": {"rule": "nearest", "k": 3},
        "triplet": {"mining": "all"},
        "proxy-gml": {"per_class": 2, "share": 0.6},
        "language-guidance": {"loss": "proxy-anchor", "vectors": str(words)},
    }
    loss = losses.get(name, **settings.get(name, {}))
    generator = torch.Generator().manual_seed(3)
    if loss.labels == "classes":
        loss.prepare(torch.arange(4), dimension=2, names=WORDS, generator=generator)
    elif loss.labels == "vectors":
        loss.prepare(torch.rand(40, 2, generator=generator), dimension=2, names=(), generator=generator)
    elif loss.labels == "label distances":
        loss.prepare(torch.rand(200, generator=generator), dimension=2)
    return loss.double()


def gradients(ranks: Ranks, name: str, words: Path, *, micro_batch: int | None = None) -> dict[str, Tensor]:
    """Loss and all gradients of the second of two batches: float64, a memory, and batch norm unless cut into parts."""
    torch.manual_seed(1)
    normalize: nn.Module = nn.BatchNorm1d(16) if micro_batch is None else nn.Identity()
    network = nn.Sequential(nn.Linear(6, 16, bias=False), normalize, nn.ReLU(), nn.Linear(16, 2)).double()
    loss = make_loss(name, words)
    share_batch_norm(network, ranks)
    ranks.broadcast_parameters(network, loss)
    memory = CrossBatchMemory(10 if loss.labels == "label distances" else 0)
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(2 * ITEMS, 6, dtype=torch.float64, generator=generator)
    values = torch.rand(2 * ITEMS, 2, dtype=torch.float64, generator=generator)
    own, found = ranks.share(ITEMS), {}
    for step in range(2):
        items = torch.arange(ITEMS) + ITEMS * step
        targets = values[items]
        if loss.labels == "classes":
            targets = torch.arange(ITEMS) % 4
        elif loss.labels == "triplets":
            targets = torch.tensor([[0, 5, 9, 1], [12, 2, 7, 3], [4, 8, 1, 1]])
        elif loss.labels == "label distances":
            targets = torch.cdist(values[items[:9]], values[torch.cat([items, memory.items])])  # 9 of 13 are anchors

        def loss_of(embeddings: Tensor, targets: Tensor = targets) -> Tensor:
            value: Tensor = loss(memory.augment(ranks.gather(embeddings, ITEMS)), targets)
            return value

        network.zero_grad()
        loss.zero_grad()
        value, embeddings = gradient_cache.backward(
            network, loss_of, inputs[items][own], micro_batch=micro_batch, largest=ranks.largest_share(ITEMS)
        )
        ranks.average_gradients(network, loss)
        memory.store(ranks.gather(embeddings, ITEMS), items)
        found = {"value": value, "memory": memory.embeddings.double()}
        found |= {f"network.{key}": one.grad for key, one in network.named_parameters()}
        found |= {f"loss.{key}": one.grad for key, one in loss.named_parameters()}
        found |= {f"buffer.{key}": one.double() for key, one in network.named_buffers()}
    cut = "whole" if micro_batch is None else "parts"
    return {f"{name}.{cut}.{key}": one.clone() for key, one in found.items()}


def all_gradients(ranks: Ranks, words: Path) -> dict[str, Tensor]:
    """``gradients`` of every registered loss, of whole batches and of batches in parts.

    With parts of one item, 7 of them, the process that has 6 items goes through an empty one.
    """
    found = {}
    for name in losses.names():
        micro_batch = 1 if name == "cosent" else 3
        found |= gradients(ranks, name, words) | gradients(ranks, name, words, micro_batch=micro_batch)
    return found


class Counting:
    """A label distance that counts its blocks."""

    def __init__(self) -> None:
        self.inner = distances.get("euclidean")
        self.blocks = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self.inner, name)

    def pairwise(self, a: Any, b: Any) -> Any:  # noqa: ANN401
        self.blocks += 1
        return self.inner.pairwise(a, b)


def batches(ranks: Ranks) -> dict[str, Tensor]:
    """What twelve steps are made of: targets whole, images of this process's share, and how many blocks it computed."""
    images, places = bars()
    distance = Counting()
    labels = distance.encode(places.tolist())
    data = LabelledItems(Images(images, (16, 16)), labels, distance, labels)  # type: ignore[arg-type]
    config = cml.TrainConfig(
        image_size=(14, 14),
        crop=0.8,
        scale_jitter=0.05,
        shift_jitter=0.05,
        brightness_jitter=0.2,
        flip="image",
        memory=20,
    )
    sampler = sampling.registry.make("random(batch_size=15)")
    source = BatchSource(data, sampler, np.empty((60, 0), np.int32), config, ranks=ranks)
    found = {}
    for step in range(12):
        inputs, targets, _ = source[step]
        found[f"inputs.{step}"], found[f"targets.{step}"] = inputs, ranks.broadcast_tensor(targets, ranks.owner(step))
    return found | {"blocks": torch.tensor(distance.blocks)}


def evaluation(ranks: Ranks) -> dict[str, Any]:
    """An evaluation of 90 queries, whose rows the processes share as well."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(390, 4)).astype(np.float32)
    rows = ranks.compute_rows(390, lambda part: rows[part])
    distance = distances.get("euclidean")
    labels = distance.encode((rows[:, 0] + rng.normal(size=390)).tolist())
    ranker = embedding_ranker(rows[:90], rows[90:])
    done: list[int] = []
    result = evaluate(
        {"model": ranker},
        distance,
        labels[:90],
        labels[90:],
        EvaluateOptions(block_bytes=1),
        ranks=ranks,
        progress=done.append,
    )
    assert sum(done) == 90
    return result.to_json()


def small_facts(ranks: Ranks) -> dict[str, Any]:
    """Rank 0's word counts, rows of nothing are nobody's, and what differs is an error everywhere."""
    refused = ""
    try:
        ranks.check_same("a colour", str(ranks.rank), "Paint it over.")
    except UserError as error:
        refused = str(error)
    torch.manual_seed(0)
    ranks.reseed(7, 3)
    return {
        "agreed": ranks.broadcast(lambda: 3.5 + ranks.rank),
        "any": [ranks.any(ranks.rank == 1), ranks.any(False)],
        "once": ranks.broadcast(lambda: np.full((2, 3), 1.5 + ranks.rank)).tolist(),
        "few rows": ranks.compute_rows(3, lambda part: np.arange(6, dtype=np.float32).reshape(3, 2)[part]).tolist(),
        "refused": refused,
        "drawn": torch.rand(1).item(),
    }


def train(out: Path, *, resume: bool = False, snapshot: Path | None = None) -> None:
    """A run on bars; ``snapshot`` gets what a run killed after its first checkpoint would have left."""
    save = Checkpoint.save

    def save_and_copy(self: Checkpoint, run: Path | None, step: int) -> None:
        save(self, run, step)
        if run is not None and snapshot is not None and not snapshot.exists():
            shutil.copytree(run, snapshot)

    Checkpoint.save = save_and_copy  # type: ignore[method-assign]
    try:
        cml.fit(*bars(), CONFIG, out=out, resume=resume, quiet=True)
    finally:
        Checkpoint.save = save  # type: ignore[method-assign]


def small_command(people: Path) -> list[str]:
    """A short training of a task by the command line."""
    return [
        *("train", "pose", "--data", str(people), "--backbone", "small-cnn", "--weights", "none"),
        *("--image-size", "32", "32", "--dimension", "8", "--workers", "0", "--device", "cpu"),
        *("--sampler", "random(batch_size=15)"),
    ]


def frozen_command(folder: Path) -> list[str]:
    """The same on features that are computed once."""
    return [*small_command(folder / "people"), "--steps", "12", "--freeze-backbone"]


def features_command(folder: Path) -> list[str]:
    """The features of all images, into a store."""
    return ["features", "--data", str(folder / "people"), "--image-size", "32", "32", "--device", "cpu"]


def interruptible_command(folder: Path) -> list[str]:
    """The same for ``interrupted`` and for the run that goes on from there."""
    # a rate so low that rounding, which differs with the number of processes and threads, does not grow
    rate = ["--optimizer", "sgd", "--learning-rate", "1e-5"]
    return [*small_command(folder / "people"), "--steps", "24", "--checkpoint-every", "20", *rate]


def interrupted(folder: Path) -> None:
    """A run that takes long enough to be interrupted; every process leaves its exit code in a file."""
    read = Images.read

    metrics = folder / "cut" / "metrics.jsonl"

    def read_slowly(self: Images, items: Any) -> Any:  # noqa: ANN401
        time.sleep(2 if metrics.exists() and metrics.stat().st_size else 0.05)  # then the signal comes
        return read(self, items)

    Images.read = read_slowly  # type: ignore[method-assign]
    try:
        code = main([*interruptible_command(folder), "--out", str(folder / "cut")])
    except SystemExit as end:
        code = int(end.code or 0)
    (folder / f"code-{os.environ['RANK']}").write_text(str(code))
    sys.exit(code)


def die_after_checkpoint(out: Path, how: str) -> None:
    """A run in which rank 1 is killed, or meets an image that it cannot read, once there is a checkpoint."""
    read = Images.read

    def read_or_fail(self: Images, items: Any) -> Any:  # noqa: ANN401
        if os.environ["RANK"] == "1" and (out / CHECKPOINT).exists():
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise DataError("The image of rank 1 cannot be read.")
        return read(self, items)

    Images.read = read_or_fail  # type: ignore[method-assign]
    cml.fit(*bars(), replace(CONFIG, steps=2000), out=out, quiet=True)


def session(folder: Path) -> None:
    """Everything that one start of two processes is good for; the last thing is rank 1's death."""
    from safetensors.torch import save_file

    with init_processes("cpu") as ranks:
        name = f"rank{ranks.rank}"
        save_file(all_gradients(ranks, folder / "words.txt"), folder / f"{name}.gradients")
        save_file({key: one.contiguous() for key, one in batches(ranks).items()}, folder / f"{name}.batches")
        facts = {"evaluation": evaluation(ranks), "small": small_facts(ranks)}
        (folder / f"{name}.json").write_text(json.dumps(facts))
    train(folder / "two", snapshot=folder / "two-cut")
    train(folder / "one-cut", resume=True)
    if ranks.first:
        shutil.copytree(folder / "two-cut", folder / "two-again")
    train(folder / "two-again", resume=True)
    assert main(["evaluate", str(folder / "task-run"), "--device", "cpu"]) == 0
    assert main([*frozen_command(folder), "--out", str(folder / "frozen-two")]) == 0
    assert main([*features_command(folder), "--out", str(folder / "features-two")]) == 0
    die_after_checkpoint(folder / "killed", "killed")


if __name__ == "__main__":
    place = Path(sys.argv[2])
    if sys.argv[1] == "session":
        session(place)
    elif sys.argv[1] == "interrupted":
        interrupted(place)
    else:
        die_after_checkpoint(place, sys.argv[1])
