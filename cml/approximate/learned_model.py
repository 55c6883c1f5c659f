"""The model that embeds further items by their vectors as an approximation embeds its own."""

import numpy as np
import torch
from torch import Tensor

from cml.approximate.start_vectors import StartVectors
from cml.data.input_form import InputForm
from cml.distances import LabelDistance, Labels
from cml.doors.model import Model
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.registry import Choice
from cml.training.config import TrainConfig
from cml.training.pair_map import WIDTHS, PairMap
from cml.training.saved_model import RunConfig


def make_model(
    start: StartVectors, learned: PairMap, distance: LabelDistance, labels: Labels, seed: int
) -> Model:  # a linear model, or with a perceptron one whose backbone is ``mlp``
    """Make a model of the user's vectors."""
    features = len(start.turn)
    if learned.perceptron is None:
        backbone, state = "none", _linear_state(start, learned)
    else:
        unit = ", unit=true" if start.normalize else ""
        backbone = f"mlp(widths={list(WIDTHS)}, skip=true{unit}, layer_norm=false, activation=relu)"
        state = _perceptron_state(start, learned)
    form = InputForm("vectors", (features,))
    config = ModelConfig(backbone, "none", features, start.normalize, (1, 1), inputs=form)
    network = EmbeddingModel(config)
    network.load_state_dict({**network.state_dict(), **state})
    choice = str(Choice(distance.name, distance.settings()))
    train = TrainConfig(backbone=backbone, weights="none", dimension=features, loss="soft-target", seed=seed)
    return Model(network, RunConfig("", "", labels.fingerprint(), train, config, choice), distance)


def _linear_state(start: StartVectors, learned: PairMap) -> dict[str, Tensor]:
    linear = start.join(learned)
    return {"head.weight": torch.from_numpy(linear.weight), "head.bias": torch.from_numpy(linear.bias)}


def _perceptron_state(start: StartVectors, learned: PairMap) -> dict[str, Tensor]:
    """The rotation of the start is a part of the first layer, and of the head."""
    size, width = learned.weight.shape
    assert learned.perceptron is not None
    layers: dict[str, Tensor] = learned.perceptron.state_dict(prefix="backbone.layers.")
    first = "backbone.layers.0.weight"
    layers[first] = layers[first] @ torch.from_numpy(start.turn[:size])
    head = np.zeros((len(start.turn), len(start.turn) + width - size), np.float32)
    head[:, : len(start.turn)] = start.turn
    head[:size, : len(start.turn)] = learned.weight[:, :size] @ start.turn[:size]
    head[:size, len(start.turn) :] = learned.weight[:, size:]
    largest = np.finfo(np.float32).max  # a constant column, which no vector can move
    std = np.where(start.factor > 0, 1 / np.where(start.factor > 0, start.factor, 1), largest).astype(np.float32)
    return {
        **layers,
        "head.weight": torch.from_numpy(head),
        "head.bias": torch.zeros(len(head)),
        "mean": torch.from_numpy(start.shift),
        "std": torch.from_numpy(std),
    }
