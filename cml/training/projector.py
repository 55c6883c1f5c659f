"""A small network between the embeddings and the loss, which is dropped after training.

Reference: Chen, Kornblith, Norouzi, Hinton: A Simple Framework for Contrastive Learning of Visual Representations,
ICML 2020; Khosla et al.: Supervised Contrastive Learning, NeurIPS 2020.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from cml.array_types import Float32
from cml.data.input_form import Inputs
from cml.errors import UserError
from cml.losses.loss import Loss
from cml.losses.matryoshka import MatryoshkaLoss


class Projector(nn.Module):
    """Linear layers with ReLU between them, from embeddings to what the loss compares."""

    def __init__(self, dimension: int, widths: Sequence[int], loss: Loss) -> None:
        super().__init__()
        if any(isinstance(part, MatryoshkaLoss) for part in loss.modules()):
            raise UserError("The loss 'matryoshka' trains the first numbers of the embedding: leave out 'projector'.")
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise((dimension, *widths)):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.width = widths[-1]  # P
        self.layers = nn.Sequential(*layers[:-1])
        self._normalize = loss.normalize
        if loss.starts_at_zero:
            for parameter in self.layers[-1].parameters():
                nn.init.zeros_(parameter)

    def forward(self, embeddings: Tensor) -> Tensor:
        """Projections (B, P) of embeddings (B, D)."""
        projections: Tensor = self.layers(embeddings)
        return functional.normalize(projections.float(), dim=1) if self._normalize else projections


class ProjectedNetwork(nn.Module):
    """A network whose outputs are projections while it is trained, and embeddings where it is used."""

    def __init__(self, network: Any, projector: Projector) -> None:  # noqa: ANN401 - a torch module with a method embed
        super().__init__()
        self.network = network
        self.projector = projector

    def forward(self, inputs: Any) -> Tensor:  # noqa: ANN401 - as the network takes them
        """Projections (B, P) of inputs."""
        projections: Tensor = self.projector(self.network(inputs))
        return projections

    def embed(self, inputs: Inputs) -> Float32:
        """Embeddings (N, D) of inputs, as the network gives them, in evaluation mode."""
        embeddings: Float32 = self.network.embed(inputs)
        return embeddings
