"""Trains on graphs that a function joins, in one process or several, and writes the embeddings: python FILE OUT."""

from __future__ import annotations

import os
import sys

import numpy as np
import torch
from torch import Tensor, nn

import cml


class GraphBatch:
    """Graphs as one: nodes (n, 3), and the number of the graph of each."""

    def __init__(self, graphs: list[Tensor]) -> None:
        self.nodes = torch.cat(graphs)
        self.graph = torch.repeat_interleave(torch.arange(len(graphs)), torch.tensor([len(one) for one in graphs]))
        self.count = len(graphs)

    def to(self, device: torch.device) -> GraphBatch:
        self.nodes, self.graph = self.nodes.to(device), self.graph.to(device)
        return self


class GraphNet(nn.Module):
    """Sums of a linear layer over nodes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 8)

    def forward(self, batch: GraphBatch) -> Tensor:
        return torch.zeros(batch.count, 8).index_add(0, batch.graph, self.layer(batch.nodes))


def main(out: str) -> None:
    """Train, and let the first process write."""
    rng = np.random.default_rng(0)
    levels = np.linspace(0, 1, 40)
    graphs = [torch.from_numpy(level + rng.random((2 + item % 3, 3))).float() for item, level in enumerate(levels)]
    model = cml.fit(
        graphs,
        levels,
        backbone=GraphNet(),
        collate=GraphBatch,
        steps=4,
        evaluate_every=2,
        sampler="random(batch_size=15)",
        workers=0,
        device="cpu",
        quiet=True,
    )
    if os.environ.get("RANK", "0") == "0":
        np.save(out, model.embed(graphs))


if __name__ == "__main__":
    main(sys.argv[1])
