"""The learner of a run with ``tune``: the features once, then a head that is chosen on held-out items."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from torch import nn

from cml import losses, sampling
from cml.array_types import Float32
from cml.console.messages import say
from cml.data.input_form import Inputs
from cml.data.vectors import Vectors
from cml.errors import UserError
from cml.items import LabelledItems
from cml.items.labelled_items import DistanceDemand
from cml.models.embedding import EmbeddingModel
from cml.models.heads import JoinedHead
from cml.processes.ranks import Ranks
from cml.storage.atomic import delete
from cml.training import run_folder
from cml.training.config import TrainConfig
from cml.training.gradient_descent import make_model, refuse_image_augmentation
from cml.training.head_alone import freeze_backbone
from cml.training.learner import NO_PLACE, Learned, Learner, Place
from cml.training.linear_map import JoinedMaps, LinearMap
from cml.training.randomness import RunRandomness
from cml.training.saved_model import MODEL, RunConfig, load_model
from cml.tuning.candidates import frozen_maps
from cml.tuning.heads import STOPS
from cml.tuning.networks import at_size_of, fit_network, network_candidates, score_networks
from cml.tuning.scores import TUNE_FITS, make_split_score, mean_score
from cml.tuning.splits import SPLITS, make_splits, measure_gain, share_held_out
from cml.tuning.tune import TUNING, Tuning, check_tuned_labels, tune

# of label distances that all heads take together; more of so few items that a matrix has fewer distances anyway
TUNE_BLOCKS = (SPLITS + 1) * max(STOPS)
# options that tuning decides itself
DECIDED_BY_TUNE = (
    *("loss", "sampler", "steps", "optimizer", "learning_rate", "schedule", "weight_decay", "warmup", "head_first"),
    *("clip_gradient", "ema_decay", "memory", "views", "projector", "epochs", "micro_batch", "evaluate_every"),
    *("patience", "keep_models", "lora", "head_start", "clip_gradient_value"),
)


@dataclass(frozen=True)
class TuneLearner(Learner):
    """Chooses a head on the features of all items, and with a budget of time also whole networks."""

    decides_model: ClassVar[bool] = True
    decides: ClassVar[tuple[str, ...]] = DECIDED_BY_TUNE
    chooses: ClassVar[str] = "heads, losses and steps"

    def check_options(self, recipe: TrainConfig) -> None:
        """Refuse options that tuning decides itself; see ``Learner.check_options``."""
        if self.loss is not None:
            raise UserError("'tune' chooses the loss itself: leave out 'loss'.")
        super().check_options(recipe)

    def check(self, items: LabelledItems, validation: LabelledItems | None = None) -> Self:
        """Check that a head can be chosen by items; see ``Learner.check``."""
        if validation is not None:
            raise UserError("'tune' makes its own splits of the items: leave out 'validation'.")
        if items.inputs.form.kind != "images":
            refuse_image_augmentation(self.config, items.inputs.form)
        self.own.check(self.config)
        if items.weights is not None:
            raise UserError("'tune' chooses heads by all items alike: leave out 'sample_weight'.")
        return self

    def demand(self) -> DistanceDemand:
        """The blocks that all heads take together."""
        sampler, blocks = sampling.registry.make(self.config.sampler), TUNE_BLOCKS
        return DistanceDemand(blocks, sampler.batch_size, all_pairs=sampler.neighbors > 0)

    def learn(self, items: LabelledItems, validation: LabelledItems | None = None, place: Place = NO_PLACE) -> Learned:
        """Compute the features of all items, and choose an embedding of them; see ``Learner.learn``."""
        started, config, ranks = time.monotonic(), self.config, place.find_ranks(self.config)
        self._check_backbone(items.inputs, ranks)
        check_tuned_labels(items.labels, items.distance, config.seed)  # before features are computed
        with RunRandomness(config.seed, ranks.device).initializing():
            loss = losses.registry.make(config.loss)
            model = make_model(config, loss, items, self.backbone).to(ranks.device).eval()
        features = self._read_features(model, items, place)
        embedding, tuning = tune(
            features,
            items.labels,
            items.distance,
            config.dimension,
            losses=config.tune_losses,
            rates=config.tune_rates,
            groups=items.groups,
            seed=config.seed,
            folder=place.out,
            bar="tune" if place.is_shown else "",
        )
        learned = None
        if config.tune_minutes:
            deadline = started + 60 * config.tune_minutes
            tuning, learned = _tune_networks(items, features, config, tuning, deadline, place.out)
        if learned is None:
            _set_head(model, embedding)
            learned = Learned(model, loss, [], config)
        learned = replace(learned, selection=tuning)
        for line in tuning.lines() if place.is_shown else []:
            say(line)
        run_folder.finish(place.out, learned, place.run)
        if place.out is not None:
            delete(place.out / TUNE_FITS)
        return learned

    def reopen(
        self, place: Place
    ) -> Learned | None:  # what was learned; the loss has the settings of the run, but no trained parameters
        """Open a finished run, and delete what a process left that was killed at its very end."""
        out = place.out
        if out is None or not (out / MODEL).exists():
            return None
        run = RunConfig.load(out)
        model = load_model(out, run.model, place.find_ranks(self.config).device).eval()
        tuning = Tuning.load(out)
        delete(out / TUNE_FITS)
        return Learned(model, losses.registry.make(run.train.loss), [], run.train, tuning)

    @classmethod
    def read_selection(cls, folder: Path) -> Tuning | None:
        """Read what was chosen; None of a model that was shared without it."""
        return Tuning.load(folder) if (folder / TUNING).exists() else None

    def _check_backbone(self, inputs: Inputs, ranks: Ranks) -> None:
        """Refuse inputs and backbones on which no head can be chosen."""
        config, form = self.config, inputs.form
        if config.tune_minutes and form.kind != "images":
            raise UserError(f"'tune_minutes' is for networks of images, but the inputs are {form}.")
        if form.kind == "vectors" and config.backbone != "none":
            raise UserError(f"'tune' chooses a linear map of vectors: leave out backbone={config.backbone}.")
        if form.kind != "vectors" and not config.freeze_backbone:
            raise UserError(
                "'tune' chooses a head on a frozen backbone: add freeze_backbone=True (on the command line "
                "--freeze-backbone)."
            )
        if ranks.size > 1:
            raise UserError(f"'tune' works in one process. Got {ranks.size} of them.")

    def _read_features(self, model: EmbeddingModel, items: LabelledItems, place: Place) -> Float32:
        """The features (N, F) that a head may use: those of the frozen backbone, or the vectors in their own units."""
        inputs = items.inputs
        if isinstance(inputs, Vectors) and inputs.form.kind == "vectors":
            remark = model.fit_standardization(inputs)
            if remark and place.is_shown:
                say(remark)
            return model.fill_missing(inputs)
        ranks, bar = place.find_ranks(self.config), "features" if place.is_shown else ""
        _, rows = freeze_backbone(model, inputs, ranks, store=self.config.features, bar=bar)
        return np.ascontiguousarray(rows.read(np.arange(len(items))), np.float32)


def _tune_networks(
    items: LabelledItems, features: Float32, config: TrainConfig, tuning: Tuning, deadline: float, out: Path | None
) -> tuple[Tuning, Learned | None]:
    """Try whole networks beside the head that was chosen."""
    classes = items.distance.class_names(items.labels)
    splits, kind = make_splits(features, items.groups, classes, seed=config.seed)
    splits = splits[:SPLITS]  # more would leave each network less time
    candidates = network_candidates(config, items.inputs.form.channels)
    tried = score_networks(items, splits, kind, candidates, deadline=deadline, folder=out)
    means = {name: mean_score(scores) for name, scores in tried.scores.items()}
    tuning = replace(tuning, networks=means, left_out=tried.left_out)
    if not means:
        return tuning, None
    frozen = []
    for others, held_out in splits:
        score = make_split_score(held_out, items.labels, items.distance, kind, items.groups)
        frozen.append(score.score_map(frozen_maps(features[others])[tuning.frozen], features))
    gain = measure_gain(tried.scores[tried.best], frozen, held_out=share_held_out(splits, kind))
    # both are gains over the same features, for heads may have been scored on more splits
    if not gain.is_clear or (gain.mean <= tuning.gain and not tuning.keeps_features):
        return tuning, None
    name = tried.best
    candidate = replace(candidates[name], steps=tried.steps[name])
    trained = fit_network(at_size_of(candidate, items), candidate)
    tuning = replace(tuning, chosen=(name,), tried=(name,), score=means[name], gain=gain.mean, error=gain.error)
    candidate = replace(candidate, tune=True, tune_minutes=config.tune_minutes)
    return tuning, Learned(trained.model, trained.loss, [], candidate)


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
