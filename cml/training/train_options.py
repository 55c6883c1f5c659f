"""The options of training as keyword arguments, and those that suit inputs and labels where the user chose none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

from cml.data.input_form import InputForm
from cml.distances import LabelDistance
from cml.training.config import TrainConfig
from cml.training.vector_options import text_options, vector_options

if TYPE_CHECKING:
    from cml.training.own_functions import MakeOptimizer, MakeSchedule

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])


class FitOptions(TypedDict, total=False):
    """The options of ``TrainConfig`` but for those whose names ``cml.fit`` has itself; all may be left out."""

    sampler: str
    weights: str
    dimension: int
    missing: Literal["refuse", "mean"]
    image_size: tuple[int, int]
    decode: Literal["exact", "fast"]
    freeze_backbone: bool
    tune: bool
    tune_losses: tuple[str, ...]
    tune_rates: tuple[float, ...]
    tune_minutes: float
    train_only: tuple[str, ...]
    head_start: Literal["auto", "random", "pca", "standardised"]
    lora: int
    crop: float
    scale_jitter: float
    shift_jitter: float
    brightness_jitter: float
    random_crop: Literal["none", "place", "area"]
    flip: Literal["none", "list", "image"]
    views: int
    projector: tuple[int, ...]
    epochs: int
    steps: int
    optimizer: str | MakeOptimizer
    learning_rate: float
    backbone_lr_scale: float
    proxy_rate: float
    weight_decay: float
    schedule: str | MakeSchedule
    warmup: int
    head_first: int
    clip_gradient: float | None
    clip_gradient_value: float | None
    ema_decay: float
    memory: int
    micro_batch: int | None
    batch_norm: Literal["batch", "fixed"]
    precision: Literal["float32", "bfloat16", "tf32"]
    compile: bool
    evaluate_every: int
    validation_fraction: float
    group_column: str
    patience: int
    checkpoint_every: int
    keep_models: bool
    seed: int
    workers: int
    worker_timeout: float
    cache_bytes: int
    device: str


class TrainOptions(FitOptions, total=False):
    """The options of ``TrainConfig``, with the same names and types; all may be left out."""

    label_distance: str
    loss: str
    backbone: str
    features: str


def list_options(
    function: AnyFunction,  # a function that passes ``**options`` on to ``TrainConfig``
) -> AnyFunction:
    """Decorator that lists the options of training in the signature of a function, in place of its ``**options``.

    Type checkers read the annotation ``Unpack[TrainOptions]``; interpreters and notebooks complete arguments from
    ``inspect.signature``, where ``**options`` alone would show no names.
    """
    signature = inspect.signature(function)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
        for option in fields(TrainConfig)
        if option.name not in signature.parameters
    ]
    vars(function)["__signature__"] = signature.replace(parameters=[*own, *options])
    return function


# with L2 normalisation, and without it, as a ridge regression is where all label distances are known
_LOSSES_OF_KNOWN_PAIRS = ("pair-log-ratio", "pair-log-ratio(normalize=false)")

# by what was judged, then by whether only a head is trained. Pairs: lists of them for a head, batches full of them for
# a network. Triplets: the likelihood of the judgements; a network sees fewer of them a batch. Grades: nDCG; a head
# starts from the distances of its features, which few grades improve (tests/benchmarks/graded_search.py), and texts
# have a head on a frozen network, unless the user names one.
_HEAD = {"head_start": "pca", "steps": 200}
_GRADES = {"loss": "lambda-ndcg(temperature=0.2)", "sampler": "queries"}
_OF_JUDGEMENTS: dict[str, dict[bool, dict[str, Any]]] = {
    "pairs": {
        True: {"loss": "pair-log-ratio", "sampler": "pairs", **_HEAD},
        False: {"loss": "pair-log-ratio", "sampler": "linked"},
    },
    "triplets": {
        True: {"loss": "logistic-triplet", "sampler": "triplets", **_HEAD},
        False: {"loss": "logistic-triplet", "sampler": "triplets(batch_size=96)"},
    },
    "grades": {True: {**_GRADES, "learning_rate": 1e-3, **_HEAD}, False: _GRADES},
}
_FREEZE_TEXTS = ("grades",)


def complete_options(
    recipe: TrainConfig,
    chosen: Mapping[str, Any],  # the options that the user chose, by name
    form: InputForm,
    distance: LabelDistance | None = None,  # the label distance; None for labels that decide nothing
) -> TrainConfig:
    """Complete the options that the user chose by those that suit inputs and labels, and by those of a recipe."""
    return replace(recipe, **chosen, **suit_options(recipe, chosen, form, distance))


def suit_options(
    recipe: TrainConfig,
    chosen: Mapping[str, Any],
    form: InputForm,
    distance: LabelDistance | None = None,
    *,
    judged: str = "",  # what was judged, where the label distance is not made yet
) -> dict[str, Any]:
    """Find the options that suit inputs and labels better than those of a recipe, and that the user did not choose.

    Vectors and tensors have a linear head on them, and texts a pretrained network, see ``cml.training.vector_options``.
    A frozen backbone sees every image once, so that none is mirrored. Judgements decide loss and sampler. ``tune``
    decides them itself, but where few label distances are known, it tries losses over known pairs.
    """
    judged = judged if distance is None else distance.judged
    frozen: dict[str, Any] = {}
    if form.kind == "texts" and judged in _FREEZE_TEXTS and not {"backbone", "tune"} & chosen.keys():
        frozen = {"freeze_backbone": True}
    by_kind = {"images": {}, "texts": {**text_options({**frozen, **chosen}), **frozen}}
    suited = by_kind.get(form.kind, vector_options())
    options = {**vars(recipe), **suited, **chosen}
    if options["freeze_backbone"]:
        suited["flip"] = "none"
    if options["tune"]:
        if distance is not None and distance.is_partial:
            suited["tune_losses"] = _LOSSES_OF_KNOWN_PAIRS
    else:
        head_alone = options["freeze_backbone"] or options["backbone"] == "none"
        suited |= judged_options(judged, head_alone=head_alone)
    return {name: value for name, value in suited.items() if name not in chosen}


def judged_options(
    judged: str,  # what was judged, as of a label distance
    *,
    head_alone: bool,  # whether only a head is trained
) -> Mapping[str, Any]:
    """List the options that judgements decide; none where labels are no judgements."""
    return _OF_JUDGEMENTS.get(judged, {}).get(head_alone, {})
