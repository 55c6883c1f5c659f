"""Batches larger than the memory: the loss over the whole batch, the network over one part at a time.

The trainer calls ``backward``; ``cached_backward`` is for training loops of one's own. First every micro batch is
embedded without a graph. The loss of all embeddings gives a gradient for each of them. Then every micro batch is
embedded again, with a graph and the same random numbers, and its gradient is propagated. Only one micro batch's
activations are held at a time, at the cost of a second forward pass.

The gradient is that of the whole batch, unlike that of gradient accumulation. The exception is batch normalisation,
whose statistics are those of a micro batch; ``batch_norm_statistics.fixed_statistics`` makes it exact. Running
statistics and other buffers change only in the second pass, once per micro batch.

Reference: Gao, Zhang, Han, Callan: Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup,
RepL4NLP 2021.
"""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from cml.errors import UserError
from cml.processes.device import to_device


@dataclass(frozen=True)
class Parts:
    """A batch that was split before its items were joined: batches of any kind with the number of their items."""

    parts: list[tuple[Any, int]]

    def __len__(self) -> int:
        return sum(count for _, count in self.parts)

    def to(self, device: torch.device) -> Self:
        """Move all parts to a device."""
        return type(self)([(to_device(batch, device), count) for batch, count in self.parts])


def count_parts(items: int, micro_batch: int | None) -> int:
    """Count the parts of a batch, as few as have at most ``micro_batch`` items."""
    return 1 if micro_batch is None else -(-items // micro_batch)


def split_batch(batch: Any, count: int) -> list[Any]:  # noqa: ANN401 - a tensor or list of B items, or parts
    """Split a batch into as equal parts as possible, the first ones longer, as ``Tensor.tensor_split`` does."""
    if isinstance(batch, Parts):
        return [part for part, _ in batch.parts]
    if isinstance(batch, Tensor):
        return list(batch.tensor_split(count))
    if not isinstance(batch, list):
        raise UserError(
            f"'micro_batch' splits tensors and lists. Got a batch of type {type(batch).__name__} instead: let "
            "'collate' join the items, or leave micro_batch out."
        )
    size, longer = divmod(len(batch), count)
    ends = [row * size + min(row, longer) for row in range(count + 1)]
    # without empty ones, of which a process has some if others have more items
    return [batch[start:end] for start, end in itertools.pairwise(ends) if end > start]


def backward(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    inputs: Any,  # noqa: ANN401 - a tensor (B, ...), a list, ``Parts``, or in one pass a batch of any kind
    *,
    micro_batch: int | None = None,
    largest: int | None = None,  # share of the batch of a process, where all split theirs into as many parts
    cast: Callable[[], AbstractContextManager[object]] = nullcontext,  # autocast, of the network alone
    draws: bool = True,  # whether the network may draw random numbers, of which the second pass needs the same
    loss_backward: Callable[[Tensor], object] = torch.autograd.backward,
    before_last: Callable[[], AbstractContextManager[object]] = nullcontext,  # of all passes but the last: ``no_sync``
) -> tuple[Tensor, Tensor]:
    """Add the gradient of a loss of embeddings (B, D) to all parameters; the loss and embeddings, without a graph.

    A batch of more than ``micro_batch`` inputs is split into as few and as equal parts as possible.

    Example:
        >>> import torch
        >>> network = torch.nn.Linear(3, 2)
        >>> inputs = torch.randn(10, 3)
        >>> value, embeddings = backward(network, lambda f: f.square().sum(), inputs, micro_batch=4)
        >>> torch.allclose(network.weight.grad, 2 * embeddings.T @ inputs, atol=1e-5)
        True
    """
    parts = 1 if micro_batch is None else count_parts(largest or len(inputs), micro_batch)
    if parts <= 1:
        with cast():
            embedded = network(inputs)
        embeddings = _full(embedded)
        value = loss(embeddings)
        loss_backward(value)
        return value.detach(), embeddings.detach()

    pieces = split_batch(inputs, parts)
    device = inputs.device if isinstance(inputs, Tensor) else next((one.device for one in network.parameters()), _CPU)
    buffers = [(buffer, buffer.clone()) for buffer in network.buffers()]
    random_states, parts_embedded = [], []
    with torch.no_grad():
        for piece in pieces:
            random_states.append(_random_state(device, draws))
            with cast():  # a new one per pass: autocast would keep weights that it has cast without a graph
                parts_embedded.append(_full(network(piece)))
        torch.clear_autocast_cache()  # of an autocast around all
        for buffer, before in buffers:
            buffer.copy_(before)
    embeddings = torch.cat(parts_embedded).requires_grad_()
    value = loss(embeddings)
    loss_backward(value)
    if embeddings.grad is None:
        raise UserError("The loss does not depend on the embeddings that it is given: it has no gradient.")
    gradients = torch.split(embeddings.grad, [len(part) for part in parts_embedded])
    restore_end = _random_state(device, draws)
    for part, (piece, restore, gradient) in enumerate(zip(pieces, random_states, gradients, strict=True), 1):
        restore()
        with nullcontext() if part == len(pieces) else before_last():
            with cast():
                again = network(piece)
            torch.autograd.backward(_full(again), gradient)
    restore_end()
    return value.detach(), embeddings.detach()


_CPU = torch.device("cpu")


def _full(embeddings: Tensor) -> Tensor:
    return embeddings if embeddings.dtype == torch.float64 else embeddings.float()


def _random_state(device: torch.device, draws: bool) -> Callable[[], None]:
    """Make a function that restores the random state of now, if it is used."""
    if not draws:
        return _restore_nothing
    if device.type == "cuda":
        state_on_gpu = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        state_on_gpu = torch.mps.get_rng_state()
    state = torch.get_rng_state()

    def restore() -> None:
        torch.set_rng_state(state)
        if device.type == "cuda":
            torch.cuda.set_rng_state(state_on_gpu, device)
        elif device.type == "mps":
            torch.mps.set_rng_state(state_on_gpu)

    return restore


def _restore_nothing() -> None:
    pass
