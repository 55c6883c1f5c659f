"""What Python users give as inputs: images, vectors, tensors or items of any kind, recognised by what it is.

``recognize_inputs`` is for training, which has to find out the kind; ``open_inputs`` for a model, which knows it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from cml.data.dataset_items import (
    DatasetItems,
    column_names,
    frame_items,
    has_columns,
    is_dataset,
    labelled_items,
    name_columns,
    refuse_function,
    refuse_parts,
    unlabelled_items,
)
from cml.data.image_sources import (
    ImageSource,
    as_array,
    as_list,
    image_source,
    images_and_labels,
    label_list,
    lazy_images,
)
from cml.data.images import Images, Size
from cml.data.input_form import AcceptedInputs, Collate, FieldNames, InputForm, InputKind, Inputs, Missing
from cml.data.items import Items, StackedItems, Tensors, item_array
from cml.data.sparse_rows import SparseRows, is_sparse
from cml.data.table_columns import numeric_columns, read_numbers, select_columns, stack_rows
from cml.data.texts import Texts, are_texts
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.processes.exactness import Decode
from cml.storage.regular_file import map_array

_LOOKED_AT = 1 << 16  # numbers of an array that are looked at to tell whether they are pictures


@dataclass(frozen=True)
class LabelledInputs:
    """Inputs of a recognised kind, with their labels."""

    inputs: ImageSource | Vectors | Tensors | Texts | Items  # N inputs; images are still of any size
    labels: Sequence[Any]  # N labels as plain Python values
    kind: InputKind  # which of them


def recognize_inputs(
    inputs: Any,  # noqa: ANN401 - the kinds that cml.fit lists
    # a label for each input; None for a data set that holds them
    labels: Any,  # noqa: ANN401 - a sequence of any labels
    fields: FieldNames,  # where a data set holds inputs and, if ``labels`` is None, labels
    accepted: AcceptedInputs,
) -> LabelledInputs:
    """Recognise N inputs and their labels."""
    refuse_function(inputs)
    refuse_parts(inputs)
    refuse_parts(labels)
    inputs = name_columns(inputs)
    kind, collate = accepted.kind, accepted.collate
    if collate is None and kind in (None, "vectors") and (names := numeric_columns(inputs, fields)):
        fields = replace(fields, features=names)
    if isinstance(inputs, Vectors | Tensors | Texts) and collate is None:
        kind = inputs.form.kind
    if collate is not None or kind == "items":
        if not accepted.own_backbone:
            raise UserError(
                "Inputs that 'collate' joins need a backbone of your own that takes the batch: a torch module as "
                "backbone=..."
            )
        if collate is None or kind not in (None, "items"):
            raise UserError(
                f"Inputs of the kind 'items', and no others, need 'collate', a function. Got {kind!r} and {collate!r}."
            )
        return _recognize_items(inputs, labels, fields, collate)
    if _is_own_dataset(inputs, labels, fields.features):
        return _recognize_dataset(inputs, labels, fields, replace(accepted, kind=kind))
    kind = kind or _kind_of(inputs, fields, accepted)
    if kind == "images":
        source, plain = images_and_labels(
            inputs, labels, image=fields.image, label=fields.label, channels=accepted.channels
        )
        return LabelledInputs(source, plain, kind)
    if labels is None and has_columns(inputs):
        if fields.label is None:
            raise UserError("Name the column that holds the labels, as in label='...', or give the labels themselves.")
        labels = inputs[select_columns(inputs, [fields.label])[0]]
    if labels is None:
        raise UserError(f"'labels' are missing: give a label for each of the {kind}.")
    if isinstance(inputs, Vectors | Tensors | Texts):
        opened: Vectors | Tensors | Texts = inputs
    elif kind == "texts":
        opened = _open_texts(inputs, fields.inputs)
    elif kind == "vectors":
        opened = _open_vectors(inputs, fields.features, accepted.missing)
    else:
        opened = Tensors(_tensor_array(inputs))
    return _pair_with_labels(opened, labels, kind)


def open_inputs(
    source: Any,  # noqa: ANN401 - the kinds that cml.fit lists
    form: InputForm,
    size: Size,  # (height, width) in pixels at which images are read
    collate: Collate | None = None,  # joins a list of inputs to a batch; needed for the kind ``items``
    decode: Decode = "exact",
) -> Inputs:
    """Open inputs for a model."""
    is_open = isinstance(source, Images | Vectors | Tensors | Texts | Items)
    inputs: Inputs = source if is_open else _open_source(source, form, size, collate, decode)
    own = inputs.form
    if (own.kind, own.shape, own.whole, own.channels) != (form.kind, form.shape, form.whole, form.channels):
        raise UserError(f"The model takes {form}. Got {own} instead.")
    return inputs


def _open_source(
    source: Any,  # noqa: ANN401
    form: InputForm,
    size: Size,
    collate: Collate | None,
    decode: Decode,
) -> Inputs:
    """Open what a user gave."""
    refuse_function(source)
    refuse_parts(source)
    source = name_columns(source)
    if form.kind == "items":
        assert collate is not None  # of which ``cml.load`` makes sure
        return _open_items(source, form.fields, collate)
    if _is_own_dataset(source, None, form.fields or None):
        items = unlabelled_items(source, form.fields)
        if form.kind == "images":
            return Images(lazy_images(items, form.channels), size, channels=form.channels, decode=decode)
        return _stack_items(items, form.kind, form.missing)
    if form.kind == "images":
        return Images(image_source(source, form.channels), size, channels=form.channels, decode=decode)
    if form.kind == "vectors":
        return _open_vectors(source, form.columns or None, form.missing)
    if form.kind == "texts":
        return _open_texts(source, form.fields)
    return Tensors(_tensor_array(source))


def open_vector_file(path: Path, missing: Missing = "refuse") -> Vectors:  # path (N, F)
    """Map the vectors of a .npy file into memory; their numbers are not checked."""
    rows = _map_file(path)
    try:
        return _vectors_of_array(rows, missing)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _is_own_dataset(source: Any, labels: Any, features: str | Sequence[str] | None) -> bool:  # noqa: ANN401
    """Whether a source is a data set, or a list of its items: mappings or, without separate labels, tuples."""
    if isinstance(source, list | tuple) and len(source):
        first = source[0]
        if isinstance(first, Mapping):
            return True
        is_pair = isinstance(first, tuple) and len(first) > 1 and not isinstance(first[0], int | float | np.number)
        return labels is None and is_pair  # a tuple of numbers is a row
    if is_sparse(source):
        return False
    if is_dataset(source):
        return True
    if not has_columns(source) or not hasattr(source, "column_names") or not hasattr(source, "features"):
        return False
    # a column of a Hugging Face data set that holds arrays of several axes is none of a table
    name = features if isinstance(features, str) else features[0] if features and len(features) == 1 else None
    if name not in source.column_names or not len(source):
        return False
    value = source[0][name]
    return isinstance(value, list) and bool(value) and isinstance(value[0], list)


def _recognize_items(
    inputs: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    fields: FieldNames,
    collate: Collate,
) -> LabelledInputs:
    """Inputs that a function joins: of a data set, a frame, or a list with separate labels."""
    names = fields.inputs
    if has_columns(inputs) and not hasattr(inputs, "features"):
        chosen = select_columns(inputs, fields.features) if fields.features is not None else names
        names = tuple(chosen or (name for name in column_names(inputs) if name != fields.label))
        columns = [*names] if labels is not None else [*names, *select_columns(inputs, [str(fields.label)])]
        inputs = frame_items({name: as_list(inputs[name]) for name in columns})
    if labels is not None and isinstance(inputs, list | tuple):
        items = unlabelled_items(inputs, names, several=True, labelled=False)
    else:
        items, labels = labelled_items(inputs, labels, names, fields.label, several=True)
    return _pair_with_labels(Items(items, collate), labels, "items")


def _recognize_dataset(
    inputs: Any,  # noqa: ANN401
    labels: Any,  # noqa: ANN401
    fields: FieldNames,
    accepted: AcceptedInputs,
) -> LabelledInputs:
    """Images, vectors or tensors of a data set."""
    items, labels = labelled_items(inputs, labels, fields.inputs, fields.label)
    if not len(items):
        raise UserError("The data set is empty.")
    kind = accepted.kind or _kind_of_item(items, accepted)
    opened = lazy_images(items, accepted.channels) if kind == "images" else _stack_items(items, kind, accepted.missing)
    return _pair_with_labels(opened, labels, kind)


def _pair_with_labels(
    inputs: ImageSource | Vectors | Tensors | Texts | Items,
    labels: Any,  # noqa: ANN401
    kind: InputKind,
) -> LabelledInputs:
    """Inputs with as many labels."""
    plain = label_list(labels)
    if len(inputs) != len(plain):
        noun = "rows of vectors" if kind == "vectors" else kind
        single = "image" if kind == "images" else "input"
        raise UserError(
            f"There must be one label per {single}. Got {len(inputs)} {noun} and {len(plain)} labels instead."
        )
    return LabelledInputs(inputs, plain, kind)


def _kind_of_item(items: DatasetItems, accepted: AcceptedInputs) -> InputKind:
    first = items[0]
    if isinstance(first, str | bytes | Path | Image.Image):
        return "images"
    return _kind_of_array(item_array(first, "Item 0")[None], accepted)


def _stack_items(items: DatasetItems, kind: InputKind, missing: Missing) -> Vectors | Tensors | Texts:
    if kind == "texts":
        return Texts.of((items[row] for row in range(len(items))), items.fields)
    rows = StackedItems(items)
    if kind == "tensors":
        return Tensors(rows)
    return Vectors(
        rows if rows.dtype.kind == "f" else StackedItems(items, rows.shape[1:], np.dtype("f4")), missing=missing
    )


def _open_texts(source: Any, fields: tuple[str, ...]) -> Texts:  # noqa: ANN401
    """Texts of a list or array, or of one column of a frame."""
    if not has_columns(source):
        return Texts.of(source, fields)
    if not fields:
        raise UserError("Name the column that holds the texts, as in features='text'.")
    names = select_columns(source, fields)
    if len(names) != 1:
        raise UserError(f"Texts are in one column. Got the columns {', '.join(names)} instead: join them to one text.")
    return Texts.of(as_list(source[names[0]]), (names[0],))


def _open_items(source: Any, fields: tuple[str, ...], collate: Collate) -> Items:  # noqa: ANN401
    """Inputs that a function joins, for a model; a list holds inputs, a data set tuples (x, label) or mappings."""
    if has_columns(source) and not hasattr(source, "features"):
        source = frame_items({name: as_list(source[name]) for name in select_columns(source, fields)})
    is_list = isinstance(source, list | tuple)
    return Items(unlabelled_items(source, fields, several=True, labelled=not is_list), collate)


def _kind_of(inputs: Any, fields: FieldNames, accepted: AcceptedInputs) -> InputKind:  # noqa: ANN401
    """Tell the kind of inputs by their shape and type."""
    if fields.features is not None:
        return "vectors"
    if is_sparse(inputs):
        return "vectors"
    if are_texts(inputs):
        raise UserError(
            "The inputs are texts, and no files: give a backbone of texts, such as "
            "backbone='sentence-transformers/all-MiniLM-L6-v2', or with a module of your own collate=..., a function "
            "that joins a list of texts to what it takes."
        )
    if has_columns(inputs) and fields.image is None:
        raise UserError(
            "Name the columns of the data frame: image='...' for one of images, or features=... for numbers "
            "(a list of columns, or a pattern such as 'emb_*')."
        )
    if isinstance(inputs, str | Path) and Path(inputs).suffix == ".npy":
        return _kind_of(_map_file(Path(inputs)), fields, accepted)
    if isinstance(inputs, list | tuple) and len(inputs) and not isinstance(inputs[0], str | bytes | Path | Image.Image):
        first = as_array(inputs[0])
        if first is None and isinstance(inputs[0], list | tuple):
            return "vectors"
        return "images" if first is None else _kind_of_array(first[None], accepted)
    array = as_array(inputs)
    return "images" if array is None else _kind_of_array(array, accepted)


def _kind_of_array(array: NDArray[Any], accepted: AcceptedInputs) -> InputKind:
    channels = accepted.channels
    if channels != 3 and array.dtype in (np.uint8, np.uint16):
        has_bands = array.ndim == 4 and channels in (array.shape[-1], array.shape[1])
        if has_bands or (channels == 1 and array.ndim == 3):
            return "images"
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], list | tuple | int | float):
        raise UserError(
            f"Inputs of shape {array.shape} are Python objects, not numbers: give rows of one length as an array of "
            "floats, X.astype(np.float32)."
        )
    is_number = array.dtype.kind in "fiub"
    if array.ndim == 2 and array.dtype.kind == "f":
        return "vectors"
    if array.ndim == 1 and is_number:
        raise UserError(
            f"Inputs must have a row for each item. Got one axis of {len(array)} numbers instead; a single number per "
            "item is X.reshape(-1, 1), and labels belong in the second argument."
        )
    if array.ndim == 2 and is_number:
        if accepted.own_backbone:
            return "tensors"
        raise UserError(
            f"Inputs of shape {array.shape} are {array.dtype}: if they are vectors, convert them by "
            "X.astype(np.float32); if they are numbers of tokens, give a backbone of your own that takes them."
        )
    is_picture = array.ndim == 4 and 3 in (array.shape[-1], array.shape[1])
    if array.ndim < 3 or not is_number or (is_picture and array.dtype == np.uint8):
        return "images"
    if is_picture and array.dtype.kind == "f" and _is_in_unit_interval(array):
        raise UserError(
            f"Inputs of shape {array.shape}, {array.dtype}, from 0 to 1 look like pictures. If they are, convert them "
            "by (255 * X).round() to uint8; if a backbone of your own takes them as they are, set input_kind='tensors'."
        )
    if accepted.own_backbone:
        return "tensors"
    raise UserError(
        f"Inputs of shape {array.shape}, {array.dtype} need a backbone of your own that takes them, a torch module as "
        "backbone=...; pictures are uint8, (N, H, W, 3) or (N, 3, H, W), and vectors floats, (N, F)."
    )


def _is_in_unit_interval(array: NDArray[Any]) -> bool:
    some = array.reshape(-1)[:_LOOKED_AT]
    return bool(((some >= 0) & (some <= 1)).all())


def _open_vectors(source: Any, features: str | Sequence[str] | None, missing: Missing) -> Vectors:  # noqa: ANN401
    if has_columns(source):
        features = features or numeric_columns(source, FieldNames())
        if not features:
            raise UserError("Name the columns that hold the vectors, as in features=['a', 'b'] or features='emb_*'.")
        rows, columns = read_numbers(source, select_columns(source, features))
        index = getattr(source, "index", None)  # of pandas
        names = None if index is None or callable(index) else np.asarray(index)
        return Vectors(rows, columns=columns, missing=missing, names=names)
    if isinstance(source, str | Path):
        return open_vector_file(Path(source), missing)
    if is_sparse(source):
        return Vectors(SparseRows(source), missing=missing)
    array = as_array(source)
    if array is None or array.dtype.kind == "O":
        if not isinstance(source, list | tuple | np.ndarray):
            raise UserError(
                "Vectors must be an array (N, F) of floats, a list of rows, a .npy file or a data frame. "
                f"Got {type(source).__name__} instead."
            )
        array = stack_rows(list(source), "the vectors")
    return _vectors_of_array(array, missing)


def _vectors_of_array(array: NDArray[Any], missing: Missing) -> Vectors:
    if array.ndim == 2 and array.dtype.kind in "iub":
        array = array.astype(np.float32)
    return Vectors(array, missing=missing)


def _tensor_array(source: Any) -> NDArray[Any]:  # noqa: ANN401
    if isinstance(source, str | Path):
        source = _map_file(Path(source))
    array = as_array(source)
    if array is not None:
        return array
    if not isinstance(source, list | tuple) or not len(source):
        raise UserError(f"Tensors must be an array (N, ...) or a list of arrays. Got {type(source).__name__} instead.")
    items = [as_array(item) for item in source]
    for number, item in enumerate(items):
        if item is None or items[0] is None or item.shape != items[0].shape:
            shape = type(source[number]).__name__ if item is None else item.shape
            wanted = "an array" if items[0] is None else f"an array of the shape {items[0].shape}, as item 0 is"
            raise UserError(f"Item {number} of the tensors must be {wanted}. Got {shape} instead.")
    return np.stack([item for item in items if item is not None])


def _map_file(path: Path) -> NDArray[Any]:
    if path.suffix != ".npy":
        raise UserError(f"{path} must be a .npy file. Read others first, as by pandas.read_parquet.")
    try:
        return map_array(path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:
        raise UserError(f"{path} cannot be read: {str(error).rstrip('.')}.") from None
