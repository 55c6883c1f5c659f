"""The scores of tuning: how well embeddings of held-out items follow their labels, and the fits that a run keeps."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from cml.array_types import Bools, Float32, Float64, Int64
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import KnownPairs
from cml.errors import UserError
from cml.retrieval.near_in_order import near_in_order
from cml.training.linear_map import JoinedMaps, LinearMap
from cml.training.saved_model import save_tensors
from cml.tuning.splits import SplitKind

FIRST = 10  # items that are looked at around each
_SMALLEST_GAP = 1e-6  # relative: between the labels that are found best and those found by chance


class FirstItemsScore:
    """Scores embeddings of some items, each of which looks for the others.

    1 - (d - best) / (chance - best): d is the mean label distance of the first items found, ``best`` that of the
    nearest labels, ``chance`` that of all others. 1 is the best possible, 0 is chance.
    """

    def __init__(self, label_distances: Float32, near: Bools | None = None) -> None:
        known = np.isfinite(label_distances)
        farthest = label_distances[known].max() if known.any() else 0
        self._distances = np.where(known, label_distances, farthest).astype(np.float64)
        self._left_out = np.eye(len(label_distances), dtype=bool) if near is None else near
        fewest = int((~self._left_out).sum(axis=1).min())
        # items that are looked at around each: 10, or fewer where there are few items
        self.neighbors = max(1, min(FIRST, (fewest + 1) // 3))
        self._chance = self._distances[~self._left_out].mean()
        ranked = np.partition(np.where(self._left_out, np.inf, self._distances), self.neighbors - 1, axis=1)
        self._best = ranked[:, : self.neighbors].mean()

    @property
    def tells(self) -> bool:
        """Whether the labels differ enough to say which embedding is better."""
        return bool(self._chance - self._best > _SMALLEST_GAP * self._chance)

    def __call__(self, embeddings: Float32) -> float:
        """Score the embeddings (N, D) of the items by their Euclidean distances."""
        return float(self.score_items(embeddings).mean())

    def score_items(self, embeddings: Float32) -> Float64:
        """The score of each item (N,) for embeddings (N, D); the score of the embeddings is their mean."""
        nearness = 2 * (embeddings @ embeddings.T) - np.einsum("nd,nd->n", embeddings, embeddings)
        nearness[self._left_out] = -np.inf
        first = np.argpartition(-nearness, self.neighbors - 1, axis=1)[:, : self.neighbors]
        means = np.take_along_axis(self._distances, first, axis=1).mean(axis=1)
        scores: Float64 = 1 - (means - self._best) / (self._chance - self._best)
        return scores


def mean_score(scores: Sequence[Float64]) -> float:
    """The mean over splits of the mean score of the items of a split."""
    return float(np.mean([split.mean() for split in scores]))


_FEWEST_PAIRS = 10
_FEWEST_OTHERS = 2 * FIRST  # items of other groups, so that the nearest of them say something


class KnownPairsScore:
    """Scores embeddings of some items by Spearman's rank correlation of the distances of their known pairs.

    1 is the order of the label distances, 0 is chance.
    """

    def __init__(self, pairs: KnownPairs, items: int) -> None:
        self._pairs, self._items = pairs, items

    @functools.cached_property
    def _label_ranks(self) -> Float64:
        return _standardize_ranks(self._pairs.distances)

    @property
    def tells(self) -> bool:
        """Whether the pairs are enough, and differ enough, to say which embedding is better."""
        return len(self._pairs.first) >= _FEWEST_PAIRS and bool(np.ptp(self._pairs.distances) > 0)

    def score_items(
        self,
        embeddings: Float32,  # (M, D)
    ) -> Float64:  # (M,)
        """Score each item, so that the mean is the correlation, and the spread over items tells its error.

        Each pair is a term of the correlation, and counts half for each of its items. The correlation is a statistic of
        pairs of items, whose jackknife has deviations from the mean twice as large as these: they are doubled.
        """
        first, second = self._pairs.first, self._pairs.second
        distances = np.linalg.norm(embeddings[first] - embeddings[second], axis=1)
        products = self._label_ranks * _standardize_ranks(distances)
        sums = np.bincount(first, products, self._items) + np.bincount(second, products, self._items)
        halves: Float64 = sums * self._items / (2 * len(products))
        scores: Float64 = halves.mean() + 2 * (halves - halves.mean())
        return scores


def _standardize_ranks(values: Float32) -> Float64:
    """Ranks of mean 0 and standard deviation 1; 0 where all values are equal."""
    from scipy.stats import rankdata  # which takes a second to import

    ranks: Float64 = rankdata(values)
    ranks = ranks - ranks.mean()
    deviation = float(ranks.std())
    return ranks / deviation if deviation > 0 else ranks


_MOST_SCORED, _MOST_LINKED = 1000, 5000  # held-out items of a split, the second where few pairs are known


class SplitScore(NamedTuple):
    """The held-out items of a split that are scored, and their score."""

    items: Int64  # (M,) their numbers
    score: FirstItemsScore | KnownPairsScore  # the score of embeddings (M, D) of these items

    def score_map(
        self,
        embedding: LinearMap | JoinedMaps,
        features: Float32,  # (N, F) of all items
    ) -> Float64:  # (M,) the score of each item
        """Score a map of features."""
        return self.score.score_items(embedding.embed(features[self.items]))


def make_split_score(
    held_out: Int64,
    labels: Labels,  # N encoded labels
    distance: LabelDistance,
    kind: SplitKind,
    groups: Int64 | None = None,  # (N,) numbers of groups; None for none
) -> SplitScore:
    """Choose the held-out items of a split that are scored."""
    most = _MOST_LINKED if distance.is_partial else _MOST_SCORED
    items = np.sort(np.random.default_rng(0).permutation(held_out)[:most])
    near = near_in_order(items, len(labels)) if kind == "blocks" else None
    if groups is not None and kind != "classes":  # which are to be found
        near = _same_group(groups[items])
    score = _make_score(labels[items], distance, near)
    if not score.tells and distance.is_partial:
        raise UserError(
            f"'tune' holds out a fifth of the items at a time, and too few pairs with a known label distance lie "
            f"within the {len(items)} held-out items. Give the distances of more pairs, or leave 'tune' out."
        )
    if not score.tells:
        mend = {
            "classes": "Leave 'groups' out (of a dataset: group_column=none).",
            "groups": "Make the groups smaller, or leave 'groups' out (of a dataset: group_column=none).",
            "blocks": "Shuffle the items, or give 'groups'.",
            "random": "Give more items with other labels.",
        }[kind]
        raise UserError(
            f"'tune' holds out a fifth of the items at a time, and the labels of {len(items)} held-out ones are all "
            f"equally far from each other. {mend}"
        )
    return SplitScore(items, score)


def _same_group(groups: Int64) -> Bools | None:
    """Pairs (M, M) of one group, which any features retrieve; None where too few other items would be left."""
    same: Bools = groups[:, None] == groups
    return same if int((~same).sum(axis=1).min()) >= _FEWEST_OTHERS else None


def _make_score(labels: Labels, distance: LabelDistance, near: Bools | None) -> FirstItemsScore | KnownPairsScore:
    """The score of items by their labels; pairs that are near in the order are left out."""
    if not distance.is_partial:
        return FirstItemsScore(distance.pairwise(labels, labels), near)
    pairs = distance.known_pairs(labels)
    if pairs is None:  # a distance made of others does not list them
        block = distance.pairwise(labels, labels)
        first, second = np.nonzero(np.triu(np.isfinite(block), 1))
        pairs = KnownPairs(first, second, block[first, second])
    if near is not None:
        is_kept = ~near[pairs.first, pairs.second]
        pairs = KnownPairs(pairs.first[is_kept], pairs.second[is_kept], pairs.distances[is_kept])
    return KnownPairsScore(pairs, len(labels))


TUNE_FITS = "checkpoints/tune"  # folder of a run


def fit_once(
    folder: Path | None,  # the run folder, whose options and data are those of the fit; None keeps nothing
    name: str,
    fit: Callable[[], dict[str, LinearMap]],
) -> dict[str, LinearMap]:
    """Read a fit from the run folder, or make it and keep it there."""
    if folder is None:
        return fit()
    path = folder / TUNE_FITS / f"{name}.safetensors"
    if kept := _read_fit(path):
        return kept
    maps = fit()
    tensors = {}
    for number, (title, part) in enumerate(maps.items()):
        tensors[f"{number:06} weight {title}"] = torch.from_numpy(np.ascontiguousarray(part.weight))
        tensors[f"{number:06} bias {title}"] = torch.from_numpy(np.ascontiguousarray(part.bias))
        tensors[f"{number:06} normalize {title}"] = torch.tensor(part.normalize)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_tensors(path, tensors)
    return maps


def _read_fit(path: Path) -> dict[str, LinearMap]:
    """The maps of a file; none if it is missing or damaged, so that they are fitted anew."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        return {}
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError):
        return {}
    maps = {}
    for key in sorted(key for key in tensors if " weight " in key[:14]):
        number, _, title = key.split(" ", 2)
        bias, normalize = (tensors[f"{number} {part} {title}"] for part in ("bias", "normalize"))
        maps[title] = LinearMap(tensors[key].numpy(), bias.numpy(), bool(normalize))
    return maps
