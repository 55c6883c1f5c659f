"""Sums over all lower label ranks while items are added one by one; it imports numba: import it late.

A tree of eight children a node. A node has, for each child, the number and the sum of the items under the children
before it. So a sum over all lower ranks reads one entry a level, and adding an item changes the eight entries of a node
at once. A binary tree reads fewer entries and takes three times the levels, each of which waits for memory.
"""

from typing import Any

import numpy as np
from numba import njit

from cml.array_types import Float64, Int64
from cml.distances.lanes import load, plus, store, times

Jit = Any  # an array, or a number of NumPy's, as numba sees it

_BITS = 3
_CHILDREN = 1 << _BITS
_NODE = 2 * _CHILDREN  # its numbers, then its sums
_LAST = _CHILDREN - 1
_LEVELS = 11  # of 2 ** 33 ranks
_BEHIND = np.triu(np.ones((_CHILDREN, _CHILDREN)), 1).ravel()  # for each child, 1 at the children behind it


def new_tree(ranks: int) -> tuple[Float64, Int64]:
    """The numbers of a tree of at most that many ranks, and where its levels begin; ``clear_tree`` fills both."""
    nodes, levels = 0, 0
    while ranks > 1 or not levels:
        ranks = -(-ranks // _CHILDREN)
        nodes, levels = nodes + ranks, levels + 1
    return np.empty(nodes * _NODE), np.empty(_LEVELS, np.int64)


@njit(nogil=True, cache=True)
def clear_tree(tree: Jit, starts: Jit, ranks: int) -> int:
    """Empty a tree for so many ranks and return the number of its levels."""
    levels, end, nodes = 0, 0, ranks
    while nodes > 1 or levels == 0:
        nodes = (nodes + _LAST) >> _BITS
        starts[levels] = end
        end += nodes * _NODE
        levels += 1
    tree[:end] = 0
    return levels


@njit(nogil=True, cache=True)
def sum_and_add(tree: Jit, starts: Jit, levels: int, rank: int, value: float) -> tuple[float, float]:
    """Number and sum of the values of lower ranks, and then add a value."""
    count, total = 0.0, 0.0
    for level in range(levels):
        child = rank & _LAST
        rank >>= _BITS
        node, behind = starts[level] + rank * _NODE, child * _CHILDREN
        count += tree[node + child]
        total += tree[node + _CHILDREN + child]
        for part in range(0, _CHILDREN, 4):
            ones, place = load(_BEHIND, behind + part), node + part
            store(tree, place, plus(load(tree, place), ones))
            store(tree, place + _CHILDREN, plus(load(tree, place + _CHILDREN), times(ones, value)))
    return count, total
