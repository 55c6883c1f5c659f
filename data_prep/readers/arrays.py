"""Files of arrays, as rows: a column for each array, or a vector for each item by the item's name."""

from collections.abc import Iterator
from pathlib import Path

from cml.data_prep.array_files import SUFFIXES, load_columns
from cml.data_prep.readers.image_names import match_stems, name_in_order
from cml.data_prep.readers.reader import Reader
from cml.data_prep.row_files import Quote, Row
from cml.errors import DataError


class Arrays(Reader):
    """Arrays of one length, each a column by its name; or a vector for each item, by the item's name."""

    title = "arrays"

    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """See ``Reader.recognizes``."""
        return path.suffix.lower() in SUFFIXES or (path.is_dir() and next(path.glob("*.npy"), None) is not None)

    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """See ``Reader.read``."""
        columns = dict(load_columns(path))
        count = len(next(iter(columns.values())))
        if images is not None and "id" in columns:
            columns["file_name"] = match_stems([str(name) for name in columns["id"]], images)
        elif images is not None and "file_name" not in columns:
            columns["file_name"] = name_in_order(path, images, count)
        for place in range(count):
            cells = {name: column[place] for name, column in columns.items()}
            yield f"{path}, row {place}", {n: c.tolist() if hasattr(c, "tolist") else c for n, c in cells.items()}
