"""From the inputs of a batch to the gradient of its loss, in one pass or, with ``micro_batch``, in several."""

import functools
from typing import Any

import torch
from torch import Tensor

from cml.distributed import gradient_cache
from cml.models.backbone_checks import check_rows
from cml.processes.device import to_device
from cml.training.optimizer import check_optimizer
from cml.training.run_randomness import may_draw
from cml.training.training import Training


class Backward:
    """Computes loss, embeddings and gradient of a batch, of which each process has its share."""

    def __init__(self, training: Training) -> None:
        self._training = training
        model = training.model
        # a projector draws nothing
        self.draws = may_draw(model.head if training.config.freeze_backbone else model, training.loss)
        self._is_checked = False

    def __call__(
        self,
        inputs: Any,  # noqa: ANN401
        targets: Tensor,  # the target of the whole batch, such as label distances (A, B), on the device
        step: int,
        count: int,  # B, the items of the whole batch
    ) -> tuple[Tensor, Tensor]:
        """Add the gradient of a batch to the parameters."""
        training, ranks = self._training, self._training.ranks
        precision = training.config.precision
        with training.randomness.lent(self.draws):
            if self.draws:
                ranks.reseed(training.config.seed, step)
            return gradient_cache.backward(
                training.network,
                functools.partial(self._compute_loss, targets=targets, count=count),
                to_device(inputs, ranks.device),
                micro_batch=training.config.micro_batch,
                largest=ranks.largest_share(count),
                cast=lambda: torch.autocast(ranks.device.type, torch.bfloat16, enabled=precision == "bfloat16"),
                draws=self.draws,
            )

    def _compute_loss(self, embeddings: Tensor, targets: Tensor, count: int) -> Tensor:
        """The loss of the embeddings of all processes."""
        training, ranks = self._training, self._training.ranks
        check_rows(len(embeddings), len(range(count)[ranks.share(count)]))
        value = training.criterion(ranks.gather(embeddings, count), targets)
        if not self._is_checked:
            check_optimizer(training.optimizer, value, training.loss, embeddings)
            self._is_checked = True
        return value
