"""Many linear heads on the same frozen features, trained at once, each as by ``cml train --freeze-backbone``.

Heads whose losses differ in numbers only share one evaluation of the loss, ``cml.training.head_losses``.
"""

import functools
import json
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from cml import losses, sampling
from cml.array_types import Float32
from cml.bench.suite import NO_BACKBONE
from cml.data.input_form import InputForm
from cml.distances.precomputed import Precomputed
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.own_generator import draw_from
from cml.storage.atomic import atomic_file
from cml.training.config import TrainConfig
from cml.training.head_losses import HeadLosses
from cml.training.learning_rate import learning_rate_factor
from cml.training.training_targets import TrainingTargets

_SAVE_SECONDS = 1.0  # between two saved states


class Head(NamedTuple):
    """A trained head.

    Attributes:
        weight: (D, F).
        bias: (D,).
        normalize: Whether its embeddings are L2-normalised.
        failed: Why its training failed, or "".
        seconds: Its share of the seconds of all heads that were trained at once.
    """

    weight: Tensor
    bias: Tensor
    normalize: bool
    failed: str
    seconds: float

    def embed(self, features: Float32) -> Float32:
        """Embeddings (N, D) of features (N, F)."""
        embeddings = functional.linear(torch.from_numpy(features), self.weight, self.bias)
        if self.normalize:
            embeddings = functional.normalize(embeddings, dim=1)
        array: Float32 = embeddings.numpy()
        return array


def train_heads(
    configs: Sequence[TrainConfig],
    features: Float32,
    label_distances: Float32,
    vectors: Float32 | None = None,
    state_file: Path | None = None,
) -> list[Head]:
    """Train a head for each of the options, which differ in loss, learning rate and weight decay alone.

    Args:
        configs: The options of each head.
        features: (N, F) of the N training items.
        label_distances: (N, N).
        vectors: (N, V) labels as vectors. ``None``: the labels are no vectors.
        state_file: Where the state is saved, and read from to resume. ``None``: nowhere.

    Returns:
        A head for each of the options. A head fails alone if its loss cannot be made of the labels, becomes no number,
        or cannot take its embeddings.

    Raises:
        UserError: the options differ in more.
    """
    started, first = time.perf_counter(), configs[0]
    if len({replace(config, loss="", learning_rate=1.0, weight_decay=0.0) for config in configs}) > 1:
        raise UserError("Heads that are trained at once share all options but loss, learning rate and weight decay.")
    distance, sampler = Precomputed(label_distances, symmetric=True), sampling.registry.make(first.sampler)
    training = TrainingTargets(distance, distance.encode(range(len(features))), seed=first.seed)
    losses = [_make_loss(config, training, vectors) for config in configs]
    head_losses = HeadLosses(losses)
    start = _first_weight(
        first.seed, first.backbone, first.weights, first.dimension, first.image_size, features.shape[1]
    )
    weight = torch.stack([start * (isinstance(loss, str) or not loss.starts_at_zero) for loss in losses])  # (H, D, F)
    bias, inputs = torch.zeros(weight.shape[:2]), torch.from_numpy(np.ascontiguousarray(features))
    parts = [[weight[h], bias[h]] for h in range(len(losses))]  # views, which one optimiser moves
    groups = [
        {"params": part, "weight_decay": config.weight_decay} for part, config in zip(parts, configs, strict=True)
    ]
    optimizer, sampler_state = (
        torch.optim.AdamW(groups, first.learning_rate, fused=True),
        sampler.sampler_state(training),
    )
    state = _State(state_file, {"weight": weight, "bias": bias}, optimizer, head_losses.failed, started)
    last = first.steps if any(isinstance(loss, Loss) for loss in losses) else 0
    for step in range(state.load(), last):
        batch = sampler.batch(sampler_state, seed=first.seed, step=step)
        rows = inputs[torch.from_numpy(batch.items)]  # (B, F)
        block = torch.from_numpy(label_distances[np.ix_(batch.items[: batch.anchors], batch.items)])  # (A, B)
        batch_vectors = None if vectors is None else torch.from_numpy(vectors[batch.items])
        wide = torch.addmm(bias.flatten(), rows, weight.flatten(0, 1).T)  # (B, H x D)
        embeddings = wide.view(len(rows), *bias.shape).transpose(0, 1).contiguous()  # (H, B, D)
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of anchors without a term
            slopes = head_losses.slopes(embeddings, block, batch_vectors)
        flat = slopes.transpose(0, 1).flatten(1)  # (B, H x D)
        gradients = zip((flat.T @ rows).view_as(weight), flat.sum(dim=0).view_as(bias), strict=True)
        for part, group, config, gradient in zip(parts, optimizer.param_groups, configs, gradients, strict=True):
            part[0].grad, part[1].grad = gradient
            group["lr"] = config.learning_rate * learning_rate_factor(config, step)
        optimizer.step()
        if (step + 1) % max(1, first.steps // len(losses)) == 0 or step + 1 == first.steps:
            state.save(step + 1, last=step + 1 == first.steps)
    seconds = (time.perf_counter() - state.started) / len(losses)
    normalize = [not isinstance(loss, str) and loss.normalize for loss in losses]
    return [Head(*parts, seconds) for parts in zip(weight, bias, normalize, head_losses.failed, strict=True)]


@dataclass
class _State:
    """Weights, optimiser, failures and seconds after some steps, in a file: batches follow from their step alone."""

    path: Path | None
    heads: dict[str, Tensor]
    optimizer: torch.optim.Optimizer
    failed: list[str]
    started: float  # less the seconds of killed processes
    saved: float = field(default_factory=time.perf_counter)

    def save(self, step: int, *, last: bool) -> None:
        """Save the state, unless that was done a moment ago."""
        if self.path is None or (time.perf_counter() - self.saved < _SAVE_SECONDS and not last):
            return
        moments = self.optimizer.state_dict()["state"].items()
        tensors = {f"{number}.{name}": value for number, by_name in moments for name, value in by_name.items()}
        about = {"step": step, "failed": self.failed, "seconds": time.perf_counter() - self.started}
        with atomic_file(self.path) as temporary:
            save_file({**self.heads, **tensors}, temporary, {"about": json.dumps(about)})
        self.saved = time.perf_counter()

    def load(self) -> int:
        """Restore a saved state; the number of its steps."""
        if self.path is None or not self.path.exists():
            return 0
        try:
            with safe_open(self.path, "pt") as file:
                about = json.loads(file.metadata()["about"])
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - it is no mapping
        except (SafetensorError, OSError, TypeError, KeyError, ValueError):  # damaged: nothing is lost but time
            return 0
        moments: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            number, _, name = key.rpartition(".")
            if number:
                moments.setdefault(int(number), {})[name] = tensor
            else:
                self.heads[key].copy_(tensor)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
        self.failed[:] = about["failed"]
        self.started -= about["seconds"]
        return int(about["step"])


def _make_loss(config: TrainConfig, training: TrainingTargets, vectors: Float32 | None) -> Loss | str:
    """The loss of some options, fitted to the training labels, or why these labels do not suit it."""
    try:
        loss = losses.registry.make(config.loss)
        if loss.labels == "vectors" and vectors is None:
            return "The labels are no vectors."
        if loss.labels == "vectors" and vectors is not None:
            target = torch.from_numpy(vectors)
        else:
            target = loss.target(training)
        loss.prepare(target, dimension=config.dimension)
    except UserError as error:
        return str(error)
    return loss


@functools.lru_cache(maxsize=16)
def _first_weight(
    seed: int, backbone: str, weights: str, dimension: int, size: tuple[int, int], features: int
) -> Tensor:
    """The weight (D, F) that a run with this seed starts from."""
    inputs = InputForm("vectors", (features,)) if backbone == NO_BACKBONE else InputForm()
    config = ModelConfig(backbone, weights, dimension, False, size, inputs=inputs)
    with draw_from(torch.Generator().manual_seed(seed)):
        return EmbeddingModel(config).head.weight.detach()
