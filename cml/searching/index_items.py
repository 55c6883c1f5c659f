"""What an index holds of an item beside its embedding: id, label, path and columns, checked before they are stored."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cml.array_types import Bools
from cml.data.image_sources import label_list
from cml.errors import UserError
from cml.searching.hit import TRAINED

Described = tuple[str, Any, str | None, str]  # id, label, path and columns of an item


def describe_item(
    item_id: str,
    label: Any = None,  # noqa: ANN401 - any label
    path: str | None = None,
    columns: Mapping[str, Any] | None = None,
) -> Described:
    """Check label and columns of an item, and bring them into the form of the file."""
    plain = _check_label(label, item_id)
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool) and abs(plain) < 1 << 63
    stored = plain if plain is None or is_number else json.dumps(plain)
    further = {str(name): _check_column(value, name, item_id) for name, value in (columns or {}).items()}
    return item_id, stored, path, json.dumps(further)


def check_ids(ids: Iterable[str | int] | None) -> list[str]:
    """Ids as texts."""
    if ids is None or isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise UserError(f"'ids' must be a list with a text or whole number for each item. Got {ids!r:.80} instead.")
    chosen: dict[str, None] = {}
    for number, item_id in enumerate(ids):
        is_number = isinstance(item_id, int | np.integer) and not isinstance(item_id, bool)
        if not (is_number or isinstance(item_id, str)) or item_id == "":
            raise UserError(f"ids[{number}] must be a text or a whole number. Got {item_id!r:.80} instead.")
        if str(item_id) in chosen:
            raise UserError(f"The id {str(item_id)!r} is given twice; each item needs its own.")
        chosen[str(item_id)] = None
    return list(chosen)


def paths_in(inputs: Any) -> list[str] | None:  # noqa: ANN401
    """The paths of inputs that are a list of files; None for other inputs."""
    is_list = isinstance(inputs, list | tuple) and len(inputs) > 0
    return [str(path) for path in inputs] if is_list and all(isinstance(i, str | Path) for i in inputs) else None


def describe_items(
    ids: Sequence[str],
    paths: Sequence[str] | None,
    labels: Any,  # noqa: ANN401
    columns: Sequence[Mapping[str, Any]] | None,
) -> list[Described]:
    """Items as ``describe_item`` gives them."""
    listed = [None] * len(ids) if labels is None else label_list(labels)
    if len(listed) != len(ids):
        raise UserError(f"There must be one label per item. Got {len(ids)} ids and {len(listed)} labels instead.")
    further: Sequence[Mapping[str, Any]] = [{}] * len(ids) if columns is None else list(columns)
    if len(further) != len(ids) or not all(isinstance(one, Mapping) for one in further):
        raise UserError(f"'columns' must be a dict for each of the {len(ids)} items. Got {columns!r:.80} instead.")
    places = [None] * len(ids) if paths is None else [os.path.abspath(path) for path in paths]
    if len(places) != len(ids):
        raise UserError(f"There must be one id per item. Got {len(places)} items and {len(ids)} ids instead.")
    return [describe_item(*item) for item in zip(ids, listed, places, further, strict=True)]


def mark_training_items(items: Sequence[Described], are_trained: Bools) -> list[Described]:
    """Say of items (N,) that the model was trained on that it was, in a column."""
    return [
        (*item[:3], json.dumps({**json.loads(item[3]), TRAINED: "yes"})) if is_trained else item
        for item, is_trained in zip(items, are_trained.tolist(), strict=True)
    ]


def _check_label(label: Any, item_id: str) -> Any:  # noqa: ANN401 - any label
    """A label as JSON."""
    if isinstance(label, np.generic | np.ndarray):
        label = label.tolist()
    if isinstance(label, list | tuple):
        return [_check_label(value, item_id) for value in label]
    if isinstance(label, float) and not math.isfinite(label):
        raise UserError(f"The label of {item_id!r} must be finite. Got {label} instead; None stands for no label.")
    if label is None or isinstance(label, bool | int | float | str):
        return label
    raise UserError(
        f"The label of {item_id!r} must be a number, a text, a list of these or None. Got {type(label).__name__} "
        "instead."
    )


def _check_column(value: Any, name: str, item_id: str) -> Any:  # noqa: ANN401 - any value
    """A value of a column as JSON."""
    value = value.item() if isinstance(value, np.generic) else value
    is_finite = not isinstance(value, float) or math.isfinite(value)
    if not is_finite or not (value is None or isinstance(value, bool | int | float | str)):
        raise UserError(f"Column {name!r} of {item_id!r} must be a finite number, a text or None. Got {value!r:.80}.")
    return value
