"""Heads beside the linear one: several joined in one, and one in the coordinates of principal components."""

import copy
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


def shorten_head(head: nn.Linear | JoinedHead, dimension: int) -> nn.Linear | JoinedHead:
    """A copy of a head that gives the first dimensions of its embeddings."""
    shorter = copy.deepcopy(head)
    shorter.weight = nn.Parameter(head.weight.detach()[:dimension].clone())
    shorter.bias = nn.Parameter(head.bias.detach()[:dimension].clone())
    shorter.out_features = dimension
    return shorter


class RotatedHead(nn.Module):
    """A linear map of K coordinates of centred features; ``cml.training.head_alone`` makes it."""

    center: Tensor  # (F,), what is subtracted from the features
    axes: Tensor  # (F, K), from centred features to their coordinates

    def __init__(self, center: Tensor, axes: Tensor, weight: Tensor) -> None:  # weight (D, K)
        super().__init__()
        self.in_features, self.out_features = len(axes), len(weight)
        self.register_buffer("center", center)
        self.register_buffer("axes", axes)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(weight.new_zeros(len(weight)))  # (D,), trained; 0 at the start

    def forward(self, features: Tensor) -> Tensor:
        """Embeddings (B, D) of features (B, F)."""
        return functional.linear((features - self.center) @ self.axes, self.weight, self.bias)

    def compose(self) -> nn.Linear:
        """Make the linear map of the features that equals this one."""
        head = nn.Linear(self.in_features, self.out_features, device=self.weight.device)
        with torch.no_grad():
            weight = self.weight.double() @ self.axes.double().T
            head.weight.copy_(weight)
            head.bias.copy_(self.bias.double() - weight @ self.center.double())
        return head
