"""The inputs and labels that ``validation=`` gives: of the kind of the training inputs, and few enough to compare."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cml.data.input_form import InputForm
from cml.data.input_sources import LabelledInputs
from cml.data.items import Items
from cml.data.lazy_items import Lazy
from cml.data.tensors import Tensors
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.training.config import TrainConfig
from cml.training.training_data import FEWEST_HELD_OUT, MOST_HELD_OUT


def refuse_with_validation(config: TrainConfig, *, groups: object) -> None:
    """Refuse what says otherwise how a run is validated.

    Args:
        config: The options of the run.
        groups: Groups that validation keeps together; None for none.

    Raises:
        UserError: There are groups, or ``tune`` makes splits of its own.
    """
    if groups is not None:
        raise UserError("'groups' are for items that are held out, but 'validation' gives others: leave out 'groups'.")
    if config.tune:
        raise UserError("'tune' makes its own splits of the items: leave out 'validation'.")


def recognize_validation(
    validation: Any,  # noqa: ANN401 - inputs with labels
    training: LabelledInputs,
    recognize: Callable[[Any, Any], LabelledInputs],
    *,
    seed: int,
) -> LabelledInputs:
    """Recognise inputs and labels to validate on.

    Args:
        validation: A pair of inputs and labels, or a data set that holds both.
        training: The training inputs.
        recognize: Recognises inputs and labels, as those for training.
        seed: Random seed of the items that are drawn from many.

    Returns:
        At most ``MOST_HELD_OUT`` inputs of the same form, with their labels.

    Raises:
        UserError: They are of another kind or shape, or too few.
    """
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
    if count <= MOST_HELD_OUT:
        return known
    chosen = np.sort(np.random.default_rng(seed).permutation(count)[:MOST_HELD_OUT])
    some = [known.labels[item] for item in chosen.tolist()]
    if isinstance(known.inputs, Vectors | Tensors | Items):
        return replace(known, inputs=known.inputs.subset(chosen), labels=some)
    if isinstance(known.inputs, np.ndarray):
        return replace(known, inputs=known.inputs[chosen], labels=some)
    reads_anew = isinstance(known.inputs, Lazy) and known.inputs.reads_anew
    return replace(known, inputs=Lazy(known.inputs, chosen.tolist(), _unchanged, reads_anew=reads_anew), labels=some)


def _form(known: LabelledInputs) -> InputForm:
    """The form of inputs; all images are alike."""
    return known.inputs.form if isinstance(known.inputs, Vectors | Tensors | Items) else InputForm()


def _unchanged(image: Any, item: int) -> Any:  # noqa: ANN401
    """The image; a function with a name, as data workers may be sent it."""
    return image
