"""The optimiser of a run, and a check that it holds everything that should be trained."""

from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.training.config import TrainConfig


def make_optimizer(model: EmbeddingModel, loss: Loss, config: TrainConfig) -> torch.optim.Optimizer:
    """Make the optimiser over head, backbone and the loss's parameters.

    Each group has its learning rate at factor 1 as ``base_lr``, and the first steps in which it is not trained as
    ``waits``; ``cml.training.learning_rate`` reads both.

    Args:
        model: The model.
        loss: The loss; its proxies get a learning rate of their own.
        config: The options of the run.

    Returns:
        SGD or AdamW.

    Raises:
        UserError: The loss names a proxy that is not one of its parameters.
    """
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
        rate = config.learning_rate * config.backbone_lr_scale
        # with adapters, only theirs
        trained = [parameter for parameter in model.backbone.parameters() if parameter.requires_grad]
        groups.append({"params": trained, "base_lr": rate, "waits": config.head_first})
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, config.learning_rate, momentum=0.9, weight_decay=config.weight_decay)
    return torch.optim.AdamW(groups, config.learning_rate, weight_decay=config.weight_decay, fused=True)


def check_optimizer(optimizer: torch.optim.Optimizer, value: Tensor, loss: nn.Module, embeddings: Tensor) -> None:
    """Check that the optimiser holds every tensor that gets a gradient from a loss.

    The graph above the embeddings is searched, so that a proxy in a plain list, or one made at the first batch, is
    found too.

    Args:
        optimizer: The optimiser.
        value: The loss of the first batch, with its graph.
        loss: The loss module.
        embeddings: The embeddings (B, D) that it was computed from.

    Raises:
        UserError: A tensor would get a gradient, but never be updated.
    """
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]} | {id(embeddings)}
    leaves = [
        (f"parameter {name!r}", parameter) for name, parameter in loss.named_parameters() if parameter.requires_grad
    ]
    named = {id(parameter) for _, parameter in leaves}
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
        if id(leaf) not in updated:
            raise UserError(
                f"The loss {type(loss).__name__} has a {name} that no optimiser holds, so it would never be trained: "
                "make it a torch.nn.Parameter of the module in __init__ or prepare."
            )
