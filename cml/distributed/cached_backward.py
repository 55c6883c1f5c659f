"""Large batches in a training loop of one's own, in one process or several: the public form of gradient caching."""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from cml.distributed.gradient_cache import backward as backward_in_parts
from cml.errors import UserError
from cml.processes.ranks import find_ranks


def cached_backward(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    inputs: Tensor,
    *,
    micro_batch: int,
    backward: Callable[[Tensor], object] = torch.autograd.backward,
) -> tuple[Tensor, Tensor]:
    """Compute the loss of a large batch and add its gradient to all parameters, with the memory of a micro batch.

    It stands for ``loss(network(inputs)).backward()``. The network sees ``micro_batch`` inputs at a time, twice:
    without a graph for the loss, then with one for its gradient. The second pass draws the same random numbers of torch
    as the first, as for dropout. The gradient is that of the whole batch, unlike that of gradient accumulation. The
    exception is batch normalisation, whose statistics are those of a micro batch.

    With several processes, ``inputs`` are this process's part of the batch, and ``loss`` gathers the embeddings
    (``cml.distributed.gather``). The gradients of the network are averaged over the processes: by its
    ``DistributedDataParallel``, after the last micro batch alone, or here if it has none. So do not average them again.

    Under ``torch.autocast``, the network runs as it would without micro batches, and the loss gets float32.

    Args:
        network: Maps inputs (b, ...) to embeddings (b, D).
        loss: Maps embeddings (B, D), in at least float32, to a scalar. It is called once.
        inputs: (B, ...), on the network's device.
        micro_batch: Inputs per pass, at least 1. The batch is split into as few and as equal parts as possible, in
            every process into as many.
        backward: Propagates the gradient of the loss, which is its only argument: ``accelerator.backward``, or with a
            gradient scaler ``lambda value: scaler.scale(value).backward()``.

    Returns:
        The loss, and this process's embeddings (B, D) in at least float32, both without a graph.

    Raises:
        UserError: An argument is something else, the loss does not depend on the embeddings, or the network is sharded
            by FSDP.

    Example:
        >>> import torch
        >>> from cml.distributed import cached_backward
        >>> from cml.losses import LogRatioLoss
        >>> network, ages = torch.nn.Linear(3, 2), torch.rand(10) * 80
        >>> loss = LogRatioLoss().fit("euclidean", ages)
        >>> label_distances = (ages[:, None] - ages).abs()
        >>> value, embeddings = cached_backward(
        ...     network, lambda f: loss(f, label_distances), torch.randn(10, 3), micro_batch=4
        ... )
        >>> network.weight.grad.shape, embeddings.shape
        (torch.Size([2, 3]), torch.Size([10, 2]))

    Reference:
        Gao, Zhang, Han, Callan: Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, RepL4NLP 2021.
    """
    if not isinstance(micro_batch, int) or isinstance(micro_batch, bool) or micro_batch < 1:
        raise UserError(f"The 'micro_batch' must be a whole number of at least 1. Got {micro_batch!r} instead.")
    if not isinstance(inputs, Tensor) or inputs.ndim == 0:
        got = "a single number" if isinstance(inputs, Tensor) else type(inputs).__name__
        raise UserError(f"The 'inputs' must be a tensor (B, ...). Got {got} instead.")
    ranks = find_ranks()
    averages_itself = isinstance(network, DistributedDataParallel)
    if ranks.size > 1 and not averages_itself:
        _check_whole(network)
    value, embeddings = backward_in_parts(
        network,
        loss,
        inputs,
        micro_batch=micro_batch,
        largest=max(ranks.all_gather(len(inputs))),
        loss_backward=backward,
        before_last=network.no_sync if isinstance(network, DistributedDataParallel) else nullcontext,
    )
    if not averages_itself:
        ranks.average_gradients(network)
    return value, embeddings


def _check_whole(network: nn.Module) -> None:
    """Refuse a network that is sharded: every process has to have all its parameters."""
    from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

    if any(isinstance(module, FSDPModule | FullyShardedDataParallel) for module in network.modules()):
        raise UserError(
            "cached_backward averages gradients of parameters that every process has as a whole. Got a network sharded "
            "by FSDP: wrap it in DistributedDataParallel instead."
        )
