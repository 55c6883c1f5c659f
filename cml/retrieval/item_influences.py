"""What each item does to a mean over queries, from which all intervals follow: as a query, in the gallery, or as both.

An item that is searched stands in the lists of many queries, whose values therefore depend on each other. So items are
what is sampled, not queries: the influence of an item is how far the mean moves without it (the jackknife). Influences
are linear in the metric: those of differences, means over seeds and linearised ratios are made of those of their parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from cml.array_types import Float64, Int64

_LEAST_SHARE = 1 / 7  # of the jackknife's variance that is left when what it counts twice is taken off


class Effects(NamedTuple):
    """How leaving out one gallery item changes the values of R queries."""

    # (R, W) positions in the gallery of the items that change a value, each once; further columns hold any item with
    # changes of 0
    items: Int64
    # (R, W, columns) float64: the value without the item less the value with it; NaN where the query then has no value,
    # 0 where it has none anyway
    changes: Float64


@dataclass(frozen=True, eq=False)
class ItemInfluences:
    """Means of one or several columns (...) and what each of their items contributes.

    Items are units that are drawn independently: single items, or groups of them. Where one unit has queries and
    gallery items, as where the queries are the gallery, there is one side; otherwise there are two.
    """

    mean: Float64  # (...) means over the queries
    first: Float64  # (..., n) influences of units with queries, or of all units where there is one side
    second: Float64  # (..., g) influences of the gallery's units where there are two sides; else g is 0
    # (..., n) sums of what two units do together, each with a fixed random sign, so that the sum of squares is that of
    # the parts in expectation: the change of the values of one without the other, where there is one side of both in
    # either direction. 0 columns for none
    signed: Float64
    # (..., n) per unit, the sum of the same without signs: of its queries, or of all pairs that it is in
    total: Float64
    known: Int64  # (...) number of units that have a query with a value
    ranked: Int64  # (...) number of the gallery's units that a query ranks

    @classmethod
    def of_queries(cls, values: Float64) -> ItemInfluences:
        """Influences of queries alone, given their gallery, on means of values (..., Q); NaN is left out."""
        present = np.isfinite(values)
        known = present.sum(axis=-1)
        mean = mean_of_present(values)
        centred = np.where(present, values - mean[..., None], 0)
        scale = values.shape[-1] / np.maximum(known, 1)
        none = np.zeros((*mean.shape, 0))
        return cls(mean, centred * scale[..., None], none, none, none, known, np.ones_like(known))

    def given_gallery(self) -> ItemInfluences | None:
        """The influences of the queries alone, where these are a side of their own; else None."""
        if not self.second.shape[-1]:
            return None
        none = np.zeros((*self.mean.shape, 0))
        return replace(self, second=none, signed=none, total=none)

    def __sub__(self, other: ItemInfluences) -> ItemInfluences:
        """The influences on differences of means."""
        return self._join(other, lambda ours, theirs: ours - theirs)

    def __mul__(self, factor: float) -> ItemInfluences:
        """The influences on means times a factor."""
        return self._join(self, lambda ours, _: factor * ours)

    def ratio(self, below: ItemInfluences) -> ItemInfluences:
        """The influences on ratios of means, to first order (the delta method); NaN where a denominator is 0.

        Where numerator and denominator are equal they are 0: the score of the oracle has no error.
        """
        divisor = np.where(below.mean == 0, np.nan, below.mean)
        quotient = self.mean / divisor
        linear = self._join(
            below, lambda ours, theirs: (ours - quotient[..., None] * theirs) / divisor[..., None], of_means=False
        )
        return replace(linear, mean=quotient)

    def average(self, axis: int = 0) -> ItemInfluences:
        """The influences on the mean over the seeds, the first axis, or another one; a NaN mean is left out of it."""
        present = np.isfinite(self.mean)
        counts = np.maximum(present.sum(axis=axis), 1)[..., None]
        parts = {name: np.where(present[..., None], getattr(self, name), 0).sum(axis=axis) / counts for name in _PARTS}
        is_left_out = ~present & present.any(axis=axis, keepdims=True)
        smallest = {
            name: np.where(is_left_out, np.iinfo(np.int64).max, getattr(self, name)).min(axis=axis)
            for name in ("known", "ranked")
        }
        return ItemInfluences(mean_of_present(np.moveaxis(self.mean, axis, -1)), **parts, **smallest)

    @classmethod
    def stack(cls, several: Sequence[ItemInfluences], axis: int = 0) -> ItemInfluences:
        """Influences of the same units along a new axis, before that of units."""
        return cls(
            **{field.name: np.stack([getattr(one, field.name) for one in several], axis) for field in fields(cls)}
        )

    def select(self, index: Any) -> ItemInfluences:  # noqa: ANN401 - as NumPy takes it
        """The influences on some of the columns."""
        return ItemInfluences(**{field.name: getattr(self, field.name)[index] for field in fields(self)})

    def to_json(self) -> dict[str, Any]:
        """Give the influences on one mean as JSON can hold them, to seven digits."""
        lists = {name: [float(f"{value:.7g}") for value in getattr(self, name).tolist()] for name in _PARTS}
        return {**lists, "known": int(self.known), "ranked": int(self.ranked)}

    @classmethod
    def from_json(cls, mean: float, saved: Mapping[str, Any]) -> ItemInfluences:
        """Read the result of ``to_json``."""
        lists = {name: np.array(saved[name], np.float64) for name in _PARTS}
        return cls(np.array(mean), **lists, known=np.array(saved["known"]), ranked=np.array(saved["ranked"]))

    def fits(self, other: ItemInfluences) -> bool:
        """Whether both have the same units."""
        return all(getattr(self, name).shape[-1] == getattr(other, name).shape[-1] for name in _PARTS)

    def covariance(self) -> Float64:
        """Covariance (K, K) of K means, less what the jackknife counts twice, as far as it is positive definite."""
        sides = [side / np.sqrt(max(1, side.shape[1] * (side.shape[1] - 1))) for side in (self.first, self.second)]
        jackknife = sum((side @ side.T for side in sides), np.zeros((len(self.mean),) * 2))
        main = self._main_effects()
        twice = self.signed @ self.signed.T - main @ main.T
        less: Float64 = jackknife - twice / max(1, self.first.shape[1]) ** 2
        return less if np.linalg.eigvalsh(less).min() >= 0 else jackknife

    def variances(self) -> tuple[Float64, Float64, Float64]:
        """Variances of the means, their degrees of freedom, and the skewness of the means; NaN for one unit.

        The jackknife counts twice what a query's value owes to the items in its list: in the value and in the influence
        of these items (Efron and Stein, The Jackknife Estimate of Variance, Annals of Statistics 9, 1981). That part is
        taken off once; a seventh of the variance is left at least. Degrees of freedom are Satterthwaite's of two sides,
        fewer by the square of the share that is left.
        """
        jackknife = np.zeros(self.mean.shape)
        squares, second, third = (np.zeros_like(jackknife) for _ in range(3))
        sides = [(self.first, self.known), (self.second, self.ranked)]
        for side, count in sides if self.second.shape[-1] else sides[:1]:
            size = side.shape[-1]
            largest = np.abs(side).max(axis=-1, initial=0)
            scale = np.where(largest > 0, largest, 1)
            scaled = side / scale[..., None]  # so that no power of it is 0
            power = scaled * scaled
            freedom = np.maximum(count - 1.0, 0)
            known = np.divide(count, freedom, out=np.full(freedom.shape, np.nan), where=freedom > 0)
            plain = power.sum(axis=-1) * (scale / max(1, size)) ** 2
            second += plain
            variance = plain * known
            squares += variance**2 / np.maximum(freedom, 1)
            jackknife += variance
            third += (power * scaled).sum(axis=-1) * (scale / max(1, size)) ** 3
        square, main = ((part * part).sum(axis=-1) for part in (self.signed, self._main_effects()))
        twice = (square - main) / max(1, self.first.shape[-1]) ** 2
        variance = np.maximum(jackknife - np.maximum(twice, 0), _LEAST_SHARE * jackknife)
        is_spread = jackknife > 0
        share = np.divide(variance, jackknife, out=np.ones_like(variance), where=is_spread)
        most = np.array(np.maximum(self.known - 1.0, 1))  # an array also of one mean
        freedom = np.divide(jackknife**2, squares, out=most, where=(squares > 0) & is_spread)
        freedom = np.maximum(np.minimum(_LEAST_FREEDOM, freedom), freedom * share**2)
        scale = second**1.5
        skewness = np.divide(third, scale, out=np.zeros_like(third), where=scale > 0)
        return variance, freedom, skewness

    def _main_effects(self) -> Float64:
        """What single units do in all of their pairs, by least squares; the rest of ``signed`` pairs do together."""
        size = self.total.shape[-1]
        if self.second.shape[-1] or not size:
            return self.total / np.sqrt(np.maximum(self.ranked, 1))[..., None]
        centre = self.total.mean(axis=-1, keepdims=True)
        apart = (self.total - centre) / np.sqrt(max(1, size - 2))
        return np.concatenate([apart, centre * np.sqrt(size / (2 * max(1, size - 1)))], axis=-1)

    def _join(
        self, other: ItemInfluences, join: Callable[[Float64, Float64], Float64], *, of_means: bool = True
    ) -> ItemInfluences:
        parts = {name: join(getattr(self, name), getattr(other, name)) for name in _PARTS}
        mean = join(self.mean, other.mean) if of_means else self.mean
        return ItemInfluences(
            mean, **parts, known=np.minimum(self.known, other.known), ranked=np.minimum(self.ranked, other.ranked)
        )


_PARTS = ("first", "second", "signed", "total")
_LEAST_FREEDOM = 4.0


def mean_of_present(values: Float64) -> Float64:
    """Means of values (..., Q) without NaN: of equal values their own value exactly; NaN for none."""
    present = np.isfinite(values)
    counts = present.sum(axis=-1)
    largest = np.where(present, values, -np.inf).max(axis=-1, initial=-np.inf)
    origin = np.where(counts > 0, largest, 0)
    total = np.where(present, values - origin[..., None], 0).sum(axis=-1)
    mean: Float64 = origin + np.divide(total, counts, out=np.full(total.shape, np.nan), where=counts > 0)
    return mean
