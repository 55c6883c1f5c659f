"""The stages before the first step: each replaces the network or the items, where an option asks for it.

A stage acts once, a part (``parts.py``) in each step. What has to be undone at the end is one of ``Training.endings``.
Low-rank adapters are merged into the weights at the end, so that a run's model is like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import nn

from cml.array_types import Bools, Int64
from cml.console.messages import say
from cml.data.images import Images
from cml.data.vectors import Vectors
from cml.errors import UserError, require_extra
from cml.items import LabelledItems
from cml.items.labelled_items import Rows
from cml.models.embedding import EmbeddingModel
from cml.models.forward_pass import compile_module
from cml.retrieval.item_units import FEWEST_CLASSES, check_class_count, groups_hold_classes
from cml.retrieval.near_in_order import are_alike_in_order
from cml.training.config import TrainConfig
from cml.training.head_alone import StandardisedStart, choose_head_start, freeze_backbone, start_at_components
from cml.training.projector import ProjectedNetwork, Projector
from cml.training.training import Training
from cml.training.training_targets import TrainingTargets


def choose_held_out(training: Training) -> None:
    """Choose the items to validate on, unless the user gave some; images of a frozen backbone by their features."""
    if not (training.config.freeze_backbone and isinstance(training.items.inputs, Images)):
        _choose_held_out(training)
    if training.held_out is not None and training.config.evaluate_every and training.place.is_shown:
        say(f"validation on the {len(training.held_out):,} items that were given for it.")


def _choose_held_out(training: Training) -> None:
    if training.held_out is None:
        rule = HoldOut(training.config)
        training.held_out_rows = rule(training.items)
        if training.config.evaluate_every and training.place.is_shown:
            say(describe_held_out(training.items, training.held_out_rows))


def standardise_vectors(training: Training) -> None:
    """Take mean and standard deviation from the vectors that are trained on."""
    items = training.items
    if training.continues or not isinstance(items.inputs, Vectors) or items.inputs.form.kind != "vectors":
        return
    if training.held_out is None:
        items = items.split(lambda _: training.held_out_rows)[0]
    assert isinstance(items.inputs, Vectors)
    remark = training.model.fit_standardization(items.inputs)
    if remark and training.place.is_shown:
        say(remark)


def adapt_backbone(training: Training) -> None:
    """``lora``: low-rank adapters in the backbone, which are merged into its weights at the end."""
    if training.config.lora:
        with training.randomness.initializing():
            adapters = LoraAdapters(training.model, training.config.lora)
        training.endings.append(adapters.merge)


def compile_backbone(training: Training) -> None:
    """``compile``: the backbone runs as torch.compile makes it, until the end."""
    if training.config.compile:
        training.endings.append(compile_module(training.model.backbone))


def train_head_alone(training: Training) -> None:
    """``freeze_backbone``: every item passes the backbone once, and its features are the inputs from then on."""
    if training.config.freeze_backbone:
        store, bar = training.config.features, "features" if training.place.is_shown else ""
        # before items are held out, so that features of all of them are found in the cache
        training.network, features = freeze_backbone(
            training.model, training.items.inputs, training.ranks, store=store, bar=bar
        )
        are_images = isinstance(training.items.inputs, Images)
        training.items = replace(training.items, inputs=features)
        if are_images:
            _choose_held_out(training)
        if training.held_out is not None:
            features = freeze_backbone(training.model, training.held_out.inputs, training.ranks, store=store)[1]
            training.held_out = replace(training.held_out, inputs=features)


def project_embeddings(training: Training) -> None:
    """``projector``: a small network between embeddings and loss, which is dropped at the end."""
    config = training.config
    if config.projector:
        with training.randomness.initializing():
            projector = Projector(config.dimension, config.projector, training.loss).to(training.ranks.device)
        training.network, training.projector = ProjectedNetwork(training.network, projector), projector


def hold_items_out(training: Training) -> None:
    """Split off the items to validate on, unless the user gave some, and open the labels that are trained on."""
    if training.held_out is None:
        training.items, training.held_out = training.items.split(lambda _: training.held_out_rows)
    training.items.inputs.load()
    training.targets = TrainingTargets(
        training.items.distance, training.items.labels, seed=training.config.seed, ranks=training.ranks
    )


def start_head(training: Training) -> None:
    """``head_start``: where the weights of a head begin that is trained alone."""
    if training.continues:
        return
    start, remark = choose_head_start(training.config, training.loss, training.targets)
    if remark and training.place.is_shown:
        say(remark)
    if start == "pca":
        assert isinstance(training.items.inputs, Vectors)  # see check_head_start
        start_at_components(training.model, training.items.inputs, training.ranks)
    elif start == "standardised":
        head = StandardisedStart(training.model, training.items.inputs, training.loss, training.config)
        training.endings.append(head.merge)


STAGES: tuple[Callable[[Training], None], ...] = (
    choose_held_out,
    adapt_backbone,
    compile_backbone,
    standardise_vectors,
    train_head_alone,
    project_embeddings,
    hold_items_out,
    start_head,
)
"""In the order in which they act."""


FEWEST_HELD_OUT = 8  # rankings of fewer items say little
MOST_HELD_OUT = 1000  # all pairs of them are compared


@dataclass(frozen=True)
class HoldOut:
    """Holds out the groups of the last items; the last items where neighbours are alike, as video frames; or any."""

    config: TrainConfig  # the options of the run, which say how many

    def __call__(
        self,
        items: LabelledItems,  # N items
    ) -> slice | Int64:
        """Choose the items to hold out; none if the run is not validated."""
        trained = count_trained_items(self.config, len(items))
        if trained == len(items):
            return slice(trained, len(items))
        if items.groups is None:
            if are_alike_in_order(items.inputs):
                return slice(trained, len(items))
            drawn = np.random.default_rng(self.config.seed).permutation(len(items))
            return np.sort(drawn[: len(items) - trained])
        fewest = 1
        if groups_hold_classes(items.groups, items.distance.class_names(items.labels)):
            fewest = FEWEST_CLASSES
            mend = "Leave 'groups' out (of a dataset: group_column=none), or set evaluate_every to 0."
            check_class_count(items.groups, "validation", mend)
        is_held_out = last_groups(items.groups, len(items) - trained, fewest)
        if (~is_held_out).sum() < FEWEST_HELD_OUT:
            raise UserError(
                f"'groups' leaves {(~is_held_out).sum()} of {len(items)} items to train on where whole groups are held "
                f"out for validation; at least {FEWEST_HELD_OUT} are needed. Set evaluate_every to 0, or make the "
                "groups smaller."
            )
        return np.flatnonzero(is_held_out)


def describe_held_out(items: LabelledItems, rows: Rows) -> str:
    """Say which of N items validate."""
    count = len(range(*rows.indices(len(items)))) if isinstance(rows, slice) else len(rows)
    which = "drawn at random"
    if items.groups is not None:
        which = "whole groups"
    elif isinstance(rows, slice):
        which = "the last ones, as neighbours in their order are alike"
    return f"validation holds out {count:,} of {len(items):,} items: {which}."


def last_groups(groups: Int64, count: int, fewest: int = 1) -> Bools:
    """Which items (N,) belong to the last groups, ``fewest`` or as few as have at least ``count`` items together."""
    names, last, sizes = np.unique(groups[::-1], return_index=True, return_counts=True)  # of the reversed order
    order = np.argsort(last)
    needed = max(fewest, int(np.searchsorted(np.cumsum(sizes[order]), count)) + 1)
    return np.isin(groups, names[order[:needed]])


def count_trained_items(
    config: TrainConfig,
    items: int,  # N, all items
    what: str = "training items",  # what they are, for an error
) -> int:
    """Count the items that are trained on, and not held out for validation."""
    if not config.evaluate_every:
        return items
    share = round(config.validation_fraction * items)
    held_out = min(MOST_HELD_OUT, max(FEWEST_HELD_OUT, share))
    if items - held_out < FEWEST_HELD_OUT:
        raise UserError(
            f"{items} {what} are too few to hold {held_out} of them out for validation: at least "
            f"{FEWEST_HELD_OUT} must be left to train on. Set evaluate_every to 0."
        )
    return items - held_out


_SCALE = 2  # factor of an adapter's output, for every rank


class LoraAdapters:
    """Adapters of a model that is on its device; the backbone's own weights are no longer trained.

    Reference: Hu et al., LoRA: Low-Rank Adaptation of Large Language Models, ICLR 2022.
    """

    def __init__(self, model: EmbeddingModel, rank: int) -> None:
        self._tuner: Any = None
        if not rank:
            return
        # exact type: torch's own attention uses the weights of its output layer, of a subclass, without calling it
        linear = {name: module for name, module in model.backbone.named_modules() if type(module) is nn.Linear}
        adaptable = sum(layer.weight.numel() for layer in linear.values())
        if 2 * adaptable <= sum(parameter.numel() for parameter in model.backbone.parameters()):
            raise UserError(
                f"Little of the backbone {model.config.backbone!r} is linear layers, which 'lora' adapts: use a "
                "transformer, such as timm/vit_small_patch14_dinov2.lvd142m, or leave out 'lora'."
            )
        with require_extra("lora", "'lora'"):
            from peft import LoraConfig
            from peft.tuners.lora import LoraModel
        options = LoraConfig(r=rank, lora_alpha=_SCALE * rank, target_modules=list(linear))
        self._tuner = LoraModel(model.backbone, options, "default")

    def merge(self) -> None:
        """Merge the adapters into the weights of the backbone."""
        if self._tuner is not None:
            self._tuner.merge_and_unload()
            self._tuner = None
