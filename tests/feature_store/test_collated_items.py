"""Features of items of any kind, which a function of one's own joins to batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

import cml
from cml.errors import UserError
from cml.feature_store.stored_items import value_key


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(2, 5, batch_first=True)

    def forward(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        padded, lengths = batch
        last: torch.Tensor = self.layer(padded)[0][torch.arange(len(lengths)), lengths - 1]
        return last


def join(sequences: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return pad_sequence(sequences, batch_first=True), torch.tensor([len(sequence) for sequence in sequences])


@dataclass
class Graph:
    nodes: np.ndarray
    edges: list[tuple[int, int]]


def join_graphs(graphs: list[Graph]) -> list[tuple[float, int]]:
    return [(float(graph.nodes.sum()), len(graph.edges)) for graph in graphs]


@pytest.fixture
def sequences() -> list[torch.Tensor]:
    rng = np.random.default_rng(0)
    return [torch.from_numpy(rng.normal(size=(rng.integers(2, 9), 2)).astype(np.float32)) for _ in range(150)]


def test_a_module_on_sequences(sequences: list[torch.Tensor], tmp_path: Path) -> None:
    module = Recurrent().eval()
    store = cml.features(sequences, backbone=module, collate=join, out=tmp_path / "store", quiet=True)
    with torch.inference_mode():
        slow = np.concatenate([module(join([sequence])).numpy() for sequence in sequences])
    np.testing.assert_allclose(np.asarray(store.rows), slow, atol=1e-6)
    np.testing.assert_array_equal(store.find([sequences[7], sequences[2]]), [7, 2])
    again = cml.features(sequences, backbone=module, collate=join, out=tmp_path / "store", quiet=True)
    assert again.manifest == store.manifest
    with pytest.raises(UserError, match="other weights, code or preprocessing of the same name"):
        cml.features(sequences, backbone=module, collate=lambda part: join(part), out=tmp_path / "store", quiet=True)
    model = cml.fit(store, np.arange(150.0), sampler="random(batch_size=50)", steps=2, workers=0, quiet=True)
    assert model.embed(store.select()).shape == (150, 128)


def test_a_data_set_and_a_function(sequences: list[torch.Tensor], tmp_path: Path) -> None:
    class Pairs(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return len(sequences)

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return sequences[index], index

    def total(batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return batch[0].sum(1)

    store = cml.features(Pairs(), backbone=total, collate=join, out=tmp_path / "store", quiet=True)
    slow = np.stack([sequence.numpy().sum(0) for sequence in sequences])
    np.testing.assert_allclose(np.asarray(store.rows), slow, atol=1e-5)
    fields = [{"signal": sequence, "label": 3} for sequence in sequences[:4]]
    store = cml.features(
        fields, backbone=total, collate=lambda part: join([item["signal"] for item in part]), out=tmp_path / "fields"
    )
    np.testing.assert_allclose(np.asarray(store.rows), slow[:4], atol=1e-5)


def test_graphs_are_known_by_their_content(tmp_path: Path) -> None:
    graphs = [Graph(np.arange(count + 1.0), [(0, 1)] * count) for count in range(6)]
    store = cml.features(graphs, backbone=np.array, collate=join_graphs, out=tmp_path / "graphs", quiet=True)
    np.testing.assert_array_equal(np.asarray(store.rows)[:, 1], np.arange(6))
    np.testing.assert_array_equal(store.find([graphs[3], Graph(np.arange(2.0), [(0, 1)])]), [3, 1])

    class Drawn:
        def to_dict(self) -> dict[str, Any]:
            return {"nodes": np.ones(3)}

    assert value_key(Drawn()) == value_key({"nodes": np.ones(3)})


def test_what_does_not_fit_is_one_line(sequences: list[torch.Tensor], tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"needs a module or function of your own\. Got 'small-cnn' instead"):
        cml.features(sequences, backbone="small-cnn", collate=join, out=tmp_path / "x")
    with pytest.raises(
        UserError, match=r"'collate' fails on a list of 2 inputs of type Tensor, the items 0, 1 \(TypeErr"
    ):
        cml.features(sequences, backbone=Recurrent(), collate=lambda: None, out=tmp_path / "x", quiet=True)
    with pytest.raises(UserError, match="must return a row of numbers for each of 4 items"):
        cml.features(sequences[:4], backbone=lambda _: np.ones((3, 2)), collate=join, out=tmp_path / "y", quiet=True)
    with pytest.raises(UserError, match="There are no items"):
        cml.features([], backbone=lambda batch: batch, collate=join, out=tmp_path / "z", quiet=True)
