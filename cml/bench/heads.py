"""Many linear heads on the same frozen features, trained at once, each as by ``cml train --freeze-backbone``."""

import functools
import json
import time
import warnings
from collections.abc import Callable, Sequence
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
from cml.bench.batched_losses import batched
from cml.distances.label_distance import Float32
from cml.distances.precomputed import Precomputed
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.storage.atomic import atomic_file
from cml.training.config import TrainConfig
from cml.training.optimizer import learning_rate_factor
from cml.training.targets import TrainingLabels

_SECOND = 1.0  # between two states that are kept: what is done faster is begun anew


class Head(NamedTuple):
    """A trained head, and why it failed, or "". Its seconds are its part of those of all that were trained at once."""

    weight: Tensor  # (D, F)
    bias: Tensor  # (D,)
    normalize: bool  # whether its embeddings are L2-normalised
    failed: str
    seconds: float

    def embed(self, features: Float32) -> Float32:
        """Embeddings (N, D) of features (N, F)."""
        found = functional.linear(torch.from_numpy(features), self.weight, self.bias)
        made: Float32 = (functional.normalize(found, dim=1) if self.normalize else found).numpy()
        return made


def train_heads(
    configs: Sequence[TrainConfig],
    features: Float32,
    label_distances: Float32,
    vectors: Float32 | None = None,
    kept: Path | None = None,
) -> list[Head]:
    """Train a head for each of the options, which differ in loss, learning rate and weight decay alone.

    Of N training items there are features (N, F), label distances (N, N), and labels as vectors (N, V) where they are
    some. A head whose loss is none, or no number, is given back as failed. ``kept`` is a file from which to go on.
    """
    begun, first = time.perf_counter(), configs[0]
    if len({replace(one, loss="", learning_rate=1.0, weight_decay=0.0) for one in configs}) > 1:
        raise UserError("Heads that are trained at once share all options but loss, learning rate and weight decay.")
    distance, sampler = Precomputed(label_distances, symmetric=True), sampling.registry.make(first.sampler)
    training = TrainingLabels(distance, distance.encode(range(len(features))), seed=first.seed)
    made = [_made(one, training, vectors) for one in configs]
    failed = [one if isinstance(one, str) else "" for one in made]
    whole = [one for one in made if isinstance(one, Loss)]
    together = batched(whole) if len(whole) == len(made) > 1 else None
    start = _first_weight(first.seed, first.backbone, first.weights, first.dimension, first.image_size)
    weight = torch.stack([start * (isinstance(one, str) or not one.starts_at_zero) for one in made])  # (H, D, F)
    bias, inputs = torch.zeros(weight.shape[:2]), torch.from_numpy(np.ascontiguousarray(features))
    parts = [[weight[h], bias[h]] for h in range(len(made))]  # views, which one optimiser moves
    groups = [{"params": part, "weight_decay": one.weight_decay} for part, one in zip(parts, configs, strict=True)]
    optimizer, given = torch.optim.AdamW(groups, first.learning_rate, fused=True), sampler.given(training)
    state = _State(kept, {"weight": weight, "bias": bias}, optimizer, failed, begun)
    for step in range(state.load(), first.steps if whole else 0):
        batch = sampler.batch(given, seed=first.seed, step=step)
        rows = inputs[torch.from_numpy(batch.items)]  # (B, F)
        block = torch.from_numpy(label_distances[np.ix_(batch.items[: batch.anchors], batch.items)])  # (A, B)
        truth = None if vectors is None else torch.from_numpy(vectors[batch.items])
        wide = torch.addmm(bias.flatten(), rows, weight.flatten(0, 1).T)  # (B, H x D)
        embeddings = wide.view(len(rows), *bias.shape).transpose(0, 1).contiguous()  # (H, B, D)
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # of anchors without a term
            slopes = _slopes(made, failed, embeddings, block, truth, together)
        flat = slopes.transpose(0, 1).flatten(1)  # (B, H x D)
        gradients = zip((flat.T @ rows).view_as(weight), flat.sum(dim=0).view_as(bias), strict=True)
        for part, group, config, gradient in zip(parts, optimizer.param_groups, configs, gradients, strict=True):
            part[0].grad, part[1].grad = gradient
            group["lr"] = config.learning_rate * learning_rate_factor(config, step)
        optimizer.step()
        if (step + 1) % max(1, first.steps // len(made)) == 0 or step + 1 == first.steps:
            state.save(step + 1, last=step + 1 == first.steps)
    seconds = (time.perf_counter() - state.begun) / len(made)
    normalize = [not isinstance(one, str) and one.normalize for one in made]
    return [Head(*one, seconds) for one in zip(weight, bias, normalize, failed, strict=True)]


@dataclass
class _State:
    """Weights, optimiser, failures and seconds after some steps, in a file: batches follow from their step alone."""

    path: Path | None
    heads: dict[str, Tensor]
    optimizer: torch.optim.Optimizer
    failed: list[str]
    begun: float  # less the seconds of killed processes
    saved: float = field(default_factory=time.perf_counter)

    def save(self, step: int, *, last: bool) -> None:
        """Keep the state, unless that was done a moment ago."""
        if self.path is None or (time.perf_counter() - self.saved < _SECOND and not last):
            return
        moved = self.optimizer.state_dict()["state"].items()
        tensors = {f"{number}.{name}": value for number, one in moved for name, value in one.items()}
        about = {"step": step, "failed": self.failed, "seconds": time.perf_counter() - self.begun}
        with atomic_file(self.path) as temporary:
            save_file({**self.heads, **tensors}, temporary, {"about": json.dumps(about)})
        self.saved = time.perf_counter()

    def load(self) -> int:
        """Take over what is kept; how many steps that is."""
        if self.path is None or not self.path.exists():
            return 0
        try:
            with safe_open(self.path, "pt") as held:
                about = json.loads(held.metadata()["about"])
                tensors = {key: held.get_tensor(key) for key in held.keys()}  # noqa: SIM118 - it is no mapping
        except (SafetensorError, OSError, TypeError, KeyError, ValueError):  # damaged: nothing is lost but time
            return 0
        moved: dict[int, dict[str, Tensor]] = {}
        for key, tensor in tensors.items():
            number, _, name = key.rpartition(".")
            if number:
                moved.setdefault(int(number), {})[name] = tensor
            else:
                self.heads[key].copy_(tensor)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moved})
        self.failed[:] = about["failed"]
        self.begun -= about["seconds"]
        return int(about["step"])


def _slopes(
    made: Sequence[Loss | str],
    failed: list[str],
    embeddings: Tensor,
    block: Tensor,
    vectors: Tensor | None,
    together: Callable[[Tensor, Tensor], Tensor] | None,
) -> Tensor:
    """Slopes of each head's loss in its embeddings, (H, B, D), 0 for those that have failed, which are noted."""
    embeddings.requires_grad_()
    lengths = functional.normalize(embeddings, dim=2)
    points = [lengths[h] if getattr(one, "normalize", False) else embeddings[h] for h, one in enumerate(made)]
    values = None if together is None else together(torch.stack(points), block)
    total = embeddings.new_zeros(())
    for h, one in enumerate(made):
        if isinstance(one, str) or failed[h]:
            continue
        try:
            alone = vectors if one.labels == "vectors" else block
            value: Tensor = one(points[h], alone) if values is None else values[h]
        except UserError as error:  # embeddings that it cannot take
            failed[h] = str(error)
            continue
        if bool(value.isfinite()):
            total = total + value
        else:
            failed[h] = f"its loss became {value.item():g}"
    if not total.requires_grad:
        return torch.zeros_like(embeddings)
    lost = torch.tensor([bool(reason) for reason in failed])
    return torch.autograd.grad(total, embeddings)[0].masked_fill(lost[:, None, None], 0)


def _made(config: TrainConfig, training: TrainingLabels, vectors: Float32 | None) -> Loss | str:
    """The loss of some options, fitted to the training labels, or why these labels do not suit it."""
    try:
        loss = losses.registry.make(config.loss)
        if loss.labels == "vectors" and vectors is None:
            return "The labels are no vectors."
        known = torch.from_numpy(vectors) if vectors is not None and loss.labels == "vectors" else None
        loss.prepare(loss.target(training) if known is None else known, dimension=config.dimension)
    except UserError as error:
        return str(error)
    return loss


@functools.lru_cache(maxsize=16)
def _first_weight(seed: int, backbone: str, weights: str, dimension: int, size: tuple[int, int]) -> Tensor:
    """The weight (D, F) that a run with this seed starts from."""
    torch.manual_seed(seed)
    return EmbeddingModel(ModelConfig(backbone, weights, dimension, False, size)).head.weight.detach()
