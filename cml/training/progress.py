"""What happens in training, as records: the one place that hands them out, to metrics.jsonl and the progress bar.

A record is a step with its loss, or with its validation's score. Not for: how metrics.jsonl is written
(metrics_log.py).
"""

from __future__ import annotations

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
    """The records of a run.

    Args:
        config: Its options.
        first: Step that it goes on with.
        run: The run folder; None keeps the records in memory.
        shown: Whether there is a progress bar.
    """

    def __init__(self, config: TrainConfig, first: int, run: Path | None, *, shown: bool) -> None:
        self._log = MetricsLog(None if run is None else run / METRICS, first)
        loss = config.loss.partition("(")[0]
        self._bar = Bar(total=config.steps, initial=first, unit="step", desc=loss, disable=not shown)
        self._waiting: list[tuple[int, Tensor]] = []  # of each step (loss, whether the embeddings are numbers)
        self._began, self._seen = time.perf_counter(), 0

    @property
    def records(self) -> list[dict[str, Any]]:
        """All that were handed out, those before the run was cut off as well."""
        return self._log.records

    def step(self, step: int, value: Tensor, embeddings: Tensor) -> None:
        """A step is done.

        Args:
            step: How many there were, with this one.
            value: Its loss, which stays on the device for now.
            embeddings: (B, D) of its batch.
        """
        self._seen += len(embeddings)
        self._waiting.append((step, torch.stack([value, embeddings.isfinite().all().float()])))
        if step % LOG_EVERY == 0:
            self.catch_up()
        self._bar.update()

    def catch_up(self) -> None:
        """Hand out the steps that wait.

        Raises:
            FloatingPointError: a loss or an embedding is no number.
        """
        if not self._waiting:
            return
        pairs = torch.stack([pair for _, pair in self._waiting]).tolist()
        _check_finite(self._waiting[0][0], pairs)
        self.hand_out(
            *({"step": step, "loss": value} for (step, _), (value, _) in zip(self._waiting, pairs, strict=True))
        )
        self._waiting.clear()
        rate = self._seen / (time.perf_counter() - self._began)
        self._bar.set_postfix_str(f"loss {pairs[-1][0]:.4f}, {rate:.0f} images/s", refresh=False)

    def hand_out(self, *records: dict[str, Any]) -> None:
        """Give records to all who want them."""
        self._log.add(records)

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.close()


def _check_finite(first: int, pairs: list[list[float]]) -> None:
    """Stop the run at a loss or an embedding that is no number; some losses would not show the latter."""
    for step, (value, finite) in enumerate(pairs, first):
        if not finite or not math.isfinite(value):
            what = f"The loss is {value}" if finite else "The embeddings hold NaN or infinity"
            raise FloatingPointError(
                f"{what} at step {step}: lower the learning_rate or set clip_gradient, then start again."
            )
