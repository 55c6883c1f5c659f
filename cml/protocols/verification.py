"""verification: whether two items are of the same class, told by their embedding distance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.array_types import Bools, Float32, Float64, Int64
from cml.distances import LabelDistance
from cml.errors import UserError
from cml.protocols.figures import Figure, ProtocolResult, jackknife
from cml.protocols.protocol import EmbeddedItems, Protocol, read_class_numbers
from cml.settings import check_number, check_whole

_ROWS = 1 << 16  # pairs whose distances are computed at a time


@dataclass(frozen=True)
class Verification(Protocol):
    """Whether two items are of the same class, as faces and signatures are verified.

    All pairs of queries, or of a query and a gallery item, are ranked by embedding distance; with groups, only pairs
    of different groups. Of more than ``most_pairs`` pairs of a kind a random part is taken. Figures: ``auc``, the area
    under the ROC curve; ``eer``, the rate at which false accepts and false rejects are equal; ``tar@F``, the share of
    same pairs that are accepted where at most the share F of different pairs is, as scikit-learn's ``roc_curve`` has
    it; ``accuracy``, the mean of the two rates of right answers, at the threshold that is best for the classes of the
    other folds, as Labeled Faces in the Wild has it (Huang et al., 2007).

    Attributes:
        false_accepts: The rates F of ``tar@F``; one that is less than one of the different pairs is not measured.
        folds: Parts of the classes for ``accuracy``.
        most_pairs: Of same pairs, and of different pairs.
        seed: Random seed of pairs and folds.

    Example:
        >>> import numpy as np
        >>> from cml import distances
        >>> distance = distances.get("classes")
        >>> names = [name for name in "abcdefghij" for _ in range(3)]
        >>> rows = np.repeat(np.eye(10, dtype=np.float32), 3, axis=0)
        >>> result = Verification(folds=5).measure(distance, EmbeddedItems(rows, distance.encode(names)))
        >>> result.figures["embedding"]["auc"].value
        1.0
    """

    false_accepts: tuple[float, ...] = (0.1, 0.01, 0.001)
    folds: int = 10
    most_pairs: int = 1_000_000
    name: ClassVar[str] = "verification"

    def __post_init__(self) -> None:
        super().__post_init__()
        for rate in self.false_accepts:
            check_number("false_accepts", rate, least=0, below=1, open_=True)
        check_whole("folds", self.folds, least=2)
        check_whole("most_pairs", self.most_pairs)

    def measure(
        self, distance: LabelDistance, queries: EmbeddedItems, gallery: EmbeddedItems | None = None
    ) -> ProtocolResult:
        """Rank pairs by embedding distance."""
        other = queries if gallery is None else gallery
        own, *rest = read_class_numbers(self.name, distance, [queries] if gallery is None else [queries, gallery])
        theirs = rest[0] if rest else own
        pairs = self._draw_pairs(queries, gallery, own, theirs)
        if not 0 < pairs.is_same.sum() < len(pairs.is_same):
            raise UserError(
                "The protocol 'verification' needs pairs of the same class and of different ones. Got "
                f"{pairs.is_same.sum()} and {(~pairs.is_same).sum()} instead."
            )
        apart = _measure_pairs(queries.embeddings, other.embeddings, pairs.first, pairs.second)
        classes = int(max(own.max(), theirs.max())) + 1
        first, second = own[pairs.first], theirs[pairs.second]

        def measure(kept: Bools) -> dict[str, float]:
            chosen = kept[first] & kept[second]
            return _read_curve(pairs.is_same[chosen], apart[chosen], self.false_accepts)

        figures = jackknife(measure, classes, seed=self.seed, lowest=0, highest=1)
        figures["accuracy"] = self._fold_accuracy(pairs.is_same, apart, first, second, classes)
        note = (
            f"{int(pairs.is_same.sum()):,} pairs of the same class and {int((~pairs.is_same).sum()):,} of different "
            f"ones, of {classes} classes. 95 % intervals over classes; that of accuracy over {self.folds} folds of "
            "classes."
        )
        return ProtocolResult(self.name, {"embedding": figures}, note)

    def _draw_pairs(
        self, queries: EmbeddedItems, gallery: EmbeddedItems | None, own: Int64, theirs: Int64
    ) -> _ItemPairs:
        """Pairs of the same class, then of different ones, each once and at most ``most_pairs`` of a kind."""
        rng = np.random.default_rng(self.seed)
        is_one_side = gallery is None
        other_groups = queries.groups if is_one_side else gallery.groups if gallery is not None else None

        def is_usable(first: Int64, second: Int64) -> Bools:
            usable = first < second if is_one_side else np.ones(len(first), bool)
            if queries.groups is not None and other_groups is not None:
                usable &= queries.groups[first] != other_groups[second]
            return usable

        same = [np.empty((0, 2), np.int64)]
        members = [np.flatnonzero(theirs == number) for number in range(int(max(own.max(), theirs.max())) + 1)]
        for row, number in enumerate(own.tolist()):
            found = members[number]
            same.append(np.stack([np.full(len(found), row), found], axis=1))
        same_pairs = np.concatenate(same)
        same_pairs = same_pairs[is_usable(same_pairs[:, 0], same_pairs[:, 1])]
        if len(same_pairs) > self.most_pairs:
            same_pairs = same_pairs[np.sort(rng.choice(len(same_pairs), self.most_pairs, replace=False))]
        total = len(own) * len(theirs)
        # each pair of a random part of all; of one side half of them are the other half turned round
        wanted = min(total, 4 * self.most_pairs)
        flat = np.arange(total) if wanted == total else np.unique(rng.integers(0, total, wanted))
        first, second = np.divmod(flat, len(theirs))
        usable = is_usable(first, second) & (own[first] != theirs[second])
        different = np.stack([first[usable], second[usable]], axis=1)
        if len(different) > self.most_pairs:
            different = different[np.sort(rng.choice(len(different), self.most_pairs, replace=False))]
        both = np.concatenate([same_pairs, different])
        return _ItemPairs(both[:, 0], both[:, 1], np.arange(len(both)) < len(same_pairs))

    def _fold_accuracy(self, is_same: Bools, apart: Float64, first: Int64, second: Int64, classes: int) -> Figure:
        """The accuracy of each fold of classes at the best threshold of the others."""
        from scipy.stats import t

        fold_of = np.random.default_rng(self.seed).permutation(classes) % self.folds
        found = []
        for fold in range(self.folds):
            inside = (fold_of[first] == fold) & (fold_of[second] == fold)
            outside = (fold_of[first] != fold) & (fold_of[second] != fold)
            if len(np.unique(is_same[inside])) == 2 and len(np.unique(is_same[outside])) == 2:
                threshold = _best_threshold(is_same[outside], apart[outside])
                accepted = apart[inside] <= threshold
                rates = accepted[is_same[inside]].mean(), (~accepted)[~is_same[inside]].mean()
                found.append(float(np.mean(rates)))
        if len(found) < 2:
            return Figure(found[0]) if found else Figure(math.nan)
        mean, half = float(np.mean(found)), t.ppf(0.975, len(found) - 1) * np.std(found, ddof=1) / len(found) ** 0.5
        return Figure(mean, max(0.0, mean - float(half)), min(1.0, mean + float(half)))


@dataclass(frozen=True)
class _ItemPairs:
    """P pairs of items: positions of the first and of the second, and whether they are of the same class."""

    first: Int64
    second: Int64
    is_same: Bools


def _measure_pairs(left: Float32, right: Float32, first: Int64, second: Int64) -> Float64:
    """The embedding distances (P,) of pairs, in float64."""
    parts = [
        np.linalg.norm(
            left[first[start : start + _ROWS]].astype(np.float64) - right[second[start : start + _ROWS]], axis=1
        )
        for start in range(0, len(first), _ROWS)
    ]
    return np.concatenate(parts)


def _read_curve(is_same: Bools, apart: Float64, rates: tuple[float, ...]) -> dict[str, float]:
    """The figures of a ROC curve; NaN where there are no pairs of one kind."""
    from sklearn.metrics import auc, roc_curve

    names = ["auc", "eer", *(f"tar@{rate:g}" for rate in rates)]
    if not 0 < is_same.sum() < len(is_same):
        return dict.fromkeys(names, float("nan"))
    false, true, _ = roc_curve(is_same, -apart, drop_intermediate=False)
    values = [float(auc(false, true)), _equal_error_rate(false, true)]
    different = len(is_same) - int(is_same.sum())
    for rate in rates:
        values.append(float(true[false <= rate].max()) if rate * different >= 1 else float("nan"))
    return dict(zip(names, values, strict=True))


def _equal_error_rate(false: Float64, true: Float64) -> float:
    """Where the curve meets the line on which both kinds of errors are equal, linear between its points."""
    gap = false + true - 1  # rising, from -1 to 1
    place = int(np.searchsorted(gap, 0))
    if gap[place] == 0:
        return float(false[place])
    share = -gap[place - 1] / (gap[place] - gap[place - 1])
    return float(false[place - 1] + share * (false[place] - false[place - 1]))


def _best_threshold(is_same: Bools, apart: Float64) -> float:
    """The distance up to which pairs count as the same with the largest mean of the two rates of right answers."""
    from sklearn.metrics import roc_curve

    false, true, thresholds = roc_curve(is_same, -apart)
    return -float(thresholds[np.argmax(true - false)])
