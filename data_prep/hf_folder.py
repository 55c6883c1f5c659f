"""A local folder in the form of a dataset of the Hugging Face hub: its own data files by their names, and their rows.

README.md is not followed: it could name files of other folders and of the network. Not for: the hub itself (hf.py).
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image

from cml.console.messages import say
from cml.data_prep import hf_parquet, hf_tar
from cml.data_prep.hf_arrow import ArrowTable
from cml.data_prep.row_files import read_rows
from cml.errors import DataError, UserError
from cml.storage.regular_file import open_regular
from cml.storage.safe_paths import file_inside, is_inside, relative_name

_PARTS = {  # as the hub documents them: a part's name and the words of files and folders that mean it
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"data/([\w.-]+?)-\d{5}-of-\d{5,}[^/]*\.[^/]*")
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_LARGEST_README = 1 << 20  # bytes that are searched for configs
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows of one part of a dataset."""

    columns: Sequence[str]  # names of the columns
    images: Collection[str]  # names of those that hold images
    # reads the rows of some columns: each, or what is wrong with it
    read: Callable[[Sequence[str]], Iterator[Row | DataError]]
    # columns of class numbers, with the name of each class
    class_names: Mapping[str, Sequence[str]] = field(default_factory=dict)


def open_folder(folder: Path, subset: str = "") -> dict[str, Rows]:
    """Open the data files of a folder: Parquet or Arrow files, images with or without metadata, or tar archives."""
    _warn_of_configs(folder)
    if subset:
        try:
            folder /= relative_name(subset, folder)
        except ValueError as fault:
            raise UserError(f"The subset {subset!r} {fault}.") from None
        if not folder.is_dir():
            raise UserError(f"The subset {subset!r} is not here: there is no folder {folder}.")
    names = list_files(folder)
    kinds = Counter(_kind(name) for name in names)
    del kinds[""]
    if not kinds:
        hint = "For a table that names images take 'cml prepare folder'."
        raise DataError(f"{folder} holds no Parquet or Arrow files, images or tar archives. {hint}")
    kind = max(("parquet", "arrow", "tar", "image"), key=lambda kind: kinds[kind])
    wanted = [name for name in names if _kind(name) == kind or (kind == "image" and _is_metadata(name))]
    open_part = {"parquet": _open_tables, "arrow": _open_tables, "tar": _open_archives, "image": _open_images}[kind]
    return {part: open_part(folder, files) for part, files in split_files(wanted).items()}


def list_files(folder: Path) -> list[str]:  # their paths below the folder, sorted
    """List the files of a folder and its subfolders; hidden ones are passed over."""
    root, names = Path(os.path.realpath(folder)), []
    for at, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
        for name in (*folders, *files):
            path = Path(at, name)
            if path.is_symlink() and not name.startswith(".") and (name in folders or not is_inside(path, root)):
                raise DataError(f"{path} is a link to {os.path.realpath(path)}. Copy that into the folder.")
        names += [Path(at, name).relative_to(root).as_posix() for name in files if not name.startswith(".")]
    return sorted(names)


def split_files(
    names: Sequence[str],  # paths below the folder
) -> dict[str, list[str]]:  # part to files, in the order of ``names``
    """Sort files into the parts of a dataset, by the rules of the hub for a dataset without configs.

    The first rule that fits any file decides: shards ``data/PART-00000-of-00001.*``, folders that are named after a
    part, files that are; without any, all files are for training.
    """
    shards: dict[str, list[str]] = {}
    for name in names:
        if match := _SHARD.fullmatch(name):
            shards.setdefault(match[1], []).append(name)
    in_folders = {part: [name for name in names if _names_part(name.split("/")[:-1], part)] for part in _PARTS}
    in_files = {part: [name for name in names if _names_part(name.split("/")[-1:], part, ".")] for part in _PARTS}
    for parts in (shards, in_folders, in_files):
        if any(parts.values()):
            return {part: files for part, files in parts.items() if files}
    return {"train": list(names)}


def _names_part(words: Sequence[str], part: str, end: str = "") -> bool:
    """Whether one of the words, cut at ``-._ `` and digits, has one that means the part; in a file's name not last."""
    found = [piece for word in words for piece in re.split(r"[-._ 0-9]", word)[: -1 if end else None]]
    return any(word in found for word in _PARTS[part])


def _kind(name: str) -> str:
    suffix = Path(name).suffix.lower()
    if _is_metadata(name):
        return ""
    kinds = {".parquet": "parquet", ".arrow": "arrow", ".tar": "tar"}
    return kinds.get(suffix, "image" if suffix in Image.registered_extensions() else "")


def _is_metadata(name: str) -> bool:
    return name.rpartition("/")[2] in _METADATA


def _warn_of_configs(folder: Path) -> None:
    """Say that files named by a README are not looked for."""
    readme = folder / "README.md"
    if readme.is_file():
        with open_regular(readme) as file:
            if re.search(rb"^(configs|data_files):", file.read(_LARGEST_README), re.MULTILINE):
                say(f"{readme} names data files. That is not followed: files are taken and split by their own names.")


def _open_tables(folder: Path, names: Sequence[str]) -> Rows:
    """The rows of Parquet or Arrow files with the same columns."""
    paths = [folder / name for name in names]
    tables: list[ArrowTable | hf_parquet.ParquetTable] = [
        ArrowTable(path) if path.suffix == ".arrow" else hf_parquet.ParquetTable(path) for path in paths
    ]
    first = tables[0]
    for table in tables:
        if table.columns != first.columns:
            raise DataError(f"{table.path} has other columns than {first.path}; a dataset has the same in each file.")

    def read(columns: Sequence[str]) -> Iterator[Row | DataError]:
        for table in tables:
            yield from table.read(columns)

    return Rows(first.columns, first.images, read, first.class_names)


def _open_archives(folder: Path, names: Sequence[str]) -> Rows:
    """The samples of tar archives; the first one names the columns."""
    paths = [folder / name for name in names]

    def read(columns: Sequence[str] = ()) -> Iterator[Row]:
        for path in paths:
            yield from hf_tar.read_samples(path)

    first = next(read(), {})
    return Rows(list(first), [name for name, value in first.items() if isinstance(value, dict)], read)


def _open_images(folder: Path, names: Sequence[str]) -> Rows:
    """Images with the rows of their metadata; without any, each with the name of its folder as its label."""
    metadata = [name for name in names if _is_metadata(name)]
    if not metadata:
        columns = ("image", "label")
        return Rows(columns, columns[:1], lambda _: (_row(folder / name) for name in names))
    tables = [folder / name for name in metadata]

    def rows() -> Iterator[Row | DataError]:
        for table in tables:
            for where, row in _metadata_rows(table):
                yield row if isinstance(row, DataError) else _with_images(row, table.parent, where)

    first = next((row for row in rows() if not isinstance(row, DataError)), {})
    images = [name for name, value in first.items() if isinstance(value, _Image)]
    return Rows(list(first), images, lambda _: rows())


class _Image(dict[str, Any]):
    """An image of a row, as Parquet files hold them: its bytes, or its path."""


def _row(path: Path) -> Row:
    return {"image": _Image(bytes=None, path=str(path)), "label": path.parent.name}


def _metadata_rows(path: Path) -> Iterator[tuple[str, Row | DataError]]:
    if path.suffix != ".parquet":
        yield from read_rows(path)
        return
    table = hf_parquet.ParquetTable(path)
    for number, row in enumerate(table.read(table.columns)):
        yield f"{path}:{number}", row


def _with_images(row: Row, folder: Path, where: str) -> Row | DataError:
    """A row in which ``file_name`` has become the image ``image``, and ``x_file_name`` the image ``x``."""
    if not any(name == "file_name" or name.endswith("_file_name") for name in row):
        return DataError(f"{where}: there is no column 'file_name'. There are: {', '.join(map(str, row))}.")
    made: dict[str, Any] = {}
    try:
        for name, value in row.items():
            if name == "file_name" or name.endswith("_file_name"):
                column = name.removesuffix("file_name").removesuffix("_") or "image"
                made[column] = _Image(bytes=None, path=str(file_inside(folder, value, where)))
            else:
                made[name] = value
    except DataError as error:
        return error
    return made
