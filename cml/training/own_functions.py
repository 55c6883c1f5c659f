"""The functions of the user's own that make a run: they are given in Python, and config.json keeps their names."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch

from cml.errors import UserError
from cml.training.config import TrainConfig
from cml.training.own_augmentation import Augment

MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
"""From groups of parameters, as torch's optimisers take them, to an optimiser, such as the class of one."""
MakeSchedule = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
"""From the optimiser to a scheduler of learning rates, which takes a step after each step of the run."""
OWN = "custom"  # the value of an option for which a function is given


@dataclass(frozen=True)
class OwnFunctions:
    """Functions of the user's own, each None where cml's are taken."""

    augment: Augment | None = None  # augments one item of a batch
    optimizer: MakeOptimizer | None = None  # makes the optimiser, for which ``config.optimizer`` is ``custom``
    schedule: MakeSchedule | None = None  # makes the scheduler, for which ``config.schedule`` is ``custom``

    def names(self) -> dict[str, str]:
        """Option to name of the function, of those that are given."""
        functions = {option.name: getattr(self, option.name) for option in fields(self)}
        return {name: _name(function) for name, function in functions.items() if function is not None}

    def check(self, config: TrainConfig) -> None:
        """Check that functions are given for the options that name them, and where they can be used."""
        for name in ("optimizer", "schedule"):
            if getattr(config, name) == OWN and getattr(self, name) is None:
                raise UserError(
                    f"{name}={OWN!r} stands for a function, which only Python can give: cml.fit or cml.train with "
                    f"{name}=function."
                )
        for name in ("tune", "freeze_backbone"):
            if self.augment is not None and getattr(config, name):
                raise UserError(
                    f"With {name!r} every input is embedded once, unchanged: leave out {name!r} or 'augment'."
                )


NO_FUNCTIONS = OwnFunctions()


def take_functions(
    options: Mapping[str, Any],  # options by name; ``optimizer`` and ``schedule`` may be functions
    augment: Augment | None = None,
) -> tuple[OwnFunctions, dict[str, Any]]:
    """Take functions out of the options of a run."""
    functions = {name: options[name] for name in ("optimizer", "schedule") if callable(options.get(name))}
    for name in ("learning_rate", "weight_decay"):
        if "optimizer" in functions and name in options:
            raise UserError(f"The function 'optimizer' sets {name!r} itself: leave out {name}={options[name]}.")
    return OwnFunctions(augment, **functions), {**options, **dict.fromkeys(functions, OWN)}


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__
