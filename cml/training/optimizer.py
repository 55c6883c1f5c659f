"""The optimiser of a run and the learning rate of each step: by the options, or made by functions of the user's own."""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.training import optimizers
from cml.training.config import TrainConfig
from cml.training.own_functions import MakeOptimizer, MakeSchedule
from cml.training.schedules import make_schedule


def make_optimizer(
    model: EmbeddingModel,
    loss: Loss,
    config: TrainConfig,
    projector: nn.Module | None = None,
    make: MakeOptimizer | None = None,  # makes an optimiser of the user's own; None for that of the options
) -> torch.optim.Optimizer:
    """Make the optimiser over head, backbone, projector and the loss's parameters.

    Each group has its learning rate at factor 1 as ``base_lr``, and the first steps in which it is not trained as
    ``waits``; ``cml.training.optimizer`` reads both.
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
        _warn_of_rounding(trained)
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
    return optimizers.get(config.optimizer).build(groups, config.learning_rate, config.weight_decay)


def _warn_of_rounding(trained: Sequence[nn.Parameter]) -> None:
    """Warn of weights whose type has too few bits for the steps of an optimiser."""
    kind = next((one.dtype for one in trained if one.dtype in (torch.float16, torch.bfloat16)), None)
    if kind is not None:
        warnings.warn(
            f"The backbone has {str(kind).removeprefix('torch.')} weights, of which steps below about a thousandth of "
            "a weight are rounded away: train it in float32 (backbone.float()), or set freeze_backbone.",
            stacklevel=2,
        )


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


def learning_rate_factor(config: TrainConfig, step: int) -> float:  # the factor, at least 0
    """Compute the factor of the base learning rates at a step."""
    warmup = min(1.0, (step + 1) / config.warmup) if config.warmup else 1.0
    return warmup * make_schedule(config.schedule).factor(step, config.steps)


class LearningRates:
    """The learning rates of an optimiser's groups in each step."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, config: TrainConfig, make_schedule: MakeSchedule | None = None
    ) -> None:
        self._optimizer = optimizer
        self._config = config
        self._scheduler = None if make_schedule is None else make_own_schedule(make_schedule, optimizer)

    def begin(self, step: int) -> None:
        """Set the learning rates of a step."""
        if self._scheduler is not None:
            return
        for group in self._optimizer.param_groups:
            waits = step < group.get("waits", 0)
            group["lr"] = 0.0 if waits else group["base_lr"] * learning_rate_factor(self._config, step)

    def end(self) -> None:
        """Let a scheduler of the user's own take its step, after that of the optimiser."""
        if self._scheduler is not None:
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """The state of a scheduler of the user's own, for a checkpoint; empty without one."""
        return {} if self._scheduler is None else self._scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        if self._scheduler is not None:
            self._scheduler.load_state_dict(state)


_SHOWN = 3  # names of parameters in a message


def make_own_optimizer(
    make: MakeOptimizer, groups: Sequence[Mapping[str, Any]], names: Mapping[int, str]
) -> torch.optim.Optimizer:
    """Make the optimiser over all trained parameters by a function of the user's own, which sets its learning rates."""
    optimizer = _call("optimizer", make, [{"params": list(group["params"])} for group in groups])
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UserError(f"'optimizer' must make one of torch.optim. Got {type(optimizer).__name__} instead.")
    kind = type(optimizer).__name__
    step = inspect.signature(type(optimizer).step).parameters
    if "closure" in step and step["closure"].default is inspect.Parameter.empty:
        raise UserError(
            f"The optimiser {kind} computes the loss several times in a step, which a run does not: use another one."
        )
    rules = {id(one): (group["scale"], group["waits"]) for group in groups for one in group["params"]}
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    if missing := [names[key] for key in rules if key not in held]:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise UserError(
            f"The optimiser {kind} leaves out {len(missing)} of {len(rules)} parameters, {', '.join(missing[:_SHOWN])}"
            f"{more}, so they would never be trained: give it all groups, or name those to train by 'train_only'."
        )
    for group in optimizer.param_groups:
        found = {rules[id(one)] for one in group["params"] if id(one) in rules} or {(1.0, 0)}
        if len(found) > 1:
            raise UserError(
                f"The optimiser {kind} puts parameters of different learning rates into one group: keep the groups "
                "apart, or leave out 'head_first' and set 'backbone_lr_scale' and 'proxy_rate' to 1."
            )
        [(scale, group["waits"])] = found
        group["base_lr"] = group["lr"] = group["lr"] * scale
    return optimizer


def make_own_schedule(make: MakeSchedule, optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    """Make a scheduler of learning rates by a function of the user's own."""
    scheduler = _call("schedule", make, optimizer)
    kind = type(scheduler).__name__
    if not isinstance(scheduler, torch.optim.lr_scheduler.LRScheduler):
        raise UserError(f"'schedule' must make a scheduler of torch.optim.lr_scheduler. Got {kind} instead.")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise UserError(
            f"The scheduler {kind} follows a score, but takes a step after each step of the run: use another."
        )
    return scheduler


def _call(name: str, make: Callable[[Any], Any], argument: object) -> Any:  # noqa: ANN401 - what the function returns
    try:
        return make(argument)
    except UserError:
        raise
    except Exception as error:  # a function of the user's own may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
        raise UserError(f"The function {name!r} fails ({reason}).") from error
