"""The stages before the first step: each replaces the network or the items, where an option asks for it.

A stage acts once, a part (``parts.py``) in each step. What has to be undone at the end is one of ``Training.endings``.
"""

from collections.abc import Callable
from dataclasses import replace

from cml.console.messages import say
from cml.data.vectors import Vectors
from cml.training.frozen_backbone import freeze_backbone
from cml.training.head_start import StandardisedStart, choose_head_start, start_at_components
from cml.training.hold_out import HoldOut
from cml.training.lora import LoraAdapters
from cml.training.projector import ProjectedNetwork, Projector
from cml.training.training import Training
from cml.training.training_targets import TrainingTargets


def standardise_vectors(training: Training) -> None:
    """Take mean and standard deviation from the vectors that are trained on."""
    items = training.items if training.held_out is not None else training.items.split(HoldOut(training.config))[0]
    if isinstance(items.inputs, Vectors) and items.inputs.form.kind == "vectors":
        remark = training.model.fit_standardization(items.inputs)
        if remark and training.place.is_shown:
            say(remark)


def adapt_backbone(training: Training) -> None:
    """``lora``: low-rank adapters in the backbone, which are merged into its weights at the end."""
    if training.config.lora:
        with training.randomness.initializing():
            adapters = LoraAdapters(training.model, training.config.lora)
        training.endings.append(adapters.merge)


def train_head_alone(training: Training) -> None:
    """``freeze_backbone``: every item passes the backbone once, and its features are the inputs from then on."""
    if training.config.freeze_backbone:
        store, bar = training.config.features, "features" if training.place.is_shown else ""
        # before items are held out, so that features of all of them are found in the cache
        training.network, features = freeze_backbone(
            training.model, training.items.inputs, training.ranks, store=store, bar=bar
        )
        training.items = replace(training.items, inputs=features)
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
        training.items, training.held_out = training.items.split(HoldOut(training.config))
    training.items.inputs.load()
    training.targets = TrainingTargets(
        training.items.distance, training.items.labels, seed=training.config.seed, ranks=training.ranks
    )


def start_head(training: Training) -> None:
    """``head_start``: where the weights of a head begin that is trained alone."""
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
    adapt_backbone,
    standardise_vectors,
    train_head_alone,
    project_embeddings,
    hold_items_out,
    start_head,
)
"""In the order in which they act."""
