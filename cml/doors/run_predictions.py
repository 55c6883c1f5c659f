"""What ``Run`` says of new items: their labels, predicted from those of the training items."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cml.data.image_list import ImageList
from cml.doors.search_model import is_of_search
from cml.errors import UserError
from cml.items.label_inputs import label_split
from cml.retrieval.gallery import predict_labels

if TYPE_CHECKING:
    from cml.doors.trained_run import TrainedRun


class Predictions(NamedTuple):
    """Predicted labels of N items."""

    item_ids: list[str]
    labels: list[Any]
    column: str  # the name of the label in the dataset
    unit: str  # its unit; "" for none


def predict(self: TrainedRun, inputs: Path | str, *, k: int = 10) -> Predictions:
    """Predict labels from those of the nearest training items, as ``measure("regression")`` measures it.

    Args:
        inputs: A folder of images, a prepared dataset, whose test items are predicted without their labels, or a .npy
            file of vectors.
        k: Training items that predict a label, weighted by the inverse of their embedding distance.

    Returns:
        Ids and labels, of the form of the training labels: means of numbers, vectors, angles and places; of other
        labels that of the medoid of the neighbours.

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
    if not 1 <= k <= len(known):
        raise UserError(f"'k' must be at least 1 and at most {len(known)}, the number of training items. Got {k}.")
    rows = self.model.embed(listed.inputs(0, len(listed)) if listed.rows else list(listed.paths), bar="embed")
    labels = predict_labels(rows, self.embed(known.inputs, bar="embed"), known.given_labels, self.distance, k=k)
    labels = [str(label) if isinstance(label, Path) else label for label in labels]  # the file of a mask
    return Predictions(list(listed.item_ids), labels, self.dataset.info.label_column, self.dataset.info.label_unit)
