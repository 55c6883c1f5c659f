"""A run with ``tune``: the features once, then a head that is chosen on held-out items instead of trained in steps."""

import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from cml import losses
from cml.array_types import Float32
from cml.console.messages import say
from cml.data.image_sources import ImageSource
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel
from cml.models.joined_head import JoinedHead
from cml.processes.ranks import Ranks
from cml.storage.atomic import delete
from cml.training import run_folder
from cml.training.config import TrainConfig
from cml.training.frozen_backbone import freeze_backbone
from cml.training.linear_map import JoinedMaps, LinearMap
from cml.training.loop import Trained, make_model_config
from cml.training.run_config import RunConfig
from cml.training.run_randomness import RunRandomness
from cml.training.saved_model import load_model
from cml.training.training_data import TrainingData
from cml.training.tune import Tuning, check_tuned_labels, tune
from cml.training.tune_candidates import frozen_maps
from cml.training.tune_fits import TUNE_FITS
from cml.training.tune_gain import measure_gain
from cml.training.tune_heads import STOPS
from cml.training.tune_networks import as_images, fit_network, network_candidates, score_networks
from cml.training.tune_score import mean_score
from cml.training.tune_split_score import make_split_score
from cml.training.tune_splits import SPLITS, make_splits

# of label distances that all heads take together; more of so few items that a matrix has fewer distances anyway
TUNE_BLOCKS = (SPLITS + 1) * max(STOPS)
# options that tuning decides itself
DECIDED_BY_TUNE = (
    *("loss", "sampler", "steps", "optimizer", "learning_rate", "schedule", "weight_decay", "warmup", "head_first"),
    *("clip_gradient", "ema_decay", "memory", "views", "projector", "epochs", "micro_batch", "evaluate_every"),
    *("patience", "keep_models", "lora", "head_start", "clip_gradient_value"),
)


def check_tune_options(config: TrainConfig, recipe: TrainConfig) -> None:
    """Refuse options that tuning decides itself.

    Args:
        config: The options of a run.
        recipe: The options where none are given.

    Raises:
        UserError: ``config`` has ``tune``, and another value of such an option than the recipe.
    """
    if not config.tune:
        return
    for name in DECIDED_BY_TUNE:
        if getattr(config, name) != getattr(recipe, name):
            value = getattr(config, name)
            raise UserError(f"'tune' chooses heads, losses and steps itself: leave out {name!r}. Got {value} instead.")


def tune_run(
    data: TrainingData,
    config: TrainConfig,
    run: RunConfig,
    *,
    source: ImageSource | None = None,
    backbone: nn.Module | Backbone | None = None,
    out: Path | None = None,
    quiet: bool = False,
    ranks: Ranks,
) -> tuple[Trained, RunConfig]:
    """Compute the features of all inputs, and choose an embedding of them.

    Args:
        data: Inputs and labels.
        config: The options, of which those of the model, the features and the seed matter.
        run: The content of config.json.
        source: The images, for whole networks; None for other inputs.
        backbone: The user's own module, for which ``config.backbone`` is ``custom``.
        out: Run folder for the model and ``tuning.json``; None writes nothing.
        quiet: Whether to say nothing of what was chosen.
        ranks: This process.

    Returns:
        The model, with no records of steps, and the content of config.json with the shape of the model.

    Raises:
        UserError: Inputs or labels that nothing can be chosen by, or a backbone that is not frozen.
    """
    started = time.monotonic()
    kind = data.inputs.form.kind
    if config.tune_minutes and source is None:
        raise UserError(f"'tune_minutes' is for networks of images, but the inputs are {data.inputs.form}.")
    if kind == "vectors" and config.backbone != "none":
        raise UserError(f"'tune' chooses a linear map of vectors: leave out backbone={config.backbone}.")
    if kind != "vectors" and not config.freeze_backbone:
        raise UserError(
            "'tune' chooses a head on a frozen backbone: add freeze_backbone=True (on the command line "
            "--freeze-backbone)."
        )
    if ranks.size > 1:
        raise UserError(f"'tune' works in one process. Got {ranks.size} of them.")
    check_tuned_labels(data.labels, data.distance, config.seed)  # before features are computed
    with RunRandomness(config.seed, ranks.device).initializing():
        loss = losses.registry.make(config.loss)
        is_items = kind == "items"
        example = data.inputs.read(np.arange(min(2, len(data)))) if is_items else None
        model = EmbeddingModel(make_model_config(config, loss, data.inputs.form), backbone=backbone, example=example)
    model = model.to(ranks.device).eval()
    features = _read_features(model, data, config, ranks, quiet=quiet)
    bar = "" if quiet else "tune"
    embedding, tuning = tune(
        features,
        data.labels,
        data.distance,
        config.dimension,
        losses=config.tune_losses,
        rates=config.tune_rates,
        control=config.tune_control,
        groups=data.groups,
        seed=config.seed,
        folder=out,
        bar=bar,
    )
    network = None
    if config.tune_minutes and source is not None:
        deadline = started + 60 * config.tune_minutes
        tuning, network = _tune_networks(source, data, features, config, tuning, deadline, out)
    if network is None:
        _set_head(model, embedding)
    else:
        candidate, loss, model = network
        run = replace(run, train=candidate, requested=config)
    for line in [] if quiet else tuning.lines():
        say(line)
    run = replace(run, model=model.config)
    if out is not None:
        run.save(out)
        run_folder.save_tuning(out, tuning)
    run_folder.finish(out, model, loss, ())
    if out is not None:
        delete(out / TUNE_FITS)
    return Trained(model, loss, [], tuning), run


def open_tuned(out: Path, ranks: Ranks) -> tuple[Trained, RunConfig]:
    """Open a finished run with ``tune``, and delete what a process left that was killed at its very end.

    Args:
        out: The run folder.
        ranks: This process.

    Returns:
        As ``tune_run``; the loss has the settings of the run, but no trained parameters.

    Raises:
        DataError: A file of the run is damaged.
    """
    run = RunConfig.load(out)
    model = load_model(out, run.model, ranks.device).eval()
    tuning = run_folder.load_tuning(out)
    delete(out / TUNE_FITS)
    return Trained(model, losses.registry.make(run.train.loss), [], tuning), run


def _tune_networks(
    source: ImageSource,
    data: TrainingData,
    features: Float32,
    config: TrainConfig,
    tuning: Tuning,
    deadline: float,
    out: Path | None,
) -> tuple[Tuning, tuple[TrainConfig, Loss, EmbeddingModel] | None]:
    """Try whole networks beside the head that was chosen.

    Returns:
        How the model was chosen, and the options, loss and model of a network if one is better.
    """
    splits, kind = make_splits(features, data.groups, seed=config.seed)
    splits = splits[:SPLITS]  # more would leave each network less time
    candidates = network_candidates(config, data.inputs.form.channels)
    tried = score_networks(source, data, splits, kind, candidates, deadline=deadline, folder=out)
    means = {name: mean_score(scores) for name, scores in tried.scores.items()}
    tuning = replace(tuning, networks=means, left_out=tried.left_out)
    if not means:
        return tuning, None
    frozen = []
    for others, held_out in splits:
        score = make_split_score(held_out, data.labels, data.distance, kind)
        frozen.append(score.score_map(frozen_maps(features[others])[tuning.frozen], features))
    gain = measure_gain(tried.scores[tried.best], frozen)
    # both are gains over the same features, for heads may have been scored on more splits
    if not gain.is_clear or (gain.mean <= tuning.gain and not tuning.keeps_features):
        return tuning, None
    name = tried.best
    candidate = replace(candidates[name], steps=tried.steps[name])
    whole = TrainingData(as_images(source, candidate, data), data.labels, data.distance)
    trained = fit_network(whole, candidate)
    tuning = replace(tuning, chosen=(name,), tried=(name,), score=means[name], gain=gain.mean, error=gain.error)
    candidate = replace(candidate, tune=True, tune_minutes=config.tune_minutes)
    return tuning, (candidate, trained.loss, trained.model)


def _read_features(
    model: EmbeddingModel, data: TrainingData, config: TrainConfig, ranks: Ranks, *, quiet: bool
) -> Float32:
    """The features (N, F) that a head may use: those of the frozen backbone, or the vectors in their own units."""
    inputs = data.inputs
    if isinstance(inputs, Vectors) and inputs.form.kind == "vectors":
        remark = model.fit_standardization(inputs)
        if remark and not quiet:
            say(remark)
        return model.fill_missing(inputs)
    _, rows = freeze_backbone(model, inputs, ranks, store=config.features, bar="" if quiet else "features")
    return np.ascontiguousarray(rows.read(np.arange(len(data))), np.float32)


def _set_head(model: EmbeddingModel, embedding: LinearMap | JoinedMaps) -> None:
    """Make an embedding of features the head of a model; of vectors, those that the model standardises."""
    maps = [embedding] if isinstance(embedding, LinearMap) else embedding.parts
    weight = torch.from_numpy(np.concatenate([part.weight for part in maps])).double()
    bias = torch.from_numpy(np.concatenate([part.bias for part in maps])).double()
    if model.config.inputs.kind == "vectors":
        bias = bias + weight @ model.mean.cpu().double()
        weight = weight * model.std.cpu().double()
    size = weight.shape[1]
    if isinstance(embedding, LinearMap):
        parts: tuple[int, ...] = ()
        head: nn.Linear | JoinedHead = nn.Linear(size, embedding.dimension)
        state = {"weight": weight, "bias": bias}
    else:
        parts = tuple(part.dimension for part in maps)
        head = JoinedHead(size, parts, embedding.dimension)
        last = torch.from_numpy(embedding.weight), torch.from_numpy(embedding.bias)
        is_unit = torch.tensor([part.normalize for part in maps])
        state = {"parts.weight": weight, "parts.bias": bias, "weight": last[0], "bias": last[1], "is_unit": is_unit}
    head.load_state_dict(state)
    model.head = head.to(model.mean.device)
    model.eval()
    normalize = isinstance(embedding, LinearMap) and embedding.normalize
    model.config = replace(model.config, dimension=embedding.dimension, normalize=normalize, parts=parts)
