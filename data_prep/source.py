"""What every data source shares: its contract, what it notes about its input, and the split by hash.

Not for: any one dataset, nor the steps that sources take (dataset_source.py).
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cml.errors import DataError
from cml.storage.atomic import open_regular

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from cml.data.prepared import PreparedDataset


class DataSource(Protocol):
    """Makes a prepared dataset. A frozen dataclass whose fields are its settings and its command's flags."""

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset to ``out``; do nothing if it is there already, made from the same input and settings.

        Args:
            out: Where it shall lie; absent or empty. A killed process is continued.
            skip_bad: Leave out items whose image or label is bad, and count them; otherwise the first one is the
                error. A file that is bad as a whole is an error either way.

        Raises:
            UserError: ``out`` holds something else, or a setting is out of its range.
            DataError: the input is not what the source promises; names file and line.
        """


def made_with(
    source: DataclassInstance,
    *,
    revision: int,
    files: Iterable[Path] = (),
    images: Path | Iterable[Path] = (),
    without: Collection[str] = (),
) -> dict[str, Any]:
    """What decides the content of a prepared dataset: the source, its settings and a fingerprint of its input.

    Args:
        source: The data source. Its paths do not count, so that moved input is still the same input.
        revision: Of the source's own code; raised when the same input gives another dataset.
        files: Input files, taken into the fingerprint with their content.
        images: Input folder or folders, taken into it with the names and sizes of their files.
        without: Settings that do not change the content.

    Raises:
        DataError: an input is missing.
    """
    settings = {field.name: getattr(source, field.name) for field in dataclasses.fields(source)}
    digest = hashlib.sha256()
    for file in files:
        try:
            with open_regular(file) as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        except OSError as error:
            raise DataError(f"The input {file} cannot be read ({error.strerror}).") from None
    for folder in [images] if isinstance(images, Path) else images:
        if not folder.is_dir():
            raise DataError(f"The input {folder} should be a folder of images.")
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(folder).as_posix()}:{path.stat().st_size};".encode(errors="replace"))
    return {
        "source": type(source).__name__.lower(),
        "revision": revision,
        "settings": {
            name: value for name, value in settings.items() if not isinstance(value, Path) and name not in without
        },
        "input": digest.hexdigest(),
    }


def input_folders(source: DataclassInstance) -> set[Path]:
    """The folders that a source's paths name, and those that the files that they name lie in."""
    paths = [getattr(source, field.name) for field in dataclasses.fields(source)]
    return {path if path.is_dir() else path.parent for path in paths if isinstance(path, Path)}


def role_by_hash(item_id: str, test_share: float, query_share: float) -> str:
    """A role that depends on the item's id alone: another item never moves this one from train to test.

    ``query_share`` is the share of the test items that are queries; the others are the gallery.
    """
    test, query = (
        int.from_bytes(hashlib.sha256(f"{salt}:{item_id}".encode()).digest()[:6]) / 2**48 for salt in ("test", "query")
    )
    if test >= test_share:
        return "train"
    return "query" if query < query_share else "gallery"


def text_lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a UTF-8 text file that are not blank, each with "FILE:LINE".

    Raises:
        DataError: the file cannot be read, or is not UTF-8.
    """
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8-sig") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} should be UTF-8 text, but is not: {error.reason} at byte {error.start + 1}.") from None
    return [(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]
