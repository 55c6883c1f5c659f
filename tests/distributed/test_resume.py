"""Loops of one's own that are cut in the middle of an epoch and continued: the weights of one that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accelerate
import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cml import sampling
from cml.losses import LogRatioLoss

pytestmark = pytest.mark.slow

LABELS = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
INPUTS = torch.cat([LABELS, torch.randn(60, 4, generator=torch.Generator().manual_seed(1))], dim=1)


def make_batches() -> sampling.EpochBatches:
    return sampling.get("random(batch_size=12)").batches("euclidean", LABELS, seed=3)  # five batches an epoch


class Module(lightning.LightningModule):
    """As docs/tutorials/lightning.md says it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.network = nn.Linear(6, 4)
        self.loss = LogRatioLoss().fit("euclidean", LABELS)
        self.batches = make_batches()
        self.seen: list[Tensor] = []

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(INPUTS, LABELS), batch_sampler=self.batches)

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        inputs, labels = batch
        self.seen.append(labels)
        value: Tensor = self.loss(self.network(inputs), torch.cdist(labels, labels))
        return value

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["batches"] = self.batches.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.batches.load_state_dict(checkpoint["batches"])


def train(module: Module, folder: Path, *, every: int = 0, checkpoint: Path | None = None) -> None:
    """Train to step 13, with a checkpoint every few steps."""
    callbacks = [ModelCheckpoint(folder, "{step}", every_n_train_steps=every, save_top_k=-1)] if every else []
    trainer = lightning.Trainer(
        accelerator="cpu", max_steps=13, logger=False, enable_progress_bar=False, enable_model_summary=False,
        enable_checkpointing=bool(every), callbacks=callbacks, default_root_dir=folder,
    )  # fmt: skip
    trainer.fit(module, ckpt_path=checkpoint)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore:.*:UserWarning")
@pytest.mark.parametrize("cut", [3, 5, 7])
def test_lightning_continues_within_an_epoch(cut: int, tmp_path: Path) -> None:
    whole, again = Module(), Module()
    train(whole, tmp_path, every=cut)
    train(again, tmp_path, checkpoint=tmp_path / f"step={cut}.ckpt")
    assert len(whole.seen) == 13
    assert all(torch.equal(one, other) for one, other in zip(again.seen, whole.seen[cut:], strict=True))
    assert torch.equal(again.network.weight, whole.network.weight)


def accelerated(steps: int, *, epoch: int = 0, skip: int = 0, natively: bool = False) -> list[Tensor]:
    """The labels of some steps with a prepared loader, which draws a batch ahead."""
    accelerator, batches = accelerate.Accelerator(cpu=True), make_batches()
    loader: Any = accelerator.prepare(DataLoader(TensorDataset(INPUTS, LABELS), batch_sampler=batches))
    loader.set_epoch(epoch)
    now: Any = loader
    if natively:
        now = accelerator.skip_first_batches(loader, skip)
    else:
        batches.set_epoch(epoch, batch=skip)
    seen: list[Tensor] = []
    while True:
        for _, labels in now:
            seen.append(labels)
            if len(seen) == steps:
                return seen
        now, epoch = loader, epoch + 1
        loader.set_epoch(epoch)


@pytest.mark.parametrize("natively", [False, True])
def test_accelerate_continues_by_the_steps_that_were_trained(natively: bool) -> None:
    whole = accelerated(13)
    assert len({label.sum().item() for label in whole}) == 13
    rest = accelerated(6, epoch=1, skip=2, natively=natively)
    assert all(torch.equal(one, other) for one, other in zip(rest, whole[7:], strict=True))
