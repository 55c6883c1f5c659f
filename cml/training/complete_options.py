"""The options that suit inputs and labels, where the user chose none.

``cml.fit``, ``cml.train``, ``cml.compare`` and their commands all complete their options here.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cml.data.input_form import InputForm
from cml.distances import LabelDistance
from cml.training.config import TrainConfig
from cml.training.vector_options import vector_options

# with L2 normalisation, and without it, as a ridge regression is where all label distances are known
_LOSSES_OF_KNOWN_PAIRS = ("pair-log-ratio", "pair-log-ratio(normalize=false)")

# by what was judged, then by whether only a head is trained. Pairs: lists of them for a head, batches full of them for
# a network. Triplets: the likelihood of the judgements; a network sees fewer of them a batch.
_HEAD = {"head_start": "pca", "steps": 200}
_OF_JUDGEMENTS: dict[str, dict[bool, dict[str, Any]]] = {
    "pairs": {
        True: {"loss": "pair-log-ratio", "sampler": "pairs", **_HEAD},
        False: {"loss": "pair-log-ratio", "sampler": "linked"},
    },
    "triplets": {
        True: {"loss": "logistic-triplet", "sampler": "triplets", **_HEAD},
        False: {"loss": "logistic-triplet", "sampler": "triplets(batch_size=96)"},
    },
}


def complete_options(
    recipe: TrainConfig,
    chosen: Mapping[str, Any],  # the options that the user chose, by name
    form: InputForm,
    distance: LabelDistance | None = None,  # the label distance; None for labels that decide nothing
) -> TrainConfig:
    """Complete the options that the user chose by those that suit inputs and labels, and by those of a recipe."""
    return replace(recipe, **chosen, **suit_options(recipe, chosen, form, distance))


def suit_options(
    recipe: TrainConfig, chosen: Mapping[str, Any], form: InputForm, distance: LabelDistance | None = None
) -> dict[str, Any]:
    """Find the options that suit inputs and labels better than those of a recipe, and that the user did not choose.

    Inputs other than images have a linear head on them, see ``vector_options``. A frozen backbone sees every image
    once, so that none is mirrored. Judgements decide loss and sampler. ``tune`` decides them itself, but where few
    label distances are known, it tries losses over known pairs.
    """
    suited = {} if form.kind == "images" else vector_options()
    options = {**vars(recipe), **suited, **chosen}
    if options["freeze_backbone"]:
        suited["flip"] = "none"
    if options["tune"]:
        if distance is not None and distance.is_partial:
            suited["tune_losses"] = _LOSSES_OF_KNOWN_PAIRS
    elif distance is not None:
        head_alone = options["freeze_backbone"] or options["backbone"] == "none"
        suited |= _OF_JUDGEMENTS.get(distance.judged, {}).get(head_alone, {})
    return {name: value for name, value in suited.items() if name not in chosen}
