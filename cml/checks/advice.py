"""What would help a run whose embedding is not better than its references: the next command, or that nothing would.

The advice looks at how the run was trained and at whether the features and the pixels tell anything about the labels.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cml import plugins
from cml.models.backbone import count_channels, input_kind
from cml.retrieval.label_regression import LabelSignal, LabelSignals
from cml.retrieval.reference_rows import RANDOM
from cml.retrieval.verdict import Standing
from cml.training.config import TrainConfig
from cml.training.learner import learner_class

_STEPS, _CHECKS, _SIDE = 300, 15, 64  # of a small network from scratch: steps, validations, pixels of a side


@dataclass(frozen=True)
class Advice:
    """What to do next."""

    sentences: tuple[str, ...]  # the reasons
    options: Mapping[str, Any] | None = None  # the options of training to change; None if no training is advised

    def render(self, write: Callable[[Mapping[str, Any]], str]) -> list[str]:
        """Render the sentences, with the next command or call if one is advised."""
        return [*self.sentences, *([] if self.options is None else [f"Next: {write(self.options)}"])]


def advise(
    config: TrainConfig,
    items: int,
    standing: Standing,
    signals: LabelSignals,  # whether features and pixels tell something about the labels
    recipe: TrainConfig,
) -> Advice:
    """Find the one change of the options that most probably helps."""
    is_vectors = input_kind(config.backbone) == "vectors"
    trained = (describe_training(config, items),)
    noun = "vectors" if is_vectors else "frozen features"
    features, pixels = signals.features, signals.pixels
    has_signal = features.is_clear or (pixels is not None and pixels.is_clear)
    if not has_signal and not standing.is_better.get(RANDOM, False):
        places = noun if pixels is None else f"{noun} and from 8 x 8 pixels"
        nothing = f"There is no sign that the labels can be learned from these {items} items."
        why = f"A regression predicts shuffled labels as well as the true ones from {places}."
        return Advice((*trained, nothing, why))
    known = {f"the {noun}": features, "8 x 8 pixels": pixels}
    reasons = trained + tuple(
        f"A regression on {name} explains {_percent(signal)} of the variance of held-out labels."
        for name, signal in known.items()
        if signal is not None
    )
    if pixels is not None and pixels.is_clear and pixels.explained > features.explained:
        if config.has_head_alone:
            return Advice((*reasons, "Train a small network on the pixels."), _small_network(config))
    elif features.is_clear and not config.has_head_alone and not config.tune:
        network = {} if is_vectors or config.weights != "none" else _published_network(recipe)
        backbone = {"backbone": "none", "weights": "none"} if is_vectors else {"freeze_backbone": True}
        return Advice((*reasons, "Choose a head on held-out items."), {**network, **backbone, "tune": True})
    elif features.is_clear and not config.tune:
        return Advice((*reasons, "Choose the head on held-out items."), {"tune": True})
    if not config.has_head_alone and not config.evaluate_every and not config.tune:
        every = max(1, config.steps // _CHECKS)
        best = "Train with validation, and keep the weights of the best step."
        return Advice((*reasons, best), {"evaluate_every": every, "patience": 4})
    return Advice((*reasons, "More training items are most likely to help."))


def describe_training(config: TrainConfig, items: int) -> str:
    """Say what was trained on how many items, and how its step or head was chosen."""
    if config.tune:
        part = "head" if config.has_head_alone else f"network {config.backbone}"
        return f"The {part} was chosen on held-out items, out of {items} items in total."
    if config.backbone == "none":
        part = "A linear head on the vectors"
    elif config.freeze_backbone:
        part = f"The head on a frozen {config.backbone}"
    else:
        part = f"The whole network {config.backbone}"
    validation = f"validated every {config.evaluate_every} steps" if config.evaluate_every else "without validation"
    return f"{part} was trained on {items} items for {config.steps} steps, {validation}."


def render_command(
    config: TrainConfig, recipe: TrainConfig, options: Mapping[str, Any], *, task: str, data: Path, run: Path
) -> str:
    """Write the command that trains with some options changed."""
    wanted = {**vars(config), **options}
    if wanted["tune"]:
        decided = learner_class(replace(config, tune=True)).decides
        wanted |= {name: getattr(recipe, name) for name in (*decided, "train_only")}
    is_small = str(options.get("backbone")).startswith("small-cnn")
    suffix = "tuned" if options.get("tune") else "small-cnn" if is_small else "validated"
    out = run.with_name(f"{run.name}-{suffix}")
    number = 2
    while out.exists():
        out, number = run.with_name(f"{run.name}-{suffix}-{number}"), number + 1
    words = ["cml", "train", task, "--data", str(data), "--out", str(out)]
    for option in fields(TrainConfig):
        value = wanted[option.name]
        if value == getattr(recipe, option.name) or (option.name == "flip" and wanted["freeze_backbone"]):
            continue
        flag = option.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", *(map(str, value) if isinstance(value, tuple) else [str(value)])]
    return f"{shlex.join(words)}{plugins.flags()}"


def render_call(config: TrainConfig, options: Mapping[str, Any]) -> str:
    """Write the call that trains on the same inputs and labels with some options changed."""
    changed = [f"{name}={value!r}" for name, value in options.items() if getattr(config, name) != value]
    return f"cml.fit({', '.join(['inputs', 'labels', *changed])})"


def _small_network(config: TrainConfig) -> dict[str, Any]:
    """The options of a small network that is trained from scratch in place of a head."""
    channels = count_channels(config.backbone)
    network = {
        "backbone": "small-cnn" if channels == 3 else f"small-cnn(channels={channels})",
        "weights": "none",
        "image_size": tuple(min(_SIDE, size) for size in config.image_size),
        "freeze_backbone": False,
        "features": "",
        "head_start": "auto",
        "train_only": (),
        "epochs": 0,
        "steps": _STEPS,
    }
    untuned = {option.name: option.default for option in fields(TrainConfig) if option.name.startswith("tune")}
    return network | untuned


def _published_network(recipe: TrainConfig) -> dict[str, Any]:
    """The options of the backbone of a recipe."""
    return {"backbone": recipe.backbone, "weights": recipe.weights, "image_size": recipe.image_size}


def _percent(signal: LabelSignal) -> str:
    return f"{100 * max(0.0, signal.explained):.0f} %"
