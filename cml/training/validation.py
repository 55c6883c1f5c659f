"""Validation on held-out training items, never on queries or gallery: it selects weights and may end a run early."""

import contextlib
import copy
import functools
import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from torch import Tensor

from cml.array_types import Float32, Floating, Int32
from cml.errors import UserError
from cml.items import LabelledItems
from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.retrieval.embedding_ranker import embedding_ranker
from cml.retrieval.ranking import mask_own_column
from cml.storage.saved_options import record
from cml.training.config import TrainConfig
from cml.training.randomness import seeded_randomness

_FIRST = 10  # items of a ranking that nDCG looks at
_NUMBERS = ("best", "best_step", "worst", "waited")


class Validation:
    """Scores of a run on its held-out data, and the best weights so far."""

    def __init__(
        self,
        model: EmbeddingModel,
        network: Any,  # noqa: ANN401 - a torch module with a method embed
        held_out: LabelledItems,
        config: TrainConfig,
        ranks: Ranks,
    ) -> None:
        self._model = model
        self._network = network
        self._held_out = held_out
        self._config = config
        self._ranks = ranks
        if held_out.distance.favours_first:
            gains = ranks.broadcast(lambda: label_gains(held_out))
            self._score = functools.partial(first_items_score, gains=gains, ranks=ranks)
        else:
            order = ranks.broadcast(lambda: label_order(held_out))
            self._score = functools.partial(held_out_score, order=order, ranks=ranks)
        self.stopping = EarlyStopping(config.patience)  # the course of the scores
        # state dict of the model at the best validation; None before the first
        self.best_weights: dict[str, Tensor] | None = None

    def record(self, step: int) -> dict[str, Any]:
        """Validate the network, and keep its weights if they are the best so far."""
        with contextlib.ExitStack() as stack:
            if self._held_out.inputs.reads_anew:  # all validations see the same augmentation
                stack.enter_context(seeded_randomness(self._config.seed, self._ranks.rank))
            own = self._score(self._network.eval(), self._held_out)
        score = self._ranks.broadcast(lambda: own)
        self._network.train()
        if self.stopping.update(score, step):
            self.best_weights = copy.deepcopy(self._model.state_dict())
        return {"step": step, "validation": score}

    def take_best(
        self, last: int
    ) -> str:  # which step's weights the model has, and why; "" if the run was not validated
        """Restore the best weights, if validations differed."""
        if self.best_weights is None:
            return ""
        stopping = self.stopping
        if stopping.best == stopping.worst and stopping.best_step < last:
            return f"kept step {last}, the last: all validations scored {stopping.best:.4g}"
        self._model.load_state_dict(self.best_weights)
        text = (
            f"kept step {stopping.best_step} of {last}: the best validation, {stopping.best:.4g} on "
            f"{len(self._held_out)} held-out items (the worst had {stopping.worst:.4g})"
        )
        if last < self._config.steps:
            text += f"; ended at step {last} after {stopping.waited} validations without a better one"
        return text

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        numbers = {name: getattr(self.stopping, name) for name in _NUMBERS}
        return {**numbers, "best_weights": self.best_weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``."""
        steps = {name: state[name] for name in ("best_step", "waited")}
        limit = Annotated[int, Meta(ge=0, le=self._config.steps)]
        record(steps, dict[str, limit], "a number of steps", "one of this run")
        record({name: state[name] for name in ("best", "worst")}, dict[str, float], "a score", "a number")
        for name in _NUMBERS:
            setattr(self.stopping, name, state[name])
        self.best_weights = state["best_weights"]


@dataclass
class EarlyStopping:
    """The course of a run's validation scores, of which lower ones are better.

    Example:
        >>> stopping = EarlyStopping(patience=2)
        >>> [stopping.update(score, step) for step, score in enumerate([0.5, 0.3, 0.4, 0.6])]
        [True, True, False, False]
        >>> stopping.is_due, stopping.best_step
        (True, 1)
    """

    patience: int  # validations without a better score after which the run ends; 0 for never
    best: float = math.inf  # the best score so far
    best_step: int = 0  # the step of that score
    worst: float = -math.inf  # the worst score so far
    waited: int = 0  # validations since the best one

    def update(self, score: float, step: int) -> bool:
        """Record a validation."""
        self.waited += 1
        self.worst = max(self.worst, score)
        is_better = score < self.best
        if is_better:
            self.best, self.best_step, self.waited = score, step, 0
        return is_better

    @property
    def is_due(self) -> bool:
        """Whether the last ``patience`` validations were no better than one before them."""
        return 0 < self.patience <= self.waited


def label_order(
    data: LabelledItems,  # N held-out items
) -> Int32:  # (N, N) the dense rank of each label distance in its row
    """Rank the held-out items around each of them by label distance."""
    from cml.retrieval.rank_correlation import dense_ranks

    distances = data.distance.pairwise(data.labels, data.labels)
    mask_own_column(distances, slice(0, len(distances)))
    order = dense_ranks(distances)
    if not (order > 0).any():
        if data.distance.is_partial:
            raise UserError(
                "Validation ranks held-out items by their label distances, and too few of these are known: judged "
                "pairs have few, and judged triplets none. Set evaluate_every to 0."
            )
        raise UserError(
            f"The labels of the {len(order)} items held out for validation cannot be ranked: all are equally far from "
            "each other, or not comparable. Raise validation_fraction, shuffle the items, or set evaluate_every to 0."
        )
    return order


def held_out_score(
    network: Any,  # noqa: ANN401
    data: LabelledItems,  # N held-out items
    *,
    order: Int32,  # (N, N) from ``label_order``
    ranks: Ranks,
) -> float:
    """Score a network by 1 - Spearman's rho, each held-out item a query for all the others.

    Whole rankings also work with few items. A query whose embedding is equally far from all others counts as
    uncorrelated.
    """
    from cml.retrieval.rank_correlation import rank_correlations

    scores = _compare(network, data, ranks)
    rho = rank_correlations(scores, order)[1][order.max(axis=1) > 0]
    return float(1 - np.nan_to_num(rho).mean())


def label_gains(
    data: LabelledItems,  # N held-out items
) -> (
    Float32
):  # (N, N) what an item gains for another one: how much nearer than the farthest it is; NaN for nothing known
    """Turn label distances into gains of nDCG."""
    distances = data.distance.pairwise(data.labels, data.labels)
    mask_own_column(distances, slice(0, len(distances)))
    known = np.isfinite(distances)
    gains = np.where(known, distances[known].max(initial=0) - distances, np.nan)
    if not (np.nanmax(gains, axis=1, initial=0) > 0).any():
        raise UserError(
            "The queries held out for validation cannot be ranked: none has a good document. Raise "
            "validation_fraction, or set evaluate_every to 0."
        )
    return gains


def first_items_score(
    network: Any,  # noqa: ANN401
    data: LabelledItems,  # N held-out items
    *,
    gains: Float32,  # (N, N) from ``label_gains``
    ranks: Ranks,
) -> float:
    """Score a network by 1 - nDCG@10 over the items of which each held-out item knows the gain."""
    rows = np.nanmax(gains, axis=1, initial=0) > 0
    scores, gains = _compare(network, data, ranks)[rows], gains[rows]
    order = np.argsort(np.where(np.isnan(gains), np.inf, scores), axis=1, kind="stable")[:, :_FIRST]
    found = np.nan_to_num(np.take_along_axis(gains, order, axis=1))
    ideal = -np.sort(-np.nan_to_num(gains), axis=1)[:, :_FIRST]
    discounts = 1 / np.log2(np.arange(2, 2 + found.shape[1]))
    return float(1 - ((found @ discounts) / (ideal @ discounts)).mean())


def _compare(network: Any, data: LabelledItems, ranks: Ranks) -> Floating:  # noqa: ANN401
    """The distances (N, N) between the embeddings of held-out items."""
    embeddings = ranks.compute_rows(len(data), lambda rows: network.embed(data.inputs.subset(rows)))
    return embedding_ranker(embeddings, embeddings)(slice(0, len(embeddings)))
