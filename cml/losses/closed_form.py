"""Closed-form gradients, and the plain formula for what a closed form cannot do.

A closed form gives the gradient of a loss as a number, which torch cannot differentiate again. Where that is asked for
- gradients of gradients (``create_graph=True``), transforms of ``torch.func`` - the plain formula is computed in its
place, of operations that torch differentiates any number of times. It needs O(A B D) memory.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from cml.errors import UserError

Result = TypeVar("Result")


def apply_closed_form(
    function: type[torch.autograd.Function],
    plain: Callable[[Tensor], Result],
    points: Tensor,
    *settings: Any,  # noqa: ANN401 - of the function
) -> Result:
    """Apply a function with a closed-form gradient, or its plain formula inside a transform of ``torch.func``.

    ``torch.compile`` runs the function as it is, since its compiled loops and threads are no graph.

    Args:
        function: Takes the points, ``plain`` and the settings. Its ``backward`` calls ``plain_gradient`` where the
            gradient is to be differentiated again.
        plain: The same formula, of operations that torch differentiates any number of times.
        points: (..., B, D).
        settings: What the function takes beside.

    Returns:
        The result of the function.
    """
    if is_transformed(points):
        return plain(points)
    apply: Any = function.apply
    if torch.compiler.is_compiling():
        disable: Any = torch.compiler.disable  # not a decorator: its first use imports the whole compiler
        apply = disable(apply)
    result: Result = apply(points, plain, *settings)
    return result


def plain_gradient(plain: Callable[[Tensor], Tensor], points: Tensor, slopes: Tensor) -> Tensor:
    """The gradient of a plain formula, which torch can differentiate again.

    Args:
        plain: The formula.
        points: (..., B, D).
        slopes: Those in its result, of its shape.

    Returns:
        (..., B, D).
    """
    with torch.enable_grad(), torch.autocast(points.device.type, enabled=False):
        value = plain(points)
        (gradient,) = torch.autograd.grad(value, points, slopes, create_graph=True, materialize_grads=True)
    return gradient


def is_transformed(tensor: Tensor) -> bool:
    """Whether a transform of ``torch.func`` (grad, jvp, hessian, ...) follows a tensor."""
    return not torch.compiler.is_compiling() and torch.func.debug_unwrap(tensor, recurse=False) is not tensor


def is_followed(tensor: Tensor) -> bool:
    """Whether torch differentiates what is computed of a tensor, by autograd or by a transform of ``torch.func``."""
    return tensor.requires_grad or is_transformed(tensor)


def to_overwrite(tensor: Tensor, source: Tensor) -> Tensor:
    """The tensor, to be overwritten; a copy of it where torch needs its numbers for the gradient in ``source``."""
    return tensor.clone() if is_followed(source) else tensor


def check_no_vmap(name: str, tensor: Tensor) -> None:
    """Check that a tensor is not one of many that ``torch.func.vmap`` computes together.

    Args:
        name: The argument's name, for the message.
        tensor: The tensor to check.

    Raises:
        UserError: it is one of many.
    """
    while is_transformed(tensor):
        inner = torch.func.debug_unwrap(tensor, recurse=False)
        if inner.ndim > tensor.ndim:
            raise UserError(
                f"A loss does not run under torch.func.vmap, as it checks the numbers of a batch. Got {name!r} of many "
                "batches at once; call the loss for one batch after the other."
            )
        tensor = inner
