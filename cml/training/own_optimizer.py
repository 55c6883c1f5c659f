"""An optimiser and a scheduler of learning rates that functions of the user's own make, and what they must not do."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from cml.errors import UserError
from cml.training.own_functions import MakeOptimizer, MakeSchedule

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
