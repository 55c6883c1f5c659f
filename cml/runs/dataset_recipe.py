"""A task's recipe for a dataset: its options are the defaults of a run where the user gives none."""

from dataclasses import replace

from cml.data.dataset_info import DatasetInfo
from cml.distances import registry
from cml.errors import UserError
from cml.task import Task
from cml.training.config import TrainConfig
from cml.training.recipe_inputs import recipe_for_inputs


def recipe_for_dataset(task: Task, info: DatasetInfo, *, is_frozen: bool, tune: bool = False) -> TrainConfig:
    """Adapt a task's recipe to the inputs and labels of a dataset.

    Vectors have no backbone, see ``recipe_for_inputs``. Labels such as judgements decide loss and sampler, see
    ``LabelDistance.training_options``.

    Args:
        task: The task.
        info: The dataset's info.
        is_frozen: Whether the backbone is frozen.
        tune: Whether the run tunes, which decides loss and sampler itself.

    Returns:
        The recipe. If the label distance cannot be made, it is that for the inputs alone: whoever trains reports this.
    """
    recipe = recipe_for_inputs(task.recipe, info.inputs)
    if tune:
        return recipe
    try:
        distance = registry.make(task.label_distance(recipe, info))
    except UserError:
        return recipe
    head_alone = is_frozen or recipe.has_head_alone
    return replace(recipe, **distance.training_options(head_alone=head_alone))
