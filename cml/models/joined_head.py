"""A head that joins several linear maps of the features, of which each may be L2-normalised by itself."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class JoinedHead(nn.Module):
    """Embeddings that lie side by side, and a linear map of them; ``cml.tuning.tune`` makes it.

    ``weight``: (D, E) of the last map.

    ``bias``: (D,).
    """

    is_unit: Tensor  # (P,) bool, which of the P embeddings are L2-normalised

    def __init__(self, features: int, parts: Sequence[int], dimension: int) -> None:
        super().__init__()
        self._sizes = list(parts)
        self.in_features, self.out_features = features, dimension
        self.parts = nn.Linear(features, sum(parts))
        self.register_buffer("is_unit", torch.ones(len(parts), dtype=torch.bool))
        last = nn.Linear(sum(parts), dimension)
        self.weight, self.bias = last.weight, last.bias

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of features (B, F)."""
        embeddings = torch.split(self.parts(features), self._sizes, dim=1)
        units = [
            torch.where(is_unit, functional.normalize(rows, dim=1), rows)
            for rows, is_unit in zip(embeddings, self.is_unit, strict=True)
        ]
        return functional.linear(torch.cat(units, dim=1), self.weight, self.bias)
