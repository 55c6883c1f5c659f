"""Two networks, one for queries and one for documents, trained as one: their features stand in columns of their own.

The head on top of columns (queries, documents, 1 for a document) is a linear map for each side, so that after training
the network comes apart into two embedding models, each of which is like any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cml.array_types import Int64
from cml.data.augmentation import center_box
from cml.data.images import Images, Size
from cml.data.input_form import Inputs
from cml.models.embedding import EmbeddingModel
from cml.processes.device import to_device


@dataclass(frozen=True)
class SideBatch:
    """A batch of B queries and documents: those of either side, and which are documents."""

    queries: Any  # what the network of the queries takes; None where there are none
    documents: Any
    is_document: Tensor  # (B,) bool

    def to(self, device: torch.device) -> SideBatch:
        """Move the batch to a device."""
        queries, documents = (
            part if part is None else to_device(part, device) for part in (self.queries, self.documents)
        )
        return SideBatch(queries, documents, self.is_document.to(device))


@dataclass(frozen=True)
class SideReader:
    """Reads a batch of both sides by the numbers of its items: 0 to Q - 1 are queries, further ones documents."""

    queries: Inputs
    documents: Inputs
    image_size: Size  # (height, width) of the centre box of images, which are not augmented

    def __call__(self, items: list[int]) -> SideBatch:
        """Read some items."""
        numbers = np.asarray(items)
        is_document = numbers >= len(self.queries)
        parts = (
            self._read(self.queries, numbers[~is_document]),
            self._read(self.documents, numbers[is_document] - len(self.queries)),
        )
        return SideBatch(*parts, torch.from_numpy(is_document))

    def _read(self, inputs: Inputs, rows: Int64) -> Any:  # noqa: ANN401 - a tensor, or a batch of any kind
        if not len(rows):
            return None
        batch = inputs.read(rows)
        if isinstance(inputs, Images):
            return center_box(batch, self.image_size)
        return torch.from_numpy(batch) if isinstance(batch, np.ndarray) else batch


class Towers(nn.Module):
    """The networks of both sides, as the backbone of one model."""

    def __init__(self, queries: EmbeddingModel, documents: EmbeddingModel) -> None:
        super().__init__()
        self.queries, self.documents = queries, documents
        for tower in (queries, documents):
            tower.head.requires_grad_(False)
        self.widths = queries.head.in_features, documents.head.in_features
        self.features = sum(self.widths) + 1

    def forward(self, batch: SideBatch) -> Tensor:
        """Compute the features (B, F) of a batch."""
        is_document = batch.is_document
        features = torch.zeros(len(is_document), self.features, device=is_document.device)
        if batch.queries is not None:
            features[~is_document, : self.widths[0]] = self.queries.features(batch.queries).float()
        if batch.documents is not None:
            features[is_document, self.widths[0] : -1] = self.documents.features(batch.documents).float()
        features[:, -1] = is_document.float()
        return features

    def split(self, head: nn.Linear, *, normalize: bool) -> tuple[EmbeddingModel, EmbeddingModel]:
        """Take the trained networks apart: each gets its part of the head."""
        weight, bias, first = head.weight.detach(), head.bias.detach(), self.widths[0]
        parts = (weight[:, :first], bias), (weight[:, first:-1], bias + weight[:, -1])
        for tower, (own, shift) in zip((self.queries, self.documents), parts, strict=True):
            tower.head = nn.Linear(own.shape[1], head.out_features, device=own.device)
            with torch.no_grad():
                tower.head.weight.copy_(own)
                tower.head.bias.copy_(shift)
            tower.config = replace(tower.config, normalize=normalize, dimension=head.out_features)
            tower.eval()
        return self.queries, self.documents
