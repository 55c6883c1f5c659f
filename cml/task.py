"""Tasks: everything that depends on the kind of label, such as recipe, drawing and the variants of ``cml compare``.

A task is one module and one line in the entry-point group ``cml.tasks``, also in the pyproject of another package; a
plugin calls ``cml.tasks.register(TASK)``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from cml.errors import UserError
from cml.registry import Registry

if TYPE_CHECKING:
    from PIL.Image import Image

    from cml.data.prepared import DatasetInfo
    from cml.distances import LabelDistance
    from cml.training.config import TrainConfig


Made = TypeVar("Made", bound="Task | Callable[[], Task]")


class ReportedUnit(NamedTuple):
    """The unit in which label distances are reported, as a task's ``report`` gives it."""

    factor: float  # what label distances are multiplied by
    unit: str  # their unit then


@dataclass(frozen=True)
class Task:
    """Everything that depends on the kind of label."""

    name: str  # as in ``cml train NAME`` and dataset.json
    summary: str  # one line for the list of tasks
    recipe: TrainConfig  # default training options
    # draws a label on its picture: (image, label, dataset's info) to a new image
    draw: Callable[[Image, Any, DatasetInfo], Image]
    describe: Callable[[Any, DatasetInfo], str]  # a label in a few words, or ""
    # what ``cml compare`` trains: name to the options that differ from the recipe
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    compared: Sequence[str] = ()  # the variants that ``cml compare`` trains unless it is told; by default all
    # the label distance for a dataset, with the settings that depend on it; by default the recipe's
    label_distance: Callable[[TrainConfig, DatasetInfo], str] = lambda recipe, info: recipe.label_distance
    # mirrors a label: (label, dataset's info) to the label of the mirrored image. None if it cannot be
    mirror: Callable[[Any, DatasetInfo], Any] | None = None
    # how label distances are reported: (unit of the label distance, dataset's info) to a factor and the new unit, as a
    # tuple; by default as they are. nDCG always uses the label distance itself
    report: Callable[[str, DatasetInfo], tuple[float, str]] = lambda unit, info: (1.0, unit)
    # name of the data source that draws an embedded dataset for ``cml demo NAME``; "" if there is none
    sample: str = ""
    # what the colours of ``draw`` mean: word to colour
    legend: Callable[[DatasetInfo], Mapping[str, str]] = lambda info: {}


registry: Registry[Task] = Registry("task", {}, group="cml.tasks")  # cml's own are entry points too
names = registry.names


def get(name: str) -> Task:
    """Get a task."""
    task: Any = registry.entry(name)  # an entry is the task itself
    if not isinstance(task, Task):
        raise UserError(f"The task {name!r} of {registry.origin(name)} must be a cml.tasks.Task. Got {task!r} instead.")
    return task


def label_distance_of(task: str, choice: str) -> LabelDistance:
    """Make a label distance; the package of its task is imported first, since it may register the distance."""
    from cml.distances import as_label_distance

    with contextlib.suppress(UserError):
        registry.entry(task)
    return as_label_distance(choice)


def register(task: Made) -> Made:
    """Make a task known to the command line and to prepared datasets."""
    instance: Any = task if isinstance(task, Task) else task()
    registry.register(instance.name)(instance)
    return task
