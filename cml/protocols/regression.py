"""regression: errors of labels predicted from frozen embeddings, by neighbours and by a linear probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cml.array_types import Bools, Float64
from cml.distances import LabelDistance, Labels
from cml.distances.label_distance import listed_distances
from cml.errors import UserError
from cml.protocols.figures import ProtocolResult, jackknife
from cml.protocols.nearest_lists import NearestLists, number_other_groups
from cml.protocols.protocol import EmbeddedItems, Protocol
from cml.retrieval.label_regression import ALPHAS
from cml.retrieval.metric_result import GIVEN_GALLERY
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
        lists = NearestLists.find(queries.embeddings, known.embeddings, number_other_groups(queries, gallery), self.k)
        truth = _labels_of(distance, self._read_vectors(distance, queries.labels))
        fallback = _labels_of(distance, vectors[lists.positions[:, 0]])  # where a mean of angles has no direction
        compare = _Comparison(
            distance, truth, fallback, vectors, self._find_regions(truth, _labels_of(distance, vectors))
        )
        by_probe = self._fit_probe(queries, gallery, vectors)
        units = np.arange(len(queries)) if queries.groups is None else queries.groups
        number = np.unique(units, return_inverse=True)[1]

        def measure_neighbors(kept: Bools) -> dict[str, float]:
            items = kept[number] if gallery is None else np.ones(len(known), bool)  # those that predict
            return compare.measure(_average_lists(lists, vectors, items), kept[number])

        def measure_probe(kept: Bools) -> dict[str, float]:
            return compare.measure(by_probe, kept[number])

        count = int(number.max()) + 1
        rows = {
            "knn": jackknife(measure_neighbors, count, seed=self.seed),
            "probe": jackknife(measure_probe, count, seed=self.seed),
        }
        who = f"those of {len(gallery):,} other items" if gallery is not None else "the other queries"
        note = (
            f"Labels of {len(queries)} queries predicted from {who}: knn is the mean of {lists.k} neighbours, probe "
            f"a ridge regression on the embeddings. In {distance.unit}; 95 % intervals over "
            f"{'queries' if queries.groups is None else 'groups of queries'}{'' if gallery is None else GIVEN_GALLERY}."
        )
        return ProtocolResult(self.name, rows, note)

    def _read_vectors(self, distance: LabelDistance, labels: Labels) -> Float64:
        """The labels as vectors, (N, V); an error where they have no mean."""
        vectors = average_vectors(distance, labels)
        if vectors is None:
            raise UserError(
                "The protocol 'regression' needs labels that are numbers, vectors, angles or places. Got the label "
                f"distance {distance.name!r} instead, whose labels have no mean."
            )
        return vectors

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


def average_vectors(distance: LabelDistance, labels: Labels) -> Float64 | None:
    """The labels as vectors whose means are means of labels, (N, V); None where labels have no mean."""
    vectors = distance.label_vectors(labels)
    if vectors is None or distance.labels_from_vectors(np.asarray(vectors[:1], np.float64)) is None:
        return None
    return np.asarray(vectors, np.float64)


@dataclass(frozen=True)
class _Comparison:
    """What predictions of Q queries are compared with."""

    distance: LabelDistance
    truth: Float64  # (Q, C) labels
    fallback: Float64  # (Q, C) in place of a prediction that has no label
    vectors: Float64  # (G, V) of the items that predict
    regions: Mapping[str, Bools]  # (Q,) each

    def measure(self, predicted_vectors: Float64, kept: Bools) -> dict[str, float]:
        """The figures of predictions (Q, V), of the queries that are kept, (Q,)."""
        predicted, truth = _labels_of(self.distance, predicted_vectors[kept]), self.truth[kept]
        predicted = np.where(np.isnan(predicted), self.fallback[kept], predicted)
        is_linear = predicted.shape[1] == predicted_vectors.shape[1]
        errors = predicted - truth if is_linear else self._measure_pairs(predicted, truth)
        spread = truth - truth.mean(axis=0) if is_linear else self._measure_pairs(self._find_mean(truth), truth)
        squares = np.square(spread).sum(axis=0)
        explained = np.divide(
            np.square(errors).sum(axis=0), squares, out=np.full(len(squares), np.nan), where=squares > 0
        )
        figures = {
            "mae": float(np.abs(errors).mean()),
            "rmse": float(np.sqrt(np.square(errors).mean(axis=0)).mean()),
            "r2": float(1 - explained.mean()),
        }
        if is_linear and truth.shape[1] == 1:
            figures |= _correlate(predicted[:, 0], truth[:, 0])
        for region, is_in in self.regions.items():
            inside = np.abs(errors[is_in[kept]])
            figures[f"mae_{region}"] = float(inside.mean()) if len(inside) else float("nan")
        return figures

    def _find_mean(self, truth: Float64) -> Float64:
        """The mean label, for each of the labels (Q, C)."""
        mean = _labels_of(self.distance, self.vectors.mean(axis=0, keepdims=True))
        return np.broadcast_to(np.where(np.isnan(mean), truth[:1], mean), truth.shape)

    def _measure_pairs(self, predicted: Float64, truth: Float64) -> Float64:
        """The label distance (Q, 1) between labels in pairs."""
        left, right = self.distance.encode(predicted.tolist()), self.distance.encode(truth.tolist())
        return listed_distances(self.distance, left, right, np.arange(len(truth))[:, None]).astype(np.float64)


def _average_lists(lists: NearestLists, vectors: Float64, kept: Bools) -> Float64:
    """The mean vectors (Q, V) of the nearest items that are kept, (G,); NaN where there is none."""
    positions, is_filled = lists.take(kept)
    total = np.where(is_filled[..., None], vectors[positions], 0).sum(axis=1)
    counts = is_filled.sum(axis=1)[:, None]
    means: Float64 = np.divide(total, counts, out=np.full(total.shape, np.nan), where=counts > 0)
    return means


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
