"""The whole batch in every process: embeddings with their gradients, labels and item numbers."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from cml.distances.labels import Labels
from cml.errors import UserError
from cml.processes.ranks import Ranks, find_ranks

Rows = TypeVar("Rows")


def gather(rows: Rows) -> Rows:
    """Put the rows of all processes together, in the order of ranks: the whole batch, in every process.

    The gradient flows back to the rows of each process. Let every process compute the loss of the whole batch, and
    average the gradients of the network over the processes, as ``DistributedDataParallel``, Lightning and Accelerate
    do: then the network has the gradient of one process with the whole batch, without a further factor. Parameters of
    the loss, such as proxies, have that gradient in every process, averaged or not.

    All processes must call it, also in evaluation. Their numbers of rows may differ, as in a last batch. Without
    several processes (``torch.distributed.init_process_group``), it returns ``rows`` itself.

    Args:
        rows: A row for each item of this process's part of the batch: a tensor (b, ...), such as embeddings (b, D); an
            array (b, ...); the ``Labels`` that a label distance has encoded; or a list or tuple of labels of any kind.

    Returns:
        The rows of all processes, of the kind of ``rows`` and on its device.

    Raises:
        UserError: ``rows`` is nothing of these, or the processes have rows of different types or shapes.
        ConnectionLostError: Another process is gone.

    Example:
        >>> import torch
        >>> from cml.distributed import gather
        >>> from cml.losses import LogRatioLoss
        >>> network, inputs, ages = torch.nn.Linear(3, 2), torch.randn(10, 3), torch.rand(10) * 80
        >>> loss = LogRatioLoss().fit("euclidean", ages)
        >>> embeddings, ages = gather(network(inputs)), gather(ages)  # of all processes
        >>> loss(embeddings, (ages[:, None] - ages).abs()).backward()
    """
    _check_rows(rows)
    ranks = find_ranks()
    if ranks.size == 1:
        return rows
    forms = ranks.all_gather(_form(rows))
    for rank, form in enumerate(forms):
        if form[1:] != forms[0][1:]:
            both = f"Rank 0 has {_describe_form(forms[0])}, but rank {rank} has {_describe_form(form)}."
            raise UserError(f"All processes must gather rows of one type and shape. {both}")
    if isinstance(rows, Tensor):
        return cast("Rows", _gather_tensor(rows, [form[0] for form in forms], ranks))
    return cast("Rows", _concatenate(ranks.all_gather(rows)))


def _gather_tensor(own: Tensor, counts: Sequence[int], ranks: Ranks) -> Tensor:
    exchanged = own.detach().long() if not own.is_floating_point() else own
    if own.device.type == "cpu" and torch.distributed.get_backend() == "nccl":  # which knows tensors of GPUs alone
        exchanged = exchanged.cuda()
    whole = ranks.gather(exchanged, sum(counts), sum(counts[: ranks.rank]))
    return whole.to(device=own.device, dtype=own.dtype)


def _concatenate(parts: list[Any]) -> object:
    match first := parts[0]:
        case np.ndarray():
            return np.concatenate(parts)
        case Labels():
            return Labels({name: np.concatenate([part.arrays[name] for part in parts]) for name in first.arrays})
    return type(first)(row for part in parts for row in part)


def _check_rows(rows: object) -> None:
    is_array = isinstance(rows, Tensor | np.ndarray) and rows.ndim > 0
    if not (is_array or isinstance(rows, Labels | list | tuple)):
        got = "a number" if isinstance(rows, Tensor | np.ndarray) else type(rows).__name__
        raise UserError(
            "gather takes a row for each item of this process's part of the batch: a tensor, an array, encoded labels "
            f"or a list. Got {got} instead."
        )
    if isinstance(rows, Tensor) and rows.is_complex():
        raise UserError("gather takes tensors of real numbers. Got complex ones instead: use torch.view_as_real.")


def _form(rows: object) -> tuple[Any, ...]:
    """The number of rows, then what must be the same in all processes."""
    match rows:
        case Tensor():
            gradient = "with a gradient" if rows.requires_grad and torch.is_grad_enabled() else "without a gradient"
            return len(rows), "a tensor", str(rows.dtype), tuple(rows.shape[1:]), gradient
        case np.ndarray():
            return len(rows), "an array", rows.dtype.str, rows.shape[1:]
        case Labels():
            return len(rows), "labels", *((name, *_form(array)[2:]) for name, array in rows.arrays.items())
    return len(cast("Sequence[object]", rows)), f"a {type(rows).__name__}"


def _describe_form(form: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in form[1:])
