"""Validation on held-out training items, never on queries or gallery: it selects weights and may end a run early."""

import copy
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from cml.distances.label_distance import Int32
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.retrieval.evaluation import embedding_ranker, leave_out_itself
from cml.training.batches import TrainingData
from cml.training.config import TrainConfig

Score = Callable[[Any, TrainingData], float]  # of a network, a model or its head on features; lower is better
_STATE = ("best", "best_step", "worst", "waited", "best_weights")


@dataclass(eq=False)
class Validation:
    """Scores of a run on its held-out data, and the best weights so far."""

    model: EmbeddingModel
    network: Any  # embeds the data: the model, or its head on features
    held_out: TrainingData
    config: TrainConfig
    ranks: Ranks  # all call ``record``
    score: Score | None = None  # None for ``held_out_score``
    best: float = math.inf
    best_step: int = 0
    worst: float = -math.inf
    waited: int = 0  # validations since the best one
    best_weights: dict[str, Tensor] | None = None

    def __post_init__(self) -> None:
        if self.score is None and self.config.evaluate_every:
            order = self.ranks.broadcast(lambda: label_order(self.held_out))
            self.score = functools.partial(held_out_score, order=order, ranks=self.ranks)

    def record(self, step: int) -> dict[str, Any]:
        """Validate the network; returns the record."""
        assert self.score is not None  # evaluate_every is set
        own = self.score(self.network.eval(), self.held_out)
        score = self.ranks.broadcast(lambda: own)
        self.network.train()
        self.waited += 1
        self.worst = max(self.worst, score)
        if score < self.best:
            self.best, self.best_step, self.waited = score, step, 0
            self.best_weights = copy.deepcopy(self.model.state_dict())
        return {"step": step, "validation": score}

    @property
    def patience_lost(self) -> bool:
        """Whether the last ``patience`` validations were no better than one before them."""
        return 0 < self.config.patience <= self.waited

    def take_best(self, last: int) -> str:
        """Restore the best weights, if validations differed; returns which step's the model has, and why."""
        if self.best_weights is None:
            return ""
        if self.best == self.worst and self.best_step < last:
            return f"kept step {last}, the last: all validations scored {self.best:.4g}"
        self.model.load_state_dict(self.best_weights)
        early = f"; ended at step {last} after {self.waited} validations without a better one"
        return (
            f"kept step {self.best_step} of {last}: the best validation, {self.best:.4g} on {len(self.held_out)} "
            f"held-out items (the worst had {self.worst:.4g}){early if last < self.config.steps else ''}"
        )

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {name: getattr(self, name) for name in _STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        vars(self).update({name: state[name] for name in _STATE})


def label_order(data: TrainingData) -> Int32:
    """The dense rank (N, N) of each label distance in its row of held-out items; -1: incomparable, or itself."""
    from cml.retrieval.rank_correlation import dense_ranks

    distances = data.distance.pairwise(data.labels, data.labels)
    leave_out_itself(distances, slice(0, len(distances)))
    if not ((order := dense_ranks(distances)) > 0).any():
        raise UserError(
            f"The labels of the {len(order)} items held out for validation cannot be ranked: all are equally far from "
            "each other, or not comparable. Raise validation_share, shuffle the items, or set evaluate_every to 0."
        )
    return order


def held_out_score(network: Any, data: TrainingData, *, order: Int32, ranks: Ranks) -> float:  # noqa: ANN401
    """1 - Spearman's rho between embedding and label distances, each held-out item a query for all the others: 0..2."""
    # whole rankings also work with few items; a query whose embedding is equally far from all counts as uncorrelated
    from cml.retrieval.rank_correlation import rank_correlations

    embeddings = ranks.compute_rows(len(data), lambda rows: network.embed(data.images.subset(rows)))
    scores = embedding_ranker(embeddings, embeddings)(slice(0, len(embeddings)))  # (N, N)
    rho = rank_correlations(scores, order)[1][order.max(axis=1) > 0]
    return float(1 - np.nan_to_num(rho).mean())
