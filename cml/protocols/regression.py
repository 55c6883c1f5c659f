"""regression: errors of labels predicted from frozen embeddings, by neighbours and by a linear probe."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.array_types import Bools, Float64, Int64
from cml.distances import LabelDistance, Labels
from cml.errors import UserError
from cml.protocols.figures import ProtocolResult, jackknife
from cml.protocols.protocol import EmbeddedItems, Protocol
from cml.retrieval.label_regression import ALPHAS
from cml.retrieval.other_groups import find_other_groups
from cml.settings import check_number, check_whole

_MANY, _FEW = 100, 20  # training items in a bin of labels, of Yang et al.


@dataclass(frozen=True)
class Regression(Protocol):
    """Errors of labels that are predicted from frozen embeddings.

    Two predictions are measured: ``knn``, the mean label of the nearest items of the gallery, and ``probe``, a ridge
    regression on standardised embeddings that is fitted to the gallery, its strength chosen by leave-one-out errors.
    Without a gallery each query is predicted from the other queries: its neighbours among them, and a probe that was
    fitted without its part of them. With groups, only items of other groups predict.

    Figures of numbers and vectors are those of scikit-learn, in label units: means over components of ``mae``, ``rmse``
    and ``r2``. Of angles, places and the like the error is the label distance between prediction and label. Numbers
    also have ``spearman`` and ``kendall`` (tau-b) between predictions and labels. It is how Rank-N-Contrast (Zha et
    al., NeurIPS 2023) and imbalanced regression (Yang et al., Delving into Deep Imbalanced Regression, ICML 2021)
    report.

    Attributes:
        k: Neighbours of ``knn``, at most as many as there are.
        folds: Parts of the queries, of which each is predicted by a probe that is fitted to the others, without a
            gallery.
        bin_width: Width of the bins of labels for errors by region, in label units: ``mae_many`` where more than 100
            items of the gallery are in the label's bin, ``mae_few`` where fewer than 20 are, ``mae_medium`` between. 0
            for none.
        seed: Random seed of the folds and of the blocks of the intervals.

    Example:
        >>> import numpy as np
        >>> from cml import distances
        >>> ages = np.arange(60.0)
        >>> distance = distances.get("euclidean")
        >>> items = EmbeddedItems(np.stack([ages, ages % 7], 1).astype(np.float32), distance.encode(ages))
        >>> result = Regression(k=2).measure(distance, items)
        >>> result.figures["probe"]["r2"].value > 0.99
        True
    """

    k: int = 10
    folds: int = 5
    bin_width: float = 0.0
    name: ClassVar[str] = "regression"
    uses_training_items: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole("k", self.k)
        check_whole("folds", self.folds, least=2)
        check_number("bin_width", self.bin_width, least=0)

    def measure(
        self, distance: LabelDistance, queries: EmbeddedItems, gallery: EmbeddedItems | None = None
    ) -> ProtocolResult:
        """Predict the labels of the queries, and measure the errors."""
        known = queries if gallery is None else gallery
        vectors = self._read_vectors(distance, known.labels)
        if min(len(queries), len(known)) < self.folds:
            raise UserError(
                f"The protocol 'regression' needs at least {self.folds} items a side, one for each of its 'folds'. Got "
                f"{len(queries)} queries and {len(known)} gallery items instead."
            )
        own, theirs = _groups_that_differ(queries, gallery)
        nearest = self._find_nearest(queries, known, own, theirs)
        by_neighbors, by_probe = vectors[nearest].mean(axis=1), self._fit_probe(queries, gallery, vectors)
        truth = _labels_of(distance, self._read_vectors(distance, queries.labels))
        fallback = _labels_of(distance, vectors[nearest[:, 0]])  # where a mean of angles has no direction
        units = np.arange(len(queries)) if queries.groups is None else queries.groups
        number = np.unique(units, return_inverse=True)[1]
        regions = self._find_regions(truth, _labels_of(distance, vectors))
        rows = {}
        for row, predicted_vectors in (("knn", by_neighbors), ("probe", by_probe)):
            predicted = _labels_of(distance, predicted_vectors)
            predicted = np.where(np.isnan(predicted), fallback, predicted)
            is_linear = predicted.shape[1] == predicted_vectors.shape[1]
            errors = predicted - truth if is_linear else _paired(distance, predicted, truth)
            mean = np.broadcast_to(_labels_of(distance, vectors.mean(axis=0, keepdims=True)), truth.shape)
            spread = truth if is_linear else _paired(distance, np.where(np.isnan(mean), truth[:1], mean), truth)
            measured = _Predictions(predicted, truth, errors, spread, regions, is_linear)
            of_units = functools.partial(_measure_units, measured, number)
            rows[row] = jackknife(of_units, int(number.max()) + 1, seed=self.seed)
        who = "the gallery" if gallery is not None else "the other queries"
        note = (
            f"Labels of {len(queries)} queries predicted from {who}: knn is the mean of {nearest.shape[1]} neighbours, "
            f"probe a ridge regression on the embeddings. In {distance.unit}; 95 % intervals over "
            f"{'queries' if queries.groups is None else 'groups of queries'}, given the gallery."
        )
        return ProtocolResult(self.name, rows, note)

    def _read_vectors(self, distance: LabelDistance, labels: Labels) -> Float64:
        """The labels as vectors whose means are means of labels, (N, V)."""
        vectors = distance.label_vectors(labels)
        if vectors is None or distance.labels_from_vectors(np.asarray(vectors[:1], np.float64)) is None:
            raise UserError(
                "The protocol 'regression' needs labels that are numbers, vectors, angles or places. Got the label "
                f"distance {distance.name!r} instead, whose labels have no mean."
            )
        return np.asarray(vectors, np.float64)

    def _find_nearest(self, queries: EmbeddedItems, known: EmbeddedItems, own: Int64, theirs: Int64) -> Int64:
        """Positions (Q, k) of the nearest items of other groups, nearest first."""
        largest = int(np.bincount(np.concatenate([own, theirs]))[own].max()) if known is queries else 0
        k = min(self.k, len(known) - largest) if known is queries else min(self.k, len(known))
        _, positions, is_other = find_other_groups(queries.embeddings, known.embeddings, max(1, k), own, theirs)
        usable = int(is_other.sum(axis=1).min())
        if not usable:
            raise UserError("A query has no item of another group to be predicted from.")
        return positions[:, :usable]

    def _fit_probe(self, queries: EmbeddedItems, gallery: EmbeddedItems | None, vectors: Float64) -> Float64:
        """The vectors (Q, V) that a ridge regression predicts."""
        from sklearn.linear_model import RidgeCV
        from sklearn.model_selection import GroupKFold, KFold, cross_val_predict
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        probe = make_pipeline(StandardScaler(), RidgeCV(alphas=ALPHAS))
        rows = queries.embeddings.astype(np.float64)
        if gallery is not None:
            predicted = probe.fit(gallery.embeddings.astype(np.float64), vectors).predict(rows)
        elif queries.groups is not None and len(np.unique(queries.groups)) >= self.folds:
            predicted = cross_val_predict(probe, rows, vectors, groups=queries.groups, cv=GroupKFold(self.folds))
        else:
            folds = KFold(self.folds, shuffle=True, random_state=self.seed)
            predicted = cross_val_predict(probe, rows, vectors, cv=folds)
        return np.asarray(predicted, np.float64).reshape(len(rows), -1)

    def _find_regions(self, truth: Float64, known: Float64) -> Mapping[str, Bools]:
        """Which queries have a label with many, medium or few items of the gallery in its bin."""
        if not self.bin_width or truth.shape[1] > 1:
            return {}
        bins, counts = np.unique(np.floor(known[:, 0] / self.bin_width), return_counts=True)
        own = np.floor(truth[:, 0] / self.bin_width)
        place = np.minimum(np.searchsorted(bins, own), len(bins) - 1)
        count = np.where(bins[place] == own, counts[place], 0)
        return {"many": count > _MANY, "medium": (count <= _MANY) & (count >= _FEW), "few": count < _FEW}


@dataclass(frozen=True)
class _Predictions:
    """Predicted labels (Q, C) beside the true ones."""

    predicted: Float64
    truth: Float64
    errors: Float64  # (Q, C) signed of numbers, else (Q, 1)
    spread: Float64  # the same of the mean label in place of a prediction; of numbers the labels themselves
    regions: Mapping[str, Bools]
    is_linear: bool

    def measure(self, kept: Bools) -> dict[str, float]:
        """The figures of the queries that are kept, (Q,)."""
        errors, spread = self.errors[kept], self.spread[kept]
        squares = np.square(spread - spread.mean(axis=0) if self.is_linear else spread).sum(axis=0)
        explained = np.divide(
            np.square(errors).sum(axis=0), squares, out=np.full(len(squares), np.nan), where=squares > 0
        )
        figures = {
            "mae": float(np.abs(errors).mean()),
            "rmse": float(np.sqrt(np.square(errors).mean(axis=0)).mean()),
            "r2": float(1 - explained.mean()),
        }
        if self.is_linear and self.truth.shape[1] == 1:
            figures |= _correlate(self.predicted[kept, 0], self.truth[kept, 0])
        for region, is_in in self.regions.items():
            inside = np.abs(self.errors[kept & is_in])
            figures[f"mae_{region}"] = float(inside.mean()) if len(inside) else float("nan")
        return figures


def _measure_units(of: _Predictions, number: Int64, kept: Bools) -> dict[str, float]:
    """The figures of the queries whose unit is kept, (U,)."""
    return of.measure(kept[number])


def _correlate(predicted: Float64, truth: Float64) -> dict[str, float]:
    """Rank correlations; NaN where all are alike."""
    from scipy.stats import kendalltau, spearmanr

    if not (np.ptp(predicted) > 0 and np.ptp(truth) > 0):
        return {"spearman": float("nan"), "kendall": float("nan")}
    return {
        "spearman": float(spearmanr(predicted, truth).statistic),
        "kendall": float(kendalltau(predicted, truth).statistic),
    }


def _labels_of(distance: LabelDistance, vectors: Float64) -> Float64:
    """The labels (N, C) nearest to vectors (N, V)."""
    labels = distance.labels_from_vectors(vectors)
    return np.asarray(labels, np.float64).reshape(len(vectors), -1)


def _paired(distance: LabelDistance, predicted: Float64, truth: Float64) -> Float64:
    """The label distance (N, 1) between labels in pairs."""
    left, right = distance.encode(predicted.tolist()), distance.encode(truth.tolist())
    between = [distance.pairwise(left[row : row + 1], right[row : row + 1])[0, 0] for row in range(len(truth))]
    return np.array(between, np.float64)[:, None]


def _groups_that_differ(queries: EmbeddedItems, gallery: EmbeddedItems | None) -> tuple[Int64, Int64]:
    """Numbers of groups, (Q,) and (G,), such that items of one group do not predict each other."""
    if queries.groups is not None and (gallery is None or gallery.groups is not None):
        theirs = queries.groups if gallery is None or gallery.groups is None else gallery.groups
        return queries.groups, theirs
    own = np.arange(len(queries))
    return own, own if gallery is None else np.arange(len(queries), len(queries) + len(gallery))
