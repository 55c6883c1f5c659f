"""The names that a user's objects carry, and what stands beside an input because both have one name.

Rows of a data frame, a Series, and a matrix of label distances may have names. What has none is taken by position,
where the sizes agree; the same names in another order never are.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cml.distances.labels import short
from cml.distances.matrix_check import is_numbering
from cml.distances.precomputed import Precomputed
from cml.errors import UserError


def names_of(source: Any) -> list[Any] | None:  # noqa: ANN401 - anything
    """The names of the rows of a data frame or Series; None if it has none, or the numbers 0 to N - 1 in order."""
    names = _index(source)
    return None if names is None or is_numbering(names) else names


def list_by_id(inputs: Any, values: Mapping[str, Any]) -> tuple[Any, dict[str, Any], list[Any] | None]:  # noqa: ANN401
    """Put inputs and what belongs to them, each a mapping of ids to one item, into one order.

    Inputs may be a ``dict``, an open ``.npz`` file or any mapping, or an object with ``item_ids``. Returns the inputs,
    the values by their argument, and the ids; None where nothing is joined by ids.
    """
    is_mapping = _is_of_ids(inputs) and any(value is not None for value in values.values())
    ids = list(inputs) if is_mapping else list(getattr(inputs, "item_ids", ()))
    named = {what: value for what, value in values.items() if _is_of_ids(value)}
    if not is_mapping and not named:
        return inputs, dict(values), None
    if not ids:
        what = next(iter(named), "inputs")
        raise UserError(f"'{what}' is a mapping of ids, but the inputs have no ids: give them as a mapping too.")
    joined = dict(values)
    for what, value in values.items():
        if value is not None and what not in named:
            raise UserError(f"The inputs are a mapping of ids, but '{what}' is none: give what belongs to each id.")
    for what, value in named.items():
        missing = [name for name in ids if name not in value]
        if missing:
            raise UserError(
                f"'{what}' has nothing for {len(missing):,} of the {len(ids):,} inputs, the first {short(missing[0])}."
            )
        joined[what] = [_plain(value[name]) for name in ids]
    if is_mapping:
        rows = [inputs[name] for name in ids]
        shapes = {np.shape(row) for row in rows} if all(isinstance(row, np.ndarray) for row in rows) else set()
        if any(len(shape) == 2 for shape in shapes) and len(shapes) > 1:
            raise UserError(
                "The mapping of inputs holds one item for each id. Give one of its arrays, as in inputs[NAME]."
            )
        inputs = np.stack(rows) if len(shapes) == 1 and len(next(iter(shapes))) == 1 else rows
    return inputs, joined, ids


def _is_of_ids(value: Any) -> bool:  # noqa: ANN401 - anything
    """Whether a mapping has an item for each id; those of Hugging Face have the parts of a data set."""
    return isinstance(value, Mapping) and not type(value).__module__.startswith("datasets.")


def _plain(value: Any) -> Any:  # noqa: ANN401 - a label
    """A number of an array without dimensions, as .npz files hold them."""
    return value.item() if isinstance(value, np.ndarray) and not value.ndim else value


def align_by_name(inputs: Any, values: Any, what: str) -> Any:  # noqa: ANN401 - anything, as ``values``
    """Put values that have names in the order of the inputs of these names; others are unchanged."""
    wanted, given = _index(inputs), _index(values)
    if wanted is None or given is None or wanted == given:
        return values
    if is_numbering(wanted) or is_numbering(given):  # nobody named one of the two
        if len(wanted) == len(given) and _is_permutation(given if is_numbering(wanted) else wanted):
            raise UserError(
                f"The inputs and '{what}' have the numbers 0 to {len(wanted) - 1} as names, in another order. Give "
                f"{what}.loc[inputs.index] to take them by these numbers, or {what}.to_numpy() by their order."
            )
        return values
    places = {name: place for place, name in enumerate(given)}
    missing = [name for name in wanted if name not in places]
    if missing:
        raise UserError(
            f"'{what}' has no row for {len(missing):,} of the {len(wanted):,} inputs, the first by the name of "
            f"{short(missing[0])}. Give {what}.to_numpy() to take the rows by their order."
        )
    if len(places) < len(given):
        raise UserError(
            f"'{what}' and the inputs have names in another order, of which some stand for several rows. Give "
            f"{what}.to_numpy() to take them by their order."
        )
    return values.iloc[[places[name] for name in wanted]]


def name_matrix_rows(distance: Precomputed, inputs: Any, count: int, where: str = "labels=") -> Sequence[Any]:  # noqa: ANN401
    """Find the rows of label distances that belong to inputs without labels: those of their names, or all in order."""
    names, rows = names_of(inputs), distance.names
    if rows is not None:
        found = _find_names(inputs, names, set(rows))
        if found is not None:
            return found
    elif names is not None and _is_permutation(names) and len(names) == distance.items:
        raise UserError(
            f"The inputs have the names 0 to {len(names) - 1} in another order, and the rows of the label distances "
            f"have none. Say which rows: {where}inputs.index by these numbers, or {where}range({len(names)})."
        )
    if count != distance.items:
        raise UserError(
            f"There are {count:,} inputs, and the label distances have {distance.items:,} rows. Say which row belongs "
            f"to each input, {where}..., by its number{'' if rows is None else ' or name'}."
        )
    return range(count) if rows is None else rows


def is_cross_matrix(matrix: Any, queries: int, gallery: int) -> bool:  # noqa: ANN401 - anything
    """Whether a label distance is a matrix from Q queries to G gallery items, and not one of all items."""
    shape = tuple(getattr(matrix, "shape", ()))
    return len(shape) == 2 and (shape == (queries, gallery) or shape[0] != shape[1])


def align_cross_matrix(matrix: Any, queries: Any, gallery: Any) -> Any:  # noqa: ANN401 - anything
    """Put rows and columns of a matrix (Q, G) in the order of queries and gallery items, where all have names."""
    if hasattr(matrix, "iloc"):
        matrix = align_by_name(gallery, align_by_name(queries, matrix, "label_distance").T, "label_distance").T
        matrix = matrix.to_numpy()
    if tuple(matrix.shape) != (len(queries), len(gallery)):
        raise UserError(
            f"The label distances of {len(queries)} queries and {len(gallery)} gallery items are a matrix of shape "
            f"({len(queries)}, {len(gallery)}). Got {tuple(matrix.shape)} instead."
        )
    return matrix


def _find_names(inputs: Any, names: list[Any] | None, rows: set[Any]) -> list[Any] | None:  # noqa: ANN401
    """The names of inputs among those of rows; paths may go by their file's name. None for inputs without names."""
    if names is None:
        is_list = isinstance(inputs, list | tuple) and len(inputs) and isinstance(inputs[0], str | Path)
        paths = [Path(path) for path in inputs] if is_list else []
        for form in (str, lambda path: path.name, lambda path: path.stem):
            if paths and all(form(path) in rows for path in paths):
                return [form(path) for path in paths]
        return None
    missing = [name for name in names if name not in rows]
    if missing:
        raise UserError(
            f"The matrix of label distances has no row of the name {short(missing[0])}, as {len(missing):,} of "
            f"{len(names):,} inputs have none. Name its rows as those of the inputs, or say which rows, labels=..."
        )
    return names


def _index(source: Any) -> list[Any] | None:  # noqa: ANN401 - anything
    """The index of pandas as a list; None of all else."""
    index = getattr(source, "index", None)
    if index is None or callable(index) or not hasattr(index, "tolist") or not hasattr(source, "iloc"):
        return None
    return list(index.tolist())


def _is_permutation(names: Sequence[Any]) -> bool:
    """Whether names are the numbers 0 to N - 1 in some order."""
    if not all(isinstance(name, int) and not isinstance(name, bool) for name in names):
        return False
    return sorted(names) == list(range(len(names)))
