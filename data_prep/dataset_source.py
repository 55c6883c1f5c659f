"""The base class of all data sources: the steps of ``prepare`` and the content of dataset.json."""

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, TypedDict

from cml.data.prepared import DatasetInfo, PreparedDataset
from cml.data.prepared_writer import Item, find_prepared, write_dataset
from cml.data_prep.provenance import record_provenance
from cml.errors import DataError, UserError
from cml.option_types import convert_options

_LABEL_COLUMNS = {  # of cml's own tasks: the label column and the usual unit of the labels
    "value": ("value", ""),
    "caption": ("captions", "captions"),
    "classes": ("class", ""),
    "layout": ("layout_file_name", "id of a surface"),
    "pose": ("keypoints", "px"),
}
_OTHER_TASK = ("value", "")
_MINIMUMS = {"image_size": 16, "margin": 0, "min_joints": 2}
_FRACTIONS = ("test_fraction", "query_fraction")


class InfoTexts(TypedDict, total=False):
    """The texts of dataset.json that a source may derive from its settings; see ``cml.data.prepared.DatasetInfo``."""

    name: str
    task: str
    label_column: str
    label_unit: str
    frame: str
    source: str
    licence: str


@dataclasses.dataclass(frozen=True)
class Content:
    """What a source makes of its input.

    Attributes:
        items: The items to write, with a ``DataError`` in place of each bad one. An iterator is read while the dataset
            is written; a sequence is searched for errors before.
        details: Further content of dataset.json, such as ``{"gallery": "queries"}`` or ``{"label_distance":
            "circular(period=24)"}``.
        texts: Texts of dataset.json that depend on the settings; they replace the class attributes of the source.
        total: Number of items for the progress bar, where ``items`` is an iterator.
        input_folders: Folders of the input that no setting names. Error messages in dataset.json are relative to them.
        cleanup: Closed after the dataset was written or has failed.

    Example:
        >>> Content([Item("a", "train", "a.jpg", 3.5)], details={"gallery": "queries"}).total is None
        True
    """

    items: Iterable[Item | DataError]
    details: Mapping[str, Any]
    texts: InfoTexts = dataclasses.field(default_factory=InfoTexts)
    total: int | None = None
    input_folders: Collection[Path] = ()
    cleanup: ExitStack = dataclasses.field(default_factory=ExitStack)


@dataclasses.dataclass(frozen=True)
class DatasetSource:
    """Base class of the data sources: a frozen dataclass whose fields are the flags of ``cml prepare NAME``.

    A source overrides ``content``, and ``origin`` where the default does not describe its input. Its class attributes
    are texts of dataset.json. A text below a field is the help of its flag; the first line of the docstring is the
    source's line in ``cml prepare --help``.

    Attributes:
        task: The task that the dataset belongs to, one of cml's own or of your own: "value", "pose", ...
        name: Name of the dataset; by default the name of the class in lower case.
        label_column: Column of metadata.jsonl with the label; by default that of the task, and "value" for a task that
            is not cml's own. A column that ends in "_file_name" holds images, such as masks.
        label_unit: Unit of the labels; by default that of the task.
        frame: Coordinate frame of the labels in words, "" if they have none.
        published: The publication that the input comes from.
        licence: The licence of the input.
        minimums: Setting to the lowest value that it may have.
        whole_fractions: Those of the fractions ``test_fraction`` and ``query_fraction`` that may be 1.

    Example:
        >>> from cml.data_prep import Content, DatasetSource, Item
        >>> @dataclasses.dataclass(frozen=True)
        ... class Greys(DatasetSource):
        ...     task = "value"
        ...
        ...     def content(self, skip_bad: bool) -> Content:
        ...         from PIL import Image
        ...
        ...         roles = ("train", "train", "query", "gallery")
        ...         greys = ((f"{grey:03d}", Image.new("L", (32, 32), grey), grey) for grey in range(0, 256, 16))
        ...         items = [Item(name, roles[grey // 16 % 4], image, grey) for name, image, grey in greys]
        ...         return Content(items, details={})
        >>> Greys().origin()["source"]
        'greys'
    """

    task: ClassVar[str] = ""
    name: ClassVar[str] = ""
    label_column: ClassVar[str] = ""
    label_unit: ClassVar[str] = ""
    frame: ClassVar[str] = ""
    published: ClassVar[str] = ""
    licence: ClassVar[str] = ""
    minimums: ClassVar[Mapping[str, float]] = {}
    whole_fractions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        convert_options(self)
        for name in _FRACTIONS:
            fraction, may_be_one = getattr(self, name, 0.5), name in self.whole_fractions
            if not (0 < fraction < 1 or (fraction == 1 and may_be_one)):
                rule = f"above 0 and {'at most' if may_be_one else 'below'} 1"
                raise UserError(f"The {name} (--{name.replace('_', '-')}) should be {rule}. Got {fraction} instead.")
        for name, low in {**_MINIMUMS, **self.minimums}.items():
            value = getattr(self, name, None)
            if value is not None and not low <= value < math.inf:
                raise UserError(f"The {name} should be at least {low}. Got {value} instead.")

    def prepare(self, out: Path, *, skip_bad: bool = False) -> PreparedDataset:
        """Write the dataset to ``out``; do nothing if it is there already, made from the same input and settings.

        After an interruption the same call resumes: finished images are kept.

        Args:
            out: Folder of the dataset to create, absent or empty.
            skip_bad: Whether to leave out and count items with a bad image or label. Otherwise the first one is the
                error. A file that is bad as a whole is an error in both cases.

        Returns:
            The dataset, opened.

        Raises:
            UserError: ``out`` holds something else, a setting is out of its range, or the source names no task.
            DataError: The input is not as the source expects it. The message names file and line.
        """
        origin = self.origin()
        if (done := find_prepared(out, origin)) is not None:
            return done
        content = self.content(skip_bad)
        with content.cleanup:
            info = DatasetInfo(**self._texts(content.texts), details=content.details, made_with=origin)
            paths = [path for path in vars(self).values() if isinstance(path, Path)]
            folders = {*(path if path.is_dir() else path.parent for path in paths), *content.input_folders}
            return write_dataset(
                out,
                info,
                content.items,
                total=content.total,
                skip_bad=skip_bad,
                within=folders,
                mends=self._mends_of_missing_roles(),
            )

    def origin(self) -> dict[str, Any]:
        """Describe what decides the content of the dataset: the source, its settings and its input.

        The default takes every setting that is a path for input: of a file the content counts, of a folder the names
        and sizes of its files. A source overrides it with a call of ``record_provenance`` of its own.

        Returns:
            What ``record_provenance`` returns; dataset.json holds it under ``made_with``.

        Raises:
            DataError: An input is missing.
        """
        paths = [path for path in vars(self).values() if isinstance(path, Path)]
        folders = [path for path in paths if path.is_dir()]
        return record_provenance(
            self, revision=1, files=[path for path in paths if path not in folders], images=folders
        )

    @abstractmethod
    def content(self, skip_bad: bool) -> Content:
        """Read the input and return the items of the dataset.

        Args:
            skip_bad: Whether bad items are skipped. If so, a source should go on after a bad item; otherwise it may
                raise.

        Returns:
            The items and what dataset.json says of them.

        Raises:
            DataError: A file is bad as a whole.
        """
        raise NotImplementedError

    def _mends_of_missing_roles(self) -> dict[str, str]:
        """What to change where no items have a role, by role; nothing where the input says the roles."""
        if getattr(self, "split", None) is not None or getattr(self, "split_column", None) is not None:
            return {}
        changes = {"train": ("Lower", "test"), "query": ("Raise", "query"), "gallery": ("Lower", "query")}
        fractions = {role: (how, f"{of}_fraction") for role, (how, of) in changes.items()}
        return {
            role: f"{how} {name} (--{name.replace('_', '-')}, {getattr(self, name)} so far)"
            for role, (how, name) in fractions.items()
            if hasattr(self, name)
        }

    def _texts(self, derived: InfoTexts) -> dict[str, Any]:
        """The texts of dataset.json: those derived from the settings, then the class attributes, then the task's."""
        texts: dict[str, Any] = {
            "name": self.name or type(self).__name__.lower(),
            "task": self.task,
            "frame": self.frame,
            "source": self.published,
            "licence": self.licence,
            **derived,
        }
        if not texts["task"]:
            mend = 'set the class attribute task, as in task = "value"'
            raise UserError(f"The data source {type(self).__name__} should name its task: {mend}.")
        column, unit = _LABEL_COLUMNS.get(texts["task"], _OTHER_TASK)
        return {"label_column": self.label_column or column, "label_unit": self.label_unit or unit, **texts}
