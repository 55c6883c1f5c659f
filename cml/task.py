"""Tasks: what a kind of label fixes: recipe, drawing, mirroring, and the variants that ``cml compare`` trains.

A task is one module and one line in the entry-point group ``cml.tasks``; a task of another package
needs no more than that line in its own pyproject.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from cml.registry import Registry

if TYPE_CHECKING:
    from PIL.Image import Image

    from cml.data.prepared import DatasetInfo
    from cml.training.config import TrainConfig


def recipe_distance(recipe: TrainConfig, info: DatasetInfo) -> str:
    """The label distance that the options name, as it is."""
    return recipe.label_distance


def own_unit(unit: str, info: DatasetInfo) -> tuple[float, str]:
    """Mean label distances are reported as they are."""
    return 1.0, unit


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


@functools.cache
def registry() -> Registry[Task]:
    """All tasks of this and other installed packages; each is imported when asked for."""
    found = {point.name: point.value for point in entry_points(group="cml.tasks")}
    return Registry("task", found)


def get(name: str) -> Task:
    """The task called ``name``.

    Raises:
        UserError: unknown; the message lists the known ones.
    """
    task: Any = registry().entry(name)  # an entry is the task itself, nothing is made
    made: Task = task
    return made


@functools.cache
def comparisons() -> Registry[None]:
    """What ``cml compare`` compares beside the losses of a task: name to ``run(arguments)``, by entry points too."""
    found = {point.name: point.value for point in entry_points(group="cml.comparisons")}
    return Registry("comparison", found)
