"""Validation during training: on held-out training items, never on queries or gallery.

It picks the best weights and may end a run early. Not for: evaluating a finished run (cml.retrieval, cml.runs).
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

from torch import Tensor

from cml.distances.label_distance import Float32
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.retrieval.evaluation import embedding_ranker, evaluate
from cml.training.batches import TrainingData
from cml.training.config import TrainConfig


class Network(Protocol):
    """What is trained: a model, or its head on features."""

    def embed(self, images: Any, /) -> Float32:  # noqa: ANN401 - images or features
        """Embeddings (N, D)."""


Score = Callable[[Any, TrainingData], float]


class Validation:
    """Scores of a run on its held-out data, and the best weights so far.

    Args:
        model: What is trained, whose weights are kept.
        network: What embeds the held-out data: the model, or its head on features.
        held_out: The data.
        config: ``evaluate_every`` and ``patience`` of it.
        ranks: The processes that share the work, all of which call ``record``.
        score: Score of a network on data, lower is better; None for ``held_out_score``.

    Attributes:
        best: The best score so far.
        waited: Validations since then.
    """

    def __init__(
        self,
        model: EmbeddingModel,
        network: Any,  # noqa: ANN401 - a torch module that is a Network
        held_out: TrainingData,
        config: TrainConfig,
        ranks: Ranks,
        score: Score | None = None,
    ) -> None:
        self._model, self._network, self._held_out, self._config, self._ranks = model, network, held_out, config, ranks
        self._score = functools.partial(held_out_score, ranks=ranks) if score is None else score
        self.best, self.waited = math.inf, 0
        self._best_weights: dict[str, Tensor] | None = None

    def due(self, step: int) -> bool:
        """Whether the run is validated after so many steps."""
        return self._config.evaluate_every > 0 and step % self._config.evaluate_every == 0

    def record(self, step: int) -> dict[str, Any]:
        """Score the network as it is now; the record of it."""
        score = self._score(self._network.eval(), self._held_out)
        score = self._ranks.once(lambda: score)
        self._network.train()
        self.waited += 1
        if score < self.best:
            self.best, self.waited, self._best_weights = score, 0, copy.deepcopy(self._model.state_dict())
        return {"step": step, "validation": score}

    @property
    def patience_lost(self) -> bool:
        """Whether the last ``patience`` validations were no better than one before them."""
        return 0 < self._config.patience <= self.waited

    def take_best(self) -> None:
        """Give the model the best weights, if there was a validation that could tell."""
        if self._best_weights is not None:
            self._model.load_state_dict(self._best_weights)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"best": self.best, "waited": self.waited, "best_weights": self._best_weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what ``state_dict`` gave; checkpoints of older versions do not say how long was waited."""
        self.best, self.waited = float(state["best"]), int(state.get("waited", 0))
        self._best_weights = state["best_weights"]


def held_out_score(network: Network, data: TrainingData, *, ranks: Ranks) -> float:
    """Mean label distance@10 with every second held-out item as a query and the others as the gallery.

    Args:
        network: As it is now, in evaluation mode.
        data: Held-out items.
        ranks: The processes that share the work, all of which call this.

    Returns:
        The mean over queries, in units of the label distance; lower is better.
    """
    embeddings = ranks.rows(len(data), lambda rows: network.embed(data.images.subset(rows)))
    query, gallery = slice(0, None, 2), slice(1, None, 2)
    k = min(10, len(embeddings) // 2)
    result = evaluate(
        {"model": embedding_ranker(embeddings[query], embeddings[gallery])},
        data.distance,
        data.labels[query],
        data.labels[gallery],
        distance_ks=[k],
        ndcg_ks=[],
        hit_ks=[],
        correlation=False,
        bootstrap=0,
        oracle=False,
        ranks=ranks,
    )
    return result.rows["model"][f"label_distance@{k}"].mean
