"""The parameters of a model that a run trains, where patterns of their names choose them."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from cml.errors import UserError, did_you_mean


def select_parameters(model: nn.Module, patterns: Sequence[str]) -> None:
    """Let only some parameters of a model get gradients.

    Args:
        model: The model.
        patterns: Shell patterns of their names, such as ``head.*``; none leaves all parameters as they are.

    Raises:
        UserError: A pattern matches no parameter.
    """
    if not patterns:
        return
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"'train_only' has the pattern {pattern!r}, which no parameter of the model matches."
                f"{did_you_mean(pattern, names)} There are {len(names)}, from {names[0]} to {names[-1]}."
            )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))
