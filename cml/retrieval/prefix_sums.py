"""Sums over the places before one, while numbers are added at places in any order; it imports numba: import it late.

A tree of eight children a node. A node has, for each child, how many numbers are under the children before it, and
their sum. So a sum reads one entry a level, and adding a number changes the eight entries of a node at once. A binary
tree changes fewer entries in three times as many levels, each of which waits for memory.
"""

import numpy as np

from cml.array_types import Float64, Int64
from cml.distances.compile_loop import FREE, compile_loop
from cml.distances.lanes import load, plus, store, times

_BITS = 3
_CHILDREN = 1 << _BITS
_NODE = 2 * _CHILDREN  # how many, then their sums
_LAST = _CHILDREN - 1
_LEVELS = 11  # of 2 ** 33 places
_BEHIND = np.triu(np.ones((_CHILDREN, _CHILDREN)), 1).ravel()  # for each child, 1 at the children behind it


@compile_loop()
def new_tree(places: int) -> tuple[Float64, Int64]:
    """The numbers of a tree of at most so many places, and where its levels begin, for ``clear_tree`` to fill."""
    nodes, total = places, 0
    while nodes > 1 or total == 0:
        nodes = (nodes + _LAST) >> _BITS
        total += nodes
    return np.empty(total * _NODE), np.empty(_LEVELS, np.int64)


@compile_loop()
def clear_tree(tree: Float64, starts: Int64, places: int) -> int:
    """Empty a tree for so many places, and return the number of its levels."""
    levels, end, nodes = 0, 0, places
    while nodes > 1 or levels == 0:
        nodes = (nodes + _LAST) >> _BITS
        starts[levels] = end
        end += nodes * _NODE
        levels += 1
    tree[:end] = 0
    return levels


@compile_loop(fastmath=FREE, inline=True)
def sum_before(tree: Float64, starts: Int64, levels: int, place: int) -> tuple[float, float]:
    """How many numbers are at places before one, which lies in the tree, and their sum."""
    count, total = 0.0, 0.0
    for level in range(levels):
        entry = starts[level] + (place >> _BITS) * _NODE + (place & _LAST)
        count += tree[entry]
        total += tree[entry + _CHILDREN]
        place >>= _BITS
    return count, total


@compile_loop(fastmath=FREE, inline=True)
def add_number(tree: Float64, starts: Int64, levels: int, place: int, number: float) -> None:
    """Add a number at a place."""
    for level in range(levels):
        child = place & _LAST
        place >>= _BITS
        node, behind = starts[level] + place * _NODE, child * _CHILDREN
        for part in range(0, _CHILDREN, 4):
            ones, at = load(_BEHIND, behind + part), node + part
            store(tree, at, plus(load(tree, at), ones))
            store(tree, at + _CHILDREN, plus(load(tree, at + _CHILDREN), times(ones, number)))
