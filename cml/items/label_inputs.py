"""The door of items: from recognised inputs, or the split of a prepared dataset, to labelled items."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from cml.array_types import Float64
from cml.console.messages import say
from cml.data.dataset_items import column_names, refuse_parts
from cml.data.image_sources import ImageSource, as_array, as_list
from cml.data.images import Images, Size
from cml.data.input_form import Inputs
from cml.data.input_sources import LabelledInputs
from cml.data.prepared import PreparedDataset
from cml.data.table_columns import describe_order, is_place_distance, order_place, read_numbers
from cml.distances.dataset_labels import Mirror, encode_labels
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.items.labelled_items import LabelledItems
from cml.processes.exactness import Decode

Open = Callable[[ImageSource | Inputs], Inputs]
"""Opens inputs, images at the size at which a model reads them; see ``open_at``."""


def open_at(
    size: Size,  # (height, width) in pixels at which images are read
    *,
    channels: int = 3,
    cache_bytes: int = 1 << 30,
    decode: Decode = "exact",
) -> Open:
    """Make the function that opens inputs for a model."""

    def open_inputs(source: ImageSource | Inputs) -> Inputs:
        if isinstance(source, Inputs):
            return source
        return Images(source, size, channels=channels, cache_bytes=cache_bytes, decode=decode)

    return open_inputs


def label_inputs(
    known: LabelledInputs,  # N inputs with their labels
    distance: LabelDistance,
    open_inputs: Open,
    labels: Labels | None = None,  # the N encoded labels; None to encode them
    ids: Sequence[Any] | None = None,  # the N names of the inputs; None for their numbers
) -> LabelledItems:
    """Make items of inputs and labels that are given in Python."""
    encoded = distance.encode(known.labels) if labels is None else labels
    given_ids = () if ids is None else [str(name) for name in ids]
    return LabelledItems(open_inputs(known.inputs), encoded, distance, given_labels=known.labels, given_ids=given_ids)


def label_split(
    dataset: PreparedDataset,
    role: str,
    distance: LabelDistance,
    open_inputs: Open,
    mirror: Mirror | None = None,  # mirrors a label; None if the labels of mirrored images are not needed
) -> LabelledItems:
    """Make items of a split of a prepared dataset."""
    split, labels = dataset.split(role), encode_labels(distance, dataset, role, mirror)
    count = len(split)
    return LabelledItems(
        open_inputs(split.inputs),
        labels[:count],
        distance,
        mirrored_labels=None if mirror is None else labels[count:],
        given_labels=split.labels,
        given_ids=split.item_ids,
    )


def read_weights(
    weights: Any,  # noqa: ANN401 - a number of at least 0 for each item
    count: int,  # N, the number of items
) -> Float64 | None:  # (N,) the weights; None if all are equal, as if there were none
    """Read the weights of items."""
    array = as_array(weights)
    try:
        values = np.asarray(as_list(weights) if array is None else array, np.float64)
    except (TypeError, ValueError):
        raise UserError(f"'sample_weight' must hold a number for each item. Got {weights!r:.80} instead.") from None
    if values.shape != (count,):
        raise UserError(
            f"'sample_weight' must hold a number for each of the {count} items. Got the shape {values.shape} instead."
        )
    is_bad = ~(np.isfinite(values) & (values >= 0))
    if is_bad.any():
        item = int(np.argmax(is_bad))
        raise UserError(f"'sample_weight' must be finite and at least 0. Got {values[item]:g} for item {item} instead.")
    if not values.any():
        raise UserError("'sample_weight' is 0 for all items, so none would be trained on: give some a weight above 0.")
    return None if (values == values[0]).all() else values


def holds_classes(frame: Any, label: str | None) -> bool:  # noqa: ANN401 - inputs of any kind
    """Tell whether a Hugging Face data set says that a column holds the numbers of classes (ClassLabel)."""
    features = getattr(frame, "features", None)
    return isinstance(features, dict) and type(features.get(label)).__name__ == "ClassLabel"


def read_label_frame(
    frame: Any,  # noqa: ANN401 - a data frame of any library
    label_distance: str,
    *,
    quiet: bool = False,
) -> tuple[Any, tuple[str, ...]]:
    """Read the labels of a data frame with a row for each item."""
    refuse_parts(frame)
    columns = tuple(column_names(frame))
    if len(columns) == 1:
        return as_list(frame[columns[0]]), columns
    if is_place_distance(label_distance) and (ordered := order_place(columns)) != columns:
        columns = ordered
        if not quiet:
            say(describe_order(columns))
    return read_numbers(frame, columns)[0], columns
