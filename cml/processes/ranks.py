"""Several processes that train one network: what they share and exchange.

Every process knows every batch, since a batch is a function of (seed, step). It embeds its share of the images; the
embeddings are gathered, and each process computes the whole loss. So the loss is that of one process, and a loss's
proxies and the memory are the same everywhere without communication. The gradient of a process's own embeddings is
complete; only the gradients of the network have to be summed. With one process all of this does nothing, at no cost.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.errors import UserError
from cml.processes.out_of_memory import is_out_of_memory

T = TypeVar("T")
OWNED_STEPS = (
    4  # steps in a row whose label distances one process computes: several, as they go to different data workers
)
_ROWS = 64  # rows are split at multiples of the network's batch, so that the batches are those of one process


class ConnectionLostError(Exception):
    """A collective failed, most likely because another process is gone."""


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, seen from one of them.

    Attributes:
        rank: The rank of this process, 0 to ``size`` - 1.
        size: The number of processes; with 1 every method returns its input.
        device: The device that this process computes on.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this process writes the run folder and shows progress."""
        return self.rank == 0

    def share(self, total: int) -> slice:
        """Select this process's share of some items; shares differ by at most one.

        Args:
            total: The number of items.

        Returns:
            The slice of the items.
        """
        less, more = divmod(total, self.size)
        start = self.rank * less + min(self.rank, more)
        return slice(start, start + less + (self.rank < more))

    def largest_share(self, total: int) -> int:
        """Count the items of the largest share.

        Args:
            total: The number of items.

        Returns:
            The number of items.
        """
        return -(-total // self.size)

    def owner(self, step: int) -> int:
        """Tell which process computes the label distances of a step.

        Args:
            step: The step, from 0.

        Returns:
            The rank of the process.
        """
        return step // OWNED_STEPS % self.size

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum the processes' tensors, in place; the sum has the same bits everywhere.

        Args:
            tensor: A tensor of the same shape in every process.

        Returns:
            The tensor, which holds the sum.
        """
        if self.size > 1:
            _collective(lambda: torch.distributed.all_reduce(tensor))
        return tensor

    def broadcast_tensor(self, tensor: Tensor, source: int = 0) -> Tensor:
        """Replace the processes' tensors by that of one of them, in place.

        Args:
            tensor: A tensor of the same shape in every process.
            source: The rank of the process whose tensor all get.

        Returns:
            The tensor.
        """
        if self.size > 1:
            _collective(lambda: torch.distributed.broadcast(tensor, source))
        return tensor

    def gather(self, own: Tensor, total: int) -> Tensor:
        """Gather the embeddings of a batch, through which gradients flow back.

        Args:
            own: The embeddings of this process's ``share``, (b, D).
            total: The number of images of the batch, B.

        Returns:
            The embeddings of the batch, (B, D).
        """
        gathered: Tensor = own if self.size == 1 else _Gather.apply(own, total, self)
        return gathered

    def sum_gradients(self, network: nn.Module, loss: nn.Module) -> None:
        """Make all gradients those of the whole batch.

        The gradients of the network are summed. Those of the loss are whole in each process; all get those of rank 0,
        so that the rounding of different machines cannot accumulate.

        Args:
            network: The network.
            loss: The loss.
        """
        if self.size == 1:
            return
        own = [parameter.grad for parameter in loss.parameters() if parameter.grad is not None]
        if not self.first:
            for gradient in own:
                gradient.zero_()
        shared = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
        _in_one([*shared, *own], self.all_reduce)

    def broadcast_parameters(self, *modules: nn.Module) -> None:
        """Give all processes the parameters and buffers of rank 0; other machines may have drawn others.

        Args:
            *modules: Modules of the same shape in every process.
        """
        if self.size > 1:
            _in_one(
                [tensor.detach() for module in modules for tensor in (*module.parameters(), *module.buffers())],
                self.broadcast_tensor,
            )

    def reseed(self, seed: int, step: int) -> None:
        """Seed what the network draws at random in a step, such as dropout.

        Args:
            seed: The seed of the run.
            step: The step.
        """
        if self.size > 1:
            torch.manual_seed(int(np.random.SeedSequence((seed, step, self.rank)).generate_state(1, np.uint64)[0] >> 1))

    def broadcast(self, compute: Callable[[], T]) -> T:
        """Compute something on rank 0 alone, for all processes.

        Args:
            compute: Returns an object that can be pickled.

        Returns:
            The object.
        """
        if self.size == 1:
            return compute()
        holder = [compute() if self.first else None]
        _collective(lambda: torch.distributed.broadcast_object_list(holder, 0, device=torch.device("cpu")))
        return cast("T", holder[0])

    def all_gather(self, own: T) -> list[T]:
        """Collect an object of each process.

        Args:
            own: This process's object, which can be pickled.

        Returns:
            The objects in the order of the ranks.
        """
        objects: list[Any] = [own] * self.size
        if self.size > 1:
            _collective(lambda: torch.distributed.all_gather_object(objects, own))
        return objects

    def any(self, fact: bool) -> bool:
        """Tell whether something is true in at least one process.

        Args:
            fact: Whether it is true in this one.

        Returns:
            Whether it is true in any.
        """
        return bool(self.all_reduce(torch.tensor(float(fact)))) if self.size > 1 else fact

    def check_same(self, subject: str, value: str, mend: str) -> None:
        """Check that a value is the same in all processes.

        Args:
            subject: What the value is, for the error.
            value: The value of this process.
            mend: A sentence for the error that says what to do.

        Raises:
            UserError: a process has another value than rank 0.
        """
        for rank, other in enumerate(values := self.all_gather(value)):
            if other != values[0]:
                raise UserError(f"Rank {rank} has {subject} other than rank 0's. {mend}")

    def all_reduce_array(self, array: NDArray[Any]) -> NDArray[Any]:
        """Sum the processes' arrays, on the CPU.

        Args:
            array: An array of the same shape in every process.

        Returns:
            The sum.
        """
        return array if self.size == 1 else self.all_reduce(torch.from_numpy(array)).numpy()

    def compute_rows(self, total: int, compute: Callable[[slice], NDArray[np.float32]]) -> NDArray[np.float32]:
        """Compute rows, such as the embeddings of images, of which each process takes a part.

        Args:
            total: The number of rows, N.
            compute: Computes the rows of a slice, (n, D).

        Returns:
            All rows, (N, D).
        """
        if self.size == 1:
            return compute(slice(0, total))
        batches = self.share(-(-total // _ROWS))
        part = slice(batches.start * _ROWS, min(batches.stop * _ROWS, total))
        own = compute(part) if part.start < part.stop or self.first else None
        return np.concatenate([rows for rows in self.all_gather(own) if rows is not None])

    def barrier(self) -> None:
        """Wait until every process is here."""
        self.all_reduce(torch.zeros(1))


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, total: int, ranks: Ranks) -> Tensor:  # noqa: ANN401 - torch gives no public type
        """Put the rows of all processes together.

        Args:
            ctx: Gets what ``backward`` needs.
            own: The rows of this process.
            total: The number of rows of all processes.
            ranks: The processes.

        Returns:
            The rows of all processes, in the order of ranks, the same in every process.
        """
        ctx.share = ranks.share(total)
        whole = own.new_zeros(total, *own.shape[1:])
        whole[ctx.share] = own.detach()
        return ranks.all_reduce(whole)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return gradient[ctx.share], None, None  # already of the whole loss, which every process computes


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
