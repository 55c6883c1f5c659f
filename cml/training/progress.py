"""The progress of training, for metrics.jsonl and the progress bar."""

import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cml.processes.bar import Bar
from cml.training.config import TrainConfig
from cml.training.metrics_log import METRICS, MetricsLog

LOG_EVERY = 10  # steps whose losses are fetched from the device together


class Progress:
    """The records of a run from the step ``first``, in the folder ``run`` or in memory, and a bar if ``shown``."""

    def __init__(self, config: TrainConfig, first: int, run: Path | None, *, shown: bool) -> None:
        self._log = MetricsLog(None if run is None else run / METRICS, first)
        self._bar = Bar(total=config.steps, initial=first, unit="step", desc=config.loss, disable=not shown)
        self._waiting: list[tuple[int, Tensor]] = []  # for each step (loss, whether the embeddings are finite)
        self._began, self._seen = time.perf_counter(), 0

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records, including those before the run was resumed."""
        return self._log.records

    def step(self, step: int, value: Tensor, embeddings: Tensor) -> None:
        """A step is done, the ``step``-th; its loss and embeddings (B, D) stay on the device for now."""
        self._seen += len(embeddings)
        self._waiting.append((step, torch.stack([value, embeddings.isfinite().all().float()])))
        if step % LOG_EVERY == 0:
            self.catch_up()
        self._bar.update()

    def catch_up(self) -> None:
        """Record the waiting steps.

        Raises:
            FloatingPointError: a loss or an embedding is not finite.
        """
        if not self._waiting:
            return
        pairs = torch.stack([pair for _, pair in self._waiting]).tolist()
        _check_finite(self._waiting[0][0], pairs)
        steps = zip(self._waiting, pairs, strict=True)
        self._log.add([{"step": step, "loss": value} for (step, _), (value, _) in steps])
        self._waiting.clear()
        rate = self._seen / (time.perf_counter() - self._began)
        self._bar.set_postfix_str(f"loss {pairs[-1][0]:.4f}, {rate:.0f} images/s", refresh=False)

    def hand_out(self, record: dict[str, Any]) -> None:
        """Add a record."""
        self._log.add([record])

    def close(self) -> None:
        """Close the bar."""
        self._bar.close()


def _check_finite(first: int, pairs: list[list[float]]) -> None:
    """Stop the run at a loss or an embedding that is not finite, which not every loss shows."""
    for step, (value, finite) in enumerate(pairs, first):
        if not finite or not math.isfinite(value):
            what = f"The loss is {value}" if finite else "The embeddings hold NaN or infinity"
            raise FloatingPointError(
                f"{what} at step {step}: lower the learning_rate or set clip_gradient, then start again."
            )
