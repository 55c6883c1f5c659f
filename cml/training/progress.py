"""The progress of training, for metrics.jsonl and the progress bar."""

import math
import time

import torch
from torch import Tensor

from cml.console.progress_bar import ProgressBar
from cml.training.config import TrainConfig
from cml.training.metrics_log import MetricsLog

LOG_EVERY = 10  # steps whose losses are fetched from the device together


class Progress:
    """The losses of the steps, which are recorded together, and a progress bar."""

    def __init__(self, config: TrainConfig, first: int, log: MetricsLog, *, shown: bool) -> None:
        self._log = log
        self.bar = ProgressBar(total=config.steps, initial=first, unit="step", desc=config.loss, disable=not shown)
        self._waiting: list[tuple[int, Tensor]] = []  # for each step (loss, whether the embeddings are finite)
        self._began = time.perf_counter()
        self._images = 0

    def step(
        self,
        step: int,
        value: Tensor,
        embeddings: Tensor,  # (B, D)
    ) -> None:
        """Count a step, whose loss and embeddings stay on the device for now."""
        self._images += len(embeddings)
        self._waiting.append((step, torch.stack([value, embeddings.isfinite().all().float()])))
        if step % LOG_EVERY == 0:
            self.catch_up()
        self.bar.update()

    def catch_up(self) -> None:
        """Record the waiting steps."""
        if not self._waiting:
            return
        pairs = torch.stack([pair for _, pair in self._waiting]).tolist()
        _check_finite(self._waiting[0][0], pairs)
        steps = zip(self._waiting, pairs, strict=True)
        self._log.add([{"step": step, "loss": value} for (step, _), (value, _) in steps])
        self._waiting.clear()
        rate = self._images / (time.perf_counter() - self._began)
        self.bar.set_postfix_str(f"loss {pairs[-1][0]:.4f}, {rate:.0f} items/s", refresh=False)


def _check_finite(first: int, pairs: list[list[float]]) -> None:
    for step, (value, is_finite) in enumerate(pairs, first):
        if not is_finite or not math.isfinite(value):
            fault = f"The loss is {value}" if is_finite else "The embeddings hold NaN or infinity"
            raise FloatingPointError(
                f"{fault} at step {step}: lower the learning_rate or set clip_gradient, then start again."
            )
