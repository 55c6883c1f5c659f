"""The memory that a thread of the caption kernels works in: one image's tables, laid out for comparisons with others.

Reference: Atasu and Mittelholzer, "Linear-Complexity Data-Parallel Earth Mover's Distance Approximations", ICML 2019
(one document's tables for many others).
"""

from typing import NamedTuple

import numpy as np

from cml.array_types import Float64, Int64
from cml.distances.captions.packed_captions import PackedCaptions
from cml.distances.captions.transport import FAR, LANES, make_scratch
from cml.distances.compile_loop import FREE, compile_loop


class WorkspaceSizes(NamedTuple):
    """What the workspaces of a block must hold."""

    words: int  # words of the vocabulary, V
    width: int  # most distinct words of an image that is opened, rounded up to ``LANES``
    lanes: int  # most captions of such an image, rounded up to ``LANES``
    others: int  # most captions of an image that it is compared with
    room: int  # most distinct words of a caption, rounded up to ``LANES``


class Workspace(NamedTuple):
    """The memory that a thread works in. One image is open in it, of C captions, and is compared with others, of C'."""

    table: Float64  # (V, width) distance of every word to the words of the open image
    near: Float64  # (V, lanes) distance of every word to the nearest word of each caption of the open image
    shares: Float64  # (width, lanes) share of a word of the open image in each of its captions
    position: Int64  # (V,) place of a word in the open image's word list, -1 where it has none
    lowest: Float64  # (width,) least distance of each word of the open image to a caption
    lower: Float64  # (C', lanes) bounds of the caption pairs by the other image's words
    back: Float64  # (C', lanes) bounds of the caption pairs by the open image's words
    bounds: Float64  # (pairs,) the larger of the two, in the order of the two images' content
    order: Float64  # (pairs,) bounds still to visit, ``FAR`` of those that were
    best: Float64  # (C + C',) least distance of each caption so far
    floor: Float64  # (C + C',) least bound of each caption
    left: Int64  # (width,) mass that a word of the open image has left, 0 between pairs
    picks: Int64  # (2 * room,) words that the two captions of a pair have left
    reals: Float64  # scratch memory of the solver
    wholes: Int64  # scratch memory of the solver


@compile_loop(inline=True)
def round_up(count: int) -> int:
    """Round a number up to a multiple of ``LANES``."""
    return (count + LANES - 1) // LANES * LANES


@compile_loop(inline=True)
def make_workspace(sizes: WorkspaceSizes) -> Workspace:
    """Allocate a workspace."""
    pairs = round_up(sizes.lanes * sizes.others)
    reals, wholes = make_scratch(sizes.room)
    return Workspace(
        table=np.empty(sizes.words * sizes.width),
        near=np.empty(sizes.words * sizes.lanes),
        shares=np.empty(sizes.width * sizes.lanes),
        position=np.empty(sizes.words, np.int64),
        lowest=np.empty(sizes.width),
        lower=np.empty(pairs),
        back=np.empty(pairs),
        bounds=np.empty(pairs),
        order=np.empty(pairs),
        best=np.empty(sizes.lanes + sizes.others),
        floor=np.empty(sizes.lanes + sizes.others),
        left=np.zeros(sizes.width, np.int64),
        picks=np.empty(2 * sizes.room, np.int64),
        reals=reals,
        wholes=wholes,
    )


@compile_loop(fastmath=FREE)
def word_distances(
    a: Float64,  # (V, D) vectors
    b: Float64,  # (U, D) vectors
    out: Float64,  # (V, U), written in place
) -> None:
    """Compute Euclidean distances: the same bits in whatever table, 0 of equal vectors."""
    for i in range(len(a)):
        for j in range(len(b)):
            square = 0.0
            for k in range(a.shape[1]):
                square += (a[i, k] - b[j, k]) * (a[i, k] - b[j, k])
            out[i, j] = np.sqrt(square)


@compile_loop()
def open_image(
    workspace: Workspace,
    a: PackedCaptions,
    i: int,
    distances: Float64,  # (V, U) distances of every word to some words
    columns: Int64,  # (V,) which of these U words a word of image ``i`` is
) -> None:
    """Lay out the tables of an image in a workspace."""
    table, near, shares, position = workspace.table, workspace.near, workspace.shares, workspace.position
    first_word, first = a.lists[i], a.captions[i]
    count = a.lists[i + 1] - first_word
    captions = a.captions[i + 1] - first
    width, lanes = round_up(count), round_up(captions)
    for word in range(len(distances)):
        position[word] = -1
        for place in range(count):
            table[word * width + place] = distances[word, columns[a.words[first_word + place]]]
        for place in range(count, width):
            table[word * width + place] = 0.0
        for c in range(captions):
            nearest = FAR
            for e in range(a.entries[first + c], a.entries[first + c + 1]):
                nearest = min(nearest, table[word * width + a.places[e]])
            near[word * lanes + c] = nearest
        for c in range(captions, lanes):
            near[word * lanes + c] = 0.0
    for place in range(count):
        position[a.words[first_word + place]] = place
    for at in range(count * lanes):
        shares[at] = 0.0
    for c in range(captions):
        for e in range(a.entries[first + c], a.entries[first + c + 1]):
            shares[a.places[e] * lanes + c] = a.weights[e]
