"""Any image dataset of the Hugging Face hub, or a local folder in its form, by the names of its columns."""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from PIL import Image

from cml.console.messages import say
from cml.data.prepared_writer import BadItems, Item
from cml.data.table_columns import describe_order, is_place_distance, order_place
from cml.data_prep.dataset_source import Content, DatasetSource, InfoTexts
from cml.data_prep.folder_split import deal_classes
from cml.data_prep.hash_split import split_by_hash
from cml.data_prep.hf_folder import Rows, open_folder
from cml.data_prep.label_cells import READ
from cml.data_prep.label_kinds import KINDS
from cml.data_prep.provenance import record_provenance
from cml.data_prep.row_errors import read_each
from cml.data_prep.scale_depth import check_bits
from cml.data_prep.shrink import Shrink
from cml.errors import DataError, UserError, require_extra
from cml.storage.downloads import explain_dataset_errors, latest_commit
from cml.storage.regular_file import open_regular
from cml.storage.safe_paths import is_inside

_Kind = Literal["numbers", "captions", "classes"]


@dataclass(frozen=True)
class HuggingFace(DatasetSource):
    """An image dataset from the Hugging Face hub or a local folder, with labels from the columns that you name.

    Command: cml prepare hf:USER/NAME --label-columns age --out DIR

    Input: a dataset of the hub, hf:USER/NAME or hf:USER/NAME@REVISION, read with the extra 'datasets' as a stream, so
    that only the prepared dataset takes room on the disk. A killed run reads the stream again, but keeps the images
    that were finished. Or a local folder, hf:./FOLDER, of Parquet files, of Arrow files as save_to_disk writes them, of
    images with metadata.csv or .jsonl, of images in folders named by class, or of tar archives. Its own files are read:
    a README.md is not followed. A label column such as attributes.age is a field of an object.

    Split: that of the dataset, its part "test" (or else "validation") for testing. A dataset of one part is split by
    a hash of each item's number, or of its class, so that test classes are new. Every test image is a query that is
    searched among all others.

    Licence: the dataset's own, which its page on the hub states.
    """

    HELP_GROUPS: ClassVar[Mapping[str, tuple[str, ...]]] = {  # the first is what --help shows without --help-all
        "basic": ("dataset", "kind", "image", "label_columns", "label_distance", "unit", "subset", "test_fraction"),
        "reading": ("image_size", "bits"),
    }

    dataset: str
    """USER/NAME, USER/NAME@REVISION or a local folder."""
    kind: _Kind | None = None
    """Kind of label: one or more numbers, one or more texts, or the name of a class. By default classes for a column of
    class names (ClassLabel), else numbers."""
    image: str = "image"
    """Column of the images."""
    label_columns: tuple[str, ...] = ("label",)
    """Columns with the label; several columns of numbers form a vector."""
    label_distance: str = ""
    """Label distance of numbers, such as circular(period=24) or haversine; by default euclidean."""
    subset: str = ""
    """Configuration of the dataset, if it has several; for a local folder, the subfolder to read."""
    test_fraction: float = 0.3
    """Fraction of items held out for testing, if the dataset has only one split."""
    image_size: int | None = None
    """Larger images are scaled down so that their shorter side has this many pixels. By default the files are
    copied."""
    unit: str = ""
    """Unit of numbers in tables and plots."""
    bits: int | None = None
    """Number of bits that 16-bit images use, such as 10 or 12. The largest value of that many bits becomes white. By
    default it is 65535, or the maximum that the file specifies."""

    licence = "the dataset's own"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bits(self.bits)
        if not self.label_columns or (self.kind == "classes" and len(self.label_columns) > 1):
            raise UserError("label_columns should name a column of labels; of classes there is one.")
        if self.kind in ("captions", "classes") and (self.unit or self.label_distance):
            raise UserError(f"A unit and a label_distance belong to numbers; leave them out for {self.kind}.")

    @functools.cached_property
    def _columns(self) -> tuple[str, ...]:
        """The label columns in the order of the label: those of places by their names."""
        if not is_place_distance(self.label_distance):
            return self.label_columns
        try:
            return order_place(self.label_columns)
        except UserError as error:
            if len(self.label_columns) > 1:
                raise
            rule, _, _ = str(error).partition(" Say it by ")
            raise UserError(
                f"{rule} Say it by the column's name, with datasets' rename_column: lat_lon. Where longitude comes "
                "first, turn the numbers round before."
            ) from None

    @functools.cached_property
    def _opened(self) -> tuple[str, str]:
        """What the library opens: a folder and no revision, or a name on the hub and a commit."""
        if Path(self.dataset).is_dir():
            return self.dataset, ""
        name, _, revision = self.dataset.partition("@")
        return name, latest_commit(name, revision)

    def origin(self) -> dict[str, Any]:
        """See ``DatasetSource.origin``."""
        name, revision = self._opened
        if not revision:
            return record_provenance(self, revision=2, images=Path(name), ignored=["dataset"])
        return {**record_provenance(self, revision=2, ignored=["dataset"]), "input": f"hf:{name}@{revision}"}

    def content(self, skip_bad: bool) -> Content:
        """See ``DatasetSource.content``."""
        name, revision = self._opened
        parts = self._hub_parts(name, revision) if revision else open_folder(Path(name), self.subset)
        held = next((part for part in ("test", "validation") if part in parts), None)
        train = next((part for part in parts if part != held), held)
        assert train is not None  # a dataset has at least one part
        held = None if held == train else held
        tables = {part: self._check_columns(parts[part]) for part in (train, held) if part is not None}
        place = name if revision else Path(name).resolve()
        roles = {part: "query" if part == held else "train" if held else "" for part in tables}
        kind_name = self.kind or self._find_kind(tables[train])
        if self._columns != self.label_columns:
            say(f"hf:{self.dataset}: {describe_order(self._columns)}")
        held_out = self._hold_classes(tables[train], place) if kind_name == "classes" and held is None else None
        items = (
            item
            for part, rows in tables.items()
            for item in self._items(part, rows, kind_name, roles[part], held_out, place)
        )
        kind = KINDS[kind_name]
        texts: InfoTexts = {
            "name": name.replace("/", "-") if isinstance(place, str) else place.name,
            "task": kind.task,
            "label_unit": self.unit or kind.unit,
            # the text of the first such datasets: another one would change their fingerprints
            "source": f"hf:{name}@{revision}" if revision else "a local folder read by datasets",
        }
        compared = {"label_distance": self.label_distance} if self.label_distance else {}
        return Content(items, {"gallery": "queries", "label_columns": list(self._columns), **compared}, texts)

    def _hub_parts(self, name: str, revision: str) -> dict[str, Rows]:
        """The parts of a dataset on the hub, as streams."""
        with require_extra("datasets", f"The dataset hf:{self.dataset}"):
            import datasets
        with explain_dataset_errors(self.dataset):
            builder = datasets.load_dataset_builder(name, self.subset or None, revision=revision)
            for files in (builder.config.data_files or {}).values():
                for file in files:
                    if not str(file).startswith(f"hf://datasets/{name}@"):
                        raise DataError(f"hf:{self.dataset} names a file of another place: {file}.")
            streams = builder.as_streaming_dataset()
            return {part: _stream_rows(datasets, stream) for part, stream in streams.items()}

    def _check_columns(self, rows: Rows) -> Rows:
        """Check that the wanted columns are there, and that one holds images."""
        where = f"hf:{self.dataset}"
        for column in self._read_columns(rows) if rows.columns else ():
            if column not in rows.columns:
                raise DataError(f"{where} has no column {column!r}. There are: {', '.join(rows.columns)}.")
        if self.image not in rows.images:
            raise DataError(f"{where}: the column {self.image!r} should hold images. Name theirs with --image.")
        return rows

    def _read_columns(self, rows: Rows) -> tuple[str, ...]:
        """The columns of images and labels; of a field such as attributes.age the column that holds it."""
        labels = [name if name in rows.columns else name.partition(".")[0] for name in self.label_columns]
        return tuple(dict.fromkeys([self.image, *labels]))

    def _find_kind(self, rows: Rows) -> _Kind:
        """Classes where the dataset says that its label is one, and nothing was said of a unit or a label distance."""
        is_class = self.label_columns[0] in rows.class_names and len(self.label_columns) == 1
        if not is_class or self.unit or self.label_distance:
            return "numbers"
        say(f"hf:{self.dataset}: {self.label_columns[0]!r} is a column of classes; for their numbers, --kind numbers.")
        return "classes"

    def _hold_classes(self, rows: Rows, place: Path | str) -> set[str] | None:
        """The classes of a dataset of one part that are held out; None where a stream does not say what there is."""
        column = self.label_columns[0]
        names = rows.class_names.get(column)
        if isinstance(place, Path):  # a class that is declared may have no items
            values = (row.get(column) for row in rows.read((column,)) if not isinstance(row, DataError))
            present = {value for value in values if isinstance(value, int | str)}  # others are bad items
            if names is None:
                names = sorted({str(value).strip() for value in present})
            else:
                names = [name for number, name in enumerate(names) if number in present]
        if names is None or len(names) < 2:
            return None
        return deal_classes(names, self.test_fraction, trained=min(2, len(names) - 1))

    def _items(
        self, part: str, rows: Rows, kind: _Kind, role: str, held_out: set[str] | None, place: Path | str
    ) -> Iterator[Item | DataError]:
        """The items of a part; where it has no role as a whole, each has its own."""
        first = self.label_columns[0]
        class_names = rows.class_names.get(first) if kind == "classes" else None

        def item(where: str, row: Mapping[str, Any]) -> Item:
            columns = {name: row[name] for name in self._read_columns(rows) if name in row and name != self.image}
            if class_names is not None and isinstance(row.get(first), int):
                columns = {first: _class_name(row[first], class_names, f"{where}: {first}")}
            label: Any = READ[kind](columns, self._columns, where)
            name = f"{part}-{where.rpartition(':')[2]:0>7}"
            own = role
            if not own and held_out is not None:
                own = "query" if label in held_out else "train"
            elif not own:
                own = split_by_hash(label if kind == "classes" else name, self.test_fraction, 1.0)
            picture = functools.partial(self._picture, row.get(self.image), place, where)
            return Item(name, own, picture, label, where=where)

        def number_rows() -> Iterator[tuple[str, Mapping[str, Any] | DataError]]:
            number = empty = 0
            with explain_dataset_errors(self.dataset):
                for row in rows.read(self._read_columns(rows)):
                    is_empty = not isinstance(row, DataError) and _is_empty(row.get(self.image))
                    if empty and not is_empty:
                        yield self._empty_rows(part, number, empty)
                        empty = 0
                    if not is_empty:
                        yield f"hf:{self.dataset} {part}:{number}", row
                    empty += is_empty
                    number += row.count if isinstance(row, BadItems) else 1
            if empty:
                yield self._empty_rows(part, number, empty)

        return read_each(number_rows(), item)

    def _empty_rows(self, part: str, end: int, count: int) -> tuple[str, BadItems]:
        """Rows without an image, as one error: the last of them is that before ``end``."""
        where = f"hf:{self.dataset} {part}:{end - count}"
        rows = f"rows {end - count} to {end - 1} have" if count > 1 else "the row has"
        return where, BadItems(f"{where}: {rows} no image in the column {self.image!r}.", count)

    def _picture(self, stored: Mapping[str, Any] | None, place: Path | str, where: str) -> Image.Image | bytes:
        content = _image_bytes(stored or {}, place, where)
        if self.image_size is None and self.bits is None:
            return content
        return Shrink(self.image_size, bits=self.bits).shrink(content)


def _stream_rows(datasets: Any, stream: Any) -> Rows:  # noqa: ANN401 - of a library without types
    """The rows of a stream of the library ``datasets``, images as they are stored."""
    features = stream.features or {}
    images = [name for name, feature in features.items() if isinstance(feature, datasets.Image)]
    names = {name: feature.names for name, feature in features.items() if isinstance(feature, datasets.ClassLabel)}

    def read(columns: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        chosen = stream.select_columns(list(columns))
        for name in images:
            if name in columns:
                chosen = chosen.cast_column(name, datasets.Image(decode=False))
        yield from chosen

    return Rows(list(features), images, read, names)


def _class_name(number: int, names: Sequence[str], where: str) -> str:
    if not 0 <= number < len(names):
        raise DataError(f"{where} should be the number of a class, 0 to {len(names) - 1}. Got {number} instead.")
    return names[number]


def _is_empty(stored: object) -> bool:
    """Whether a stored image is none."""
    return stored is None or (
        isinstance(stored, Mapping) and stored.get("bytes") is None and stored.get("path") is None
    )


def _image_bytes(stored: Mapping[str, Any], place: Path | str, where: str) -> bytes:
    """The bytes of a stored image: its own, or those of a file of the same dataset."""
    if isinstance(content := stored.get("bytes"), bytes):
        return content
    path = str(stored.get("path"))
    if isinstance(place, Path):
        inside = is_inside(Path(path), place)
    else:
        inside = re.fullmatch(rf"(zip://[^:]*::)?hf://datasets/{re.escape(place)}@[^:]*", path) is not None
    if not inside:  # a table of a stranger may name any file of this machine
        raise DataError(f"{where}: the image should be a file of the dataset. Got {path!r} instead.")
    if isinstance(place, Path):
        return _file_bytes(Path(path), where)
    import fsspec

    with explain_dataset_errors(path), fsspec.open(path) as file:
        return bytes(file.read())


def _file_bytes(path: Path, where: str) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise DataError(f"{where}: the image {path} cannot be read ({error}).") from None
