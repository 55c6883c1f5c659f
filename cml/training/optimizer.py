"""The optimiser of a run, and a check that it holds everything that should be trained."""

from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.training.config import TrainConfig
from cml.training.own_functions import MakeOptimizer
from cml.training.own_optimizer import make_own_optimizer


def make_optimizer(
    model: EmbeddingModel,
    loss: Loss,
    config: TrainConfig,
    projector: nn.Module | None = None,
    make: MakeOptimizer | None = None,  # makes an optimiser of the user's own; None for that of the options
) -> torch.optim.Optimizer:
    """Make the optimiser over head, backbone, projector and the loss's parameters.

    Each group has its learning rate at factor 1 as ``base_lr``, and the first steps in which it is not trained as
    ``waits``; ``cml.training.learning_rate`` reads both.
    """
    proxies = {id(parameter): parameter for parameter in loss.proxies()}
    own = {id(parameter): parameter for parameter in loss.parameters()}
    if proxies.keys() - own.keys():
        raise UserError(
            f"The loss {type(loss).__name__} names a proxy that is not one of its parameters; assign it to an "
            "attribute of the module as a torch.nn.Parameter."
        )
    others = [parameter for key, parameter in own.items() if key not in proxies]
    if projector is not None:
        others += projector.parameters()
    trained_head = [parameter for parameter in model.head.parameters() if parameter.requires_grad]  # see train_only
    groups: list[dict[str, Any]] = [{"params": [*trained_head, *others], "scale": 1.0, "waits": 0}]
    if proxies:
        groups.append({"params": list(proxies.values()), "scale": config.proxy_rate, "waits": 0})
    if not config.freeze_backbone:
        # with adapters only theirs, with train_only only those that it names
        trained = [parameter for parameter in model.backbone.parameters() if parameter.requires_grad]
        groups.append({"params": trained, "scale": config.backbone_lr_scale, "waits": config.head_first})
    if make is not None:
        modules = {"": model, "projector.": projector, "loss.": loss}
        named = {
            id(parameter): prefix + name
            for prefix, module in modules.items()
            if module is not None
            for name, parameter in module.named_parameters()
        }
        return make_own_optimizer(make, [group for group in groups if group["params"]], named)
    for group in groups:
        group["base_lr"] = config.learning_rate * group.pop("scale")
    if config.optimizer == "sgd":
        return torch.optim.SGD(groups, config.learning_rate, momentum=0.9, weight_decay=config.weight_decay)
    return torch.optim.AdamW(groups, config.learning_rate, weight_decay=config.weight_decay, fused=True)


def check_optimizer(
    optimizer: torch.optim.Optimizer,
    value: Tensor,
    loss: nn.Module,
    embeddings: Tensor,  # the embeddings (B, D) that it was computed from
) -> None:
    """Check that the optimiser holds every tensor that gets a gradient from a loss.

    The graph above the embeddings is searched, so that a proxy in a plain list, or one made at the first batch, is
    found too.
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
