"""From labelled inputs to a run: everything before the first step, for arrays and for prepared datasets."""

import contextlib
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from cml import losses, plugins, sampling
from cml.array_types import Float64, Int64
from cml.data.augmentation import stored_size
from cml.data.image_sources import ImageSource
from cml.data.images import Images
from cml.data.input_form import InputForm
from cml.data.inputs import Inputs
from cml.data.item_digests import MOST_DIGESTED, digest_items
from cml.data.items import Items
from cml.data.prepared import PreparedDataset
from cml.data.tensors import Tensors
from cml.data.vectors import Vectors
from cml.distances.jobs.stored_matrix import replace_costly_distance
from cml.distances.label_distance import LabelDistance
from cml.distances.labels import Labels
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models import Backbone
from cml.models.backbone import count_channels
from cml.processes.device import pick_device
from cml.processes.ranks import Ranks
from cml.registry import Choice
from cml.sampling.sampler import suggest_batch_size
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig
from cml.training.epochs import count_steps
from cml.training.head_start import check_head_start, keep_head_start
from cml.training.loop import StoppedRun, Trained, make_model_config, train
from cml.training.own_augmentation import OwnAugmentation
from cml.training.own_functions import NO_FUNCTIONS, OwnFunctions
from cml.training.run_config import RunConfig
from cml.training.run_folder import open_run_folder
from cml.training.saved_model import MODEL
from cml.training.start_method import refuse_in_starting_worker
from cml.training.training_data import TrainingData, count_trained_items
from cml.training.training_items import save_training_items
from cml.training.tune_run import TUNE_BLOCKS, open_tuned, tune_run

_VALIDATIONS = 10  # of a run with items of the user's own to validate on, unless evaluate_every is set


def train_run(
    inputs: ImageSource | Vectors | Tensors | Items,
    labels: Labels,
    distance: LabelDistance,
    config: TrainConfig,
    *,
    loss: Loss | None = None,
    backbone: nn.Module | Backbone | None = None,
    own: OwnFunctions = NO_FUNCTIONS,
    plain_labels: Sequence[Any] | None = None,
    task: str = "",
    dataset: PreparedDataset | None = None,
    groups: Int64 | None = None,
    weights: Float64 | None = None,
    validation: ImageSource | Vectors | Tensors | Items | None = None,
    out: Path | None = None,
    resume: bool = False,
    shrink: bool = False,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> tuple[Trained, RunConfig]:
    """Train on labelled inputs, optionally in a run folder.

    Args:
        inputs: N images, vectors, tensors or items of any kind.
        labels: Labels that ``distance`` encoded: N, for ``flip="image"`` followed by those of the N mirrored images,
            with ``validation`` by those of its items.
        distance: The label distance.
        config: All options.
        loss: The loss; None for the one that ``config.loss`` names.
        backbone: The user's own module, for which ``config.backbone`` is ``custom``.
        own: Functions of the user's own.
        plain_labels: The N labels as the user gave them, for an ``augment`` that takes them.
        task: Name of the task; "" for inputs and labels given in Python.
        dataset: The prepared dataset; None for inputs and labels given in Python.
        groups: (N,) numbers of groups that validation keeps together; None for none.
        weights: (N,) how often each item is an anchor relative to the others, above 0; None for all alike.
        validation: Inputs to validate on, of the kind of ``inputs``; None to hold some of these out.
        out: Run folder; None writes nothing.
        resume: Continue the run in ``out``.
        shrink: Make a batch smaller that is larger than the data, with a warning.
        callbacks: Called after steps, validations, checkpoints and at the end.
        quiet: No progress bar.
        ranks: The processes that train together; None for this one alone.

    Returns:
        The result of training, and the content of config.json.

    Raises:
        UserError: Options that do not fit the data, or a run folder that is taken.
        StoppedRun: A signal; see ``cml.training.loop.train``.
    """
    if resume and out is None:
        raise UserError("'resume' continues the run in the folder 'out'. Got resume=True and no 'out'.")
    refuse_in_starting_worker()
    if ranks is None:
        ranks = Ranks(device=pick_device(config.device))
    quiet = quiet or not ranks.first
    count, validation_count = len(inputs), 0 if validation is None else len(validation)
    images = None if isinstance(inputs, Vectors | Tensors | Items) else inputs
    channels = 3 if images is None else count_channels(config.backbone if backbone is None else backbone)
    opened = _open_inputs(inputs, config, channels)

    # what does not fit the inputs and labels is refused
    if images is None:
        _refuse_image_augmentation(config, opened.form)
    elif config.brightness_jitter and channels not in (1, 3):
        raise UserError(
            f"'brightness_jitter' changes grey or RGB images, but the backbone takes {opened.form}, of which not all "
            "may be colours: leave it out."
        )
    if config.flip == "image" and len(labels) - validation_count < 2 * count:
        reason = f"The task {task!r} cannot mirror its labels" if task else "No mirrored labels are given"
        raise UserError(f"{reason}; set 'flip' to list or none.")
    own.check(config)
    if config.tune and weights is not None:
        raise UserError("'tune' chooses heads by all items alike: leave out 'sample_weight'.")
    check_head_start(config)

    # options that follow from the run folder or from the number of items
    config = keep_head_start(config, out, resume=resume)
    usable = count if weights is None else int((weights > 0).sum())
    trained_items = usable if config.tune or validation is not None else count_trained_items(config, usable)
    if shrink and not config.tune:
        config = reduce_batch_size(config, trained_items, warn=ranks.first)
    config = count_steps(config, trained_items)
    if validation is not None and not config.evaluate_every:
        config = replace(config, evaluate_every=max(1, config.steps // _VALIDATIONS))
    sampler = sampling.registry.make(config.sampler)

    run = _run_config(config, labels, distance, loss, own, opened, weights, task=task, dataset=dataset)
    if not config.tune:
        sampler.check_count(trained_items)  # before there is an empty run folder
    with contextlib.ExitStack() as stack:
        if out is not None and ranks.first:
            stack.enter_context(open_run_folder(out, run, resume=resume))
        ranks.barrier()
        if config.tune and resume and out is not None and (out / MODEL).exists():
            tuned = open_tuned(out, ranks)
            _keep_digests(inputs, out, ranks)
            return tuned
        if own.augment is None or not OwnAugmentation(own.augment).takes_labels:  # whose labels are in no matrix
            distance, labels = replace_costly_distance(
                distance,
                labels,
                blocks=TUNE_BLOCKS * (1 + config.tune_control) if config.tune else config.steps,
                rows=sampler.batch_size,
                all_pairs=sampler.neighbors > 0,
                quiet=quiet,
            )
        training_labels, mirrored_labels, validation_labels = _split_labels(labels, count, validation_count)
        if config.tune:
            data = TrainingData(opened, training_labels, distance, groups=groups)
            result = tune_run(data, config, run, source=images, backbone=backbone, out=out, quiet=quiet, ranks=ranks)
            _keep_digests(inputs, out, ranks)
            return result
        data = TrainingData(
            opened, training_labels, distance, mirrored_labels, groups, weights=weights, plain_labels=plain_labels
        )
        if weights is not None and usable < count:
            data = data.subset(np.flatnonzero(weights > 0))
        if validation is not None:
            opened_validation = _open_inputs(validation, config, channels)
            data = replace(data, validation=TrainingData(opened_validation, validation_labels, distance))
        try:
            trained = train(
                data,
                config,
                loss=loss,
                backbone=backbone,
                own=own,
                out=out,
                resume=resume,
                callbacks=callbacks,
                quiet=quiet,
                ranks=ranks,
            )
        except StoppedRun as stop:
            stop.config = run
            raise
        _keep_digests(inputs, out, ranks)
        return trained, run


def _open_inputs(inputs: ImageSource | Vectors | Tensors | Items, config: TrainConfig, channels: int) -> Inputs:
    """Inputs that can be read by their numbers: images at the size at which they are augmented, others as they are."""
    if isinstance(inputs, Vectors | Tensors | Items):
        return inputs
    size = stored_size(config.image_size, config.crop)
    return Images(inputs, size, channels=channels, cache_bytes=config.cache_bytes)


class _SplitLabels(NamedTuple):
    """The labels of a run by their use."""

    training: Labels
    mirrored: Labels | None  # of the training images; None if these are not mirrored one by one
    validation: Labels  # of the user's own items to validate on; empty if there are none


def _split_labels(labels: Labels, count: int, validation_count: int) -> _SplitLabels:
    """Split labels that were encoded together, see the argument ``labels`` of ``train_run``."""
    first_validated = len(labels) - validation_count
    mirrored = labels[count : 2 * count] if first_validated > count else None
    return _SplitLabels(labels[:count], mirrored, labels[first_validated:])


def _keep_digests(inputs: ImageSource | Inputs, out: Path | None, ranks: Ranks) -> None:
    """Keep digests of the training items in the run folder, if there is one."""
    if out is not None and ranks.first:
        save_training_items(out, digest_items(inputs, MOST_DIGESTED))


def _refuse_image_augmentation(config: TrainConfig, form: InputForm) -> None:
    """Refuse the augmentation of images for other inputs."""
    for name in ("flip", "random_crop", "scale_jitter", "shift_jitter", "brightness_jitter"):
        value = getattr(config, name)
        if value not in ("none", 0):
            raise UserError(f"{name!r} changes images, but the inputs are {form}: leave out {name}={value}.")


def reduce_batch_size(config: TrainConfig, items: int, *, warn: bool = True) -> TrainConfig:
    """Make the sampler's batch smaller if it is larger than the data, with a warning.

    Args:
        config: The options of the run.
        items: Items that are trained on.
        warn: Whether this process warns.

    Returns:
        The options, with another sampler where the batch was too large.
    """
    sampler = sampling.registry.make(config.sampler)
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
            stacklevel=4,
        )
    return replace(config, sampler=smaller)


def label_digest(labels: Labels) -> str:
    """Compute the digest of training labels that the config of a run on arrays holds."""
    return hashlib.sha256(labels.fingerprint().encode()).hexdigest()


def _run_config(
    config: TrainConfig,
    labels: Labels,
    distance: LabelDistance,
    loss: Loss | None,
    own: OwnFunctions,
    inputs: Inputs,
    weights: Float64 | None,
    *,
    task: str,
    dataset: PreparedDataset | None,
) -> RunConfig:
    """The content of config.json."""
    given_in_python = own.names()
    if weights is not None:
        given_in_python["sample_weight"] = f"sha256:{hashlib.sha256(weights.tobytes()).hexdigest()[:16]}"
    label_distance = str(Choice(distance.name, distance.settings()))
    digest = label_digest(labels)
    return RunConfig(
        task=task,
        dataset="" if dataset is None else str(dataset.folder.resolve()),
        dataset_fingerprint=digest if dataset is None else dataset.fingerprint,
        train=config,
        model=make_model_config(config, losses.registry.make(config.loss) if loss is None else loss, inputs.form),
        label_distance=label_distance,
        made_of={"items": len(inputs), "labels": digest} if dataset is None else dataset.made_of,
        own=given_in_python,
        plugins=plugins.required_plugins(task, label_distance, config.loss, config.sampler, config.backbone),
    )
