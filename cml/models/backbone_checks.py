"""Checks of what a backbone accepts and returns, by a pass over blank inputs."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.processes.device import to_device
from cml.processes.out_of_memory import is_out_of_memory

LARGEST_TRIED = 384  # pixels; the largest default size of a torchvision classifier


def check_features(out: object, name: str, features: int | None = None) -> Tensor:
    """Check that the output of a backbone is (B, F).

    Args:
        out: What the backbone returned.
        name: Name of the backbone, for messages.
        features: F, if it is known.

    Returns:
        The output.

    Raises:
        UserError: It is something else.
    """
    subject = f"The backbone {name!r} gives"
    if not isinstance(out, Tensor):
        raise UserError(f"{subject} a {type(out).__name__}: let its forward return one tensor of features (B, F).")
    if out.ndim == 2 and out.is_floating_point() and out.shape[1] == (features or max(1, out.shape[1])):
        return out
    mend = "let it return one row of floats per input"
    if out.ndim in (3, 4):
        pool = "pool its map, as in nn.Sequential(module, nn.AdaptiveAvgPool2d(1), nn.Flatten())"
        mend = pool if out.ndim == 4 else "take one token per input, or the mean of the tokens"
    kind = str(out.dtype).removeprefix("torch.")
    raise UserError(f"{subject} {kind} {tuple(out.shape)} instead of features (B, {features or 'F'}): {mend}.")


def first_line(error: Exception) -> str:
    """Take the first line of an error's message, without its details.

    Args:
        error: The error.

    Returns:
        The line, or the name of the error's type if it has no message.
    """
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".:")


def least_side(module: nn.Module, size: tuple[int, int], channels: int = 3) -> int | None:
    """Try out which square images are the smallest that a backbone accepts.

    Args:
        module: The backbone.
        size: (height, width) in pixels that it should accept.
        channels: The number of bands of the images.

    Returns:
        Their side in pixels; None if it accepts ``size``, or none that is tried.
    """

    def takes(height: int, width: int) -> bool:
        try:
            embed_blank(module, (channels, height, width))
        except (RuntimeError, AssertionError) as error:  # vision transformers assert
            if is_out_of_memory(error):
                raise
            return False
        return True

    return None if takes(*size) else next((side for side in range(1, LARGEST_TRIED + 1) if takes(side, side)), None)


def check_rows(rows: int, items: int) -> None:
    """Check that a batch has a row for each of its items.

    Args:
        rows: The rows of features or embeddings.
        items: The items that the batch was made of.

    Raises:
        UserError: It has not.
    """
    if rows != items:
        raise UserError(
            f"A batch of {items} items gives {rows} rows of features: let 'collate' keep each item once, in its order, "
            "and the backbone return one row for each."
        )


def describe_batch(batch: Any) -> str:  # noqa: ANN401 - a batch of any kind
    """Describe a batch in messages.

    Args:
        batch: The batch.

    Returns:
        Its type and, of tensors in it, their shapes.
    """
    if isinstance(batch, Tensor):
        return f"inputs of shape {tuple(batch.shape)}"
    values = list(batch.values()) if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else []
    shapes = [str(tuple(value.shape)) for value in values[:4] if isinstance(value, Tensor)]
    return f"a batch of type {type(batch).__name__}" + (f" with tensors {', '.join(shapes)}" if shapes else "")


@torch.no_grad()  # not in inference mode: some modules keep tensors of their first pass
def embed_batch(module: nn.Module, batch: Any) -> object:  # noqa: ANN401 - a batch of any kind
    """Run a backbone on a batch.

    Args:
        module: The backbone.
        batch: The batch, on any device.

    Returns:
        What it returns, in evaluation mode and without a graph.
    """
    first = next(module.parameters(), torch.zeros(()))
    with evaluating(module):
        return module(to_device(batch, first.device))


@torch.no_grad()  # not in inference mode: some modules keep tensors of their first pass
def embed_blank(module: nn.Module, shape: tuple[int, ...], *, whole: bool = False) -> object:
    """Run a backbone on two blank inputs.

    Args:
        module: The backbone.
        shape: The shape of an input: (3, height, width) for an image.
        whole: Whether inputs are whole numbers, as int64.

    Returns:
        What it returns, in evaluation mode and without a graph.
    """
    first = next(module.parameters(), torch.zeros(()))
    with evaluating(module):
        return module(torch.zeros(2, *shape, device=first.device, dtype=torch.int64 if whole else first.dtype))


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for the block, then back into its former mode.

    Args:
        module: The module.
    """
    training = module.training
    try:
        module.eval()
        yield
    finally:
        module.train(training)
