"""What an item of a stream becomes: an input as a network takes it, and its label. The first item tells the kind."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from cml.data.dataset_items import DatasetItems, Lazy, item_attribute, item_field, item_label, labelled_items
from cml.data.image_sources import OneImage, one_image
from cml.data.images import Images, Size
from cml.data.input_form import AcceptedInputs, Collate, FieldNames, InputForm, Inputs
from cml.data.input_sources import recognize_inputs
from cml.data.items import Items, StackedItems, Tensors
from cml.data.texts import Texts
from cml.data.vectors import Vectors
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import LabelError
from cml.errors import UserError
from cml.processes.exactness import Decode
from cml.streams.tar_shards import KEY, encoded_image, without_marks


class Item(NamedTuple):
    """An item of a stream, ready to be trained on."""

    value: Any  # the input: pixels (h, w, C), an array, a text, or what ``collate`` joins
    label: Any  # as the stream gives it
    name: str  # for messages, such as "item 17 of share 2"


@dataclass(frozen=True)
class ItemReader:
    """Makes items of what a stream gives, all of one form."""

    form: InputForm  # what the network takes; () is the shape of images
    fields: tuple[str, ...]  # the fields of the input; none where items are tuples
    label: str | None  # the field of the label
    size: Size  # (height, width) in pixels at which images are kept
    collate: Collate | None = None  # joins inputs of any kind
    columns: tuple[str, ...] = ()  # fields of one number each, which make a vector
    decode: Decode = "exact"  # of images

    @classmethod
    def of(
        cls,
        first: Any,  # noqa: ANN401 - the first item of a stream
        names: FieldNames,
        accepted: AcceptedInputs,
        size: Size,
        name: str,  # such as "item 0 of share 2"
    ) -> "ItemReader":
        """Recognise the items of a stream by the first one."""
        with _naming(0, _name_item(first, name)):
            return cls._recognize(first, names, accepted, size)

    @classmethod
    def _recognize(cls, first: Any, names: FieldNames, accepted: AcceptedInputs, size: Size) -> "ItemReader":  # noqa: ANN401
        collate = accepted.collate
        columns: tuple[str, ...] = ()
        first = without_marks(first)
        if collate is None and len(names.inputs) > 1:
            columns, names = names.inputs, replace(names, features=_ROW)
            first = _join_columns(first, columns, 0)
        items = _One(first)
        known = recognize_inputs(items, None, names, accepted)
        fields = labelled_items(items, None, names.inputs, names.label, several=collate is not None)[0].fields
        images = InputForm(channels=accepted.channels)
        form = images if known.kind == "images" else cast("Inputs", known.inputs).form
        return cls(
            replace(form, columns=columns, fields=()) if columns else form, fields, names.label, size, collate, columns
        )

    def read(
        self,
        given: Any,  # noqa: ANN401 - an item as the stream gives it
        number: int,  # its number in its share, for messages
        name: str,  # such as "item 17 of share 2"
    ) -> Item:
        """Make an item."""
        name = _name_item(given, name)
        given = without_marks(given)
        with _naming(number, name):
            given = _join_columns(given, self.columns, number) if self.columns else given
            label = self._read_label(given, number)  # first: a tuple without one is no input
            return Item(self._read_input(given, number), label, name)

    def read_input(self, given: Any, number: int, name: str) -> Any:  # noqa: ANN401 - an item, and its input
        """Make the input of an item, which may lack a label."""
        name = _name_item(given, name)
        given = without_marks(given)
        with _naming(number, name):
            return self._read_input(_join_columns(given, self.columns, number) if self.columns else given, number)

    def read_label(self, given: Any, number: int, name: str) -> Any:  # noqa: ANN401 - an item, and its label
        """Read the label of an item."""
        with _naming(number, _name_item(given, name)):
            return self._read_label(without_marks(given), number)

    def read_all(
        self,
        numbered: Iterable[tuple[int, Any]],  # items as the stream gives them, with their numbers in their share
        describe: Callable[[int], str],  # names an item by its number
        *,
        skip_bad: bool,  # leave out items that cannot be read; by default, the first one is an error
    ) -> tuple[list[tuple[int, Item]], list[str]]:
        """Make items; returns them with their numbers, and what is wrong with those that were left out."""
        items, faults = [], []
        for number, given in numbered:
            try:
                items.append((number, self.read(given, number, describe(number))))
            except UserError as error:
                if not skip_bad:
                    raise
                faults.append(str(error))
        return items, faults

    def open(
        self,
        values: list[Any],  # N inputs of ``read``; they are read when they are asked for
    ) -> Inputs:
        """Open inputs of items that were read."""
        items = DatasetItems(values, labelled=False)
        kind = self.form.kind
        if kind == "images":
            kept = Lazy(values, range(len(values)), _keep, reads_anew=True)
            if self.form.channels == 3:
                return Images(cast("Sequence[OneImage]", kept), self.size)
            return Images(cast("Sequence[OneImage]", kept), self.size, channels=self.form.channels)
        if kind == "texts":
            return _ListedTexts(values, fields=self.fields)
        if kind == "items":
            assert self.collate is not None
            joined = Items(items, self.collate)
            joined.form = self.form
            return joined
        stacked = self._stack(items)
        if kind == "vectors":
            return Vectors(stacked, columns=self.form.columns, missing=self.form.missing)
        return Tensors(stacked)

    def _stack(self, items: DatasetItems) -> StackedItems:
        dtype = np.dtype(np.int64 if self.form.whole else np.float32)
        stacked = StackedItems(items, self.form.shape, dtype)
        stacked.fields = self.form.fields
        return stacked

    def _read_input(self, given: Any, number: int) -> Any:  # noqa: ANN401 - an item, and its input of any kind
        at = np.array([number])
        items = DatasetItems({number: given}, self.fields, positions=[number])
        kind = self.form.kind
        if kind in ("vectors", "tensors"):
            row = self._stack(items)[np.array([0])][0]
            self._check_numbers(row, number)
            return row
        value = items[0]
        if kind == "images":
            image = one_image(encoded_image(value), number, self.form.channels)
            # its number is that of the stream in an error
            source = cast("Sequence[OneImage]", {number: image})
            images = Images(source, self.size, channels=self.form.channels, decode=self.decode)
            return images.read(at)[0].copy()
        if kind == "texts" and not (isinstance(value, str) and value.strip()):
            got = type(value).__name__ if not isinstance(value, str) else "an empty one"
            raise UserError(f"Item {number} of the data set must be a text. Got {got} instead: leave it out.")
        return value

    def _check_numbers(self, row: NDArray[Any], number: int) -> None:
        """Check that an input has only finite numbers, or missing ones where these are allowed."""
        allowed = np.isfinite(row)
        if self.form.missing == "mean":
            allowed |= np.isnan(row)
        if allowed.all():
            return
        place = tuple(int(axis[0]) for axis in np.nonzero(~allowed))
        where = self.form.column_name(place[0]) if len(place) == 1 else f"the number at {place}"
        mend = "leave the item out, or train with missing='mean'" if np.isnan(row[place]) else "leave the item out"
        raise UserError(f"Item {number} of the data set: {where} of its input is {row[place]}: {mend}.")

    def _read_label(self, given: Any, number: int) -> Any:  # noqa: ANN401 - an item, and its label of any kind
        if self.label is None:
            label = item_label(given, number)
        elif isinstance(given, Mapping) or self.fields:
            label = item_field(given, self.label, number)
        else:
            label = item_attribute(given, self.label, number)
        return label.tolist() if hasattr(label, "tolist") else label


class _One:
    """An item as a data set of one."""

    def __init__(self, item: Any) -> None:  # noqa: ANN401 - an item of any kind
        self._item = item

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401
        return self._item


class _ListedTexts(Texts):
    """Texts of a list that changes; each reading may differ."""

    reads_anew = True


def label_misfit(
    name: str,  # such as "item 17 of share 2"
    distance: LabelDistance,
    error: LabelError,
) -> UserError:
    """Make the error of an item whose label does not fit the label distance."""
    return UserError(
        f"The label of {name} of the stream does not fit the label distance {distance.name!r}: it {error.fault} "
        "Mend it, or leave the item out of the stream."
    )


def _name_item(given: Any, name: str) -> str:  # noqa: ANN401 - an item as the stream gives it
    """Name an item also by its key, where it has one."""
    key = key_of(given)
    return name if key is None else f"{name} ({key})"


def key_of(given: Any) -> str | None:  # noqa: ANN401 - an item as the stream gives it
    """The key of an item, where it has one."""
    key = given.get(KEY) if isinstance(given, Mapping) else None
    return None if key is None else str(key)


@contextlib.contextmanager
def _naming(number: int, name: str) -> Iterator[None]:
    """Let errors in the block name the item of the stream, once."""
    try:
        yield
    except UserError as error:
        text = str(error)
        for subject, own in (
            (f"Item {number} of the data set", f"I{name[1:]} of the stream"),
            (f"images[{number}]", f"The image of {name} of the stream"),
        ):
            if text.startswith(subject):
                raise UserError(own + text[len(subject) :]) from None
        if text.startswith(subject := f"The image number {number} "):
            raise UserError(f"The image of {name} of the stream {text[len(subject) :]} {_REPLACE}") from None
        if name == f"item {number}":  # which the error says itself
            raise
        raise UserError(f"In the stream, {name}: {text}") from None
    except OSError as error:  # of a Pillow image, which is decoded when its pixels are needed
        if error.errno is not None:  # of the machine
            raise
        raise UserError(f"The image of {name} of the stream cannot be read: {error}. {_REPLACE}") from None


_ROW = "row of columns"
_REPLACE = "Replace it, or leave the item out."


def _join_columns(item: Any, columns: tuple[str, ...], number: int) -> dict[str, Any]:  # noqa: ANN401 - a mapping
    """An item whose columns of numbers are one vector."""
    values = [item_field(item, column, number) for column in columns]
    try:
        row = np.array([np.nan if value is None else value for value in values], np.float32)
    except (TypeError, ValueError):
        row = np.empty(0, np.float32)
    if row.shape != (len(columns),):
        raise UserError(f"Item {number} of the data set must have a number in each of {', '.join(columns)}.")
    return {**item, _ROW: row}


def _keep(value: Any, index: int) -> Any:  # noqa: ANN401
    return value
