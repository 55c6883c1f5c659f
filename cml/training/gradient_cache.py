"""Batches larger than the memory: the loss over the whole batch, the network over one part at a time.

Every micro batch is embedded without a graph; the loss of all embeddings gives a gradient for each. Then every micro
batch is embedded again, with a graph and the same random numbers, and its gradient is propagated. The sum is the
gradient of the whole batch, but for batch normalisation, unless with ``fixed_statistics``. Gao, Zhang, Han, Callan:
Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, RepL4NLP 2021.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def backward(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    inputs: Tensor,
    *,
    micro_batch: int | None = None,
    largest: int | None = None,
    cast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> tuple[Tensor, Tensor]:
    """The loss and the embeddings (B, D) of a batch, without graphs; the gradient of the loss is added to parameters.

    ``network`` maps inputs (b, ..) to embeddings (b, D), ``loss`` all embeddings, in at least float32, to a scalar, and
    ``cast`` makes the context in which the network runs, for autocast. More than ``micro_batch`` inputs are split into
    as few and as equal parts as possible. If several processes have a share of the batch each, ``largest`` is the size
    of the largest: all split theirs into the same number of parts, since they exchange statistics in the network.

    Example:
        >>> import torch
        >>> network = torch.nn.Linear(3, 2)
        >>> inputs = torch.randn(10, 3)
        >>> value, embeddings = backward(network, lambda f: f.square().sum(), inputs, micro_batch=4)
        >>> torch.allclose(network.weight.grad, 2 * embeddings.T @ inputs, atol=1e-5)
        True
    """
    parts = 1 if micro_batch is None else -(-(largest or len(inputs)) // micro_batch)
    if parts <= 1:
        with cast():
            embedded = network(inputs)
        embeddings = _full(embedded)
        value = loss(embeddings)
        torch.autograd.backward(value)
        return value.detach(), embeddings.detach()

    pieces = inputs.tensor_split(parts)
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    random, found = [], []
    with torch.no_grad():
        for piece in pieces:
            random.append(_random_state(inputs.device))
            with cast():  # a new one per pass: autocast would keep weights that it has cast without a graph
                found.append(_full(network(piece)))
        for buffer, before in buffers:
            buffer.copy_(before)
    embeddings = torch.cat(found).requires_grad_()
    value = loss(embeddings)
    torch.autograd.backward(value)
    assert embeddings.grad is not None
    after = _random_state(inputs.device)
    for piece, bring_back, gradient in zip(pieces, random, embeddings.grad.tensor_split(parts), strict=True):
        bring_back()
        with cast():
            again = network(piece)
        torch.autograd.backward(_full(again), gradient)
    after()
    return value.detach(), embeddings.detach()


@contextmanager
def fixed_statistics(network: nn.Module, fixed: bool) -> Iterator[None]:
    """If ``fixed``, every batch normalisation uses its running statistics in the block, and does not change them."""
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)] if fixed else []
    hooks = [norm.register_forward_pre_hook(lambda norm, _: norm.eval() and None) for norm in norms]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def warn_of_statistics(network: nn.Module) -> None:
    """Warn if the network has batch normalisation, so that images in one pass affect each other."""
    if any(isinstance(module, _BatchNorm) for module in network.modules()):
        warnings.warn(
            "The network has batch normalisation, which sees one micro batch at a time: the gradient is not exactly "
            "that of the whole batch. It is with --batch-norm fixed, or with --backbone 'small-cnn(norm=group)'.",
            stacklevel=2,
        )


def _full(embeddings: Tensor) -> Tensor:
    return embeddings if embeddings.dtype == torch.float64 else embeddings.float()


def _random_state(device: torch.device) -> Callable[[], None]:
    """A function that brings back the random state of now."""
    module: Any = {"cuda": torch.cuda, "mps": torch.mps}.get(device.type)
    which = [device] if device.type == "cuda" else []
    here, there = torch.get_rng_state(), module and module.get_rng_state(*which)

    def bring_back() -> None:
        torch.set_rng_state(here)
        if module is not None:
            module.set_rng_state(there, *which)

    return bring_back
