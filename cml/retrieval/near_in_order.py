"""Whether neighbours in the order of a file are almost the same item, as the frames of a film are.

Then items that are held out at random have near copies among those that are trained on, and blocks of the order are
held out in their place. Queries have near copies in the gallery, which the verdict of an evaluation and ``cml check``
name.
"""

import math
from collections.abc import Sequence

import numpy as np

from cml.array_types import Bools, Float32, Int64
from cml.data.images import Images
from cml.data.input_form import Inputs

NEAR = 0.02  # of the file: how far apart neighbours in its order are
MUCH = 0.5  # share of items with such a nearest neighbour, from which on the order counts; by chance it is 0.04
_PROBED = 1000  # items whose nearest neighbours are looked at
_FEWEST_QUERIES = 20  # of 20, half have such a neighbour by chance once in 10^9 times
_MOST_ROWS, _MOST_IMAGES = 5000, 300  # inputs whose neighbours are looked at
_MOST_NUMBERS = 1 << 23  # that they hold together
_SIDE = 8  # pixels of an image that is looked at


def share_of_near_neighbors(
    features: Float32,  # (N, F)
    is_query: Bools | None = None,  # (N,) the items that look among the others; None for each among all
    groups: Int64 | None = None,  # (N,) numbers of groups, of which an item looks among the others; None for none
    *,
    seed: int = 0,  # random seed of the draw of the items that are looked at, 1,000 at most
) -> float:
    """Find how many items have their nearest neighbour close by in the order of the file."""
    count = len(features)
    asked = np.arange(count) if is_query is None else np.flatnonzero(is_query)
    probed = np.sort(asked[np.random.default_rng(seed).permutation(len(asked))[:_PROBED]])
    centred = features - features.mean(axis=0)
    lengths = np.einsum("nf,nf->n", centred, centred)
    distances = lengths - 2 * (centred[probed] @ centred.T)  # squared, less what a row has in common
    if is_query is None:
        distances[np.arange(len(probed)), probed] = np.inf
    else:
        distances[:, is_query] = np.inf
    if groups is not None:
        distances[groups[probed][:, None] == groups] = np.inf
    nearest = distances.argmin(axis=1)
    return float((np.abs(nearest - probed) <= NEAR * count).mean())


def near_in_order(
    items: Int64,  # (M,) places in the order
    count: int,
) -> Bools:  # (M, M), true where two items are within 2 % of the order; each item and itself are
    """Find the pairs that are close by in the order of the file, as the next frames of a film are.

    Any features retrieve such an item, so that it does not tell good ones from bad ones.
    """
    near: Bools = np.abs(items[:, None] - items) <= NEAR * count
    return near


def are_alike_in_order(inputs: Inputs) -> bool:
    """Whether most inputs have their nearest neighbour close by in their order; False where nothing tells."""
    rows = np.unique(np.linspace(0, len(inputs) - 1, min(len(inputs), _most_read(inputs))).astype(np.int64))
    features = _read_features([inputs], rows)
    return bool(features.size) and share_of_near_neighbors(features) >= MUCH


def name_copies_in_order(
    queries: Inputs,  # Q items
    gallery: Inputs | None,  # G items; None where every query ranks all other queries
    # (Q,) and (G,) places of the items in one file; None for items in the order of the queries, or of no common order
    places: tuple[Int64, Int64] | None = None,
    groups: Int64 | None = None,  # (Q,) or (Q + G,) numbers of groups, the gallery's last; None for none
) -> str:  # a clause; "" where nothing is found
    """Say that most queries have their nearest item, of another group, close by in the order of the file.

    A random part of many items is looked at: at most 5,000 rows, and 300 images.
    """
    parts = [queries] if gallery is None else [queries, gallery]
    rows = _draw_in_order(list(map(len, parts)), places, _most_read(queries))
    if not len(rows):  # before anything is read
        return ""
    features = _read_features(parts, rows)
    return _name_share(features, rows < len(queries), groups, rows, has_gallery=gallery is not None)


def name_copies_by_features(
    queries: Float32,  # (Q, F)
    gallery: Float32 | None,  # (G, F); None where every query ranks all other queries
    places: tuple[Int64, Int64] | None = None,  # as of ``name_copies_in_order``
    groups: Int64 | None = None,  # likewise
) -> str:  # likewise
    """Say the same by features that do not depend on labels, in which alike photographs are nearer than in pixels."""
    parts = [queries] if gallery is None else [queries, gallery]
    rows = _draw_in_order(list(map(len, parts)), places, _MOST_ROWS)
    if not len(rows):
        return ""
    is_query = rows < len(queries)
    features = np.empty((len(rows), queries.shape[1]), np.float32)
    features[is_query] = queries[rows[is_query]]
    if gallery is not None:
        features[~is_query] = gallery[rows[~is_query] - len(queries)]
    return _name_share(features, is_query, groups, rows, has_gallery=gallery is not None)


def _draw_in_order(
    counts: Sequence[int],  # of queries, and of gallery items if there are any
    places: tuple[Int64, Int64] | None,
    most: int,
) -> Int64:  # (M,) rows of queries and then gallery items, in the order of the file; none where nothing tells
    """Draw the items that are looked at."""
    nothing: Int64 = np.empty(0, np.int64)
    if len(counts) > 1 and places is None:
        return nothing
    order = np.arange(counts[0]) if len(counts) == 1 or places is None else np.argsort(np.concatenate(places))
    drawn: Int64 = order[np.sort(np.random.default_rng(0).permutation(len(order))[:most])]
    queries = int((drawn < counts[0]).sum())
    has_both = len(counts) == 1 or queries < len(drawn)
    return drawn if queries >= _FEWEST_QUERIES and has_both else nothing


def _name_share(features: Float32, is_query: Bools, groups: Int64 | None, rows: Int64, *, has_gallery: bool) -> str:
    """The clause on items (M, F) in the order of the file, if most queries have their nearest one close by."""
    of_rows = None if groups is None else groups[rows]
    share = share_of_near_neighbors(features, is_query if has_gallery else None, of_rows) if features.size else 0.0
    if share < MUCH:
        return ""
    item = "item" if groups is None else "item of another group"
    return (
        f"{share:.0%} of the queries have their nearest {item} close by in the order of the file, as frames of a film "
        "or rows of a recording have"
    )


def _most_read(inputs: Inputs) -> int:
    """How many inputs are looked at."""
    width = math.prod(inputs.form.shape or (1,))
    return _MOST_IMAGES if isinstance(inputs, Images) else int(np.clip(_MOST_NUMBERS // width, 100, _MOST_ROWS))


def _read_features(parts: Sequence[Inputs], rows: Int64) -> Float32:
    """Read items of some parts in a row, (M, F) standardised; none where each reading may differ, and of texts."""
    if any(part.reads_anew or not part.form.has_shape for part in parts):
        return np.empty((len(rows), 0), np.float32)
    read, start = [], 0
    for part in parts:
        chosen = part.subset(np.sort(rows[(rows >= start) & (rows < start + len(part))]) - start)
        if isinstance(chosen, Images):
            chosen = Images(chosen.source, (_SIDE, _SIDE), channels=chosen.channels)
        read.append(np.asarray(chosen.read(np.arange(len(chosen))), np.float32).reshape(len(chosen), -1))
        start += len(part)
    features = np.empty((len(rows), read[0].shape[1]), np.float32)
    features[np.argsort(rows)] = np.concatenate(read)
    features = features[:, np.isfinite(features).all(axis=0)]  # columns without missing numbers
    spread = np.maximum(features.std(axis=0), np.finfo(np.float32).tiny)
    standardised: Float32 = (features - features.mean(axis=0)) / spread
    return standardised
