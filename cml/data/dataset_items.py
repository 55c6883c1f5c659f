"""Data sets of one's own: their inputs, which are read anew at each use, and their labels, which are read once.

A data set is a torch ``Dataset``, a Hugging Face ``Dataset`` with a transform, or anything else that has a length and
is read by numbers, also a list. Its items are tuples (x, label) or mappings with named fields.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cml.errors import UserError, did_you_mean
from cml.processes.memory import is_out_of_memory

_LISTS = ("to_list", "tolist", "to_pylist")  # methods of columns, which are no data sets


class DatasetItems(Sequence[Any]):
    """The inputs x of a data set, without their labels. Each access reads its item anew: no augmentation is frozen."""

    def __init__(
        self,
        source: Any,  # noqa: ANN401 - a data set
        fields: tuple[str, ...] = (),
        *,
        labelled: bool = True,  # whether a tuple is (x, label); otherwise it is an input itself
        positions: Sequence[int] | None = None,  # the items' positions in ``source``
    ) -> None:
        self._source = source
        self.fields = fields
        self._labelled = labelled
        self._positions = range(len(source)) if positions is None else positions

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - an item of any kind, or a part
        if isinstance(index, slice | np.ndarray):
            positions = (
                self._positions[index]
                if isinstance(index, slice)
                else [self._positions[position] for position in index.tolist()]
            )
            return DatasetItems(self._source, self.fields, labelled=self._labelled, positions=positions)
        position = self._positions[index]
        item = read_item(self._source, position)
        if self.fields:
            values = {name: item_field(item, name, position) for name in self.fields}
            return values if len(values) > 1 else values[self.fields[0]]
        return item[0] if self._labelled and isinstance(item, list | tuple) and len(item) > 1 else item

    def position(self, index: int) -> int:
        """The position of an item in the data set, for messages."""
        return self._positions[index]


def read_item(source: Any, position: int) -> Any:  # noqa: ANN401 - a data set, and an item of any kind
    """Read an item of a data set."""
    try:
        return source[position]
    except UserError:
        raise
    except Exception as error:  # a data set of the user's own may raise anything
        if is_out_of_memory(error):
            raise
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}".rstrip(": ")
        raise UserError(f"Item {position} of the data set cannot be read ({reason}). Mend its __getitem__.") from error


def has_columns(source: Any) -> bool:  # noqa: ANN401 - anything
    """Whether a source is a data frame or a Hugging Face data set, told by its attributes."""
    if hasattr(source, "__dataframe__"):
        return True
    has_names = hasattr(source, "column_names") or hasattr(source, "columns")
    return has_names and (hasattr(source, "features") or hasattr(source, "__arrow_c_stream__"))


def column_names(
    frame: Any,  # noqa: ANN401 - a frame of any library
) -> list[str]:  # their names, in order
    """List the columns of a frame."""
    return [str(name) for name in (frame.column_names if hasattr(frame, "column_names") else frame.columns)]


def name_columns(inputs: Any) -> Any:  # noqa: ANN401 - anything, and a frame as it is but for names
    """Name the columns of a frame of pandas by texts, as all else is named; they may be numbers."""
    if hasattr(inputs, "set_axis") and hasattr(inputs, "columns"):
        names = [str(name) for name in inputs.columns]
        return inputs if names == list(inputs.columns) else inputs.set_axis(names, axis=1)
    return inputs


def is_dataset(source: Any) -> bool:  # noqa: ANN401 - anything
    """Whether a source is a data set of one's own, and neither a list, an array, a column nor a frame."""
    if isinstance(source, str | bytes | Path | Image.Image | np.ndarray | list | tuple | Mapping | Lazy):
        return False
    if has_columns(source):
        return is_transformed(source)
    if hasattr(source, "detach") or any(hasattr(source, name) for name in _LISTS):
        return False
    return hasattr(source, "__getitem__") or hasattr(source, "__iter__")


def refuse_parts(source: Any) -> None:  # noqa: ANN401 - anything
    """Refuse what holds data sets in place of items, and data sets that are read as a stream."""
    name = type(source).__name__
    if isinstance(source, Mapping) and source and all(has_columns(part) for part in source.values()):
        parts = ", ".join(map(str, source))
        raise UserError(f"The {name} holds the parts {parts}: give one of them, as in data[{next(iter(source))!r}].")
    if has_columns(source) and not hasattr(source, "__len__"):
        raise UserError(
            f"The {name} is read as a stream, which cml.fit takes to train on, but not here: load it without "
            "streaming=True, or read a part of it by datasets.Dataset.from_list(list(stream.take(10_000)))."
        )


def refuse_function(source: Any) -> None:  # noqa: ANN401 - anything
    """Refuse a function that returns items, which a stream takes."""
    if callable(source) and not any(hasattr(source, name) for name in ("__iter__", "__getitem__", "__array__")):
        raise UserError(
            f"A {type(source).__name__} is not a data set: to train on the items that it returns, give "
            "cml.LabelledStream(function); anywhere else, give a list of them, "
            "list(itertools.islice(function(), 10_000))."
        )


def is_transformed(frame: Any) -> bool:  # noqa: ANN401 - a frame of any library
    """Whether a frame is a Hugging Face data set with a transform or a format of tensors, which only items show."""
    form = getattr(frame, "format", None)
    return isinstance(form, Mapping) and form.get("type") not in (None, "pandas", "polars", "arrow")


def _check_length(source: Any) -> None:  # noqa: ANN401 - a data set
    """Check that a data set has a length and is read by numbers."""
    name = type(source).__name__
    if hasattr(source, "batch_sampler") and hasattr(source, "dataset"):
        raise UserError(
            f"Inputs must be single items. Got a {name}, which makes batches, instead: give its data set, "
            "loader.dataset, and its collate_fn as collate."
        )
    for method, rule in (("__len__", "must have a length"), ("__getitem__", "must be read by numbers")):
        if not hasattr(source, method):
            raise UserError(
                f"The data set of (x, label) {rule}, so that items can be drawn. Got {name} without {method} instead: "
                "read it, or a part of it, into a list, list(itertools.islice(source, 10_000))."
            )


def labelled_items(
    source: Any,  # noqa: ANN401 - a data set
    # labels that replace those of the data set; None to read these
    labels: Any,  # noqa: ANN401 - a sequence of any labels
    fields: tuple[str, ...],
    label: str | None,
    *,
    several: bool = False,  # whether an input may be a mapping of several fields
) -> tuple[DatasetItems, Any]:
    """Take a data set apart into its inputs and its labels, which are read once."""
    _check_length(source)
    if labels is None:
        fields, labels = _read_labels(source, fields, label, several=several)
        return DatasetItems(source, fields), labels
    return unlabelled_items(source, fields, several=several), labels


def unlabelled_items(
    source: Any,  # noqa: ANN401 - a data set
    fields: tuple[str, ...],
    *,
    several: bool = False,  # whether an input may be a mapping of several fields
    labelled: bool = True,  # whether a tuple is (x, label); otherwise it is an input itself
) -> DatasetItems:
    """Take the inputs of a data set, with or without labels beside them."""
    _check_length(source)
    first = read_item(source, 0) if len(source) else None
    if not isinstance(first, Mapping):
        return DatasetItems(source, labelled=labelled)
    return DatasetItems(source, fields if several else _find_fields(first, fields))


def frame_items(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Make a data set of mappings of the columns of a frame."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _read_labels(
    source: Any,  # noqa: ANN401 - a data set
    fields: tuple[str, ...],
    label: str | None,
    *,
    several: bool,
) -> tuple[tuple[str, ...], list[Any]]:
    """The fields of the inputs of a data set, () where items are tuples, and the labels."""
    first = read_item(source, 0) if len(source) else ()
    if not isinstance(first, Mapping):
        if label is not None and not fields and hasattr(first, label):  # such as a graph of torch_geometric
            return (), [
                item_attribute(first if at == 0 else read_item(source, at), label, at) for at in range(len(source))
            ]
        if label is not None or fields:
            raise UserError(
                f"The items of the data set must be mappings with the field {label or fields[0]!r}. "
                f"Got {type(first).__name__} as item 0 instead; leave out the names of fields for tuples (x, label)."
            )
        return (), [item_label(first if at == 0 else read_item(source, at), at) for at in range(len(source))]
    if label is None:
        raise UserError(f"Name the field that holds the labels, as in label='...'. {_there(first)}")
    item_field(first, label, 0)
    fields = _find_fields(first, fields, label, several=several)
    if has_columns(source) and source.format.get("type") != "custom" and label in column_names(source):
        return fields, list(source[label])  # without decoding the inputs
    return fields, [item_field(first if at == 0 else read_item(source, at), label, at) for at in range(len(source))]


def _find_fields(
    item: Mapping[str, Any], fields: tuple[str, ...], label: str | None = None, *, several: bool = False
) -> tuple[str, ...]:
    """The fields of a mapping that hold its input; all others than the label if none is named."""
    for name in fields:
        item_field(item, name, 0)
    others = tuple(str(name) for name in item if name != label)
    if not fields and (not others or (len(others) > 1 and not several)):
        raise UserError(f"Name the field that holds the inputs, as in features='...' or image='...'. {_there(item)}")
    return fields or others


def item_label(item: Any, position: int) -> Any:  # noqa: ANN401 - an item and its label
    """The label of an item (x, label)."""
    if not isinstance(item, list | tuple) or len(item) < 2:
        got = f"a tuple of {len(item)}" if isinstance(item, list | tuple) else type(item).__name__
        raise UserError(
            "'labels' are missing: give a label for each input; a data set without them must give (x, label), or "
            f"mappings with label='...'. Got {got} as item {position} instead."
        )
    return item[1]


def item_attribute(item: Any, name: str, position: int) -> Any:  # noqa: ANN401 - an item and its label
    """The label of an item that holds it as an attribute."""
    if not hasattr(item, name):
        raise UserError(f"Item {position} of the data set has no attribute {name!r}, as item 0 has.")
    value = getattr(item, name)
    return value.item() if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1 else value


def item_field(item: Any, name: str, position: int) -> Any:  # noqa: ANN401 - an item and its field
    """The field of an item of mappings."""
    if not isinstance(item, Mapping):
        raise UserError(f"Item {position} of the data set must be a mapping. Got {type(item).__name__} instead.")
    if name not in item:
        hint = did_you_mean(name, [str(key) for key in item])
        raise UserError(f"Item {position} of the data set has no field {name!r}.{hint} {_there(item)}")
    return item[name]


def _there(item: Mapping[str, Any]) -> str:
    return f"There are: {', '.join(map(str, item))}."


class Lazy(Sequence[Any]):
    """Items of a data set, made by ``convert`` of ``source[index]`` and the index on each access."""

    def __init__(
        self,
        source: Any,  # noqa: ANN401
        items: Sequence[int],
        convert: Callable[[Any, int], Any],
        *,
        reads_anew: bool = False,
    ) -> None:
        self._source, self._items, self._convert = source, items, convert
        self.reads_anew = reads_anew

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int | slice) -> Any:  # noqa: ANN401 - an item of any kind, or a Lazy
        if isinstance(index, slice):
            return Lazy(self._source, self._items[index], self._convert, reads_anew=self.reads_anew)
        item = self._items[index]
        return self._convert(self._source[item], item)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))
