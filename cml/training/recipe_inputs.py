"""A task's recipe, which is for images, where the items are vectors."""

from dataclasses import replace

from cml.data.input_form import InputForm
from cml.training.config import TrainConfig


def recipe_for_inputs(recipe: TrainConfig, form: InputForm) -> TrainConfig:
    """Adapt a recipe to the form of the inputs: vectors have no backbone, no augmentation and a higher learning rate.

    The rate was chosen on three tables, see ``tests/benchmarks/tables.py``.

    Args:
        recipe: The recipe, for images.
        form: The form of the inputs.

    Returns:
        The recipe itself for images; otherwise one with a linear head on the inputs.
    """
    if form.kind == "images":
        return recipe
    return replace(
        recipe,
        backbone="none",
        weights="none",
        learning_rate=3e-3,
        crop=1.0,
        scale_jitter=0.0,
        shift_jitter=0.0,
        brightness_jitter=0.0,
        flip="none",
    )
