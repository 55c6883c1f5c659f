"""A full memory is told as such, whichever library notices it, and blamed on nothing else."""

from __future__ import annotations

import errno
import importlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

import cml
from cml.cli import main
from cml.errors import MachineError
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.processes.memory import is_out_of_memory
from cml.training.checkpoint import CHECKPOINT, read_checkpoint
from cml.training.data_workers import prefetch, shutdown_workers

FULL = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to .."),
    RuntimeError("[enforce fail] data. DefaultCPUAllocator: not enough memory: you tried to allocate 8 bytes."),
    RuntimeError("could not create a primitive"),
    RuntimeError("could not execute a primitive"),
    RuntimeError("could not create a memory object"),
    RuntimeError("std::bad_alloc"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
]
NOT_FULL = [
    RuntimeError("could not create a primitive descriptor for a matmul primitive"),  # of shapes that do not fit
    RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    ImportError("libgomp.so.1: cannot allocate memory in static TLS block"),  # the order of imports
    OSError(errno.ENOSPC, "No space left on device"),
    ValueError("out of memory"),  # not how a library says it
]


@pytest.mark.parametrize("error", FULL, ids=repr)
def test_a_command_tells_it_in_one_line_with_a_remedy(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(arguments: Sequence[str]) -> None:
        raise error

    monkeypatch.setattr(importlib.import_module("cml.commands.losses"), "run", fail)
    assert main(["losses"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: The memory is full (")
    assert line.endswith("Take smaller batches or images, fewer threads or workers, or a machine with more.")


@pytest.mark.parametrize("error", NOT_FULL, ids=repr)
def test_other_errors_are_not_taken_for_it(error: Exception) -> None:
    assert not is_out_of_memory(error)


class Full(torch.nn.Module):
    """A backbone for which there is memory up to 4 pixels."""

    features = 4

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if images.shape[-1] > 4:
            raise RuntimeError("could not create a primitive")
        return images.mean((2, 3)) @ torch.ones(3, 4)


def test_it_is_not_blamed_on_the_size_of_images() -> None:
    config = ModelConfig("custom", "none", 2, True, (8, 8))
    model = EmbeddingModel(config, backbone=Full())
    with pytest.raises(RuntimeError, match="could not create a primitive"):
        model(torch.zeros(2, 3, 8, 8))


def test_it_is_not_blamed_on_a_loss_of_ones_own() -> None:
    class Big(torch.nn.Module):
        def forward(self, embeddings: torch.Tensor, label_distances: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("std::bad_alloc")

    levels = np.linspace(0, 255, 40).round()
    images = np.tile(levels[:, None, None, None], (1, 16, 16, 3)).astype(np.uint8)
    with pytest.raises(RuntimeError, match="bad_alloc"):
        cml.fit(
            images, levels, loss=Big(), backbone="small-cnn", weights="none", image_size=(16, 16), steps=1,
            sampler="random(batch_size=16)", workers=0, device="cpu", quiet=True,
        )  # fmt: skip


def test_it_is_not_blamed_on_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / CHECKPOINT).parent.mkdir(exist_ok=True)
    torch.save({}, tmp_path / CHECKPOINT)

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(RuntimeError, match="can't allocate memory"):  # not "damaged; delete it"
        read_checkpoint(tmp_path)


class FullSource(torch.utils.data.Dataset[int]):
    """Batches for which there is no memory."""

    def __getitem__(self, step: int) -> int:
        raise RuntimeError("std::bad_alloc")


@pytest.mark.parametrize("workers", [0, 1])
def test_it_is_told_by_data_workers(workers: int) -> None:
    with pytest.raises(MachineError, match="The memory was full when the batch of step 0"), shutdown_workers():
        next(prefetch(FullSource(), range(2), workers=workers, timeout=60))
