"""A learner at work on labelled items, with or without a run folder: what is common to all learners."""

import contextlib
import hashlib
from dataclasses import replace

import numpy as np

from cml import plugins
from cml.data.item_digests import MOST_DIGESTED, digest_items
from cml.data.prepared import PreparedDataset
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import store_costly_distances
from cml.models.weights import model_fingerprint
from cml.registry import Choice
from cml.training.data_workers import refuse_in_starting_worker
from cml.training.gradient_descent import make_model_config
from cml.training.learner import Learned, Learner, Place, StoppedRun
from cml.training.run_folder import open_run_folder, save_training_items
from cml.training.saved_model import RunConfig


def run_learner(
    learner: Learner,
    items: LabelledItems,  # N items
    validation: LabelledItems | None,  # items of the user's own to validate on
    place: Place,
    *,
    shrink: bool = False,
    task: str = "",  # name of the task; "" for inputs and labels given in Python
    dataset: PreparedDataset | None = None,  # the prepared dataset; None for inputs and labels given in Python
) -> tuple[Learned, RunConfig]:
    """Let a learner learn from items, in its run folder if it has one."""
    if place.resume and place.out is None:
        raise UserError("'resume' continues the run in the folder 'out'. Got resume=True and no 'out'.")
    refuse_in_starting_worker()
    ranks = place.find_ranks(learner.config)
    if shrink:
        learner = learner.shrink_batch(items, validation, warn=ranks.first)
    learner = learner.check(items, validation)  # before there is an empty run folder
    run = describe_run(learner, items, validation, task=task, dataset=dataset)
    place = replace(place, ranks=ranks, run=run)
    with contextlib.ExitStack() as stack:
        if place.folder is not None:
            is_like = not learner.decides_model
            stack.enter_context(open_run_folder(place.folder, run, resume=place.resume, compare_model=is_like))
        ranks.barrier()
        learned = learner.reopen(place) if place.resume else None
        if learned is None:
            trained = items, validation
            if (demand := learner.demand()) is not None:
                trained = store_costly_distances(items, validation, demand, quiet=not place.is_shown)
            try:
                learned = learner.learn(*trained, place)
            except StoppedRun as stop:
                stop.run = run
                raise
        if place.folder is not None:
            originals = [] if dataset is None else [dataset.originals]
            save_training_items(place.folder, np.concatenate([digest_items(items.inputs, MOST_DIGESTED), *originals]))
        return learned, run.with_learned_model(learned.config, learned.model.config)


def label_digest(items: LabelledItems, validation: LabelledItems | None = None) -> str:
    """Compute the digest of labels that the config of a run on arrays holds."""
    parts = [items, *([] if validation is None else [validation])]
    return hashlib.sha256("".join(part.labels.fingerprint() for part in parts).encode()).hexdigest()


def describe_run(
    learner: Learner,
    items: LabelledItems,  # N items
    validation: LabelledItems | None = None,  # items to validate on; None for none
    *,
    task: str = "",  # name of the task; "" for none
    dataset: PreparedDataset | None = None,  # the prepared dataset; None for inputs and labels given in Python
) -> RunConfig:
    """Make the content of config.json."""
    config, own = learner.config, learner.own.names()
    if items.weights is not None:
        own["sample_weight"] = f"sha256:{hashlib.sha256(items.weights.tobytes()).hexdigest()[:16]}"
    if learner.start is not None:
        own["start"] = model_fingerprint(learner.start)[:16]
    label_distance = str(Choice(items.distance.name, items.distance.settings()))
    digest = label_digest(items, validation)
    return RunConfig(
        task=task,
        dataset="" if dataset is None else str(dataset.folder.resolve()),
        dataset_fingerprint=digest if dataset is None else dataset.fingerprint,
        train=config,
        model=make_model_config(config, learner.loss_as_named, items.inputs.form),
        label_distance=label_distance,
        made_of={"items": len(items), "labels": digest} if dataset is None else dataset.made_of,
        own=own,
        plugins=plugins.required_plugins(task, label_distance, config.loss, config.sampler, config.backbone),
    )
