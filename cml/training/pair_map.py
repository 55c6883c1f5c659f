"""A linear map of vectors, learned from few known label distances; it begins at the identity.

The loss is ``soft-target``: of the items that an anchor is compared with, the near ones should have the most weight.
Whatever is learned is checked on anchors held out, and the identity stays where the map is no better there.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cml.distances.sparse_distances import SparseDistances
from cml.losses.soft_target import soft_target_loss

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]

MOST_TRAINED = 256  # leading columns that the map changes; the others stay as they are
_FEWEST_STEPS, _ENOUGH_STEPS, _MOST_STEPS = 100, 300, 600
_EPOCHS, _MOST_EPOCHS = 6, 88  # the second for enough steps
_ANCHORS, _OTHERS = 48, 48  # in a batch, and of each anchor
_RATE, _SCALE_RATE = 0.016, 1e-2  # the first over the root of C, so that a step moves an embedding as far for any C
_TEMPERATURE = 0.1  # of squared embedding distances, whose scale is learned
_LABEL_TEMPERATURE = 0.5  # in standard deviations of an anchor's label distances
_SCALES = torch.logspace(-1, 1, 11)  # of embeddings, whose mean squared distance is about 2
_CHECKS, _HELD_OUT, _MOST_HELD_OUT = 8, 0.1, 96


@dataclass(frozen=True, eq=False)
class KnownLists:
    """The known label distances of items, of which batches are made.

    Attributes:
        rows: (N, F) vectors.
        known: Label distances of some pairs of the N items.
        normalize: Whether mapped vectors are L2-normalised.
    """

    rows: Float32
    known: SparseDistances
    normalize: bool

    def batch(self, anchors: Int64, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Make a batch of some anchors and items that they were compared with.

        Args:
            anchors: (A,) item numbers.
            rng: Chooses the others of an anchor that has many.

        Returns:
            Vectors (B, F), the anchors first, and their label distances (A, B), infinite where unknown.
        """
        starts, stops = self.known.starts[:-1], self.known.starts[1:]
        places = np.searchsorted(self.known.rows, anchors)
        others = [
            rng.permutation(self.known.columns[starts[place] : stops[place]])[:_OTHERS] for place in places.tolist()
        ]
        items = np.concatenate([anchors, np.setdiff1d(np.concatenate(others), anchors)])
        block = self.known.block(anchors, items)
        return torch.from_numpy(self.rows[items]), torch.from_numpy(block)


def learn_map(lists: KnownLists, *, seconds: float = math.inf, seed: int = 0) -> Float32:
    """Learn a linear map of vectors from known label distances.

    Args:
        lists: Vectors, with the directions of largest spread first, and what is known of their label distances. Not
            normalised, vectors have a mean squared distance of 2.
        seconds: How long it may take; what was best until then is returned.
        seed: Random seed.

    Returns:
        (C, C), the map of the first C columns, F or ``MOST_TRAINED``: the identity where nothing better was found.
    """
    size = min(lists.rows.shape[1], MOST_TRAINED)
    identity = np.eye(size, dtype=np.float32)
    rng = np.random.default_rng((seed, len(lists.known.distances)))
    counts = np.diff(lists.known.starts)
    able = rng.permutation(lists.known.rows[counts >= 2].astype(np.int64))
    held_out = min(_MOST_HELD_OUT, int(len(able) * _HELD_OUT))
    spread = _mean_spread(lists.known) if held_out else 0.0
    if spread == 0:
        return identity
    epoch = len(lists.known.distances) / (_ANCHORS * _OTHERS)  # steps
    wanted = max(_EPOCHS * epoch, min(_ENOUGH_STEPS, _MOST_EPOCHS * epoch))
    steps = int(np.clip(wanted, _FEWEST_STEPS, _MOST_STEPS))
    checked, anchors = lists.batch(able[:held_out], rng), able[held_out:]
    label_temperature = _LABEL_TEMPERATURE * spread
    weight = torch.nn.Parameter(torch.from_numpy(identity.copy()))
    least, first_scale = _held_out_loss(lists, weight, checked, label_temperature)
    scale = torch.nn.Parameter(torch.tensor(first_scale).log())
    rates = _RATE / math.sqrt(size), _SCALE_RATE
    optimizer = torch.optim.Adam([{"params": [weight], "lr": rates[0]}, {"params": [scale], "lr": rates[1]}])
    best, ends = identity, time.monotonic() + seconds
    for step in range(1, steps + 1):
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, 2 * (steps - step + 1) / steps)
        chosen = rng.choice(anchors, min(_ANCHORS, len(anchors)), replace=False)
        optimizer.zero_grad()
        loss = _list_loss(lists, weight, scale.exp(), lists.batch(chosen, rng), label_temperature)
        torch.autograd.backward(loss)
        optimizer.step()
        is_over = step == steps or time.monotonic() > ends
        if step % max(1, steps // _CHECKS) == 0 or is_over:
            value, _ = _held_out_loss(lists, weight, checked, label_temperature)
            if value < least:
                least, best = value, weight.detach().numpy().copy()
        if is_over:
            break
    return best


def apply_map(rows: Float32, weight: Float32, *, normalize: bool) -> Float32:
    """Map vectors.

    Args:
        rows: (N, F) vectors.
        weight: (C, C), the map of the first C columns.
        normalize: Whether to L2-normalise what comes out.

    Returns:
        (N, F); a row of zeros stays one.
    """
    size = len(weight)
    mapped = np.concatenate([rows[:, :size] @ weight.T, rows[:, size:]], axis=1)
    return normalize_rows(mapped) if normalize else mapped


def normalize_rows(rows: Float32) -> Float32:
    """L2-normalise the rows (N, F) of an array; a row of zeros stays one."""
    lengths: Float32 = np.linalg.norm(rows, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return rows / lengths


def _list_loss(
    lists: KnownLists, weight: Tensor, scale: Tensor, batch: tuple[Tensor, Tensor], label_temperature: float
) -> Tensor:
    """The loss of a batch of ``KnownLists``."""
    vectors, label_distances = batch
    size = len(weight)
    mapped = torch.cat([vectors[:, :size] @ weight.T, vectors[:, size:]], dim=1)
    mapped = functional.normalize(mapped, dim=1) if lists.normalize else mapped
    return soft_target_loss(
        mapped * scale, label_distances, label_temperature=label_temperature, temperature=_TEMPERATURE, normalize=False
    )


def _held_out_loss(
    lists: KnownLists, weight: Tensor, batch: tuple[Tensor, Tensor], label_temperature: float
) -> tuple[float, float]:
    """The loss of a batch at the scale that suits it best, and that scale: maps are compared by their shape alone."""
    with torch.no_grad():
        values = [float(_list_loss(lists, weight, scale, batch, label_temperature)) for scale in _SCALES]
    return min(values), float(_SCALES[int(np.argmin(values))])


def _mean_spread(known: SparseDistances) -> float:
    """The mean standard deviation of the label distances of an item."""
    counts = np.diff(known.starts)
    values = known.distances.astype(np.float64)
    means = np.add.reduceat(values, known.starts[:-1]) / counts
    squares = np.add.reduceat((values - np.repeat(means, counts)) ** 2, known.starts[:-1])
    return float(np.sqrt(squares / counts).mean())
