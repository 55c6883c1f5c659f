"""Gradient descent on a loss over batches: the learner of every run that does not name another one."""

import contextlib
import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import torch
from torch import nn

from cml import losses, sampling
from cml.data.input_form import InputForm
from cml.errors import UserError, did_you_mean
from cml.items import LabelledItems
from cml.items.labelled_items import DistanceDemand
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.exactness import use_tf32
from cml.processes.ranks import share_batch_norm
from cml.registry import Choice
from cml.sampling.sampler import Sampler, suggest_batch_size
from cml.training import run_folder
from cml.training.batches import Batches, BatchSource
from cml.training.config import TrainConfig
from cml.training.data_workers import shutdown_workers
from cml.training.head_alone import check_head_start
from cml.training.learner import NO_PLACE, Learned, Learner, Place
from cml.training.loop import run_loop
from cml.training.optimizer import make_optimizer
from cml.training.own_functions import OwnAugmentation
from cml.training.randomness import RunRandomness, may_draw
from cml.training.stages import STAGES, count_trained_items
from cml.training.start import check_start, copy_start
from cml.training.training import Training
from cml.training.training_targets import check_views

_VALIDATIONS = 10  # of a run with items of the user's own to validate on, unless evaluate_every is set


@dataclass(frozen=True)
class GradientDescent(Learner):
    """Trains a network step by step.

    Example:
        >>> import numpy as np
        >>> from cml import distances
        >>> from cml.data.vectors import Vectors
        >>> from cml.items import LabelledItems
        >>> from cml.training.config import TrainConfig
        >>> rows = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
        >>> distance = distances.get("euclidean")
        >>> items = LabelledItems(Vectors(rows), distance.encode(rows[:, 0]), distance)
        >>> config = TrainConfig(backbone="none", weights="none", steps=2, sampler="random(batch_size=20)")
        >>> len(GradientDescent(config).learn(items, place=Place(quiet=True)).metrics)
        2
    """

    @functools.cached_property
    def sampler(self) -> Sampler:
        """Draws the batches."""
        return sampling.registry.make(self.config.sampler)

    def check(self, items: LabelledItems, validation: LabelledItems | None = None) -> "GradientDescent":
        """Check that items can be trained on; see ``Learner.check``."""
        config = self.config
        self._check_inputs(items)
        self.own.check(config)
        check_head_start(config)
        count = self._count(items, validation)
        config = count_steps(config, count)
        if validation is not None and not config.evaluate_every:
            config = replace(config, evaluate_every=max(1, config.steps // _VALIDATIONS))
        _ = self.loss_as_named  # an unknown one is named before a batch that is too large
        self.sampler.check_count(count)
        return self if config is self.config else replace(self, config=config)

    def _check_inputs(self, items: LabelledItems) -> None:
        """Refuse augmentation that the inputs cannot have."""
        config, form = self.config, items.inputs.form
        if self.start is not None:
            check_start(self.start, form)
        if form.kind == "images":
            if config.brightness_jitter and form.channels not in (1, 3):
                raise UserError(
                    f"'brightness_jitter' changes grey or RGB images, but the backbone takes {form}, of which not all "
                    "may be colours: leave it out."
                )
        else:
            refuse_image_augmentation(config, form)
        if config.flip == "image" and items.mirrored_labels is None:
            raise UserError("No mirrored labels are given; set 'flip' to list or none.")

    def shrink_batch(
        self, items: LabelledItems, validation: LabelledItems | None = None, *, warn: bool = True
    ) -> "GradientDescent":
        """Make the batch smaller if it is larger than the data; see ``Learner.shrink_batch``."""
        self._check_inputs(items)
        config = reduce_batch_size(self.config, self._count(items, validation), self.sampler, warn=warn)
        return self if config is self.config else replace(self, config=config)

    def _count(self, items: LabelledItems, validation: LabelledItems | None) -> int:
        """How many items are trained on."""
        usable = len(items) if items.weights is None else int((items.weights > 0).sum())
        return usable if validation is not None else count_trained_items(self.config, usable)

    def demand(self) -> DistanceDemand | None:
        """A block a step, and all pairs where the sampler looks for neighbours; nothing where labels change."""
        if self.own.augment is not None and OwnAugmentation(self.own.augment).takes_labels:
            return None  # whose labels are in no matrix
        sampler = self.sampler
        return DistanceDemand(self.config.steps, sampler.batch_size, all_pairs=sampler.neighbors > 0)

    @shutdown_workers()
    @torch.enable_grad()
    def learn(self, items: LabelledItems, validation: LabelledItems | None = None, place: Place = NO_PLACE) -> Learned:
        """Train an embedding; see ``Learner.learn``."""
        if items.weights is not None and not items.weights.all():
            items = items.subset(np.flatnonzero(items.weights > 0)).without_equal_weights()
        training = self._begin(items, validation, place)
        for stage in STAGES:
            stage(training)
        self._check_views(training)
        self._fit_loss(training)
        training.optimizer = make_optimizer(
            training.model, training.loss, self.config, training.projector, self.own.optimizer
        )
        with use_tf32(self.config.precision):
            return run_loop(training, self.make_batches)

    def make_batches(self, training: Training) -> Batches:
        """Make what the loop takes its batches from."""
        return BatchSource.of(training)

    def _begin(self, items: LabelledItems, validation: LabelledItems | None, place: Place) -> Training:
        """Make the model and the loss."""
        config, ranks = self.config, place.find_ranks(self.config)
        if ranks.size > 1:
            mend = "Start all processes with one command line on one data set."
            ranks.check_same("options or training data", f"{config} {items.labels.fingerprint()}", mend)
        randomness = RunRandomness(config.seed, ranks.device)
        with randomness.initializing():
            loss = losses.registry.make(config.loss) if self.loss is None else self.loss
            model = (
                make_model(config, loss, items, self.backbone) if self.start is None else copy_start(self.start, loss)
            )
        model.to(ranks.device)  # outside of the block, in which each call of torch is looked at
        select_parameters(model, config.train_only)
        if loss.starts_at_zero and not config.projector and self.start is None:
            torch.nn.init.zeros_(model.head.weight)
        place = replace(place, ranks=ranks)
        training = Training(
            config, items, validation, model, model, loss, self.sampler, self.own, place, ranks, randomness
        )
        training.continues = self.start is not None
        return training

    def _check_views(self, training: Training) -> None:
        """Check that several views of an item differ."""
        model = training.model
        draws = may_draw(model.head if self.config.freeze_backbone else model, training.loss)
        reads_anew = self._reads_anew(training.items)
        check_views(self.config, reads_anew=reads_anew, augments=self.own.augment is not None, draws=draws)

    def _reads_anew(self, items: LabelledItems) -> bool:
        """Whether each reading of an item may differ."""
        return items.inputs.reads_anew

    def _fit_loss(self, training: Training) -> None:
        """Find the loss's constants in the training labels, and give all processes the same first weights."""
        loss, ranks = training.loss, training.ranks
        loss.prepare(
            loss.target(training.targets),
            dimension=training.width,
            names=training.targets.class_names(),
            generator=torch.Generator().manual_seed(self.config.seed),
        )
        loss.to(ranks.device)
        share_batch_norm(training.model, ranks)
        ranks.broadcast_parameters(training.network, loss)
        run_folder.save_loss_constants(training.place.folder, loss.constants())


def make_model(config: TrainConfig, loss: Loss, items: LabelledItems, backbone: object = None) -> EmbeddingModel:
    """Make the model that embeds some items."""
    form = items.inputs.form
    # items of any kind are read, since only they tell how many features the backbone gives
    example = items.inputs.read(np.arange(min(2, len(items)))) if not form.has_shape else None
    return EmbeddingModel(make_model_config(config, loss, form), backbone=backbone, example=example)  # type: ignore[arg-type]


def make_model_config(
    config: TrainConfig,
    loss: Loss,
    form: InputForm | None = None,  # the form of the inputs; None for images
) -> ModelConfig:
    """Make the shape of the model; the loss determines whether embeddings are normalised."""
    return ModelConfig(
        backbone=config.backbone,
        weights=config.weights,
        dimension=config.dimension,
        normalize=loss.normalize,
        image_size=config.image_size,
        crop=config.crop,
        inputs=InputForm() if form is None else form,
    )


def refuse_image_augmentation(config: TrainConfig, form: InputForm) -> None:
    """Refuse the augmentation of images for other inputs."""
    for name in ("flip", "random_crop", "scale_jitter", "shift_jitter", "brightness_jitter"):
        value = getattr(config, name)
        if value not in ("none", 0):
            raise UserError(f"{name!r} changes images, but the inputs are {form}: leave out {name}={value}.")


def reduce_batch_size(config: TrainConfig, items: int, sampler: Sampler, *, warn: bool = True) -> TrainConfig:
    """Make the sampler's batch smaller if it is larger than the data, with a warning."""
    if items < 2:
        return config
    with contextlib.suppress(UserError):
        sampler.check_count(items)
        return config
    choice = Choice.parse(config.sampler)
    size = suggest_batch_size(items)
    smaller = str(Choice(choice.name, {**choice.settings, "batch_size": size}))
    try:
        sampling.registry.make(smaller).check_count(size)
    except UserError:  # its other settings do not allow that
        smaller = str(Choice("random", {"batch_size": size}))
    if warn:
        warnings.warn(
            f"A batch takes {sampler.batch_size} items, but there are {items}: the sampler is {smaller} instead of "
            f"{config.sampler}.",
            stacklevel=5,
        )
    return replace(config, sampler=smaller)


def count_steps(
    config: TrainConfig,
    items: int,  # N, the number of items that are trained on
) -> TrainConfig:
    """Set ``steps`` to those of ``epochs``; without epochs, the options stay as they are."""
    if not config.epochs:
        return config
    sampler = sampling.registry.make(config.sampler)
    return replace(config, steps=config.epochs * sampler.steps_per_epoch(items))


def select_parameters(model: nn.Module, patterns: Sequence[str]) -> None:
    """Let only some parameters of a model get gradients."""
    if not patterns:
        return
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise UserError(
                f"'train_only' has the pattern {pattern!r}, which no parameter of the model matches."
                f"{did_you_mean(pattern, names)} There are {len(names)}, from {names[0]} to {names[-1]}."
            )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(fnmatchcase(name, pattern) for pattern in patterns))
