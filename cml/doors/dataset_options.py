"""The options of a run on a prepared dataset, for ``cml.train``, ``cml.compare`` and the commands."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cml.console.messages import say
from cml.data.dataset_info import DatasetInfo
from cml.distances import LabelDistance, registry
from cml.errors import UserError
from cml.option_types import check_options
from cml.task import Task
from cml.training.config import NO_GROUPS, TrainConfig
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


def take_group_column(config: TrainConfig, info: DatasetInfo) -> TrainConfig:
    """Take the column of groups by which a dataset was split, unless the options name another one or none."""
    if config.group_column or not info.group_column:
        return config
    say(
        f"Groups: the column {info.group_column!r}, by which the dataset was split. Whole groups are held out, and "
        f"queries are compared with other groups. group_column={NO_GROUPS} turns this off."
    )
    return replace(config, group_column=info.group_column)
