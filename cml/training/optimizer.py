"""The optimiser of a run, its learning rates, a check that it holds everything to be trained, and averaged weights."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.training.config import TrainConfig

_EARLY = 8  # eta in the paper of the average


def make_optimizer(model: EmbeddingModel, loss: Loss, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser over head, backbone and the loss's parameters; each group keeps its rate as ``base_lr``."""
    proxies = {id(parameter): parameter for parameter in loss.proxies()}
    own = {id(parameter): parameter for parameter in loss.parameters()}
    if proxies.keys() - own.keys():
        raise UserError(
            f"The loss {type(loss).__name__} names a proxy that is not one of its parameters; assign it to an "
            "attribute of the module as a torch.nn.Parameter."
        )
    others = [parameter for key, parameter in own.items() if key not in proxies]
    groups: list[dict[str, Any]] = [{"params": [*model.head.parameters(), *others], "base_lr": config.learning_rate}]
    if proxies:
        groups.append({"params": list(proxies.values()), "base_lr": config.learning_rate * config.proxy_rate})
    if not config.freeze_backbone:
        rate = config.learning_rate * config.backbone_rate
        learning = [one for one in model.backbone.parameters() if one.requires_grad]  # with adapters, only theirs
        groups.append({"params": learning, "base_lr": rate, "waits": config.head_first})
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, config.learning_rate, momentum=0.9, weight_decay=config.weight_decay)
    return torch.optim.AdamW(groups, config.learning_rate, weight_decay=config.weight_decay, fused=True)


def learning_rate_factor(config: TrainConfig, step: int) -> float:
    """The factor of the base learning rates at a 0-based step."""
    warm = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    if config.schedule == "cosine":
        return warm * 0.5 * (1 + math.cos(math.pi * step / config.steps))
    if config.schedule == "inverse":
        return warm / (1 + config.decay * step)
    return warm * config.decay ** (step // config.decay_every) if config.schedule == "step" else warm


def set_learning_rates(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int) -> None:
    """Set the learning rates of ``make_optimizer``'s groups for a 0-based step."""
    for group in optimizer.param_groups:
        waits = step < group.get("waits", 0)
        group["lr"] = 0.0 if waits else group["base_lr"] * learning_rate_factor(config, step)


def check_held(optimizer: torch.optim.Optimizer, value: Tensor, loss: nn.Module, embeddings: Tensor) -> None:
    """Check that the optimiser holds every tensor that gets a gradient from ``value``, the loss of the first batch."""
    # the graph above the embeddings is searched, so that a proxy in a plain list, or made at the first batch, is found
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]} | {id(embeddings)}
    leaves = [(f"parameter {name!r}", one) for name, one in loss.named_parameters() if one.requires_grad]
    named = {id(one) for _, one in leaves}
    seen, waiting = set(), [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        waiting += [following for following, _ in node.next_functions]
        leaf = getattr(node, "variable", None)  # of the nodes where a gradient ends
        if leaf is not None and id(leaf) not in named:
            leaves.append((f"tensor of shape {tuple(leaf.shape)}", leaf))
    for name, leaf in leaves:
        if id(leaf) not in held:
            raise UserError(
                f"The loss {type(loss).__name__} has a {name} that no optimiser holds, so it would never be trained: "
                "make it a torch.nn.Parameter of the module in __init__ or prepare."
            )


class Average:
    """An exponential moving average of a network's weights, which a run with ``average`` validates, keeps and saves.

    After step t = 1, 2, .. it is d average + (1 - d) weights with d = min(``decay``, (t - 1) / (t + 8)), so that the
    first steps, whose weights are far from the last, are soon forgotten (Shamir, Zhang, ICML 2013); 0 is no average.
    Running statistics of batch normalisation are averaged too, as those of the last steps belong to other weights.
    """

    def __init__(self, network: nn.Module, decay: float) -> None:
        self._decay = decay
        held = network.state_dict() if decay else {}  # the network's own tensors, which change in place
        self._live = {name: one for name, one in held.items() if one.is_floating_point()}
        self._average = {name: one.clone() for name, one in self._live.items()}

    def update(self, step: int) -> None:
        """Update the average after ``step`` steps."""
        if self._live:
            decay = min(self._decay, (step - 1) / (step + _EARLY))
            moved = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
            moved(list(self._average.values()), list(self._live.values()), step)

    def take(self) -> None:
        """Set the network's weights to the average."""
        _set(self._live, self._average)

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Set the network's weights to the average in the block."""
        before = {name: one.clone() for name, one in self._live.items()}
        self.take()
        try:
            yield
        finally:
            _set(self._live, before)

    def state_dict(self) -> dict[str, Tensor]:
        """The average by the names of the weights."""
        return self._average

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore a ``state_dict``."""
        _set(self._average, state)


def _set(tensors: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for name, one in tensors.items():
        one.copy_(values[name])
