"""The inputs of a stream batch by batch, each item once, for a trained network: nothing is held but a batch."""

import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from cml.data.images import Images, stored_size
from cml.data.input_form import InputForm, Inputs
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.streams.item_reader import ItemReader, key_of
from cml.streams.labelled_stream import LabelledStream
from cml.streams.open_share import describe_item
from cml.streams.tar_shards import without_marks


class StreamInputs(NamedTuple):
    """Some items of a stream."""

    ids: list[str]  # the keys of the items that could be read, or their numbers in the stream
    labels: list[Any]  # their labels as the stream gives them; None where no field of labels is named
    inputs: Inputs | None  # their inputs; None if none could be read
    faults: dict[str, str]  # ids of the others, and what is wrong with each


def read_inputs(
    stream: LabelledStream,
    network: EmbeddingModel,
    batch_size: int,
    *,
    threads: int,  # items that are read at a time
    field: str | None = None,  # the field of the input; by default the one that fits the network
    label: str | None = None,  # the field of the label
) -> Iterator[StreamInputs]:
    """Read the inputs of one pass."""
    config = network.config
    items = enumerate(stream.read_in_order())
    first = next(items, None)
    if first is None:
        raise UserError(f"The stream gives no item: its source, {stream!r}, is empty.")
    fields, columns = _choose_fields(without_marks(first[1]), config.inputs, field)
    size = stored_size(config.image_size, config.crop)
    reader = ItemReader(
        config.inputs, fields, label, size, network.collate, columns, decode=network.forward_pass.decode
    )
    read = partial(_read, reader, skip_bad=stream.skip_bad)
    every = itertools.chain([first], items)
    with ThreadPoolExecutor(threads) as pool:
        while batch := list(itertools.islice(every, batch_size)):
            values, ids, labels, faults = [], [], [], {}
            for (number, given), value in zip(batch, pool.map(read, batch), strict=True):
                item_id = key_of(given) or str(number)
                if isinstance(value, UserError):
                    faults[item_id] = str(value)
                    continue
                values.append(value)
                ids.append(item_id)
                labels.append(None if label is None else reader.read_label(given, number, describe_item(0, number, 1)))
            yield StreamInputs(ids, labels, _open(reader, values) if values else None, faults)


def _read(reader: ItemReader, item: tuple[int, Any], *, skip_bad: bool) -> Any:  # noqa: ANN401 - an input
    """An input, or the error of one that is left out."""
    number, given = item
    try:
        return reader.read_input(given, number, describe_item(0, number, 1))
    except UserError as error:
        if skip_bad:
            return error
        raise


def _open(reader: ItemReader, values: list[Any]) -> Inputs:
    return Images.from_pixels(np.stack(values)) if reader.form.kind == "images" else reader.open(values)


_LIKELY: dict[str, Any] = {
    "images": lambda value: isinstance(value, bytes | Image.Image) or np.ndim(value) == 3,
    "vectors": lambda value: not isinstance(value, str | bytes | Mapping) and np.ndim(value) == 1,
    "texts": lambda value: isinstance(value, str),
}


def _choose_fields(
    first: Any,  # noqa: ANN401 - the first item of a stream
    form: InputForm,
    field: str | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:  # the fields of an input, and those of one number each
    """Choose the fields that hold an input: the one that is named, those of the training, or the one that fits."""
    if not isinstance(first, Mapping):
        return (), ()
    names = [str(name) for name in first]
    if field is not None:
        if field not in names:
            raise UserError(f"The items of the stream have no field {field!r}. There are: {', '.join(names)}.")
        return (field,), ()
    if form.columns and all(name in first for name in form.columns):
        return (), form.columns
    if form.fields and all(name in first for name in form.fields):
        return form.fields, ()
    fits = _LIKELY.get(form.kind, lambda value: True)
    likely = [name for name, value in first.items() if fits(value)]
    if len(likely) != 1:
        raise UserError(
            f"The model takes {form}, and {len(likely)} fields of the first item may hold one: name it by field='...'. "
            f"There are: {', '.join(names)}."
        )
    return (likely[0],), ()
