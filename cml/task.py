"""Tasks: what a kind of label fixes: recipe, drawing, mirroring, and the variants that ``cml compare`` trains.

A task is one module and one line in the entry-point group ``cml.tasks``; a task of another package
needs no more than that line in its own pyproject, and one in a plugin no more than ``cml.tasks.register(TASK)``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from cml.errors import UserError
from cml.registry import Registry

if TYPE_CHECKING:
    from PIL.Image import Image

    from cml.data.prepared import DatasetInfo
    from cml.distances import LabelDistance
    from cml.training.config import TrainConfig


Made = TypeVar("Made", bound="Task | Callable[[], Task]")


def recipe_distance(recipe: TrainConfig, info: DatasetInfo) -> str:
    """The label distance that the options name, as it is."""
    return recipe.label_distance


def own_unit(unit: str, info: DatasetInfo) -> tuple[float, str]:
    """Mean label distances are reported as they are."""
    return 1.0, unit


def no_legend(info: DatasetInfo) -> Mapping[str, str]:
    """The drawing needs no legend."""
    return {}


@dataclass(frozen=True)
class Task:
    """What a kind of label fixes.

    Attributes:
        name: As in ``cml train NAME`` and dataset.json.
        summary: One line for the list of tasks.
        recipe: Default options of training.
        draw: Draws a label on its picture: (image, label, dataset's info) to a new image.
        describe: A label in a few words, or "".
        variants: What ``cml compare`` trains: name to the options in which it differs from the recipe.
        label_distance: The label distance for a dataset, with the settings that only the dataset knows.
        mirror: Mirrors a label: (label, dataset's info) to the label of the mirrored image. None if it cannot be.
        report: How mean label distances are reported: (unit of the label distance, dataset's info) to what they are
            multiplied with and the unit that they then have. nDCG is always of the label distance itself.
        legend: What the colours of ``draw`` mean: word to colour.
        sample: Name of the data source that draws an embedded dataset for ``cml demo NAME``; "" if there is none.
    """

    name: str
    summary: str
    recipe: TrainConfig
    draw: Callable[[Image, Any, DatasetInfo], Image]
    describe: Callable[[Any, DatasetInfo], str]
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    label_distance: Callable[[TrainConfig, DatasetInfo], str] = recipe_distance
    mirror: Callable[[Any, DatasetInfo], Any] | None = None
    report: Callable[[str, DatasetInfo], tuple[float, str]] = own_unit
    sample: str = ""
    legend: Callable[[DatasetInfo], Mapping[str, str]] = no_legend


registry: Registry[Task] = Registry("task", {}, group="cml.tasks")  # cml's own are entry points too
comparisons: Registry[None] = Registry("comparison", {}, group="cml.comparisons")
"""What ``cml compare`` compares beside the losses of a task: name to ``run(arguments)``."""
names = registry.names


def get(name: str) -> Task:
    """The task called ``name``.

    Raises:
        UserError: unknown; the message lists the known ones.
    """
    task: Any = registry.entry(name)  # an entry is the task itself, nothing is made
    if not isinstance(task, Task):
        raise UserError(f"The task {name!r} of {registry.origin(name)} is {task!r}; it should be a cml.tasks.Task.")
    return task


def label_distance_of(task: str, choice: str) -> LabelDistance:
    """The label distance that a text names; a task of another package may bring it, and is imported before.

    Args:
        task: Name of the task; "" for none, and one that is not known here is no hindrance.
        choice: A name, or name(setting=value, ..).

    Raises:
        UserError: there is no such label distance or setting.
    """
    from cml.distances import made

    with contextlib.suppress(UserError):
        registry.entry(task)
    return made(choice)


def register(task: Made) -> Made:
    """Add a task to those that the command line and prepared datasets name; also the decorator of a function.

    Args:
        task: The task, or a function without arguments that makes it.

    Raises:
        UserError: another task has its name.

    Example:
        >>> from cml import tasks
        >>> from cml.training.config import TrainConfig
        >>> @tasks.register
        ... def hours() -> tasks.Task:
        ...     return tasks.Task(
        ...         name="hours",
        ...         summary="times of the day",
        ...         recipe=TrainConfig(label_distance="euclidean"),
        ...         draw=lambda image, label, info: image,
        ...         describe=lambda label, info: f"{label:g} h",
        ...     )
        >>> tasks.get("hours").summary
        'times of the day'
    """
    made: Any = task if isinstance(task, Task) else task()
    registry.register(made.name)(made)
    return task
