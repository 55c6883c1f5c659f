"""The order and the ranks of each row of a block of distances, without gradient.

On the CPU float32 rows are sorted as integers that hold the value's bits above the column's number, which numpy sorts
several times faster than it finds a permutation; rows are spread over torch's threads. Elsewhere torch sorts, as it
does inside a transform of ``torch.func``, whose tensors numpy cannot read.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from cml.array_types import Floating, Int64
from cml.losses.closed_form import is_transformed

_CHUNK = 1 << 17  # entries sorted at a time by one thread: 1 MiB of 64-bit keys


def row_ranks(label_distances: Tensor, used: Tensor) -> Tensor:
    """The rank of each used column of a row, nearest 0; ties share the mean of their ranks.

    So the order of the columns changes nothing.

    Args:
        label_distances: (R, B), >= 0.
        used: (R, B) bool.

    Returns:
        (R, B) of the type of ``label_distances``; infinite where a column is not used.
    """
    ranked = torch.where(used, label_distances, torch.inf).abs_()  # abs: -0 is 0
    if _has_keys(ranked):
        return _ranks_by_keys(ranked)
    return _ranks_by_sort(ranked)


def sort_rows(values: Floating) -> tuple[Floating, Int64]:
    """Sort each row, ties by column.

    Args:
        values: (R, B), >= 0 or infinite.

    Returns:
        The values in ascending order, and the columns that they come from, (R, B) each.
    """
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
    """Sort each row.

    Args:
        values: (R, B), >= 0 or infinite.

    Returns:
        The values in ascending order, and the columns that they come from, (R, B) each.
    """
    if not _has_keys(values):
        ascending, columns = values.sort(dim=1)
        return ascending, columns
    entries = values.abs().numpy()  # abs: -0 is 0
    in_order, order = np.empty_like(entries), np.empty(entries.shape, np.int64)

    def fill(chunk: slice) -> None:
        in_order[chunk], order[chunk] = sort_rows(entries[chunk])

    over_row_chunks(fill, *entries.shape)
    return torch.from_numpy(in_order), torch.from_numpy(order)


def tie_runs(ascending: Tensor) -> tuple[Tensor, Tensor] | None:
    """The run of equal entries that each entry of sorted rows lies in.

    Args:
        ascending: (R, B), each row in ascending order.

    Returns:
        First and last position of the run, (R, B) int64 each; None if all finite entries of a row differ.
    """
    step = ascending[:, 1:] != ascending[:, :-1]
    if bool((step | ascending[:, 1:].isinf()).all()):
        return None
    position = torch.arange(ascending.shape[1], device=ascending.device)
    differs = torch.ones_like(ascending[:, :1], dtype=torch.bool)
    first = torch.where(torch.cat([differs, step], 1), position, 0).cummax(1).values
    ends = torch.where(torch.cat([step, differs], 1), position, len(position))
    return first, ends.flip(1).cummin(1).values.flip(1)


def over_row_chunks(work: Callable[[slice], None], rows: int, columns: int) -> None:
    """Do work on parts of the rows, on as many threads as torch uses.

    Args:
        work: Called with slices of rows, which together cover all of them.
        rows: R.
        columns: Entries of a row, for the size of a part.
    """
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
    return values.device.type == "cpu" and values.dtype == torch.float32 and not is_transformed(values)


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
    runs = tie_runs(values)
    position = torch.arange(ranked.shape[1], device=ranked.device)
    mean_rank = (position.expand_as(order) if runs is None else (runs[0] + runs[1]) / 2).to(ranked.dtype)
    in_order = mean_rank.masked_fill(values == torch.inf, torch.inf)
    return torch.empty_like(values).scatter_(1, order, in_order)
