"""The inputs and labels that ``validation=`` gives: of the kind of the training inputs, and few enough to compare."""

from collections.abc import Callable
from typing import Any

import numpy as np

from cml.data.input_form import InputForm
from cml.data.input_sources import LabelledInputs
from cml.data.items import Items, Tensors
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.items import LabelledItems
from cml.training.config import TrainConfig
from cml.training.stages import FEWEST_HELD_OUT, MOST_HELD_OUT


def refuse_with_validation(
    config: TrainConfig,
    *,
    groups: object,  # groups that validation keeps together; None for none
) -> None:
    """Refuse what says otherwise how a run is validated."""
    if groups is not None:
        raise UserError("'groups' are for items that are held out, but 'validation' gives others: leave out 'groups'.")
    if config.tune:
        raise UserError("'tune' makes its own splits of the items: leave out 'validation'.")


def recognize_validation(
    validation: Any,  # noqa: ANN401 - inputs with labels
    training: LabelledInputs,
    recognize: Callable[[Any, Any], LabelledInputs],
) -> LabelledInputs:
    """Recognise inputs and labels to validate on."""
    inputs, labels = validation if isinstance(validation, tuple) and len(validation) == 2 else (validation, None)
    try:
        known = recognize(inputs, labels)
    except UserError as error:
        raise UserError(f"'validation' cannot be used: {error}") from None
    got, wanted = _form(known), _form(training)
    if (got.kind, got.shape, got.whole) != (wanted.kind, wanted.shape, wanted.whole):
        raise UserError(f"'validation' must be of the kind of the training inputs, {wanted}. Got {got} instead.")
    count = len(known.labels)
    if count < FEWEST_HELD_OUT:
        raise UserError(f"'validation' must have at least {FEWEST_HELD_OUT} items to rank. Got {count} instead.")
    return known


def draw_validation(
    items: LabelledItems,  # N items
    seed: int,
) -> LabelledItems:
    """Draw at most ``MOST_HELD_OUT`` items to validate on, all pairs of which are compared."""
    if len(items) <= MOST_HELD_OUT:
        return items
    return items.subset(np.sort(np.random.default_rng(seed).permutation(len(items))[:MOST_HELD_OUT]))


def _form(known: LabelledInputs) -> InputForm:
    """The form of inputs; all images are alike."""
    return known.inputs.form if isinstance(known.inputs, Vectors | Tensors | Items) else InputForm()
