"""What a data frame says of its labels: that they are classes, and what its columns are called."""

from typing import Any

from cml.console.messages import say
from cml.data.dataset_items import refuse_parts
from cml.data.image_sources import as_list
from cml.data.table_columns import column_names, describe_order, is_place_distance, order_place, read_numbers


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
