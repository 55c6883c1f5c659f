"""Validation on held-out training items, never on queries or gallery: it selects weights and may end a run early."""

import contextlib
import copy
import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from cml.models.embedding import EmbeddingModel
from cml.processes.ranks import Ranks
from cml.training.config import TrainConfig
from cml.training.early_stopping import EarlyStopping
from cml.training.held_out_score import held_out_score, label_order
from cml.training.seeded_randomness import seeded_randomness
from cml.training.training_data import TrainingData

Score = Callable[[Any, TrainingData], float]  # of a network, a model or its head on features; lower is better
_NUMBERS = ("best", "best_step", "worst", "waited")


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
        stopping: The course of the scores.
        best_weights: State dict of the model at the best validation; None before the first.

    Raises:
        UserError: The labels of the held-out data cannot be ranked.
    """

    def __init__(
        self,
        model: EmbeddingModel,
        network: Any,  # noqa: ANN401 - a torch module with a method embed
        held_out: TrainingData,
        config: TrainConfig,
        ranks: Ranks,
        score: Score | None = None,
    ) -> None:
        self._model = model
        self._network = network
        self._held_out = held_out
        self._config = config
        self._ranks = ranks
        if score is None and config.evaluate_every:
            order = ranks.broadcast(lambda: label_order(held_out))
            score = functools.partial(held_out_score, order=order, ranks=ranks)
        self._score = score
        self.stopping = EarlyStopping(config.patience)
        self.best_weights: dict[str, Tensor] | None = None

    def is_due(self, step: int) -> bool:
        """Whether the run is validated after ``step`` steps."""
        return self._config.evaluate_every > 0 and step % self._config.evaluate_every == 0

    def record(self, step: int) -> dict[str, Any]:
        """Validate the network, and keep its weights if they are the best so far.

        Args:
            step: Steps done so far.

        Returns:
            The record for metrics.jsonl.
        """
        assert self._score is not None  # evaluate_every is set
        with contextlib.ExitStack() as stack:
            if self._held_out.inputs.reads_anew:  # all validations see the same augmentation
                stack.enter_context(seeded_randomness(self._config.seed, self._ranks.rank))
            own = self._score(self._network.eval(), self._held_out)
        score = self._ranks.broadcast(lambda: own)
        self._network.train()
        if self.stopping.update(score, step):
            self.best_weights = copy.deepcopy(self._model.state_dict())
        return {"step": step, "validation": score}

    def take_best(self, last: int) -> str:
        """Restore the best weights, if validations differed.

        Args:
            last: Steps that the run has done.

        Returns:
            Which step's weights the model has, and why; "" if the run was not validated.
        """
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
        """Restore a ``state_dict``.

        Args:
            state: The state; further entries are ignored.
        """
        for name in _NUMBERS:
            setattr(self.stopping, name, state[name])
        self.best_weights = state["best_weights"]
