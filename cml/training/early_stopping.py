"""Early stopping: the best validation so far, and whether a run has waited too long for a better one."""

import math
from dataclasses import dataclass


@dataclass
class EarlyStopping:
    """The course of a run's validation scores, of which lower ones are better.

    Attributes:
        patience: Validations without a better score after which the run ends; 0 for never.
        best: The best score so far.
        best_step: The step of that score.
        worst: The worst score so far.
        waited: Validations since the best one.

    Example:
        >>> stopping = EarlyStopping(patience=2)
        >>> [stopping.update(score, step) for step, score in enumerate([0.5, 0.3, 0.4, 0.6])]
        [True, True, False, False]
        >>> stopping.is_due, stopping.best_step
        (True, 1)
    """

    patience: int
    best: float = math.inf
    best_step: int = 0
    worst: float = -math.inf
    waited: int = 0

    def update(self, score: float, step: int) -> bool:
        """Record a validation.

        Args:
            score: Its score, lower is better.
            step: Steps done so far.

        Returns:
            Whether it is the best one so far.
        """
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
