"""Continuing from a trained model: its backbone, head and standardisation are where the training begins."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cml.data.input_form import InputForm
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel

_DECIDED = ("backbone", "weights", "dimension", "image_size", "crop")  # options that a model's config holds


def decided_options(start: EmbeddingModel) -> dict[str, Any]:
    """The options that a start model decides, by name."""
    return {name: getattr(start.config, name) for name in _DECIDED} | {"missing": start.config.inputs.missing}


def follow_start(start: EmbeddingModel, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The chosen options and those that the start model decides; a UserError names one that contradicts it."""
    own = decided_options(start)
    for name, value in own.items():
        given = chosen.get(name, value)
        if (tuple(given) if isinstance(given, list) else given) != value:
            raise UserError(f"The start model has {name}={value}: leave out {name}={given}.")
    for name in ("head_start", "tune"):
        if chosen.get(name) not in (None, False, "auto"):
            raise UserError(f"A start model has a head already: leave out {name}={chosen[name]}, or 'start'.")
    return {**chosen, **own}


def check_start(start: EmbeddingModel, form: InputForm) -> None:
    """Refuse inputs of another form than those of the start model."""
    own = start.config.inputs
    if (own.kind, own.shape, own.whole, own.channels) != (form.kind, form.shape, form.whole, form.channels):
        raise UserError(f"The start model takes {own}. Got {form} instead.")


def copy_start(start: EmbeddingModel, loss: Loss) -> EmbeddingModel:
    """A copy to train, which is L2-normalised as the loss decides."""
    model = copy.deepcopy(start)
    model.config = replace(start.config, normalize=loss.normalize)
    return model.requires_grad_(True)
