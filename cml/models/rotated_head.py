"""A linear head that is trained on principal components of the features, and then composed to one of the features."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class RotatedHead(nn.Module):
    """A linear map of K coordinates of centred features; ``cml.training.head_start`` makes it."""

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
