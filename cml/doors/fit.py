"""``cml.fit``: training on inputs and labels that are given in Python."""

import datetime
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from torch import nn

from cml import distances
from cml.checks.dataset_findings import count_words
from cml.console.messages import say
from cml.data.dataset_items import has_columns, name_columns
from cml.data.image_sources import number_groups
from cml.data.images import stored_size
from cml.data.input_form import AcceptedInputs, Collate, FieldNames, InputForm, InputKind, Inputs
from cml.data.input_sources import recognize_inputs
from cml.data.pair_judgements import PairJudgements
from cml.data.triplet_judgements import TripletJudgements
from cml.distances import LabelDistance, LabelError, Labels
from cml.distances.known_parts import is_unknown
from cml.distances.precomputed import Precomputed
from cml.doors.fit_grades import are_two, fit_grades
from cml.doors.fit_source import ListedSource, open_source
from cml.doors.model import Model
from cml.doors.training_run import keep_interrupted, share_folder, with_tracker
from cml.doors.validation_items import draw_validation, recognize_validation, refuse_with_validation
from cml.errors import ImplausibleData, UserError
from cml.graded.grades import Grades
from cml.items.label_inputs import holds_classes, label_inputs, open_at, read_label_frame, read_weights
from cml.items.names import align_by_name, list_by_id, name_matrix_rows, names_of
from cml.losses.wrapped_loss import as_loss
from cml.models import CUSTOM, Backbone
from cml.models.backbone import count_channels, read_by_itself
from cml.models.embedding import EmbeddingModel
from cml.option_types import check_options, reads_as_number
from cml.plausibility.finding import find_unknown_words
from cml.plausibility.label_rules import find_in_labels
from cml.processes.init_processes import init_processes
from cml.registry import Choice
from cml.trackers import Tracker
from cml.training.callbacks import Callback
from cml.training.config import TrainConfig, with_options
from cml.training.history import History
from cml.training.learner import Learned, Place
from cml.training.own_functions import Augment, take_functions
from cml.training.randomness import seeded_randomness
from cml.training.run_learner import run_learner
from cml.training.saved_model import RunConfig
from cml.training.start import follow_start
from cml.training.train_options import FitOptions, complete_options, list_options


@list_options
def fit(
    inputs: Any,  # noqa: ANN401 - the kinds listed below
    labels: Any = None,  # noqa: ANN401
    config: TrainConfig | None = None,
    *,
    label_distance: str | LabelDistance | Callable[[Any, Any], float] | NDArray[Any] | None = None,
    loss: str | nn.Module | None = None,
    backbone: str | nn.Module | Backbone | tuple[Any, Any] | None = None,
    start: Model | None = None,
    image: str | None = None,
    features: str | Sequence[str] | None = None,
    label: str | None = None,
    groups: Any = None,  # noqa: ANN401 - a sequence of any names
    input_kind: InputKind | None = None,
    collate: Collate | tuple[Collate, Collate] | None = None,
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
        inputs: N images: paths, Pillow images, uint8 arrays or tensors, with channels first or last. Or N vectors:
            floats (N, F) as an array, a tensor, a memory map, a ``.npy`` file, a list of rows, columns of a data frame
            or a store of ``cml.features``. Your own backbone can also take N tensors (N, ...), see
            ``cml.data.items``, or, with ``collate``, N items of any kind. Or N texts, a list of strings, for a backbone
            of texts; of a data frame ``features`` names their column. All of these may come together with their
            labels: as a torch ``Dataset`` of (x, label) or of mappings with named fields, a list of such items, a
            Hugging Face ``Dataset`` or a data frame. The labels of a data set are read once, its inputs at each use, so
            that random augmentation in it, which ``seed`` seeds, is drawn anew. Or a ``cml.LabelledStream``, a torch
            ``IterableDataset`` or a Hugging Face data set with ``streaming=True``, of items that need not fit into
            memory, with ``steps``.
        labels: N labels of the kind that the label distance takes: numbers or vectors by default, also as a data frame
            with one column or several. Where these and the inputs are objects of pandas, rows of one index name belong
            together; where they are mappings, such as a ``dict`` or an open ``.npz`` file, or inputs a feature store,
            those of one id. Of a matrix of label distances, the labels are numbers or names of its rows; None takes
            the rows that have the names of the inputs, or all of them in order. Or judgements of the inputs by people,
            ``cml.PairJudgements`` or ``cml.TripletJudgements``, which have a label distance of their own. Or
            ``cml.Grades`` of documents for queries, where the inputs are (queries, documents); the model is a
            ``cml.SearchModel``, and ``sampler="queries"`` and ``loss="lambda-ndcg(temperature=0.2)"`` are the defaults.
        config: All options of training; the defaults if None.
        label_distance: How far apart two labels are: a string such as ``"circular(period=24)"``, a ``LabelDistance``, a
            function of two labels, or an (N, N) matrix, whose rows have names if it is a data frame. By default
            ``euclidean``, and ``classes`` for a column of Hugging Face's ClassLabel.
        loss: A string such as ``"cosent(scale=2.0)"``, a loss of ``cml.losses``, or your own torch module that takes
            embeddings (B, D) and label distances (A, B), whose first A items are the anchors. If its attribute
            ``normalize`` is true, the trained model L2-normalises its embeddings; otherwise it does not.
        backbone: The network below the head: a string such as ``"resnet34"``, or your own torch module from normalised
            pixels (B, 3, h, w) to features (B, F); see ``cml.models.as_backbone`` for its mean and std, and for images
            with another number of bands, which ``"small-cnn(channels=4)"`` takes too. For vectors: ``"none"`` (a linear
            head), the default, ``"mlp(512, 512)"``, or your own module from standardised vectors (B, V) to features
            (B, F). For texts: ``"sentence-transformers/all-MiniLM-L6-v2"`` or another model of that library on the
            Hugging Face hub or in a folder, a ``SentenceTransformer``, or a transformer with its tokenizer, (model,
            tokenizer), whose features are the mean of the tokens; they tokenise and pad texts themselves. With grades
            also two of all these, (of the queries, of the documents), for a network of each side.
        start: A trained model to continue, with its backbone, head and standardisation: on new inputs of its form,
            other labels, another label distance or loss. It stays as it is.
        image: Name of the column or field of images, if ``inputs`` is a data frame or a data set of mappings.
        features: Names of the columns of vectors: a list, a pattern such as ``emb_*``, a prefix, or the name of one
            column of lists; or the name of the field of inputs.
        label: Name of the column or field of labels.
        groups: A name or number for each input, such as its subject, or its class if the test has new classes:
            validation and ``tune`` hold out whole groups. With grades, for each query.
        input_kind: The kind of the inputs, "images", "vectors" or "tensors"; None to recognise it.
        collate: A function that joins a list of inputs (graphs, sequences, texts) to the backbone's input, with one row
            for each of them: a tensor, a tuple or dict of tensors, or an object with a method ``to(device)``.
        augment: A function that augments one input at each use, such as a transform of torchvision. It gets an image as
            a uint8 tensor (3, h, w), a vector (F,) or a tensor (...) as float32, or one of the inputs that ``collate``
            joins, and returns one of the same shape and type. If it has two parameters without a default, it gets the
            label too and returns a pair of both. Its random numbers follow from ``seed`` and the step.
        sample_weight: A number of at least 0 for each input: how often it is an anchor relative to the others; 0 leaves
            it out. See docs/howto/recipe.md.
        validation: Inputs and labels to validate on, (x, y) or a data set; the inputs are of the kind of ``inputs``.
            The model keeps the weights with the best validation, and no training item is held out. At most 1,000 are
            used, drawn at random. Without ``evaluate_every`` there are ten validations. With grades, other queries and
            their grades for the same documents, (queries, grades).
        out: Run folder for checkpoints and the model; None keeps nothing.
        resume: Continue the run in ``out``.
        tracker: An experiment tracker that follows the run: tensorboard, wandb, mlflow, trackio, or your own.
        callbacks: Called after steps, validations and checkpoints, and at the end; they may end the run.
        quiet: Whether to hide the progress bar and remarks.
        **options: Any option of ``TrainConfig`` by its name, such as ``steps=300``; it overrides that of ``config``.
            ``optimizer`` may also be a function from parameter groups to an optimiser, such as a class of torch.optim,
            and ``schedule`` a function from the optimiser to a scheduler of torch.optim.lr_scheduler.

    Returns:
        The trained model: ``model.embed(images)`` gives (N, D) float32.

    Raises:
        UserError: Inputs, labels or options do not fit each other.
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
    if isinstance(labels, Grades):
        return fit_grades(
            fit,
            inputs,
            labels,
            config,
            backbone=backbone,
            collate=collate,
            groups=groups,
            validation=validation,
            refused={
                "label_distance": label_distance,
                "image": image,
                "features": features,
                "label": label,
                "sample_weight": sample_weight,
                "start": start,
            },
            options={
                **options,
                "loss": loss,
                "input_kind": input_kind,
                "augment": augment,
                "out": out,
                "resume": resume,
                "tracker": tracker,
                "callbacks": callbacks,
                "quiet": quiet,
            },
        )
    if are_two(backbone) or isinstance(collate, tuple):
        raise UserError(
            "A network for each of two sides is for graded search: cml.fit((queries, documents), grades). A "
            "transformer and its tokenizer are given in this order: backbone=(model, tokenizer)."
        )
    if isinstance(labels, PairJudgements | TripletJudgements):
        label_distance = labels.label_distance if label_distance is None else label_distance
        for remark in () if quiet else labels.remarks:
            say(remark)
    source = open_source(inputs)
    source.check(labels=labels, groups=groups, sample_weight=sample_weight, resume=resume)
    if label_distance is None and config is None and holds_classes(inputs, label):
        label_distance = "classes"
        if not quiet:
            say(f"{label!r} is a column of classes; for their numbers, label_distance='euclidean'.")

    # options, and the parts that are objects
    if isinstance(backbone, Model | EmbeddingModel):
        raise UserError(
            "The backbone is a trained model of cml: continue it by start=model, with its head and standardisation."
        )
    own_backbone = None if isinstance(backbone, str) else backbone
    if own_backbone is not None:
        from cml.models.backbones.sentence_transformers import wrap_foreign  # of texts, which few give

        own_backbone = wrap_foreign(own_backbone)
    own_loss = None if loss is None or isinstance(loss, str) else as_loss(loss)
    own_functions, chosen = take_functions(options, augment)
    chosen |= _name_parts(label_distance, loss, backbone if isinstance(backbone, str) else own_backbone)
    network = None if start is None else start.network
    if network is not None:
        if backbone is not None:
            raise UserError("A start model has a backbone already: leave out 'backbone', or 'start'.")
        chosen, collate = follow_start(network, chosen), network.collate if collate is None else collate
        own_backbone = Backbone(network.backbone, network.head.in_features, (0.0,) * network.config.inputs.channels)
    config = with_options(TrainConfig() if config is None else config, chosen)
    _refuse_dataset_options(config)

    # label distance, labels and inputs
    if label_distance is None:
        _refuse_matrix(labels)
    if label_distance is None or isinstance(label_distance, str):
        label_distance = config.label_distance
    distance = distances.as_label_distance(label_distance)
    given: dict[str, Any] = {"labels": labels, "groups": groups, "sample_weight": sample_weight}
    inputs, given, ids = list_by_id(inputs, given)
    labels, groups, sample_weight = given.values()
    labels = align_by_name(inputs, labels, "labels")
    groups = align_by_name(inputs, groups, "groups")
    sample_weight = align_by_name(inputs, sample_weight, "sample_weight")
    if labels is None and label is None and isinstance(distance, Precomputed) and hasattr(inputs, "__len__"):
        labels = name_matrix_rows(distance, inputs, len(inputs))
    label_columns: tuple[str, ...] = () if label is None else (label,)
    if has_columns(labels):
        labels, label_columns = read_label_frame(labels, distance.name, quiet=quiet)
    accepted = AcceptedInputs(
        kind=input_kind or read_by_itself(config.backbone if own_backbone is None else own_backbone),
        missing=config.missing,
        own_backbone=own_backbone is not None,
        channels=count_channels(config.backbone if own_backbone is None else own_backbone),
        collate=collate,
    )
    if network is not None:
        accepted = replace(accepted, kind=network.config.inputs.kind)
        features = features or network.config.inputs.columns or None
    fields = FieldNames(image, features, label)
    recognize = functools.partial(recognize_inputs, fields=fields, accepted=accepted)
    with seeded_randomness(config.seed):  # a data set of the user's own may draw where its labels are read
        labelled = source.recognize(inputs, labels, fields, accepted, config)
        held_out = None
        if validation is not None:
            refuse_with_validation(config, groups=groups)
            held_out = recognize_validation(validation, labelled, recognize)
    plain_labels = labelled.labels

    # options that suit inputs and labels, where none are given
    form = labelled.inputs.form if isinstance(labelled.inputs, Inputs) else InputForm()
    names = {*chosen, *config.difference(TrainConfig())}  # an option of ``config`` that is no default is chosen too
    chosen = {name: getattr(config, name) for name in names}
    config = check_options(complete_options(config, chosen, form, distance))
    learner = source.make_learner(config, own_loss, own_backbone, own_functions, network)
    learner.check_options(complete_options(TrainConfig(), {}, form))

    of_pandas = labels is None and label is not None and hasattr(inputs, "set_axis")
    given_labels = name_columns(inputs)[label] if of_pandas else labels
    later = () if held_out is None else held_out.labels
    distance, encoded = _encode_labels(distance, plain_labels, later, given_labels, source)
    _warn_of_implausible_labels(plain_labels, label_columns, distance)
    count = len(plain_labels)
    open_inputs = open_at(
        stored_size(config.image_size, config.crop),
        channels=accepted.channels,
        cache_bytes=config.cache_bytes,
        decode=config.decode,
    )
    items = replace(
        label_inputs(labelled, distance, open_inputs, encoded[:count], ids=ids or names_of(inputs)),
        groups=None if groups is None else number_groups(groups, count),
        weights=None if sample_weight is None else read_weights(sample_weight, count),
    )
    validating = None
    if held_out is not None:
        validating = draw_validation(label_inputs(held_out, distance, open_inputs, encoded[count:]), config.seed)

    def _make_model(learned: Learned, run: RunConfig) -> Model:
        learned.model.set_collate(collate)
        history = History.of(learned.metrics)
        known = source.references(items)
        return Model(learned.model, run, distance, references=known, selection=learned.selection, history=history)

    interrupted = keep_interrupted(_make_model, has_folder=out is not None, resumes=source.resumes)
    with interrupted, init_processes(config.device) as ranks:
        place = Place(None if out is None else Path(out), resume, with_tracker(callbacks, tracker), quiet, ranks)
        learned, run = run_learner(learner, items, validating, place, shrink=True)
        share_folder(place, learned)
    return _make_model(learned, run)


def _name_parts(
    label_distance: object, loss: str | nn.Module | None, backbone: str | nn.Module | Backbone | None
) -> dict[str, str]:
    """The options that name the parts of a run: a string is the option itself; of an object, the run keeps a name."""
    names = {}
    if isinstance(label_distance, str):
        names["label_distance"] = label_distance
    if loss is not None:
        names["loss"] = loss if isinstance(loss, str) else type(loss).__name__
    if isinstance(backbone, str):
        names["backbone"] = backbone
    elif backbone is not None:
        names |= {"backbone": getattr(backbone, "saved_as", CUSTOM), "weights": "none"}
    return names


def _refuse_dataset_options(config: TrainConfig) -> None:
    """Refuse the options that name parts of a prepared dataset, which ``cml.fit`` takes as arguments."""
    if config.group_column:
        raise UserError(
            "'group_column' names a column of a prepared dataset: give cml.fit the groups themselves, "
            f"groups=[...]. Got group_column={config.group_column} instead."
        )
    if config.features and not config.freeze_backbone:
        raise UserError(
            "cml.fit takes a store as its inputs: cml.fit(store, labels). Leave 'features' out of 'config'."
        )


def _refuse_matrix(labels: Any) -> None:  # noqa: ANN401 - of any kind
    """Refuse a matrix of distances or similarities of the items, whose rows would be taken for vectors."""
    is_nested = isinstance(labels, list | tuple) and bool(labels) and isinstance(labels[0], list | tuple)
    shape: tuple[int, ...] = getattr(labels, "shape", (len(labels), len(labels[0])) if is_nested else ())
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] < _FEWEST_OF_MATRIX:
        return
    try:
        matrix = np.asarray(labels.detach().cpu() if hasattr(labels, "detach") else labels, np.float64)
    except (TypeError, ValueError):
        return
    if matrix.shape != tuple(shape) or not np.allclose(matrix, matrix.T, equal_nan=True):
        return
    diagonal = np.diagonal(matrix)
    if not (diagonal == diagonal[0]).all() or np.count_nonzero(matrix) <= np.count_nonzero(diagonal):  # one-hot labels
        return
    is_distance, size = diagonal[0] == 0, f"{len(matrix)} x {len(matrix)}"
    kind = "label distances" if is_distance else "similarities"
    mend = "label_distance=M" if is_distance else "label_distance=M.max() - M"
    raise UserError(
        f"The labels are a symmetric matrix of {size} with {diagonal[0]:g} on its diagonal, as {kind} of the items "
        f"are: give it as {mend}, without labels. If its rows are vectors, say so by label_distance='euclidean'."
    )


_FEWEST_OF_MATRIX = 4  # items; of fewer, the rows of labels are symmetric by chance


def _encode_labels(
    distance: LabelDistance,
    labels: Sequence[Any],
    held_out_labels: Sequence[Any],
    given: Any,  # noqa: ANN401 - the labels as they were given, perhaps a column
    source: ListedSource,
) -> tuple[LabelDistance, Labels]:
    """Fit the label distance to the training labels, and encode these and, after them, the held-out ones."""
    try:
        distance = distance.fit(labels)
        return distance, distance.encode([*labels, *held_out_labels] if len(held_out_labels) else labels)
    except LabelError as error:
        label = labels[error.position] if error.position < len(labels) else None
        raise source.refuse_label(distance, error, _suggest_mend(label, given)) from None


def _warn_of_implausible_labels(labels: Sequence[Any], columns: Sequence[str], distance: LabelDistance) -> None:
    """Warn of labels that are hardly meant so, at the line that calls ``cml.fit``."""
    findings = find_in_labels(labels, columns=columns, distance=str(Choice(distance.name, distance.settings())))
    if (words := count_words(distance, labels)) is not None:
        findings += find_unknown_words(words)
    for finding in findings:
        warnings.warn(str(finding), ImplausibleData, stacklevel=3)


def _suggest_mend(label: Any, given: Any) -> str:  # noqa: ANN401 - a label of any kind, and what all came in
    """How a label that does not fit its distance could be mended."""
    if getattr(getattr(given, "dtype", None), "ordered", False):  # of pandas
        first = "leave out the items without one, whose number is -1, and " if given.isna().any() else ""
        numbers = "their numbers, labels.cat.codes, or label_distance='classes'"
        return f"The labels are ordered categories: {first}give {numbers}."
    if isinstance(label, datetime.date):
        days = "Convert dates to numbers, such as days: [label.toordinal() for label in labels]"
        has_time = isinstance(label, datetime.datetime)
        more = ", or with the time of day: [label.timestamp() / 86_400 for label in labels]" if has_time else ""
        return f"{days}{more}."
    if isinstance(label, str) and reads_as_number(label):
        return "Convert the labels to numbers, for example by [float(label) for label in labels]."
    parts = [*label.values()] if isinstance(label, dict) else label
    if isinstance(parts, list | tuple) and any(map(is_unknown, parts)):
        return "To compare the parts that both labels know, set missing='skip', as in 'euclidean(missing=skip)'."
    if isinstance(label, float | np.floating) and not np.isfinite(label):
        return "Leave out the items without a finite label, which np.isfinite(labels) finds."
    return "Mend the label, or choose another distance by label_distance=..."
