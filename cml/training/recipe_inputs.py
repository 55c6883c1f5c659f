"""A task's recipe, which is for images, where the items are vectors."""

from dataclasses import replace

from cml.data.input_form import InputForm
from cml.training.config import TrainConfig
from cml.training.vector_options import vector_options


def recipe_for_inputs(recipe: TrainConfig, form: InputForm) -> TrainConfig:
    """Adapt a recipe to the form of the inputs.

    Args:
        recipe: The recipe, for images.
        form: The form of the inputs.

    Returns:
        The recipe itself for images; otherwise one with a linear head on the inputs, see ``vector_options``.
    """
    return recipe if form.kind == "images" else replace(recipe, **vector_options())
