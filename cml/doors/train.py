"""``cml.train``: training on a prepared dataset, as ``cml train`` does. ``fit.py`` trains on inputs given in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from cml import distances, tasks
from cml.array_types import Int64
from cml.console.messages import say
from cml.data.dataset_info import DatasetInfo
from cml.data.image_sources import number_groups
from cml.data.images import stored_size
from cml.data.prepared import PreparedDataset
from cml.data.vectors import Vectors
from cml.distances.dataset_labels import Mirror
from cml.doors.dataset_options import complete_dataset_options, take_group_column
from cml.doors.learners import learner_class
from cml.doors.model import Model
from cml.doors.training_run import keep_interrupted, share_folder, with_tracker
from cml.errors import UserError
from cml.feature_store.frozen_features import explain_new_items, with_features
from cml.feature_store.store import FeatureStore
from cml.items.label_inputs import label_split, open_at, read_weights
from cml.models.backbone import count_channels
from cml.models.embedding import EmbeddingModel
from cml.processes.init_processes import init_processes
from cml.task import Task
from cml.trackers import Tracker
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig, add_implied_options, with_options
from cml.training.history import History
from cml.training.learner import Learned, Place
from cml.training.own_functions import NO_FUNCTIONS, Augment, OwnFunctions, take_functions
from cml.training.run_learner import run_learner
from cml.training.saved_model import RunConfig
from cml.training.start import decided_options
from cml.training.train_options import TrainOptions, complete_options, list_options

if TYPE_CHECKING:
    from cml.doors.run import Run


@list_options
def train(
    task: str | Task,
    data: Path | str | PreparedDataset,
    out: Path | str,
    *,
    config: TrainConfig | None = None,
    augment: Augment | None = None,
    sample_weight: Any = None,  # noqa: ANN401 - a sequence of numbers
    start: Model | None = None,
    resume: bool = False,
    tracker: str | Tracker | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    **options: Unpack[TrainOptions],
) -> "Run":
    """Train an embedding on a prepared dataset into a run folder, as ``cml train`` does.

    Args:
        task: The task, or its name: "value", "pose", ...
        data: The prepared dataset or its folder.
        out: Run folder.
        config: All options of training; None for the task's recipe.
        augment: A function that augments one input at each use, as ``cml.fit`` takes it.
        sample_weight: A weight for each training item, as ``cml.fit`` takes it.
        start: A trained model to continue, as for ``cml.fit``; it decides backbone, dimension and image size.
        resume: Continue the run in ``out``.
        tracker: An experiment tracker that follows the run: tensorboard, wandb, mlflow, trackio, or one of your own.
        callbacks: Called after steps, validations, checkpoints and at the end; they may end the run.
        quiet: No progress bar.
        **options: Any option of ``TrainConfig`` by its name; it goes before that of ``config``.

    Returns:
        The finished run: ``run.evaluate()`` measures it, ``run.model`` is the trained model.

    Raises:
        UserError: options, dataset or run folder that do not fit.
        Interrupted: As from ``cml.fit``.

    Example:
        >>> run = cml.train("value", "data/mine", "runs/mine", freeze_backbone=True, steps=20,
        ...                 sampler="random(batch_size=16)", quiet=True)
        >>> run
        Run('runs/mine', log-ratio, Model(efficientnet-lite0, 224 x 224 pixels -> 128 numbers, L2-normalised))
        >>> list(run.evaluate().rows)
        ['embedding', 'frozen efficientnet-lite0', 'random', 'oracle']
    """
    from cml.doors.run import open_run

    task = tasks.get(task) if isinstance(task, str) else task
    dataset = data if isinstance(data, PreparedDataset) else PreparedDataset.open(data)
    own, named = take_functions(options, augment)
    chosen = options_for(task, config, named, dataset.info)
    callbacks = with_tracker(callbacks, tracker)

    def _make_model(learned: Learned, run: RunConfig) -> Model:
        return Model(learned.model, run, history=History.of(learned.metrics), allow_download=True)

    with keep_interrupted(_make_model, has_folder=True), init_processes(chosen.device) as ranks:
        place = Place(Path(out), resume, callbacks, quiet, ranks)
        network = None if start is None else start.network
        train_task(task, dataset, chosen, place, own=own, sample_weight=sample_weight, start=network)
    return open_run(out, data=dataset.folder, device=chosen.device, allow_download=True)


def options_for(
    task: Task,
    config: TrainConfig | None,  # all options; None for those that suit the dataset, see ``complete_dataset_options``
    options: Mapping[str, Any],  # options by name, which go before those of ``config``
    info: DatasetInfo,
) -> TrainConfig:
    """Combine the options of a run on a task."""
    if config is not None:
        return take_group_column(with_options(config, options), info)
    return take_group_column(complete_dataset_options(task, add_implied_options(options), info), info)


def train_task(
    task: Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    place: Place,
    *,
    own: OwnFunctions = NO_FUNCTIONS,
    sample_weight: Any = None,  # noqa: ANN401 - a sequence of numbers
    start: EmbeddingModel | None = None,  # a trained model to continue
) -> Learned:
    """Train the embedding of a task into a run folder."""
    store = FeatureStore.open(config.features) if config.features else None
    if store is not None and not store.is_of_backbone:
        dataset = with_features(dataset, store)
    groups = _read_groups(dataset, config)
    if start is not None:
        config = _follow_start(start, config, place)
    learner = learner_class(config)(config, own=own, start=start)
    learner.check_options(complete_options(task.recipe, {}, dataset.info.inputs))
    if config.tune and dataset.info.queries_are_known and place.is_shown:
        say(
            "tune holds out items and so chooses for new items. The queries of this dataset are known items with new "
            "judgements, for which another choice may be better."
        )
    given = dataset.split("train").labels
    distance = distances.registry.make(task.label_distance(config, dataset.info)).fit(given)
    open_inputs = open_at(
        stored_size(config.image_size, config.crop),
        channels=count_channels(config.backbone),
        cache_bytes=config.cache_bytes,
        decode=config.decode,
    )
    items = label_split(dataset, "train", distance, open_inputs, _label_mirror(task, dataset.info, config))
    items = replace(
        items,
        inputs=items.inputs.with_missing(config.missing) if isinstance(items.inputs, Vectors) else items.inputs,
        groups=groups,
        weights=None if sample_weight is None else read_weights(sample_weight, len(items)),
    )
    learned, _ = run_learner(learner, items, None, place, task=task.name, dataset=dataset)
    share_folder(place, learned)
    if store is not None and not store.is_of_backbone and place.is_shown:
        say(explain_new_items(store))
    return learned


def _follow_start(start: EmbeddingModel, config: TrainConfig, place: Place) -> TrainConfig:
    """The options with those that the start model decides, which a line names where they are others."""
    decided = decided_options(start)
    others = [f"{name}={value}" for name, value in decided.items() if getattr(config, name) != value]
    if others and place.is_shown:
        say(f"The start model decides {', '.join(others)}.")
    followed: TrainConfig = replace(config, **decided)
    if followed.tune:
        raise UserError("A start model has a head already: leave out tune, or the start model.")
    return followed


def _read_groups(dataset: PreparedDataset, config: TrainConfig) -> Int64 | None:
    """The number of each training item's group, for splits that hold out whole groups; None for none."""
    if not config.groups:
        return None
    names = dataset.read_groups("train", config.groups)
    return number_groups(names, len(names))


def _label_mirror(task: Task, info: DatasetInfo, config: TrainConfig) -> Mirror | None:
    """The function from a label to that of the mirrored image; None if no image is mirrored on its own."""
    mirror = task.mirror
    if config.flip != "image":
        return None
    if mirror is None:
        raise UserError(f"The task {task.name!r} cannot mirror its labels; set 'flip' to list or none.")
    return lambda label: mirror(label, info)
