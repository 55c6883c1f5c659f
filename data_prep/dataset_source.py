"""The base class of all data sources: the steps of ``prepare`` and the content of dataset.json."""

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, find_prepared, write_dataset
from cml.errors import DataError, UserError

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
        if (done := find_prepared(out, origin)) is not None:
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
