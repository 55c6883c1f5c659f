"""Losses by import, and in loops that are not cml's: plain PyTorch and Lightning."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cml
from cml import distances, losses
from cml.errors import UserError
from cml.training.config import TrainConfig

OVER_DISTANCES = {"binary": {"loss": "contrastive", "k": 2}, "binary-triplet": {"k": 2}}


def shapes(items: int = 96) -> tuple[Tensor, Tensor]:
    """Inputs (N, 12) from which the labels (N, 2) can be told."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(items, 2, generator=generator)
    return torch.cat([labels.tanh(), torch.randn(items, 10, generator=generator)], dim=1), labels


def test_ten_lines_of_plain_pytorch() -> None:
    inputs, labels = shapes()
    torch.manual_seed(0)

    network = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
    loss = cml.losses.LogRatioLoss().fit(distances.get("euclidean"), labels.tolist())
    optimizer = torch.optim.Adam([*network.parameters(), *loss.parameters()], lr=0.01)
    values = []
    for _ in range(15):
        for rows in torch.randperm(len(inputs)).split(32):
            value = loss(network(inputs[rows]), torch.cdist(labels[rows], labels[rows]))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            values.append(value.item())

    assert np.mean(values[-3:]) < 0.6 * np.mean(values[:3])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_ten_lines_of_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    import lightning  # takes seconds, of each process that runs tests

    class Embedding(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 4))
            self.loss = losses.LogRatioLoss()
            self.values: list[float] = []

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            inputs, labels = batch
            value: Tensor = self.loss(self.network(inputs), torch.cdist(labels, labels))
            self.values.append(value.item())
            return value

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    torch.manual_seed(0)
    module = Embedding()
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=15, logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=tmp_path, enable_checkpointing=False,
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module, DataLoader(TensorDataset(*shapes()), batch_size=32, shuffle=True))
    said = [str(one.message) for one in caught if "LogRatioLoss" in str(one.message)]
    assert len(said) == 1
    assert np.mean(module.values[-3:]) < 0.6 * np.mean(module.values[:3])
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = Embedding.load_from_checkpoint(tmp_path / "last.ckpt")
    assert again.loss.constants() == module.loss.constants() != {}


AUTOMATIC = {
    **{name: {} for name in ("log-ratio", "relaxed-contrastive", "graded-contrastive", "soft-target", "kernel-supcon")},
    "binary-triplet": {"rule": "threshold", "quantile": 0.3},
    "binary": {"loss": "contrastive", "rule": "threshold", "quantile": 0.3},
}


class Unit(losses.LabelDistanceLoss):
    """A loss of somebody's own, whose constant its own ``forward`` asks for."""

    constant_names = ("unit",)

    def open_constants(self) -> tuple[str, ...]:
        return self.constant_names

    def find_constants(self, label_distances: torch.Tensor) -> dict[str, float]:
        return {"unit": label_distances.median().item()}

    def forward(self, embeddings: torch.Tensor, label_distances: torch.Tensor) -> torch.Tensor:
        return (torch.cdist(embeddings, embeddings) - label_distances / self.constant("unit")).square().mean()


def test_constants_of_a_loss_of_ones_own_come_from_the_first_batch_too() -> None:
    inputs, labels = shapes(24)
    block = torch.cdist(labels, labels)
    with pytest.raises(UserError, match=r"Unit has no 'unit' yet: call loss\.fit\(distance, labels\)"):
        Unit().constant("unit")
    loss = Unit()
    with pytest.warns(RuntimeWarning, match="Unit was not fitted, so it took 'unit' from the first batch") as caught:
        loss(inputs, block)
    assert caught[0].filename == __file__
    assert loss.constants()["unit"] == block[~torch.eye(24, dtype=torch.bool)].median().item()


@pytest.mark.parametrize("name", AUTOMATIC)
@pytest.mark.filterwarnings("ignore:Some anchors:RuntimeWarning")
def test_constants_come_from_the_first_batch_once_with_one_sentence(name: str) -> None:
    inputs, labels = shapes(24)
    loss = losses.get(name, **AUTOMATIC[name])
    block, other = torch.cdist(labels, labels), 3 * torch.cdist(labels, labels)
    with pytest.warns(RuntimeWarning, match="was not fitted") as caught:
        first = loss(inputs, block)
    (said,) = [one for one in caught if "was not fitted" in str(one.message)]
    assert said.filename == __file__  # where the loss was called
    assert str(said.message).count(". ") == 0
    assert "call loss.fit(distance, labels) with the label distance and the labels of the training set" in str(
        said.message
    )
    fitted = loss.constants()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*was not fitted")
        loss(inputs, other)
        assert loss.constants() == fitted
        file = io.BytesIO()
        torch.save(loss.state_dict(), file)
        file.seek(0)
        again = losses.get(name, **AUTOMATIC[name])
        again.load_state_dict(torch.load(file, weights_only=True))
        assert again(inputs, block).item() == first.item()
        known = losses.get(name, **AUTOMATIC[name])
        known.fit(block[~torch.eye(24, dtype=torch.bool)])
        assert known(inputs, block).item() == first.item()


def test_a_bad_first_batch_is_the_usual_error() -> None:
    inputs, labels = shapes(8)
    block = torch.cdist(labels, labels)
    block[3, 1] = torch.nan
    with pytest.raises(UserError, match="Got nan between items 3 and 1"):
        losses.LogRatioLoss()(inputs, block)
    with pytest.raises(UserError, match="one column per embedding"):
        losses.LogRatioLoss()(inputs, block[:, :4])
    with pytest.raises(UserError, match="sample of zeros"):
        losses.LogRatioLoss()(inputs, torch.zeros(8, 8))


def test_several_processes_do_not_each_find_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, labels = shapes(8)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UserError, match=r"Each process would find a different 'label_scale' .* call loss\.fit"):
        losses.SoftTargetLoss()(inputs, torch.cdist(labels, labels))


def test_fit_takes_a_distance_and_labels_as_training_does() -> None:
    places = np.random.default_rng(0).uniform(2, 14, 600)
    distance = distances.get("euclidean")
    block = torch.from_numpy(np.abs(places[:, None] - places)[np.triu_indices(600, 1)])
    for labels in (places, places.tolist(), distance.encode(places.tolist())):
        fitted = losses.SoftTargetLoss().fit(distance, labels).constants()["label_scale"]
        assert fitted == pytest.approx(float(block.median()), rel=0.02)  # 512 of 600
        assert losses.RKDDistanceLoss().fit(distance, labels).constants() == {}
    images = np.random.default_rng(0).integers(0, 255, (600, 16, 16, 3), np.uint8)
    config = TrainConfig(
        backbone="small-cnn", weights="none", image_size=(16, 16), dimension=4, loss="soft-target", steps=1, seed=3,
        sampler="random(batch_size=8)", workers=0,
    )  # fmt: skip
    from cml.data.images import Images
    from cml.items import LabelledItems
    from cml.training.gradient_descent import GradientDescent
    from cml.training.learner import Place

    data = LabelledItems(Images(images, (16, 16)), distance.encode(places.tolist()), distance)
    trained = GradientDescent(config).learn(data, place=Place(quiet=True)).loss.constants()
    assert trained == losses.SoftTargetLoss().fit(distance, places, seed=3).constants()


@pytest.mark.parametrize("given", [("euclidean", None), (distances.get("euclidean"),), ([1.0, 2.0],)])
def test_fit_says_what_it_takes(given: tuple[Any, ...]) -> None:
    with pytest.raises(UserError, match=r"fit takes the label distance, then the labels .* Got \w+ and \w"):
        losses.LogRatioLoss().fit(*given)


def test_proxies_in_ones_own_loop() -> None:
    inputs, labels = shapes()
    classes = (labels[:, 0] > 0).long() + 2 * (labels[:, 1] > 0).long()
    for name in ("ProxyAnchorLoss", "ProxyNCAPlusPlusLoss", "DirectionProxyNCALoss"):
        torch.manual_seed(0)
        network, loss = nn.Linear(12, 8), getattr(losses, name)()
        with pytest.raises(UserError, match=r"call prepare\(classes, dimension=D\) with the class numbers of the"):
            loss(network(inputs), classes)
        loss.prepare(classes, dimension=8)
        optimizer = torch.optim.Adam([*network.parameters(), *loss.parameters()], lr=0.02)
        values = []
        for _ in range(30):
            optimizer.zero_grad()
            value = loss(network(inputs), classes)
            value.backward()
            optimizer.step()
            values.append(value.item())
        assert values[-1] < values[0]
        again = getattr(losses, name)()
        again.prepare(classes, dimension=8)
        again.load_state_dict(loss.state_dict())
        assert again(network(inputs), classes).item() == loss(network(inputs), classes).item()


def test_what_a_class_loss_is_prepared_with() -> None:
    loss = losses.ProxyAnchorLoss()
    for wrong in (torch.rand(5), torch.ones(5, 2, dtype=torch.int64), [0, 1, 2]):
        with pytest.raises(UserError, match=r"prepare takes the class numbers \(N,\) .* torch.int64. Got"):
            loss.prepare(wrong, dimension=4)


def test_every_loss_and_its_function_can_be_imported() -> None:
    tree = ast.parse(Path(losses.__file__).read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    typed = {(name.name, part.module) for part in checked.body for name in part.names}  # type: ignore[attr-defined]
    assert typed == set(losses._HOMES.items())
    assert set(dir(losses)) == set(losses.__all__) == set(losses._HOMES) | {"get", "names", "register", "registry"}
    for name in losses.names():
        kind = losses.registry.entry(name)
        assert isinstance(kind, type)
        assert getattr(losses, kind.__name__) is kind
        module = importlib.import_module(kind.__module__)
        function = f"{kind.__module__.rpartition('.')[2]}_loss"
        if hasattr(module, function):
            assert getattr(losses, function) is getattr(module, function)
            assert function in losses.__all__
    with pytest.raises(AttributeError, match="no attribute 'LogRatio'"):
        _ = losses.LogRatio


def test_importing_losses_imports_no_torch() -> None:
    code = "import sys, cml.losses; cml.losses.names(); dir(cml.losses); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_get_takes_a_text_with_settings() -> None:
    loss = losses.get("log-ratio(label_exponent=1)", weights="uniform")
    assert isinstance(loss, losses.LogRatioLoss)
    assert (loss.label_exponent, loss.weights) == (1, "uniform")


@pytest.mark.parametrize("name", losses.names())
def test_a_loss_shows_its_settings_and_is_made_again_from_them(name: str, tmp_path: Path) -> None:
    loss = losses.get(name, **OVER_DISTANCES.get(name, {}))
    shown = loss.extra_repr()
    required = [key for key, one in inspect.signature(type(loss)).parameters.items() if one.default is not None]
    assert all(f"{key}=" in shown for key in required)
    assert losses.get(f"{name}({shown})").extra_repr() == shown
