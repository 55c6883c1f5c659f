"""The history of a training run in Python: the loss of each step, and the scores of the validations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from cml.array_types import Float64, Int64
from cml.retrieval import text_table
from cml.training.metrics_log import METRICS, MetricsLog, read_metrics

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class History:
    """Losses and validations of a run, of S steps and V validations.

    It is empty for a model that was not trained in steps (``tune=True``), or whose folder holds no ``metrics.jsonl``.

    Example:
        >>> import numpy as np
        >>> rows = np.random.default_rng(0).normal(size=(60, 3))
        >>> model = cml.fit(rows, rows[:, 0], steps=4, evaluate_every=2, sampler="random(batch_size=20)", quiet=True)
        >>> model.history.steps.tolist(), model.history.validation_steps.tolist()
        ([1, 2, 3, 4], [2, 4])
        >>> model.history.to_pandas().columns.tolist()
        ['step', 'loss', 'validation']
    """

    steps: Int64  # (S,) the steps, counted from 1
    losses: Float64  # (S,) the loss of each step
    validation_steps: Int64  # (V,) the steps after which the model was validated
    validation: Float64  # (V,) the score of each validation, lower is better

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Any]]) -> Self:
        """Collect the records of a run."""
        losses = [(record["step"], record["loss"]) for record in records if "loss" in record]
        scores = [(record["step"], record["validation"]) for record in records if "validation" in record]
        return cls(*_columns(losses), *_columns(scores))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read the history from a run folder, or from a folder that ``model.save`` wrote."""
        path = folder / METRICS
        return cls.of(read_metrics(path) if path.exists() else [])

    def save(self, folder: Path) -> None:
        """Write metrics.jsonl into a folder, unless the history is empty."""
        records = self._records()
        if records:
            MetricsLog(folder / METRICS, 0).add(records)

    def to_dict(self) -> dict[str, list[int] | list[float]]:
        """Give the four attributes by their names, as lists of Python's numbers."""
        return {
            "steps": self.steps.tolist(),
            "losses": self.losses.tolist(),
            "validation_steps": self.validation_steps.tolist(),
            "validation": self.validation.tolist(),
        }

    def to_pandas(self) -> pandas.DataFrame:
        """Give a row per step with its loss, and the score of the validation after it, NaN if there was none."""
        by_step: dict[int, dict[str, float]] = {}
        for record in self._records():
            by_step.setdefault(record["step"], {}).update(record)
        empty = {"step": 0, "loss": np.nan, "validation": np.nan}
        return text_table.frame([{**empty, **by_step[step]} for step in sorted(by_step)], columns=list(empty))

    def _records(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl, in the order of a run: a validation follows its step."""
        losses = [
            {"step": step, "loss": loss} for step, loss in zip(self.steps.tolist(), self.losses.tolist(), strict=True)
        ]
        scores = zip(self.validation_steps.tolist(), self.validation.tolist(), strict=True)
        both = [*losses, *({"step": step, "validation": score} for step, score in scores)]
        return sorted(both, key=lambda record: record["step"])

    def __len__(self) -> int:
        return len(self.steps)

    def __repr__(self) -> str:
        if not len(self):
            return "History(no steps)"
        text = f"{len(self)} steps, loss {self.losses[0]:.4g} to {self.losses[-1]:.4g}"
        if len(self.validation):
            best = int(np.argmin(self.validation))
            text += f", best validation {self.validation[best]:.4g} after step {self.validation_steps[best]}"
        return f"History({text})"


def _columns(pairs: Sequence[tuple[int, float]]) -> tuple[Int64, Float64]:
    """Steps and values as two arrays."""
    return np.array([step for step, _ in pairs], np.int64), np.array([value for _, value in pairs], np.float64)
