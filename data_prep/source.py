"""What the data sources share: the steps of ``prepare``, what dataset.json says, splits, lines of texts."""

import dataclasses
import hashlib
import io
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, already_prepared, write_dataset
from cml.errors import DataError, UserError
from cml.storage.atomic import open_regular

_COLUMNS = {  # of a task: its label column and the usual unit of its labels
    "value": ("value", ""),
    "caption": ("captions", "captions"),
    "classes": ("class", ""),
    "layout": ("layout_file_name", "id of a surface"),
    "pose": ("keypoints", "px"),
}
_LEAST = (("image_size", 16), ("margin", 0), ("min_joints", 2))


class Content(NamedTuple):
    """What a source makes of its input."""

    items: Iterable[Item | DataError]  # for ``write_dataset``
    details: Mapping[str, Any]  # for dataset.json
    about: Mapping[str, Any] = {}  # texts of dataset.json that depend on the settings, in place of the source's own
    total: int | None = None  # how many items there are, where they are no list
    within: Collection[Path] = ()  # folders of the input that no setting names
    after: ExitStack = ExitStack()  # closed when all is written


@dataclasses.dataclass(frozen=True)
class DatasetSource:
    """Base of the data sources: one says where its input comes from (``_origin``) and what it makes of it."""

    name: ClassVar[str] = ""  # of the dataset, where it is not the source's
    task: ClassVar[str] = ""
    label_unit: ClassVar[str] = ""  # where it is not the task's
    frame: ClassVar[str] = ""
    published: ClassVar[str] = ""
    licence: ClassVar[str]
    least: ClassVar[tuple[tuple[str, float], ...]] = ()  # of its settings, beside those that several sources have
    may_be_all: ClassVar[tuple[str, ...]] = ()  # shares that may be 1

    def __post_init__(self) -> None:
        for name in ("test_share", "query_share"):
            share, whole = getattr(self, name, 0.5), name in self.may_be_all
            if not (0 < share < 1 or (share == 1 and whole)):
                rule = f"above 0 and {'at most' if whole else 'below'} 1"
                raise UserError(f"The {name} (--{name.replace('_', '-')}) should be {rule}. Got {share} instead.")
        for name, low in (*_LEAST, *self.least):
            value = getattr(self, name, None)
            if value is not None and not low <= value < math.inf:
                raise UserError(f"The {name} should be at least {low}. Got {value} instead.")

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset; see ``DataSource.prepare``."""
        origin = self._origin()
        if (done := already_prepared(out, origin)) is not None:
            return done
        made = self._content(skip_bad)
        with made.after:
            own = {"name": self.name or type(self).__name__.lower(), "task": self.task, "frame": self.frame}
            texts: dict[str, Any] = {**own, "source": self.published, "licence": self.licence, **made.about}
            column, unit = _COLUMNS[texts["task"]]
            texts = {"label_column": column, "label_unit": self.label_unit or unit, **texts}
            info = DatasetInfo(**texts, details=made.details, made_with=origin)
            paths = [path for path in vars(self).values() if isinstance(path, Path)]
            folders = {*(path if path.is_dir() else path.parent for path in paths), *made.within}
            return write_dataset(out, info, made.items, total=made.total, skip_bad=skip_bad, within=folders)

    def _origin(self) -> dict[str, Any]:
        """What ``made_with`` says of the source and its input."""
        raise NotImplementedError

    def _content(self, skip_bad: bool) -> Content:
        """Read the input; with ``skip_bad`` a bad item is no reason to stop."""
        raise NotImplementedError


def made_with(
    source: Any,  # noqa: ANN401 - any dataclass
    *,
    revision: int,
    files: Iterable[Path] = (),
    images: Path | Iterable[Path] = (),
    without: Collection[str] = (),
) -> dict[str, Any]:
    """What decides the content of a prepared dataset: the source, its settings and a fingerprint of its input.

    ``revision`` is of the source's own code, raised when the same input gives another dataset. Of ``files`` the content
    counts, of folders of ``images`` the names and sizes of their files, of settings neither paths, so that moved input
    is still the same, nor those in ``without``. An input that is missing is a DataError.
    """
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
    settings = ((field.name, getattr(source, field.name)) for field in dataclasses.fields(source))
    kept = {name: value for name, value in settings if not isinstance(value, Path) and name not in without}
    name = type(source).__name__.lower()
    return {"source": name, "revision": revision, "settings": kept, "input": digest.hexdigest()}


def role_by_hash(item_id: str, test_share: float, query_share: float) -> str:
    """A role that depends on the item's id alone: another item never moves this one from train to test."""
    digests = (hashlib.sha256(f"{salt}:{item_id}".encode()).digest() for salt in ("test", "query"))
    test, query = (int.from_bytes(digest[:6]) / 2**48 for digest in digests)
    return "train" if test >= test_share else "query" if query < query_share else "gallery"


def dealt(groups: Mapping[str, str], share: float, *, seed: int, salt: str) -> set[str]:
    """A random share of the items, given with their groups, as nearly as whole groups allow: never none, nor all."""
    sizes = Counter(groups.values())
    order = sorted(sizes, key=lambda group: hashlib.sha256(f"{salt}:{seed}:{group}".encode()).digest())
    wanted, total = round(share * len(groups)), 0
    chosen: set[str] = set()
    for group in order:
        if not chosen or (abs(total + sizes[group] - wanted) < abs(total - wanted) and len(chosen) + 1 < len(order)):
            chosen.add(group)
            total += sizes[group]
    return {item for item, group in groups.items() if group in chosen}


def text_lines(path: Path) -> list[tuple[str, str]]:
    """The lines of a UTF-8 text file that are not blank, each with "FILE:LINE"."""
    try:
        with io.TextIOWrapper(open_regular(path), "utf-8-sig") as file:
            lines = file.read().split("\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} should be UTF-8 text, but is not: {error.reason} at byte {error.start + 1}.") from None
    return [(f"{path}:{number}", line) for number, line in enumerate(lines, start=1) if line.strip()]
