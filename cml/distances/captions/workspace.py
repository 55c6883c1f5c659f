"""The memory that a thread of the caption kernels works in: one image's tables, laid out for comparisons with others.

Reference: Atasu and Mittelholzer, "Linear-Complexity Data-Parallel Earth Mover's Distance Approximations", ICML 2019
(one document's tables for many others).
"""

from typing import NamedTuple

import numpy as np

from cml.array_types import Float64, Int64
from cml.distances.captions.packed_captions import PackedCaptions
from cml.distances.captions.simd import LANES
from cml.distances.captions.transport import FAR, make_scratch
from cml.distances.compiled import FREE, compiled


class WorkspaceSizes(NamedTuple):
    """What the workspaces of a block must hold.

    Attributes:
        words: Words of the vocabulary, V.
        width: Most distinct words of an image that is opened, rounded up to ``LANES``.
        lanes: Most captions of such an image, rounded up to ``LANES``.
        others: Most captions of an image that it is compared with.
        room: Most distinct words of a caption, rounded up to ``LANES``.
    """

    words: int
    width: int
    lanes: int
    others: int
    room: int


class Workspace(NamedTuple):
    """The memory that a thread works in. One image is open in it, of C captions, and is compared with others, of C'.

    Attributes:
        table: (V, width) distance of every word to the words of the open image.
        near: (V, lanes) distance of every word to the nearest word of each caption of the open image.
        shares: (width, lanes) share of a word of the open image in each of its captions.
        position: (V,) place of a word in the open image's word list, -1 where it has none.
        lowest: (width,) least distance of each word of the open image to a caption.
        lower: (C', lanes) bounds of the caption pairs by the other image's words.
        back: (C', lanes) bounds of the caption pairs by the open image's words.
        bounds: (pairs,) the larger of the two, in the order of the two images' content.
        order: (pairs,) keys of the bounds still to visit.
        best: (C + C',) least distance of each caption so far.
        floor: (C + C',) least bound of each caption.
        left: (width,) mass that a word of the open image has left, 0 between pairs.
        picks: (2 * room,) words that the two captions of a pair have left.
        reals: Scratch memory of the solver.
        wholes: Scratch memory of the solver.
    """

    table: Float64
    near: Float64
    shares: Float64
    position: Int64
    lowest: Float64
    lower: Float64
    back: Float64
    bounds: Float64
    order: Int64
    best: Float64
    floor: Float64
    left: Int64
    picks: Int64
    reals: Float64
    wholes: Int64


@compiled(inline=True)
def round_up(count: int) -> int:
    """Round a number up to a multiple of ``LANES``.

    Args:
        count: The number.

    Returns:
        The multiple.
    """
    return (count + LANES - 1) // LANES * LANES


@compiled(inline=True)
def make_workspace(sizes: WorkspaceSizes) -> Workspace:
    """Allocate a workspace.

    Args:
        sizes: What it must hold.

    Returns:
        The workspace, in which no image is open.
    """
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
        order=np.empty(pairs, np.int64),
        best=np.empty(sizes.lanes + sizes.others),
        floor=np.empty(sizes.lanes + sizes.others),
        left=np.zeros(sizes.width, np.int64),
        picks=np.empty(2 * sizes.room, np.int64),
        reals=reals,
        wholes=wholes,
    )


@compiled(fastmath=FREE)
def word_distances(a: Float64, b: Float64, out: Float64) -> None:
    """Compute Euclidean distances: the same bits in whatever table, 0 of equal vectors.

    Args:
        a: (V, D) vectors.
        b: (U, D) vectors.
        out: (V, U), written in place.
    """
    for i in range(len(a)):
        for j in range(len(b)):
            square = 0.0
            for k in range(a.shape[1]):
                square += (a[i, k] - b[j, k]) * (a[i, k] - b[j, k])
            out[i, j] = np.sqrt(square)


@compiled()
def open_image(workspace: Workspace, a: PackedCaptions, i: int, distances: Float64, columns: Int64) -> None:
    """Lay out the tables of an image in a workspace.

    Args:
        workspace: The workspace.
        a: Images that hold the one to open.
        i: The image to open.
        distances: (V, U) distances of every word to some words.
        columns: (V,) which of these U words a word of image ``i`` is.
    """
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
