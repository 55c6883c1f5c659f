"""The base of the losses over label vectors, of which regression.py is one."""

from __future__ import annotations

import torch
from torch import Tensor

from cml.losses.loss import LabelSource, Loss


class VectorLoss(Loss):
    """Base of the losses over label vectors: ``loss(embeddings (B, D), vectors (B, V)) -> scalar``."""

    labels = "vectors"

    def target(self, batch: LabelSource) -> Tensor:
        """The label vectors (B, V) float32, in their own unit."""
        return torch.from_numpy(batch.vectors())

    def forward(self, embeddings: Tensor, vectors: Tensor) -> Tensor:
        """The loss of a batch, in at least float32: embeddings (B, D), vectors (B, V) in their own unit."""
        raise NotImplementedError
