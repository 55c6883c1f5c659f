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
from cml.retrieval.gallery import predict_labels
from cml.retrieval.search import nearest_embeddings

if TYPE_CHECKING:
    from cml.doors.trained_run import TrainedRun

_LEVEL = 0.9  # of new items, which an error is to cover
_MOST, _BLOCK = 2000, 64  # test items that are predicted, and at a time


class PredictionError(NamedTuple):
    """How far predictions of test items are from their labels."""

    items: int  # the number of test items
    mean: float  # mean label distance
    bound: float  # at most this far are predictions of 90 % of new items like them; infinite of fewer than 9
    unit: str  # the unit of label distances


class Predictions(NamedTuple):
    """Predicted labels of N items."""

    item_ids: list[str]
    labels: list[Any]
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
        labels that of the medoid of the neighbours. The bound of the error is a quantile of split conformal prediction
        (Vovk et al., Algorithmic learning in a random world, 2005).

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
    labels = _predict(rows, gallery, known, are_trained, k)
    return Predictions(
        list(listed.item_ids),
        [str(label) if isinstance(label, Path) else label for label in labels],  # the file of a mask
        are_trained,
        None if self.dataset.info.queries_are_known else _measure(self, gallery, known, k),
        self.dataset.info.label_column,
        self.dataset.info.label_unit,
    )


def _predict(rows: Float32, gallery: Float32, known: LabelledItems, are_trained: Bools, k: int) -> list[Any]:
    """Predict the labels of items by their embeddings (N, D), those of training items without their own."""
    if not are_trained.any():
        return predict_labels(rows, gallery, known.given_labels, known.distance, k=k)
    # the file of a photograph is read a little differently from the smaller image that was made of it
    own = np.where(are_trained, nearest_embeddings(rows, gallery, 1)[1][:, 0], -1)
    others = np.arange(len(gallery))
    return predict_labels(rows, gallery, known.given_labels, known.distance, k=k, groups=own, gallery_groups=others)


def _measure(run: TrainedRun, gallery: Float32, known: LabelledItems, k: int) -> PredictionError | None:
    """Predict test items, of many a random sample, and compare their labels."""
    queries = run.queries
    some = np.sort(np.random.default_rng(0).permutation(len(queries))[:_MOST])
    rows, truth = run.embed(queries.inputs)[some], queries.labels[some]
    encoded = run.distance.encode(_predict(rows, gallery, known, np.zeros(len(some), bool), k))
    blocks = (slice(start, start + _BLOCK) for start in range(0, len(some), _BLOCK))
    errors = np.concatenate([run.distance.pairwise(encoded[block], truth[block]).diagonal() for block in blocks])
    errors = np.sort(errors[np.isfinite(errors)].astype(np.float64)) * run.report.factor
    if not len(errors):
        return None
    return PredictionError(len(errors), float(errors.mean()), bound_error(errors), run.report.unit)


def bound_error(errors: Float64) -> float:  # errors (N,) ascending; infinite where they are too few
    """Find what a new error is at most, with a probability of 90 % if it is like these."""
    rank = math.ceil(_LEVEL * (len(errors) + 1))
    return float(errors[rank - 1]) if rank <= len(errors) else math.inf
