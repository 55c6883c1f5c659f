"""Training from Python: on your own inputs and labels, or on a prepared dataset as ``cml train`` does."""

import functools
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cml import distances, tasks
from cml.console.messages import say
from cml.data.dataset_info import DatasetInfo
from cml.data.groups import number_groups
from cml.data.input_form import InputForm, InputKind
from cml.data.input_sources import recognize_inputs
from cml.data.inputs import Inputs
from cml.data.items import Collate
from cml.data.pair_judgements import PairJudgements
from cml.data.prepared import PreparedDataset
from cml.data.table_columns import has_columns
from cml.data.triplet_judgements import TripletJudgements
from cml.data.vectors import Vectors
from cml.distances import LabelDistance, LabelError
from cml.distances.dataset_labels import encode
from cml.distances.precomputed import Precomputed
from cml.errors import UserError
from cml.feature_store.dataset_inputs import explain_new_items, with_features
from cml.feature_store.store import FeatureStore
from cml.losses.wrapped_loss import as_loss
from cml.models import CUSTOM, Backbone
from cml.models.backbone import count_channels
from cml.plausibility.finding import ImplausibleData
from cml.plausibility.label_rules import find_in_labels
from cml.plausibility.unknown_words import find_unknown_words
from cml.processes.init_processes import init_processes
from cml.processes.ranks import Ranks
from cml.registry import Choice
from cml.runs.dataset_findings import count_words
from cml.runs.interrupted import keep_interrupted
from cml.runs.item_weights import read_weights
from cml.runs.kept_label_distance import kept_label_distance
from cml.runs.label_recipe import recipe_for_labels
from cml.runs.model import Model
from cml.runs.stated_labels import holds_classes, read_label_frame
from cml.runs.validation_items import recognize_validation, refuse_with_validation
from cml.task import Task
from cml.trackers import Tracker
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig, with_options
from cml.training.history import History
from cml.training.loop import Trained
from cml.training.own_augmentation import Augment
from cml.training.own_functions import NONE, OwnFunctions, take_functions
from cml.training.recipe_inputs import recipe_for_inputs
from cml.training.run_config import RunConfig
from cml.training.seeded_randomness import seeded_randomness
from cml.training.tracking import with_tracker
from cml.training.train_options import FitOptions, TrainOptions, list_options
from cml.training.train_run import train_run
from cml.training.tune_run import check_tune_options

if TYPE_CHECKING:
    from cml.runs.run import Run


@list_options
def fit(
    inputs: Any,  # noqa: ANN401 - the kinds listed below
    labels: Any = None,  # noqa: ANN401
    config: TrainConfig | None = None,
    *,
    label_distance: str | LabelDistance | Callable[[Any, Any], float] | NDArray[Any] | None = None,
    loss: str | nn.Module | None = None,
    backbone: str | nn.Module | Backbone | None = None,
    image: str | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    groups: Any = None,  # noqa: ANN401 - a sequence of any names
    input_kind: InputKind | None = None,
    collate: Collate | None = None,
    augment: Augment | None = None,
    sample_weight: Any = None,  # noqa: ANN401 - a sequence of numbers
    validation: Any = None,  # noqa: ANN401 - inputs with labels
    out: Path | str | None = None,
    resume: bool = False,
    tracker: str | Tracker | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    **options: Unpack[FitOptions],
) -> Model:
    """Train an embedding of ``inputs`` whose distances mirror the distances of ``labels``.

    A script that calls this may be started by torchrun: its processes then share every batch.

    Args:
        inputs: N images: paths, uint8 arrays or tensors in either channel order, Pillow images; or N vectors: floats
            (N, F) as an array, a tensor, a memory map, a ``.npy`` file, a list of rows, columns of a data frame or a
            store of ``cml.features``. With a backbone of your own also N tensors (N, ..), see ``cml.data.tensors``, or
            with ``collate`` N items of any kind. All of these also from what holds the labels too: a torch ``Dataset``
            of (x, label) or of mappings with named fields, a list of such items, a Hugging Face ``Dataset`` or a data
            frame. Labels of a data set are read once; its inputs anew at each use, so that random augmentation in it,
            which ``seed`` seeds, is drawn anew.
        labels: N labels of the kind that the label distance takes; numbers or vectors by default, also as a data frame
            of one column or several. Or what people judged of the inputs, ``cml.PairJudgements`` or
            ``cml.TripletJudgements``, which brings its label distance along.
        config: All options of training; None for the defaults.
        label_distance: How far apart two labels are: a text as on the command line, a ``LabelDistance``, a function of
            two labels, or an (N, N) matrix. By default ``euclidean``, and ``classes`` for a column that is ClassLabel.
        loss: A text as on the command line, a loss of ``cml.losses``, or a torch module of your own that takes
            embeddings (B, D) and label distances (A, B), whose first A items are the anchors. If its attribute
            ``normalize`` is true, the trained model L2-normalises its embeddings; otherwise it does not.
        backbone: The network below the head: a text as on the command line, or a torch module of your own from
            normalised pixels (B, 3, h, w) to features (B, F); see ``cml.models.as_backbone`` for its mean and std, and
            for images of another number of bands, which "small-cnn(channels=4)" takes too. On
            vectors: "none" (a linear head), which is the default, "mlp(512, 512)", or a module from standardised
            vectors (B, V) to features (B, F).
        image: Name of the column or field of images, where images come as a data frame or data set of mappings.
        features: Names of its columns of vectors: a list, a pattern such as ``emb_*``, a prefix, or the name of one
            column of lists; or the name of the field of inputs.
        label: Name of its column or field of labels.
        groups: A name or number for each input, such as its subject: validation holds out whole groups.
        input_kind: Which kind the inputs are, "images", "vectors" or "tensors"; None to recognise it.
        collate: A function that joins a list of inputs (graphs, sequences, texts) to what the backbone takes, with one
            row for each of them: a tensor, a tuple or dict of tensors, or an object with a method ``to(device)``.
        augment: A function that augments one input at each use, such as transforms of torchvision: of images a tensor
            (3, h, w) uint8, of vectors (F,) float32, of tensors (..), else what ``collate`` joins. It returns one of
            the same shape and type. If it has two parameters without a default, it takes the label too and returns a
            pair of both. Its random numbers follow from ``seed`` and the step.
        sample_weight: A number of at least 0 for each input: how often it is an anchor relative to the others; 0 leaves
            it out. See docs/howto/recipe.md.
        validation: Inputs and labels to validate on, (x, y) or a data set, of the kind of ``inputs``: they choose the
            weights of the model, and no training item is held out. At most 1,000 are used, drawn at random. Without
            ``evaluate_every`` there are ten validations.
        out: Run folder for checkpoints and the model; None keeps nothing.
        resume: Continue the run in ``out``.
        tracker: An experiment tracker that follows the run: tensorboard, wandb, mlflow, trackio, or one of your own.
        callbacks: Called after steps, validations, checkpoints and at the end; they may end the run.
        quiet: No progress bar.
        **options: Any option of ``TrainConfig`` by its name, such as ``steps=300``; it goes before that of ``config``.
            ``optimizer`` may also be a function of groups of parameters that makes an optimiser, such as a class of
            torch.optim, and ``schedule`` one of the optimiser that makes a scheduler of torch.optim.lr_scheduler.

    Returns:
        The trained model: ``model.embed(images)`` gives (N, D) float32.

    Raises:
        UserError: inputs, labels or options that do not fit each other.
        Interrupted: Ctrl-C, or the stop button of a notebook, after the first step: a ``KeyboardInterrupt`` whose
            attribute ``model`` is the model so far, as ``cml.last()`` is. With ``out``, there is a checkpoint of the
            last step, which the same call with ``resume=True`` continues.

    Example:
        >>> import numpy as np
        >>> import cml
        >>> levels = np.linspace(0, 255, 40)
        >>> images = np.tile(levels[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
        >>> model = cml.fit(images, levels, backbone="small-cnn", weights="none", image_size=(16, 16), steps=2,
        ...                 sampler="random(batch_size=20)", workers=0, quiet=True)
        >>> model.embed(images).shape
        (40, 128)
        >>> rows = np.stack([levels, levels**2], axis=1)
        >>> cml.fit(rows, levels, steps=2, sampler="random(batch_size=20)", quiet=True)
        Model(none, 2 numbers -> 128 numbers, L2-normalised)
    """
    if isinstance(labels, PairJudgements | TripletJudgements):
        label_distance = labels.label_distance if label_distance is None else label_distance
        for remark in () if quiet else labels.remarks:
            say(remark)
    if label_distance is None and config is None and holds_classes(inputs, label):
        label_distance = "classes"
        if not quiet:
            say(f"{label!r} is a column of classes; for their numbers, label_distance='euclidean'.")
    parts = {"label_distance": label_distance, "loss": loss, "backbone": backbone}
    # a part is a text, which is an option of the run, or an object, of which the run keeps a name
    texts = {name: part for name, part in parts.items() if isinstance(part, str)}
    own_backbone = None if isinstance(backbone, str) else backbone
    if own_backbone is not None:
        texts |= {"backbone": CUSTOM, "weights": "none"}
    own_loss = None if loss is None or isinstance(loss, str) else as_loss(loss)
    if own_loss is not None:
        texts["loss"] = type(loss).__name__
    own, chosen = take_functions(options, augment)
    config = with_options(TrainConfig() if config is None else config, {**chosen, **texts})
    if config.group_column:
        raise UserError(
            "'group_column' names a column of a prepared dataset: give cml.fit the groups themselves, "
            f"groups=[..]. Got group_column={config.group_column} instead."
        )
    if label_distance is None or isinstance(label_distance, str):
        label_distance = kept_label_distance(config.label_distance, "", out, resume=resume) or config.label_distance
    distance = distances.as_label_distance(label_distance)
    if labels is None and isinstance(distance, Precomputed):  # its labels are the numbers of its rows
        labels = range(len(inputs))
    columns: tuple[str, ...] = () if label is None else (label,)
    if has_columns(labels):
        labels, columns = read_label_frame(labels, distance.name, quiet=quiet)
    if config.features and not config.freeze_backbone:
        raise UserError(
            "cml.fit takes a store as its inputs: cml.fit(store, labels). Leave 'features' out of 'config'."
        )
    recognize = functools.partial(
        recognize_inputs,
        image=image,
        features=features,
        label=label,
        missing=config.missing,
        own_backbone=own_backbone is not None,
        channels=count_channels(config.backbone if own_backbone is None else own_backbone),
        collate=collate,
    )
    with seeded_randomness(config.seed):  # a data set of the user's own may draw where its labels are read
        labelled = recognize(inputs.select() if isinstance(inputs, FeatureStore) else inputs, labels, kind=input_kind)
        held_out = None
        if validation is not None:
            refuse_with_validation(config, groups=groups)
            held_out = recognize_validation(
                validation, labelled, functools.partial(recognize, kind=input_kind), seed=config.seed
            )
    raw = labelled.labels
    form = labelled.inputs.form if isinstance(labelled.inputs, Inputs) else InputForm()
    if isinstance(labelled.inputs, Inputs):
        config = _adapt_defaults(config, {*options, *texts}, form)
    config = _adapt_to_labels(config, {*options, *texts}, distance)
    if config.tune and own_loss is not None:
        raise UserError("'tune' chooses the loss itself: leave out 'loss'.")
    check_tune_options(config, recipe_for_inputs(TrainConfig(), form))
    weights = None if sample_weight is None else read_weights(sample_weight, len(raw))
    try:
        distance = distance.fit(raw)
        encoded = distance.encode(raw if held_out is None else [*raw, *held_out.labels])
    except LabelError as error:
        label = raw[error.position] if error.position < len(raw) else None
        fault = f"The 'labels' do not fit the label distance {distance.name!r}: {error}"
        raise UserError(f"{fault} {_suggest_mend(label)}") from None
    findings = find_in_labels(raw, columns=columns, distance=str(Choice(distance.name, distance.settings())))
    if (words := count_words(distance, raw)) is not None:
        findings += find_unknown_words(words)
    for finding in findings:
        warnings.warn(str(finding), ImplausibleData, stacklevel=3)

    def _make_model(trained: Trained, run: RunConfig) -> Model:
        trained.model.set_collate(collate)
        history = History.of(trained.metrics)
        return Model(trained.model, run, distance, references=labelled, tuning=trained.tuning, history=history)

    with keep_interrupted(_make_model, has_folder=out is not None), init_processes(config.device) as ranks:
        trained, run = train_run(
            labelled.inputs,
            encoded,
            distance,
            config,
            loss=own_loss,
            backbone=own_backbone,
            own=own,
            plain_labels=raw,
            weights=weights,
            validation=None if held_out is None else held_out.inputs,
            groups=None if groups is None else number_groups(groups, len(raw)),
            out=None if out is None else Path(out),
            resume=resume,
            shrink=True,
            callbacks=with_tracker(callbacks, tracker),
            quiet=quiet,
            ranks=ranks,
        )
    return _make_model(trained, run)


def _suggest_mend(label: Any) -> str:  # noqa: ANN401 - of any kind
    """How a label that does not fit its distance could be mended."""
    if isinstance(label, str) and _is_number(label):
        return "Convert the labels to numbers, for example by [float(label) for label in labels]."
    if isinstance(label, float | np.floating) and not np.isfinite(label):
        return "Leave out the items without a finite label, which np.isfinite(labels) finds."
    return "Mend the label, or choose another distance by label_distance=.."


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _adapt_defaults(config: TrainConfig, chosen: Collection[str], form: InputForm) -> TrainConfig:
    """The options with the recipe for the form of the inputs in place of those defaults that are for images."""
    default = TrainConfig()
    recipe = recipe_for_inputs(default, form)
    names = [name for name in ("backbone", "weights", "learning_rate") if name not in chosen]
    untouched = [name for name in names if getattr(config, name) == getattr(default, name)]
    return replace(config, **{name: getattr(recipe, name) for name in untouched})


def _adapt_to_labels(config: TrainConfig, chosen: Collection[str], distance: LabelDistance) -> TrainConfig:
    """The options with those that suit the labels in place of defaults; tuning decides them itself."""
    if config.tune:
        return config
    default = TrainConfig()
    suited = distance.training_options(head_alone=config.freeze_backbone or config.backbone == "none")
    untouched = [name for name in suited if name not in chosen and getattr(config, name) == getattr(default, name)]
    return replace(config, **{name: suited[name] for name in untouched})


def _read_groups(dataset: PreparedDataset, config: TrainConfig) -> NDArray[np.int64] | None:
    """The number of each training item's group, for splits that hold out whole groups; None for none."""
    if not config.group_column:
        return None
    if not (config.tune or config.evaluate_every):
        raise UserError(
            "'group_column' says which items are held out together: set 'tune' or 'evaluate_every' too. "
            f"Got group_column={config.group_column} alone."
        )
    names = dataset.read_groups("train", config.group_column)
    return number_groups(names, len(names))


@list_options
def train(
    task: str | Task,
    data: Path | str | PreparedDataset,
    out: Path | str,
    *,
    config: TrainConfig | None = None,
    augment: Augment | None = None,
    sample_weight: Any = None,  # noqa: ANN401 - a sequence of numbers
    resume: bool = False,
    tracker: str | Tracker | None = None,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    **options: Unpack[TrainOptions],
) -> "Run":
    """Train an embedding on a prepared dataset into a run folder, as ``cml train`` does.

    Args:
        task: The task, or its name: "value", "pose", ..
        data: The prepared dataset or its folder.
        out: Run folder.
        config: All options of training; None for the task's recipe.
        augment: A function that augments one input at each use, as ``cml.fit`` takes it.
        sample_weight: A weight for each training item, as ``cml.fit`` takes it.
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
    from cml.runs.run import open_run

    task = tasks.get(task) if isinstance(task, str) else task
    dataset = data if isinstance(data, PreparedDataset) else PreparedDataset.open(data)
    own, named = take_functions(options, augment)
    chosen = options_for(task, config, named, dataset.info)
    callbacks = with_tracker(callbacks, tracker)

    def _make_model(trained: Trained, run: RunConfig) -> Model:
        return Model(trained.model, run, history=History.of(trained.metrics), allow_download=True)

    with keep_interrupted(_make_model, has_folder=True), init_processes(chosen.device) as ranks:
        train_task(
            task,
            dataset,
            chosen,
            Path(out),
            own=own,
            sample_weight=sample_weight,
            resume=resume,
            callbacks=callbacks,
            quiet=quiet,
            ranks=ranks,
        )
    return open_run(out, data=dataset.folder, device=chosen.device, allow_download=True)


def options_for(
    task: Task, config: TrainConfig | None, options: Mapping[str, Any], info: DatasetInfo | None = None
) -> TrainConfig:
    """Combine the options of a run on a task.

    Args:
        task: The task.
        config: All options; None for the task's recipe, whose horizontal flip does not apply to a frozen backbone.
        options: Options by name, which go before those of ``config``.
        info: The dataset's info; None for images whose labels are as the task has them. The recipe for vectors has no
            backbone, and labels that are judgements decide loss and sampler.

    Returns:
        The options of the run.

    Raises:
        UserError: An option does not exist or is out of range.
    """
    if config is not None:
        return with_options(config, options)
    recipe = recipe_for_inputs(task.recipe, InputForm() if info is None else info.inputs)
    if info is not None and not options.get("tune"):
        is_frozen = bool(options.get("freeze_backbone") or options.get("features"))
        head_alone = is_frozen or info.inputs.kind == "vectors"
        recipe = recipe_for_labels(recipe, task, info, head_alone=head_alone)
    if options.get("freeze_backbone") and "flip" not in options:
        recipe = replace(recipe, flip="none")
    return with_options(recipe, options)


def train_task(
    task: Task,
    dataset: PreparedDataset,
    config: TrainConfig,
    out: Path,
    *,
    own: OwnFunctions = NONE,
    sample_weight: Any = None,  # noqa: ANN401 - a sequence of numbers
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    quiet: bool = False,
    ranks: Ranks | None = None,
) -> Trained:
    """Train the embedding of a task into a run folder.

    Args:
        task: The task.
        dataset: The prepared dataset.
        config: All options of training.
        out: Run folder.
        own: Functions of the user's own.
        sample_weight: A weight for each training item; None for all alike.
        resume: Continue the run in ``out``.
        callbacks: Called after steps, validations, checkpoints and at the end; they may end the run.
        quiet: No progress bar.
        ranks: The processes that train together; None for this one alone.

    Returns:
        The trained model, its loss and the records of the run.

    Raises:
        UserError: Options, dataset or run folder that do not fit.
    """
    store = FeatureStore.open(config.features) if config.features else None
    if store is not None and not store.is_of_backbone:
        dataset = with_features(dataset, store)
    items = dataset.split("train")
    groups = _read_groups(dataset, config)
    inputs = items.inputs
    if isinstance(inputs, Vectors):
        inputs = inputs.with_missing(config.missing)
    mirror = task.mirror if config.flip == "image" else None
    check_tune_options(config, recipe_for_inputs(task.recipe, dataset.info.inputs))
    kept = kept_label_distance(config.label_distance, task.name, out, resume=resume)
    distance = distances.registry.make(kept or task.label_distance(config, dataset.info)).fit(items.labels)
    labels = encode(distance, dataset, "train", None if mirror is None else lambda label: mirror(label, dataset.info))
    trained, _ = train_run(
        inputs,
        labels,
        distance,
        config,
        own=own,
        plain_labels=items.labels,
        weights=None if sample_weight is None else read_weights(sample_weight, len(items)),
        task=task.name,
        dataset=dataset,
        groups=groups,
        out=out,
        resume=resume,
        callbacks=callbacks,
        quiet=quiet,
        ranks=ranks,
    )
    if store is not None and not store.is_of_backbone and not quiet and (ranks is None or ranks.first):
        say(explain_new_items(store))
    return trained
