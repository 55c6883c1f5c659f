"""The names that a user's objects carry, and what stands beside an input because both have one name.

Rows of a data frame, a Series, and a matrix of label distances may have names. What has none is taken by position,
where the sizes agree; the same names in another order never are.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cml.distances.labels import short
from cml.distances.matrix_check import is_numbering
from cml.distances.precomputed import Precomputed
from cml.errors import UserError


def names_of(source: Any) -> list[Any] | None:  # noqa: ANN401 - anything
    """The names of the rows of a data frame or Series; None if it has none, or the numbers 0 to N - 1 in order."""
    names = _index(source)
    return None if names is None or is_numbering(names) else names


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
