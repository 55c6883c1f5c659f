"""Several processes that train one network: what they share and exchange.

Every process knows every batch, since a batch is a function of (seed, step). It embeds its share of the images; the
embeddings are gathered, and each process computes the whole loss. So the loss is that of one process, and a loss's
proxies and the memory are the same everywhere without communication. Gradients of gathered embeddings are summed over
the processes, each of which has the whole loss; those of parameters are averaged, as ``DistributedDataParallel`` does
it. The result is the gradient of one process. With one process all of this does nothing, at no cost.

Without it, ``test_gradients_of_every_loss_are_those_of_one_process`` in tests/training/test_distributed.py fails.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from cml.array_types import Float32
from cml.errors import UserError
from cml.processes.memory import is_out_of_memory

T = TypeVar("T")
OWNED_STEPS = (
    4  # steps in a row whose label distances one process computes: several, as they go to different data workers
)
_ROWS = 64  # rows are split at multiples of the network's batch, so that the batches are those of one process


class ConnectionLostError(Exception):
    """A collective failed, most likely because another process is gone."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, seen from one of them."""

    rank: int = 0  # the rank of this process, 0 to ``size`` - 1
    size: int = 1  # the number of processes; with 1 every method returns its input
    # the device that this process computes on
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this process writes the run folder and shows progress."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """Select this process's share of some items; shares differ by at most one."""
        return self.shares(total)[self.rank]

    def shares(self, total: int) -> list[slice]:
        """Cut some items into the shares of all processes."""
        less, more = divmod(total, self.size)
        starts = [rank * less + min(rank, more) for rank in range(self.size + 1)]
        return [slice(start, stop) for start, stop in itertools.pairwise(starts)]

    def largest_share(self, total: int) -> int:
        """Count the items of the largest share."""
        return -(-total // self.size)

    def owner(self, step: int) -> int:
        """Tell which process computes the label distances of a step."""
        return step // OWNED_STEPS % self.size

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum the processes' tensors, in place; the sum has the same bits everywhere."""
        if self.size > 1:
            _collective(lambda: torch.distributed.all_reduce(tensor))
        return tensor

    def broadcast_tensor(self, tensor: Tensor, source: int = 0) -> Tensor:
        """Replace the processes' tensors by that of one of them, in place."""
        if self.size > 1:
            _collective(lambda: torch.distributed.broadcast(tensor, source))
        return tensor

    def gather(
        self,
        own: Tensor,
        total: int,  # the number of images of the batch, B
        start: int | None = None,  # where this process's part begins in the batch; None where it is its ``share``
    ) -> Tensor:  # the embeddings of the batch, (B, D), the same in every process
        """Gather the embeddings of a batch, through which gradients flow back.

        The gradient of a process's embeddings is the sum of what all processes' losses ask of them.
        """
        if self.size == 1:
            return own
        start = self.share(total).start if start is None else start
        padding = [0, 0] * (own.ndim - 1)
        whole: Tensor = SumOverRanks.apply(functional.pad(own, [*padding, start, total - start - len(own)]), self)
        return whole

    def average_gradients(self, *modules: nn.Module) -> None:
        """Replace the gradients by their averages over the processes.

        With ``gather`` and the whole loss in every process, these are the gradients of one process. Those of the loss's
        own parameters are whole before, and get the same rounding everywhere.
        """
        if self.size > 1:
            parameters = [parameter for module in modules for parameter in module.parameters()]
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            _in_one(gradients, lambda flat: self.all_reduce(flat).div_(self.size))

    def broadcast_parameters(self, *modules: nn.Module) -> None:
        """Give all processes the parameters and buffers of rank 0; other machines may have drawn others."""
        if self.size > 1:
            _in_one(
                [tensor.detach() for module in modules for tensor in (*module.parameters(), *module.buffers())],
                self.broadcast_tensor,
            )

    def reseed(self, seed: int, step: int) -> None:
        """Seed what the network draws at random in a step, such as dropout."""
        if self.size > 1:
            torch.manual_seed(int(np.random.SeedSequence((seed, step, self.rank)).generate_state(1, np.uint64)[0] >> 1))

    def broadcast(self, compute: Callable[[], T]) -> T:
        """Compute something on rank 0 alone, for all processes."""
        if self.size == 1:
            return compute()
        holder = [compute() if self.first else None]
        _collective(lambda: torch.distributed.broadcast_object_list(holder, 0, device=torch.device("cpu")))
        return cast("T", holder[0])

    def all_gather(self, own: T) -> list[T]:
        """Collect an object of each process."""
        objects: list[Any] = [own] * self.size
        if self.size > 1:
            _collective(lambda: torch.distributed.all_gather_object(objects, own))
        return objects

    def any(self, fact: bool) -> bool:
        """Tell whether something is true in at least one process."""
        return bool(self.all_reduce(torch.tensor(float(fact)))) if self.size > 1 else fact

    def check_same(self, subject: str, value: str, mend: str) -> None:
        """Check that a value is the same in all processes."""
        for rank, other in enumerate(values := self.all_gather(value)):
            if other != values[0]:
                raise UserError(f"Rank {rank} has {subject} other than rank 0's. {mend}")

    def all_reduce_array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Sum the processes' arrays, on the CPU."""
        return array if self.size == 1 else self.all_reduce(torch.from_numpy(array)).numpy()

    def compute_rows(
        self,
        total: int,  # the number of rows, N
        compute: Callable[[slice], Float32],
    ) -> Float32:  # all rows, (N, D)
        """Compute rows, such as the embeddings of images, of which each process takes a part."""
        if self.size == 1:
            return compute(slice(0, total))
        batches = self.share(-(-total // _ROWS))
        part = slice(batches.start * _ROWS, min(batches.stop * _ROWS, total))
        own = compute(part) if part.start < part.stop or self.first else None
        return np.concatenate([rows for rows in self.all_gather(own) if rows is not None])

    def barrier(self) -> None:
        """Wait until every process is here."""
        self.all_reduce(torch.zeros(1))


class SumOverRanks(torch.autograd.Function):
    """The sum of all processes' tensors; its gradient is a sum too, of what all processes' losses ask of a tensor."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, ranks: Ranks) -> Tensor:  # noqa: ANN401 - torch gives no public type
        """Add up the tensors of all processes."""
        ctx.ranks = ranks
        return ranks.all_reduce(own.clone(memory_format=torch.contiguous_format))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        """Add up the gradients of all processes, by this function itself, for second derivatives."""
        return SumOverRanks.apply(gradient, ctx.ranks), None


def find_ranks() -> Ranks:
    """Find the processes that this one has joined by ``torch.distributed.init_process_group``, whoever called it."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return Ranks()
    return Ranks(torch.distributed.get_rank(), torch.distributed.get_world_size())


def _in_one(tensors: Sequence[Tensor], exchange: Callable[[Tensor], Tensor]) -> None:
    """Exchange many tensors, in place, as one per dtype."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        alike = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = exchange(torch.cat([tensor.reshape(-1) for tensor in alike]))
        for tensor, part in zip(alike, torch.split(flat, [tensor.numel() for tensor in alike]), strict=True):
            tensor.copy_(part.view(tensor.shape))


def _collective(run: Callable[[], object]) -> None:
    try:
        run()
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise ConnectionLostError(str(error).splitlines()[0]) from None


def share_batch_norm(network: nn.Module, ranks: Ranks) -> None:
    """Let every batch normalisation use all processes' images in training mode."""
    for parent in list(network.modules()) if ranks.size > 1 else ():
        for name, child in list(parent.named_children()):
            if isinstance(child, _BatchNorm) and not isinstance(child, nn.SyncBatchNorm):
                setattr(parent, name, _SharedBatchNorm(child, ranks))


class _SharedBatchNorm(nn.SyncBatchNorm):
    def __init__(self, like: _BatchNorm, ranks: Ranks) -> None:
        super().__init__(like.num_features, like.eps, like.momentum, like.affine, like.track_running_stats)
        self._parameters, self._buffers = like._parameters, like._buffers  # the same tensors, not copies
        self._modules = like._modules  # modules inside the layer, such as an activation in timm's
        self.training = like.training
        self._ranks = ranks

    def forward(self, input: Tensor) -> Tensor:
        on_processor = input.device.type == "cpu" and torch.distributed.is_initialized()
        output: Tensor = self._normalize(input) if self.training and on_processor else super().forward(input)
        for module in self.children():
            output = module(output)
        return output

    def _normalize(self, input: Tensor) -> Tensor:
        values = input if input.dtype == torch.float64 else input.float()
        others, shape = [0, *range(2, values.ndim)], [1, -1, *[1] * (values.ndim - 2)]
        count = self._ranks.all_reduce(values.new_tensor(values.numel() // values.shape[1]))
        if count <= 1:
            raise ValueError("Batch normalisation needs more than one value per channel in training.")
        mean = SumOverRanks.apply(values.sum(others), self._ranks) / count  # (C,)
        centred = values - mean.view(shape)
        variance = SumOverRanks.apply(centred.square().sum(others), self._ranks) / count  # (C,)
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean.detach().to(self.running_mean), share)
            self.running_var.lerp_((variance.detach() * (count / (count - 1))).to(self.running_var), share)
        scale = (variance + self.eps).rsqrt()
        output = centred * (scale if self.weight is None else scale * self.weight).view(shape)
        output = output if self.bias is None else output + self.bias.view(shape)
        return torch.as_tensor(output, dtype=input.dtype)
