"""What ``Run`` says of new items: their labels, predicted from those of training items, and how far off they are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cml.array_types import Bools, Float32, Float64
from cml.data.image_list import ImageList
from cml.doors.search_model import is_of_search
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.label_inputs import label_split
from cml.retrieval.neighbor_labels import predict_constant, predict_with_spread
from cml.retrieval.search import nearest_embeddings

if TYPE_CHECKING:
    from cml.doors.trained_run import TrainedRun

_LEVEL = 0.9  # of new items, whose errors the bounds are to cover
_FEWEST = 9  # test items that such a bound takes
_MOST, _BLOCK = 2000, 64  # test items that are predicted, and at a time


class PredictionError(NamedTuple):
    """How far predictions of test items are from their labels."""

    items: int  # the number of test items
    mean: float  # mean label distance
    constant: float  # that of one label for all, the mean of the training labels or their medoid
    unit: str  # the unit of label distances


class Predictions(NamedTuple):
    """Predicted labels of N items."""

    item_ids: list[str]
    labels: list[Any]
    # (N,) label distance from the prediction within which the true labels of 90 % of items like the test items lie, the
    # wider the more the neighbours disagree; infinite where test items are fewer than 9, and of training items
    bounds: Float64
    are_trained: Bools  # (N,) whether each is a training item, which the others predict
    error: PredictionError | None  # None where no test item's label can be compared with its prediction
    column: str  # the name of the label in the dataset
    unit: str  # its unit; "" for none


def predict(self: TrainedRun, inputs: Path | str, *, k: int = 10) -> Predictions:
    """Predict labels from those of the nearest training items, and say how far such predictions of test items are off.

    Args:
        inputs: A folder of images, a prepared dataset, whose test items are predicted without their labels, or a .npy
            file of vectors. Training items are recognised by their content, and predicted from the others.
        k: Training items that predict a label, weighted by the inverse of their embedding distance.

    Returns:
        Ids and labels, of the form of the training labels: means of numbers, vectors, angles and places; of other
        labels that of the medoid of the neighbours. The bounds are those of split conformal prediction, scaled by how
        far the neighbours disagree (Lei et al., Distribution-free predictive inference for regression, 2018).

    Raises:
        UserError: The inputs are of another form than the model's, there are fewer training items than ``k``, or the
            run has no dataset here.
        DataError: An image cannot be read.
    """
    if is_of_search(self.config):
        raise UserError(f"{self.folder} is a model of graded search, which has no labels to predict: see model.rank.")
    listed = ImageList.open(inputs, ("query", "gallery"))
    listed.check_kind(self.model.form)
    known = label_split(self.dataset, "train", self.distance, self.open_inputs)
    if not 1 <= k < len(known):
        raise UserError(f"'k' must be at least 1 and below {len(known)}, the number of training items. Got {k}.")
    items = listed.inputs(0, len(listed)) if listed.rows else list(listed.paths)
    rows, gallery = self.model.embed(items, bar="embed"), self.embed(known.inputs, bar="embed")
    are_trained = self.model.find_training_items(items)
    labels, spreads = _predict(rows, gallery, known, are_trained, k)
    error, bounds = None, np.full(len(labels), np.inf)
    if not self.dataset.info.queries_are_known:
        errors, constant, of_errors = _measure(self, gallery, known, k)
        if len(errors):
            error = PredictionError(len(errors), float(errors.mean()), float(constant.mean()), self.report.unit)
            bounds = bound_errors(errors, of_errors, spreads * self.report.factor)
            bounds[are_trained] = np.inf  # the network has seen their labels
    return Predictions(
        list(listed.item_ids),
        [str(label) if isinstance(label, Path) else label for label in labels],  # the file of a mask
        bounds,
        are_trained,
        error,
        self.dataset.info.label_column,
        self.dataset.info.label_unit,
    )


def _predict(
    rows: Float32, gallery: Float32, known: LabelledItems, are_trained: Bools, k: int
) -> tuple[list[Any], Float64]:
    """Predict the labels of items by their embeddings (N, D), those of training items without their own."""
    labels, distance = known.given_labels, known.distance
    if not are_trained.any():
        return predict_with_spread(rows, gallery, labels, distance, k=k)
    # the file of a photograph is read a little differently from the smaller image that was made of it
    own = np.where(are_trained, nearest_embeddings(rows, gallery, 1)[1][:, 0], -1)
    others = np.arange(len(gallery))
    return predict_with_spread(rows, gallery, labels, distance, k=k, groups=own, gallery_groups=others)


def _measure(
    run: TrainedRun, gallery: Float32, known: LabelledItems, k: int
) -> tuple[Float64, Float64, Float64]:  # (n,) each: errors of predictions, those of one label, and spreads
    """Predict test items, of many a random sample."""
    queries = run.queries
    some = np.sort(np.random.default_rng(0).permutation(len(queries))[:_MOST])
    rows, truth = run.embed(queries.inputs)[some], queries.labels[some]
    labels, spreads = _predict(rows, gallery, known, np.zeros(len(some), bool), k)
    encoded = run.distance.encode(labels)
    one = run.distance.encode([predict_constant(known.given_labels, known.distance)])
    blocks = (slice(start, start + _BLOCK) for start in range(0, len(some), _BLOCK))
    errors = np.concatenate([run.distance.pairwise(encoded[block], truth[block]).diagonal() for block in blocks])
    constant = run.distance.pairwise(one, truth)[0]
    is_known = np.isfinite(errors) & np.isfinite(spreads) & np.isfinite(constant)
    factor = run.report.factor
    of_known = (part[is_known].astype(np.float64) * factor for part in (errors, constant, spreads))
    return next(of_known), next(of_known), next(of_known)


def bound_errors(
    errors: Float64,  # (n,) of items that were not trained on
    spreads: Float64,  # (n,) how far the neighbours of each disagree
    new: Float64,  # (N,) the same of new items; NaN where it is not known
) -> Float64:  # (N,)
    """Find what the error of each new item is at most, with a probability of 90 % if it is like these.

    Errors are compared in units of the item's spread plus a usual spread, which is the median of all spreads with that
    of the new item: so the n + 1 items can change places, which is all that the bound asks for.
    """
    if len(errors) < _FEWEST:
        return np.full(len(new), np.inf)
    middle, ordered = len(spreads) // 2, np.sort(spreads)
    usual, places = np.unique(np.clip(new, ordered[middle - 1], ordered[middle]), return_inverse=True)
    rank = math.ceil(_LEVEL * (len(errors) + 1)) - 1
    # neighbours that mostly agree tell nothing of the error, as those of classes do
    scaled = (errors / (spreads + value) if value > 0 else errors for value in usual)
    quantiles = np.array([np.partition(part, rank)[rank] for part in scaled])
    bounds = quantiles[places] * np.where(usual[places] > 0, new + usual[places], 1)
    return np.where(np.isfinite(new), bounds, np.inf)
