"""A map of vectors, learned from few known label distances: linear, or with a multilayer perceptron beside it.

The linear map begins at the identity, and its loss is ``soft-target``: of the items that an anchor is compared with,
the near ones should have the most weight. The perceptron, whose features are added, begins at 0. Its loss is that of
``pair-log-ratio`` over lists of random pairs: all known distances count, and not their order alone, which a map of so
many parameters needs. Whatever is learned is checked by soft targets on items held out, none of whose pairs is learned
from. There the linear map must be better than the identity, and the perceptron better than the linear map. The variance
of the perceptron's log ratios must be clearly lower as well: a perceptron is more likely to be better by chance. On
drawn tracks, this variance told the maps apart by 14 known distances an item, where the losses of soft targets needed
38. Few known distances keep the linear map.
"""

import copy
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cml.array_types import Float32, Float64, Int64
from cml.distances.sparse_distances import SparseDistances
from cml.losses.log_ratio import fit_floor
from cml.losses.pair_log_ratio import log_ratio_of_pairs
from cml.losses.soft_target import SoftTargetLoss
from cml.models.backbones.mlp import mlp
from cml.retrieval.feature_forms import normalize_rows

MOST_TRAINED = 256  # leading columns that the map changes; the others stay as they are
_FEWEST_STEPS, _ENOUGH_STEPS, _MOST_STEPS = 100, 300, 600
_EPOCHS, _MOST_EPOCHS = 6, 88  # the second for enough steps
_ANCHORS, _OTHERS = 48, 48  # in a batch, and of each anchor
_RATE, _SCALE_RATE = 0.016, 1e-2  # the first over the root of C, so that a step moves an embedding as far for any C
_TEMPERATURE = 0.1  # of squared embedding distances, whose scale is learned
_LABEL_TEMPERATURE = 0.5  # in standard deviations of an anchor's label distances
_SCALES = torch.logspace(-1, 1, 11)  # of embeddings, whose mean squared distance is about 2
_CHECKS, _HELD_OUT, _MOST_HELD_OUT = 8, 0.1, 96
WIDTHS = (512, 512)  # of the perceptron
_PERCEPTRON_RATE, _TIMES_THE_STEPS = 1e-3, 2
_PAIRS = 2304  # in a batch of the perceptron
_LABEL_EXPONENT = 2.0  # of the log-ratio loss, in which embedding distances are squared: they follow label distances
_FLOOR_QUANTILE = 0.02  # as in ``PairLogRatioLoss``
_FEWEST_KNOWN = 10_000  # distances, each counted both ways: of fewer, a perceptron takes longer than its gain is worth
_PATIENCE = 4  # checks in a row that are no better than the linear map, after which the perceptron is given up
_CLEAR = 2.0  # standard errors by which the perceptron must be better


@dataclass(frozen=True, eq=False)
class PairMap:
    """A map of the first C columns of vectors."""

    weight: Float32  # (C, C) of the columns, or (C, C + H) of the columns and the features of the perceptron
    perceptron: nn.Sequential | None = None  # maps the columns (N, C) to features (N, H); None for a linear map

    @classmethod
    def identity(cls, columns: int = 1) -> "PairMap":
        """The map that changes nothing."""
        return cls(np.eye(columns, dtype=np.float32))

    def apply(
        self,
        rows: Float32,  # (N, F) vectors
        *,
        normalize: bool,
    ) -> Float32:  # (N, F); a row of zeros stays one if the map is linear
        """Map vectors."""
        size = len(self.weight)
        features = rows[:, :size]
        if self.perceptron is not None:
            with torch.no_grad():
                curved: Float32 = self.perceptron(torch.from_numpy(features)).numpy()
            features = np.concatenate([features, curved], axis=1)
        mapped = np.concatenate([features @ self.weight.T, rows[:, size:]], axis=1)
        return normalize_rows(mapped) if normalize else mapped


@dataclass(frozen=True, eq=False)
class KnownLists:
    """The known label distances of items, of which batches are made."""

    rows: Float32  # (N, F) vectors
    known: SparseDistances  # label distances of some pairs of the N items
    normalize: bool  # whether mapped vectors are L2-normalised

    def batch(
        self,
        anchors: Int64,  # (A,) item numbers
        rng: np.random.Generator,
    ) -> tuple[Tensor, Tensor]:  # vectors (B, F), the anchors first, and their label distances (A, B)
        """Make a batch of some anchors and items that they were compared with."""
        starts, stops = self.known.starts[:-1], self.known.starts[1:]
        places = np.searchsorted(self.known.rows, anchors)
        others = [
            rng.permutation(self.known.columns[starts[place] : stops[place]])[:_OTHERS] for place in places.tolist()
        ]
        items = np.concatenate([anchors, np.setdiff1d(np.concatenate(others), anchors)])
        block = self.known.block(anchors, items)
        return torch.from_numpy(self.rows[items]), torch.from_numpy(block)

    def leave_out(self, items: Int64) -> "KnownLists | None":
        """Leave out all pairs of some items; None if no pair is left."""
        known = self.known
        owners = np.repeat(known.rows, np.diff(known.starts))
        is_kept = ~np.isin(owners, items) & ~np.isin(known.columns, items)
        if not is_kept.any():
            return None
        triples = owners[is_kept], known.columns[is_kept], known.distances[is_kept]
        return KnownLists(self.rows, SparseDistances.from_triples(*triples, items=len(self.rows)), self.normalize)


def learn_map(lists: KnownLists, *, seconds: float = math.inf, seed: int = 0) -> PairMap:
    """Learn a map of vectors from known label distances."""
    size = min(lists.rows.shape[1], MOST_TRAINED)
    rng = np.random.default_rng((seed, len(lists.known.distances)))
    counts = np.diff(lists.known.starts)
    able = rng.permutation(lists.known.rows[counts >= 2].astype(np.int64))
    held_out = min(_MOST_HELD_OUT, int(len(able) * _HELD_OUT))
    spread = _mean_spread(lists.known) if held_out else 0.0
    learned = PairMap.identity(size)
    if spread == 0:
        return learned
    checked = able[:held_out]
    taught = lists.leave_out(checked)
    if taught is None:
        return learned
    work = _Learning(taught, lists.batch(checked, rng), _LABEL_TEMPERATURE * spread, rng, time.monotonic() + seconds)
    learned = work.improve(learned, _RATE / math.sqrt(size)) or learned
    if len(lists.known.distances) < _FEWEST_KNOWN:
        return learned
    start = np.concatenate([learned.weight, np.zeros((size, WIDTHS[-1]), np.float32)], axis=1)
    curved = PairMap(start, make_perceptron(size, seed))
    better = work.improve(curved, _PERCEPTRON_RATE, times=_TIMES_THE_STEPS, patience=_PATIENCE)
    return better if better is not None and work.is_clearly_better(better, learned) else learned


def make_perceptron(
    size: int,  # C, the columns that it takes
    seed: int,
) -> nn.Sequential:
    """Make the perceptron, with random weights, for vectors of a mean squared length of about 1."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = mlp(size, WIDTHS, layer_norm=False, activation="relu").module
    assert isinstance(layers, nn.Sequential)
    first = layers[0]
    assert isinstance(first, nn.Linear)
    with torch.no_grad():
        first.weight.mul_(math.sqrt(size))
    return layers


class _Learning:
    """What maps are learned from, and checked on."""

    def __init__(
        self,
        lists: KnownLists,
        checked: tuple[Tensor, Tensor],
        label_temperature: float,
        rng: np.random.Generator,
        ends: float,
    ) -> None:
        self._lists, self._checked = lists, checked
        self._soft_target = SoftTargetLoss(1.0, label_temperature, _TEMPERATURE, normalize=False)
        self._rng, self._ends = rng, ends
        self._anchors = lists.known.rows[np.diff(lists.known.starts) >= 2].astype(np.int64)
        self._pairs, self._pair_distances = _list_pairs(lists.known)
        self._floor = _fit_floor(self._pair_distances)

    def improve(
        self, start: PairMap, rate: float, *, times: int = 1, patience: int = _CHECKS
    ) -> PairMap | None:  # a linear map at its best check, one with a perceptron at the last that is better than before
        """Train a map."""
        if not len(self._anchors) or not len(self._pairs) or time.monotonic() > self._ends:
            return None
        steps, perceptron = times * _count_steps(len(self._lists.known.distances)), start.perceptron
        weight = nn.Parameter(torch.from_numpy(start.weight.copy()))
        first_value, first_scale = self._check(weight, perceptron)
        scale = nn.Parameter(torch.tensor(first_scale).log())
        trained = [weight, *(perceptron.parameters() if perceptron is not None else ())]
        rates = rate, _SCALE_RATE
        optimizer = torch.optim.Adam([{"params": trained, "lr": rate}, {"params": [scale], "lr": _SCALE_RATE}])
        best, least, worse = None, first_value, 0
        for step in range(1, steps + 1):
            for group, full in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = full * min(1.0, 2 * (steps - step + 1) / steps)
            optimizer.zero_grad()
            if perceptron is None:
                loss = self._soft_target_loss(weight, scale.exp())
            else:
                loss = self._log_ratio_loss(weight, perceptron)
            torch.autograd.backward(loss)
            optimizer.step()
            is_over = step == steps or time.monotonic() > self._ends
            if step % max(1, steps // _CHECKS) == 0 or is_over:
                value, _ = self._check(weight, perceptron)
                worse = 0 if value < first_value else worse + 1
                if value < (least if perceptron is None else first_value):
                    least, best = value, PairMap(weight.detach().numpy().copy(), copy.deepcopy(perceptron))
            if is_over or worse == patience:
                break
        return best

    def is_clearly_better(self, learned: PairMap, before: PairMap) -> bool:
        """Whether the mean spread of the held-out log ratios falls by more than ``_CLEAR`` standard errors."""
        gains = self._spreads(before) - self._spreads(learned)
        error = gains.std() / math.sqrt(len(gains))
        return len(gains) > 1 and bool(gains.mean() > _CLEAR * error)

    def _soft_target_loss(self, weight: Tensor, scale: Tensor) -> Tensor:
        """The loss of a linear map: of random anchors, and items that they were compared with."""
        chosen = self._rng.choice(self._anchors, min(_ANCHORS, len(self._anchors)), replace=False)
        vectors, label_distances = self._lists.batch(chosen, self._rng)
        return self._loss(self._map(vectors, weight, None) * scale, label_distances)

    def _log_ratio_loss(self, weight: Tensor, perceptron: nn.Sequential) -> Tensor:
        """The loss of a map with a perceptron: ``PairLogRatioLoss`` of random pairs."""
        drawn = self._rng.integers(len(self._pairs), size=_PAIRS)
        items, places = np.unique(self._pairs[drawn], return_inverse=True)
        mapped = self._map(torch.from_numpy(self._lists.rows[items]), weight, perceptron)
        first, second = torch.from_numpy(places.reshape(-1, 2)).unbind(dim=1)
        squared = (mapped[first] - mapped[second]).square().sum(dim=1)
        label_distances = torch.from_numpy(self._pair_distances[drawn])
        return _log_ratio(squared, label_distances, self._floor)

    def _map(self, vectors: Tensor, weight: Tensor, perceptron: nn.Sequential | None) -> Tensor:
        """Map vectors as ``PairMap`` does, in a form that has gradients."""
        size = len(weight)
        features = vectors[:, :size]
        if perceptron is not None:
            features = torch.cat([features, perceptron(features)], dim=1)
        mapped = torch.cat([features @ weight.T, vectors[:, size:]], dim=1)
        return functional.normalize(mapped, dim=1) if self._lists.normalize else mapped

    def _loss(self, scaled: Tensor, label_distances: Tensor) -> Tensor:
        """The loss of a batch of ``KnownLists`` whose vectors are mapped, and multiplied by the scale."""
        loss: Tensor = self._soft_target(scaled, label_distances)
        return loss

    def _check(self, weight: Tensor, perceptron: nn.Sequential | None) -> tuple[float, float]:
        """The loss held out at the scale that suits it best, and that scale: maps are compared by their shape alone."""
        vectors, label_distances = self._checked
        with torch.no_grad():
            mapped = self._map(vectors, weight, perceptron)
            values = [float(self._loss(mapped * scale, label_distances)) for scale in _SCALES]
        return min(values), float(_SCALES[int(np.argmin(values))])

    def _spreads(self, learned: PairMap) -> Float64:
        """The variance of the log ratios of each item held out: (A,)."""
        vectors, label_distances = self._checked
        spreads = []
        with torch.no_grad():
            mapped = self._map(vectors, torch.from_numpy(learned.weight), learned.perceptron)
            for number, row in enumerate(label_distances):
                others = torch.isfinite(row)
                others[number] = False
                if others.sum() < 2:
                    continue
                squared = (mapped[others] - mapped[number]).square().sum(dim=1)
                spreads.append(float(_log_ratio(squared, row[others], self._floor)))
        return np.array(spreads)


def _log_ratio(squared: Tensor, label_distances: Tensor, floor: float) -> Tensor:
    """The spread of the log ratios of pairs, (P,) squared distances and their label distances."""
    return log_ratio_of_pairs(squared, label_distances, label_exponent=_LABEL_EXPONENT, floor=floor)


def _list_pairs(known: SparseDistances) -> tuple[Int64, Float32]:
    """Pairs (P, 2), each once, and their label distances (P,); without infinite ones."""
    owners = np.repeat(known.rows, np.diff(known.starts))
    is_listed = (owners < known.columns) & np.isfinite(known.distances)
    pairs = np.stack([owners, known.columns], axis=1)[is_listed].astype(np.int64)
    return pairs, known.distances[is_listed]


def _fit_floor(distances: Float32) -> float:
    """The floor of label distances; any number where all are 0."""
    return fit_floor(distances.astype(np.float64), _FLOOR_QUANTILE) if (distances > 0).any() else 1.0


def _count_steps(known: int) -> int:
    """The steps in which a linear map is learned from so many known distances, each counted both ways."""
    epoch = known / (_ANCHORS * _OTHERS)
    wanted = max(_EPOCHS * epoch, min(_ENOUGH_STEPS, _MOST_EPOCHS * epoch))
    return int(np.clip(wanted, _FEWEST_STEPS, _MOST_STEPS))


def _mean_spread(known: SparseDistances) -> float:
    """The mean standard deviation of the label distances of an item."""
    counts = np.diff(known.starts)
    values = known.distances.astype(np.float64)
    means = np.add.reduceat(values, known.starts[:-1]) / counts
    squares = np.add.reduceat((values - np.repeat(means, counts)) ** 2, known.starts[:-1])
    return float(np.sqrt(squares / counts).mean())
