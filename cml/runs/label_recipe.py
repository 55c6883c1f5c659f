"""A task's recipe with the options that suit a dataset's labels, such as judged pairs, in place of its own."""

from dataclasses import replace

from cml.data.dataset_info import DatasetInfo
from cml.distances import registry
from cml.errors import UserError
from cml.task import Task
from cml.training.config import TrainConfig


def recipe_for_labels(recipe: TrainConfig, task: Task, info: DatasetInfo, *, head_alone: bool) -> TrainConfig:
    """Adapt a recipe to the labels of a dataset.

    Args:
        recipe: The recipe.
        task: The task.
        info: The dataset's info.
        head_alone: Whether only a head is trained, on vectors or on a frozen backbone.

    Returns:
        The recipe with the ``training_options`` of the dataset's label distance; as it is where that cannot be made,
        which whoever trains reports.
    """
    try:
        distance = registry.make(task.label_distance(recipe, info))
    except UserError:
        return recipe
    return replace(recipe, **distance.training_options(head_alone=head_alone))
