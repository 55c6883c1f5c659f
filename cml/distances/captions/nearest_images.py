"""The search for the exact k nearest images by their captions, compiled: most images are ruled out by their bound."""

import numpy as np

from cml.array_types import Float32, Float64, Int32, Int64
from cml.distances.captions.exact_wmd import pair_distance
from cml.distances.captions.packed_captions import PackedCaptions
from cml.distances.captions.transport import FAR
from cml.distances.captions.wmd_lower_bound import forward_bounds, pair_bounds, sum_of_minima
from cml.distances.captions.workspace import WorkspaceSizes, make_workspace, open_image, round_up
from cml.distances.compile_loop import compile_loop


@compile_loop(inline=True)
def _sift(heap: Int64, values: Float64, at: int, size: int) -> None:
    """Let the entry at ``at`` sink to its place in a heap of ``size`` entries, least value first."""
    entry = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and values[heap[child + 1]] < values[heap[child]]:
            child += 1
        if values[heap[child]] >= values[entry]:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = entry


@compile_loop()
def find_nearest(
    packed: PackedCaptions,
    start: int,
    distances: Float64,  # (V, U) distances of every word to the words of the R images
    columns: Int64,  # (V,) which of these U words a word is
    sizes: WorkspaceSizes,
    ids: Int32,  # (R, k) item numbers, written in place
    values: Float32,  # (R, k) their distances, written in place
) -> None:
    """Find the k nearest of R images by (float32 distance, id), least first."""
    workspace = make_workspace(sizes)
    count, k = len(packed.ranks), ids.shape[1]
    bounds = np.empty(count)
    heap = np.empty(count, np.int64)
    for row in range(len(ids)):
        i = start + row
        open_image(workspace, packed, i, distances, columns)
        own = packed.captions[i + 1] - packed.captions[i]
        for j in range(count):
            forward_bounds(workspace, packed, j, round_up(own))
            bounds[j] = sum_of_minima(workspace.lower, own, packed.captions[j + 1] - packed.captions[j])
        bounds[i] = FAR
        for at in range(count):
            heap[at] = at
        for at in range(count // 2 - 1, -1, -1):
            _sift(heap, bounds, at, count)
        filled = 0
        reach = FAR  # no image above it can be among the k nearest
        for size in range(count, 0, -1):
            j = heap[0]  # the image of the least bound left
            if bounds[j] > reach or j == i:  # the image itself is the last of all
                break
            heap[0] = heap[size - 1]
            _sift(heap, bounds, 0, size - 1)
            if pair_bounds(workspace, packed, i, packed, j) > reach:
                continue
            distance = pair_distance(workspace, packed, i, packed, j, sizes.room, reach)
            if distance >= FAR:
                continue
            value = np.float32(distance)
            at = filled
            while at > 0 and (values[row, at - 1] > value or (values[row, at - 1] == value and ids[row, at - 1] > j)):
                at -= 1
            if at == k:
                continue
            filled = min(filled + 1, k)
            for z in range(filled - 1, at, -1):
                values[row, z] = values[row, z - 1]
                ids[row, z] = ids[row, z - 1]
            values[row, at] = value
            ids[row, at] = j
            if filled == k:  # a distance that rounds to the k-th best value may still win by its lower id
                reach = np.float64(values[row, k - 1]) * (1.0 + 2.0**-22)
