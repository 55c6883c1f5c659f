"""The options of a run on a prepared dataset, for ``cml.train``, ``cml.compare`` and the commands."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cml.data.dataset_info import DatasetInfo
from cml.distances import LabelDistance, registry
from cml.errors import UserError
from cml.option_types import check_options
from cml.task import Task
from cml.training.config import TrainConfig
from cml.training.train_options import complete_options


def complete_dataset_options(
    task: Task,
    chosen: Mapping[str, Any],  # the options that the user chose, by name
    info: DatasetInfo,
) -> TrainConfig:
    """Complete the options that the user chose by those that suit a dataset, and by those of the task's recipe."""
    distance = make_label_distance(task, chosen, info)
    return check_options(complete_options(task.recipe, chosen, info.inputs, distance))


def make_label_distance(
    task: Task,
    chosen: Mapping[str, Any],  # the options that the user chose, by name
    info: DatasetInfo,
) -> LabelDistance | None:  # the label distance; None if it cannot be made, which whoever trains reports
    """Make the label distance of a run on a dataset, before the other options are known."""
    named = {"label_distance": chosen["label_distance"]} if "label_distance" in chosen else {}
    try:
        return registry.make(task.label_distance(replace(task.recipe, **named), info))
    except UserError:
        return None
