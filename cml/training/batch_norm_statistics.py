"""Batch normalisation by fixed statistics, and the warning where it would make a gradient inexact."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def fixed_statistics(
    network: nn.Module,
    fixed: bool,  # False leaves the network as it is
) -> Iterator[None]:
    """Let batch normalisation use its running statistics, and not change them, in the block."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)] if fixed else []
    hooks = [norm.register_forward_pre_hook(_set_evaluation_mode) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def warn_of_statistics(
    network: nn.Module,  # a network that sees a batch in several passes
) -> None:
    """Warn if the network has batch normalisation, so that images in one pass affect each other."""
    if any(isinstance(module, _BatchNorm) for module in network.modules()):
        warnings.warn(
            "The network has batch normalisation, which sees one micro batch at a time: the gradient is not exactly "
            "that of the whole batch. It is with --batch-norm fixed, or with --backbone 'small-cnn(norm=group)'.",
            stacklevel=2,
        )


def _set_evaluation_mode(module: nn.Module, inputs: object) -> None:
    module.eval()
