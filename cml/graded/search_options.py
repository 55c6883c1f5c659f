"""The options of training that suit graded search where the user chose none: of ``cml.fit`` and of the commands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cml.data.input_form import InputForm
from cml.graded.distance import GradedDistance
from cml.training.config import TrainConfig
from cml.training.train_options import suit_options
from cml.training.vector_options import text_options

_OF_TEXTS = ("dimension", "learning_rate", "backbone_lr_scale", "warmup")
_OF_ONE_SIDE = ("backbone", "weights")


def search_options(
    recipe: TrainConfig,
    chosen: Mapping[str, Any],  # the options that the user chose, by name
    queries: InputForm,
    documents: InputForm,
    *,
    has_two: bool,  # whether each side has a network of its own
) -> dict[str, Any]:
    """Find the options that suit the inputs of both sides, and that the user did not choose."""
    suited = suit_options(recipe, chosen, documents, judged=GradedDistance.judged)
    if not has_two:
        return suited
    side = {"backbone": suited["backbone"]} if "backbone" in suited else {}
    both = suit_options(recipe, {**chosen, "backbone": "two"}, InputForm("items"), judged=GradedDistance.judged)
    both = {name: value for name, value in both.items() if name not in _OF_ONE_SIDE}
    texts = two_network_options(chosen, have_texts="texts" in (queries.kind, documents.kind))
    return {name: value for name, value in {**both, **texts, **side}.items() if name not in chosen}


def two_network_options(chosen: Mapping[str, Any], *, have_texts: bool) -> dict[str, Any]:
    """List the options of two networks of which one is of texts: it is pretrained, and learns slowly."""
    options = text_options(chosen) if have_texts else {}
    return {name: options[name] for name in _OF_TEXTS if name in options}
