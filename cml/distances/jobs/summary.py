"""Statistics of a dataset's label distances: zeros, ties, spread, quantiles, from a sample of pairs."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cml.array_types import Float32, Float64, Int64
from cml.distances.blas_threads import one_blas_thread
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.distances.nearest import KnownPairs
from cml.errors import UserError

SAMPLE_ITEMS = 512  # items whose pairs are looked at: 130,816, the same that fix a loss's constants at training
# 1, 2 and 5 % are where losses put floors, 5 to 50 % where they put thresholds
QUANTILES = (0.0, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Summary:
    """Statistics of a sample of pairs. Shares are of pairs of two different items."""

    items: int  # items in the sample; all of their pairs are looked at
    of_items: int  # items in all
    pairs: int  # pairs in the sample
    unit: str  # unit of the distances
    zeros: float  # share of pairs at distance 0
    infinities: float  # share of pairs that cannot be compared
    alone: float  # share of items that can be compared with no other of the sample
    ties: float  # how often two other items are at the same finite distance from an item; 0 if ranks are unique

    # standard deviation of the natural logarithm of the positive finite distances: a factor of e^(2 log_std) lies
    # between near and far, and log-ratio takes 1 / log_std as its exponent
    log_std: float
    mean: float  # mean of the finite distances
    quantiles: dict[float, float]  # share to distance, over the finite distances: thresholds
    positive_quantiles: dict[float, float]  # the same over those above 0: floors
    distances: Float32  # (P,) float32, the sample

    def to_json(self) -> dict[str, Any]:
        """Return all figures, without the sample."""
        values = {name: value for name, value in vars(self).items() if name != "distances"}
        for name in ("quantiles", "positive_quantiles"):
            values[name] = {f"{share:g}": value for share, value in values[name].items()}
        return values

    def table(self) -> str:
        """Format the figures as lines of text."""
        rows = [
            ("pairs", f"{self.pairs:,}, among {self.items:,} of the {self.of_items:,} items"),
            ("distance 0", f"{self.zeros:.3%}"),
            ("infinite", f"{self.infinities:.3%}" + (f", {self.alone:.1%} of items with all" if self.alone else "")),
            ("ties", f"{self.ties:.3%} of two others are equally far from an item"),
            ("mean", f"{self.mean:.4g} {self.unit}"),
            ("scale", f"{self.log_std:.3f}, standard deviation of the logarithm of the distances above 0"),
        ]
        for share, value in self.quantiles.items():
            above = f" (without the zeros: {self.positive_quantiles[share]:.4g})" if self.zeros else ""
            rows.append((f"quantile {share:g}", f"{value:.4g} {self.unit}{above}"))
        width = max(len(name) for name, _ in rows)
        return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def summarize(
    distance: LabelDistance,
    labels: Labels,  # N encoded labels
    *,
    unit: str = "",  # unit of the distances if the dataset knows it better than the label distance; "" otherwise
    seed: int = 0,
    items: int = SAMPLE_ITEMS,
) -> Summary:
    """Compute statistics of all pairs among some items; of a distance that lists its known pairs, of all items."""
    if min(items, len(labels)) < 3:
        raise UserError(f"A summary needs at least 3 items. Got {min(items, len(labels))} instead.")
    generator = np.random.default_rng(seed)
    known = distance.known_pairs(labels)
    if known is not None:
        return _summarize_known_pairs(distance, len(labels), known, unit or distance.unit, generator)
    chosen = generator.permutation(len(labels))[:items]
    with one_blas_thread():
        block = distance.pairwise(labels[chosen], labels[chosen])
    apart = ~np.eye(len(chosen), dtype=np.bool_)
    sample = block[np.triu_indices(len(chosen), 1)] if distance.is_symmetric else block[apart]
    finite = sample[np.isfinite(sample)].astype(np.float64)
    positive = _positive(finite, len(sample))
    unknown = np.isinf(block) & apart
    return Summary(
        items=len(chosen),
        of_items=len(labels),
        pairs=len(sample),
        unit=unit or distance.unit,
        zeros=float((sample == 0).mean()),
        infinities=float(np.isinf(sample).mean()),
        alone=float((unknown.sum(axis=1) == len(chosen) - 1).mean()),
        ties=ties(block),
        log_std=float(np.log(positive).std()),
        mean=float(finite.mean()),
        quantiles=_quantiles(finite),
        positive_quantiles=_quantiles(positive),
        distances=sample,
    )


def _summarize_known_pairs(
    distance: LabelDistance, items: int, known: KnownPairs, unit: str, generator: np.random.Generator
) -> Summary:
    """Statistics of the known pairs of N items; the shares are of all pairs."""
    pairs = items * (items - 1) // (2 if distance.is_symmetric else 1)
    finite = known.distances.astype(np.float64)
    positive = _positive(finite, pairs)
    owners, values = known.first, known.distances
    if distance.is_symmetric:
        owners, values = np.concatenate([owners, known.second]), np.tile(values, 2)
    chosen = np.isin(owners, generator.permutation(items)[:SAMPLE_ITEMS])
    most = SAMPLE_ITEMS * (SAMPLE_ITEMS - 1) // 2
    sample = known.distances
    return Summary(
        items=items,
        of_items=items,
        pairs=pairs,
        unit=unit,
        zeros=float((finite == 0).sum() / pairs),
        infinities=1 - len(finite) / pairs,
        alone=1 - len(np.unique(np.concatenate([known.first, known.second]))) / items,
        ties=_ties_of_rows(owners[chosen], values[chosen]),
        log_std=float(np.log(positive).std()),
        mean=float(finite.mean()),
        quantiles=_quantiles(finite),
        positive_quantiles=_quantiles(positive),
        distances=sample if len(sample) <= most else generator.choice(sample, most, replace=False),
    )


def _positive(finite: Float64, pairs: int) -> Float64:
    """The distances above 0, which there must be."""
    positive = finite[finite > 0]
    if len(positive) == 0:
        raise UserError(
            f"Among {pairs:,} pairs none has a label distance above 0 and finite: the labels are all equal, or none "
            "can be compared."
        )
    return positive


def _quantiles(values: Float64) -> dict[float, float]:
    return dict(zip(QUANTILES, np.quantile(values, QUANTILES).tolist(), strict=True))


def ties(block: Float32) -> float:  # block (N, N) distances -> the share, 0 to 1
    """Compute the share of pairs of items at the same finite distance from a third, over all items."""
    owners, columns = np.nonzero(np.isfinite(block) & ~np.eye(len(block), dtype=np.bool_))
    return _ties_of_rows(owners, block[owners, columns])


def _ties_of_rows(owners: Int64, distances: Float32) -> float:
    """The share of pairs of an item's others that are at the same distance from it, over the items of (E,) entries."""
    order = np.lexsort((distances, owners))
    owners, distances = owners[order], distances[order]
    another = np.diff(owners, prepend=-1) > 0
    others = np.diff(np.flatnonzero(another), append=len(owners))  # of each item
    another[1:] |= distances[1:] != distances[:-1]
    equal = np.diff(np.flatnonzero(another), append=len(owners))  # of each distance from an item
    pairs = int((others * (others - 1)).sum())
    return int((equal * (equal - 1)).sum()) / pairs if pairs else 0.0
