"""Functions of the user's own that make a run, augmentation above all: config.json keeps their names.

An augmentation gets one item at a time. Python's, NumPy's and torch's global generators are seeded before each, so that
a run repeats and resumes bit for bit with any number of data workers and processes. torchvision's transforms draw from
them. A generator that a function has made for itself is its own affair.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.array_types import Int64
from cml.errors import UserError
from cml.processes.memory import is_out_of_memory
from cml.sampling.draws import own_augmentation_words
from cml.training.config import OWN, TrainConfig
from cml.training.randomness import restore_randomness, seed_generators

Augment = Callable[..., Any]
"""From an item to an augmented one, or from an item and its label to a pair of both."""


class OwnAugmentation:
    """A function that augments one item of a batch."""

    def __init__(self, function: Augment) -> None:
        if not callable(function):
            raise UserError(f"'augment' must be a function of an item. Got {type(function).__name__} instead.")
        parameters = _count_parameters(function)
        if parameters > 2:
            raise UserError(
                f"'augment' must be a function of an item, or of an item and its label. Got one of {parameters} "
                "parameters instead."
            )
        self._function = function
        self.takes_labels = parameters == 2  # whether it takes and returns labels

    def augment(
        self,
        batch: Any,  # noqa: ANN401 - a tensor or a list
        items: Int64,
        labels: Sequence[Any] | None,
        *,
        seed: int,
        step: int,
        first: int = 0,
    ) -> tuple[Any, list[Any] | None]:
        """Augment a part of a batch."""
        words = own_augmentation_words(seed, step, first + len(batch))[first:]
        rows, changed = self._augment_each([*batch], items, labels, words)
        if not isinstance(batch, Tensor):
            return rows, changed
        tensors = [_check_like(row, one, item) for row, one, item in zip(rows, batch, items.tolist(), strict=True)]
        augmented = torch.stack(tensors) if tensors else batch
        if augmented.is_floating_point():
            is_bad = (~augmented.isfinite() & batch.isfinite()).flatten(1).any(dim=1)
            if bool(is_bad.any()):
                item = int(items[int(is_bad.nonzero()[0])])
                raise UserError(f"'augment' makes numbers of item {item} that are not finite.")
        return augmented, changed

    def _augment_each(
        self, values: list[Any], items: Int64, labels: Sequence[Any] | None, words: NDArray[np.unsignedinteger]
    ) -> tuple[list[Any], list[Any] | None]:
        """The items one by one, each after a seed of its own."""
        augmented: list[Any] = []
        changed: list[Any] = []
        with restore_randomness(), torch.no_grad():
            for place, (value, item) in enumerate(zip(values, items.tolist(), strict=True)):
                seed_generators(words[place])
                arguments = (value,) if labels is None else (value, labels[place])
                result = self._call(arguments, item)
                if labels is not None:
                    if not isinstance(result, tuple) or len(result) != 2:
                        raise UserError(
                            "An 'augment' of an item and its label must return a pair of both. "
                            f"Got {type(result).__name__} for item {item} instead."
                        )
                    result, label = result
                    changed.append(label)
                augmented.append(result)
        return augmented, None if labels is None else changed

    def _call(self, arguments: tuple[Any, ...], item: int) -> Any:  # noqa: ANN401 - what the function returns
        try:
            return self._function(*arguments)
        except UserError:
            raise
        except Exception as error:  # a function of the user's own may raise anything
            if is_out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
            raise UserError(f"'augment' fails on item {item} ({reason}).") from error


def check_label_changes(config: TrainConfig) -> None:
    """Check that labels may change."""
    if config.memory:
        raise UserError(
            f"A memory keeps the items of earlier batches, not the labels that 'augment' gave them: leave out "
            f"memory={config.memory}, or let 'augment' take the item alone."
        )
    if config.flip == "image":
        raise UserError(
            "Both 'augment' and flip=image change labels: set 'flip' to list or none, or let 'augment' take the item "
            "alone."
        )


def _count_parameters(function: Augment) -> int:
    """The positional parameters without a default; 1 where they cannot be read."""
    try:
        parameters = inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters
    except (TypeError, ValueError):
        return 1
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return sum(one.kind in kinds and one.default is one.empty for one in parameters.values())


def _check_like(value: Any, given: Tensor, item: int) -> Tensor:  # noqa: ANN401 - what the function returns
    """The value as a plain tensor of the shape and type of ``given``."""
    tensor = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
    if not isinstance(tensor, Tensor):
        got = type(value).__name__
    elif tensor.shape != given.shape or tensor.dtype != given.dtype:
        got = f"{tuple(tensor.shape)}, {str(tensor.dtype).removeprefix('torch.')}"
    else:
        return tensor.as_subclass(Tensor)  # not torchvision's kinds of tensors
    kind = str(given.dtype).removeprefix("torch.")
    raise UserError(
        f"'augment' must return a tensor of the shape and type that it gets, {tuple(given.shape)}, {kind}. "
        f"Got {got} for item {item} instead."
    )


MakeOptimizer = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
"""From groups of parameters, as torch's optimisers take them, to an optimiser, such as the class of one."""
MakeSchedule = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
"""From the optimiser to a scheduler of learning rates, which takes a step after each step of the run."""


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
