"""Formats that labels are stored in, each read as rows: a file of its name and a line here.

A row is a mapping of columns: ``file_name``, and what the format holds: ``keypoints`` (name of a joint to [x, y,
visible]), ``class`` with the corners ``x0``, ``y0``, ``x1``, ``y1`` of a box in pixels, ``caption``, and further
columns. One of your own is a subclass of ``Reader``, registered by ``@cml.data_prep.readers.register("name")``. Plain
CSV, TSV and JSONL files are read by ``row_files``, where no format of these is recognised.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cml.console.messages import say
from cml.data_prep.row_files import Quote, Row, read_rows
from cml.errors import DataError
from cml.registry import Registry
from cml.storage.regular_file import open_regular

if TYPE_CHECKING:
    from cml.data_prep.readers.reader import Reader

registry: "Registry[Reader]" = Registry(
    "label format",
    {
        "arrays": "cml.data_prep.readers.arrays:Arrays",
        "coco": "cml.data_prep.readers.coco:Coco",
        "comparisons": "cml.data_prep.readers.comparisons:Comparisons",
        "deeplabcut": "cml.data_prep.readers.deeplabcut:DeepLabCut",
        "joints": "cml.data_prep.readers.joints:Joints",
        "parquet": "cml.data_prep.readers.parquet:Parquet",
        "ucr": "cml.data_prep.readers.ucr:Ucr",
        "xlsx": "cml.data_prep.readers.xlsx:Xlsx",
        "yolo": "cml.data_prep.readers.yolo:Yolo",
    },
    group="cml.readers",
)
register = registry.register
names = registry.names
PLAIN = "rows"  # the format of plain CSV, TSV and JSONL files
_HEAD = 65536  # bytes that a format is recognised by


def find_reader(
    path: Path,
    kind: str,  # the kind of label that is wanted
    format: str = "",  # name of the format; "" to recognise it
) -> "Reader | None":  # None for plain rows
    """Find the reader of a file, by its name and its first bytes."""
    if format:
        return None if format == PLAIN else registry.get(format)
    head = ""
    if path.is_file():
        try:
            with open_regular(path) as file:
                head = file.read(_HEAD).decode("utf-8-sig", errors="replace")
        except OSError as error:
            raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    known = (registry.get(name) for name in registry.names())
    return next((reader for reader in known if reader.recognizes(path, head, kind)), None)


def read_labels(
    path: Path,
    kind: str,
    *,
    format: str = "",
    images: Path | None = None,  # the folder of the images
    items: str = "images",
    quote: Quote = '"',
) -> Iterator[tuple[str, Row | DataError]]:  # each row with its place, "FILE:LINE"
    """Read the rows of a file or folder of labels in any format."""
    reader = find_reader(path, kind, format)
    if reader is not None and not format:
        say(f"{path} is read as {reader.title}.")
    rows = iter(read_rows(path, items, quote) if reader is None else reader.read(path, images, quote))
    try:
        first = next(rows, None)
        if first is None:
            raise DataError(f"{path} lists no {items}.")
        yield first
        yield from rows
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror or error}).") from None
