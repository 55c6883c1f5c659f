"""Validation during training, on held-out training items, never on queries or gallery.

It selects the best weights and may end a run early.
"""

import copy
import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from cml.distances.label_distance import Float32, Int32
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.retrieval.evaluation import embedding_ranker, leave_out_itself
from cml.training.batches import TrainingData
from cml.training.config import TrainConfig


class Network(Protocol):
    """The trained network: a model, or its head on features."""

    def embed(self, images: Any, /) -> Float32:  # noqa: ANN401 - images or features
        """Embeddings (N, D)."""


Score = Callable[[Any, TrainingData], float]


class Validation:
    """Scores of a run on its held-out data, and the best weights so far.

    Args:
        model: The model, whose weights are kept.
        network: Embeds the held-out data: the model, or its head on features.
        held_out: The data.
        config: For ``evaluate_every`` and ``patience``.
        ranks: The processes that share the work, all of which call ``record``.
        score: Score of a network on data, lower is better; None for ``held_out_score``.

    Attributes:
        best: The best score so far.
        best_step: Its step.
        worst: The worst score so far.
        waited: Validations since the best one.

    Raises:
        UserError: the labels of the held-out data cannot be ranked.
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
        if score is None and config.evaluate_every:
            order = ranks.once(lambda: label_order(held_out))
            score = functools.partial(held_out_score, order=order, ranks=ranks)
        self._score = score
        self.best, self.best_step, self.worst, self.waited = math.inf, 0, -math.inf, 0
        self._best_weights: dict[str, Tensor] | None = None

    def due(self, step: int) -> bool:
        """Whether the run is validated after ``step`` steps."""
        return self._config.evaluate_every > 0 and step % self._config.evaluate_every == 0

    def record(self, step: int) -> dict[str, Any]:
        """Validate the network; returns the record."""
        assert self._score is not None  # due() was true
        score = self._score(self._network.eval(), self._held_out)
        score = self._ranks.once(lambda: score)
        self._network.train()
        self.waited += 1
        self.worst = max(self.worst, score)
        if score < self.best:
            self.best, self.best_step, self.waited = score, step, 0
            self._best_weights = copy.deepcopy(self._model.state_dict())
        return {"step": step, "validation": score}

    @property
    def patience_lost(self) -> bool:
        """Whether the last ``patience`` validations were no better than one before them."""
        return 0 < self._config.patience <= self.waited

    def take_best(self, last: int) -> str:
        """Restore the best weights after the ``last`` step, if validations differed.

        Returns:
            Which step's weights the model has, and why; "" if the run was not validated.
        """
        if self._best_weights is None:
            return ""
        if self.best == self.worst and self.best_step < last:
            return f"kept step {last}, the last: all validations scored {self.best:.4g}"
        self._model.load_state_dict(self._best_weights)
        early = f"; ended at step {last} after {self.waited} validations without a better one"
        return (
            f"kept step {self.best_step} of {last}: the best validation, {self.best:.4g} on {len(self._held_out)} "
            f"held-out items (the worst had {self.worst:.4g}){early if last < self._config.steps else ''}"
        )

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        numbers = {"best": self.best, "best_step": self.best_step, "worst": self.worst, "waited": self.waited}
        return {**numbers, "best_weights": self._best_weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        self.best, self.worst = float(state["best"]), float(state["worst"])
        self.best_step, self.waited = int(state["best_step"]), int(state["waited"])
        self._best_weights = state["best_weights"]


def label_order(data: TrainingData) -> Int32:
    """The order of the N held-out items around each one by label distance.

    Returns:
        (N, N) int32, the dense rank of each label distance in its row, -1 for the item itself and for incomparable
        items.

    Raises:
        UserError: no item has others at different distances.
    """
    from cml.retrieval.rank_correlation import dense_ranks

    distances = data.distance.pairwise(data.labels, data.labels)
    leave_out_itself(distances, slice(0, len(distances)))
    order = dense_ranks(distances)
    if not (order > 0).any():
        raise UserError(
            f"The labels of the {len(order)} items held out for validation cannot be ranked: all are equally far from "
            "each other, or not comparable. Raise validation_share, shuffle the items, or set evaluate_every to 0."
        )
    return order


def held_out_score(network: Network, data: TrainingData, *, order: Int32, ranks: Ranks) -> float:
    """1 - Spearman's rho between embedding and label distances, each held-out item a query for all the others.

    It uses whole rankings, so that it also works with few items. A query whose embedding is equally far from all others
    counts as uncorrelated.

    Args:
        network: The network, in evaluation mode.
        data: N held-out items.
        order: (N, N) from ``label_order``.
        ranks: The processes that share the work, all of which call this.

    Returns:
        The mean over queries, in 0..2; lower is better.
    """
    from cml.retrieval.rank_correlation import rank_correlations

    embeddings = ranks.rows(len(data), lambda rows: network.embed(data.images.subset(rows)))
    scores = embedding_ranker(embeddings, embeddings)(slice(0, len(embeddings)))  # (N, N)
    rho = rank_correlations(scores, order)[1][order.max(axis=1) > 0]
    return float(1 - np.nan_to_num(rho).mean())
