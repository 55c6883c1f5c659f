"""The base class of label formats."""

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from cml.data_prep.row_files import Quote, Row
from cml.errors import DataError


class Reader:
    """Reads one format of labels as rows.

    Attributes:
        title: What the format is called in messages.
        is_sparse: Whether rows may lack the columns of a kind of label, as entries without joints do; such rows are
            left out and counted.

    Example:
        >>> from cml.data_prep.readers.reader import Reader
        >>> class Lines(Reader):
        ...     title = "lines of a name and a number"
        ...
        ...     def recognizes(self, path, head, kind):
        ...         return path.suffix == ".lines"
        ...
        ...     def read(self, path, images, quote):
        ...         for number, line in enumerate(path.read_text().splitlines(), start=1):
        ...             name, value = line.split()
        ...             yield f"{path}:{number}", {"file_name": name, "value": value}
    """

    title: ClassVar[str] = ""
    is_sparse: ClassVar[bool] = False

    @abstractmethod
    def recognizes(self, path: Path, head: str, kind: str) -> bool:
        """Tell whether a file is of this format.

        Args:
            path: The file or folder.
            head: The first 64 kB of a file as text; "" for a folder.
            kind: The kind of label that is wanted, such as "keypoints".

        Returns:
            True if it is.
        """
        raise NotImplementedError

    @abstractmethod
    def read(self, path: Path, images: Path | None, quote: Quote) -> Iterator[tuple[str, Row | DataError]]:
        """Read the rows.

        Args:
            path: The file or folder.
            images: The folder of the images; None where items are no images.
            quote: What texts of a CSV file are quoted with.

        Yields:
            The place of each row for messages, "FILE:LINE", and its columns, or what is wrong with it.

        Raises:
            DataError: The file is bad as a whole.
        """
        raise NotImplementedError
