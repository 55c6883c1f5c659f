"""The order and the ranks of each row of a block of distances, without gradient.

On the CPU float32 rows are sorted as integers that hold the value's bits above the column's number, which numpy sorts
several times faster than it finds a permutation; rows are spread over torch's threads. Elsewhere torch sorts, as it
does inside a transform of ``torch.func``, whose tensors numpy cannot read, and under ``torch.compile``.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cml.array_types import Floating, Int64
from cml.losses.pairs import is_transformed

_CHUNK = 1 << 17  # entries sorted at a time by one thread: 1 MiB of 64-bit keys


def row_ranks(label_distances: Tensor, used: Tensor) -> Tensor:
    """The rank (R, B) of each used column of a row, nearest 0; infinite where it is not used.

    Ties share the mean of their ranks, so that the order of the columns changes nothing.
    """
    ranked = torch.where(used, label_distances, torch.inf).abs_()  # abs: -0 is 0
    if _has_keys(ranked):
        return _ranks_by_keys(ranked)
    return _ranks_by_sort(ranked)


def sort_rows(values: Floating) -> tuple[Floating, Int64]:
    """Sort rows (R, B) of numbers >= 0 or infinite, ties by column: the values, and the columns they come from."""
    if values.dtype != np.float32:
        order = np.argsort(values, axis=1, kind="stable")
        return np.take_along_axis(values, order, axis=1), order
    keys = values.view(np.int32).astype(np.int64)  # the bits of floats >= 0 are ordered as the floats are
    keys <<= 32
    keys |= np.arange(values.shape[1])
    keys.sort(axis=1)
    in_order = (keys >> 32).astype(np.int32).view(np.float32)
    keys &= 0xFFFFFFFF
    return in_order, keys


def ascending_rows(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sort rows (R, B) of numbers >= 0 or infinite: the values, and the columns that they come from."""
    if not _has_keys(values):
        ascending, columns = values.sort(dim=1)
        return ascending, columns
    entries = values.abs().numpy()  # abs: -0 is 0
    in_order, order = np.empty_like(entries), np.empty(entries.shape, np.int64)

    def fill(chunk: slice) -> None:
        in_order[chunk], order[chunk] = sort_rows(entries[chunk])

    over_row_chunks(fill, *entries.shape)
    return torch.from_numpy(in_order), torch.from_numpy(order)


def run_ends(ascending: Tensor) -> Tensor:
    """The last position of the run of equal entries that each entry of sorted rows (..., B) lies in."""
    return _run_starts(ascending.flip(-1)).sub_(ascending.shape[-1] - 1).neg_().flip(-1)


def _run_starts(ascending: Tensor) -> Tensor:
    step = ascending[..., 1:] != ascending[..., :-1]
    position = torch.arange(1, ascending.shape[-1], device=ascending.device)
    return functional.pad(torch.where(step, position, 0), (1, 0)).cummax(dim=-1).values


def over_row_chunks(work: Callable[[slice], None], rows: int, columns: int) -> None:
    """Call ``work`` with slices that together cover all rows, on as many threads as torch uses."""
    step = max(1, _CHUNK // max(columns, 1))
    chunks = [slice(start, min(start + step, rows)) for start in range(0, rows, step)]
    threads = min(torch.get_num_threads(), len(chunks))
    if threads == 1:
        for chunk in chunks:
            work(chunk)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, chunks))


def _has_keys(values: Tensor) -> bool:
    if torch.compiler.is_compiling() or is_transformed(values):
        return False
    return values.device.type == "cpu" and values.dtype == torch.float32


def _ranks_by_keys(ranked: Tensor) -> Tensor:
    rows, columns = ranked.shape
    values = ranked.numpy()
    order = np.empty((rows, columns), np.int64)
    in_order = np.empty((rows, columns), np.float32)  # ranks, nearest first
    in_order[:] = np.arange(columns)

    def fill(chunk: slice) -> None:
        ascending, order[chunk] = sort_rows(values[chunk])
        tied = np.zeros((len(ascending), columns + 1), bool)  # is the entry tied with the one before it?
        np.equal(ascending[:, 1:], ascending[:, :-1], out=tied[:, 1:-1])
        unused = ascending == np.inf
        tied[:, 1:-1] &= ~unused[:, 1:]
        if tied.any():
            first = np.flatnonzero(tied[:, 1:] & ~tied[:, :-1])  # of each run of equal entries, flat position
            last = np.flatnonzero(tied[:, :-1] & ~tied[:, 1:])
            mean_rank = first % columns + (last - first) / 2
            members = np.flatnonzero(tied[:, :-1] | tied[:, 1:])
            in_order[chunk].reshape(-1)[members] = np.repeat(mean_rank, last - first + 1)
        in_order[chunk][unused] = np.inf

    over_row_chunks(fill, rows, columns)
    return torch.empty_like(ranked).scatter_(1, torch.from_numpy(order), torch.from_numpy(in_order))


def _ranks_by_sort(ranked: Tensor) -> Tensor:
    values, order = ranked.sort(dim=1)
    mean_rank = ((_run_starts(values) + run_ends(values)) / 2).to(ranked.dtype)
    in_order = mean_rank.masked_fill(values == torch.inf, torch.inf)
    return torch.empty_like(values).scatter_(1, order, in_order)
