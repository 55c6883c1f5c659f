"""The checkpoint of a run: everything that the next step depends on, and nothing else.

It is what makes a resumed run the run that was never cut off, bit for bit on the CPU. No pickle: it is read with
``weights_only=True``, and what changed on the disk since it was written is noticed by its checksums. Not for: the other
files of a run (run_folder.py).
"""

from __future__ import annotations

import contextlib
import os
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cml.errors import DataError
from cml.losses.loss import Loss
from cml.losses.memory import CrossBatchMemory
from cml.models.embedding import EmbeddingModel
from cml.storage.atomic import atomic_file
from cml.training.validation import Validation

CHECKPOINT = "checkpoints/last.pt"


@dataclass(frozen=True)
class Checkpoint:
    """What a run consists of between two steps, beside torch's random numbers, which belong to it too."""

    model: EmbeddingModel
    loss: Loss
    optimizer: torch.optim.Optimizer
    memory: CrossBatchMemory
    validation: Validation

    def save(self, run: Path | None, step: int) -> None:
        """Write the checkpoint after so many steps, atomically; without a run folder, nothing."""
        if run is None:
            return
        device = self.model.mean.device
        state = {
            "step": step,
            "model": self.model.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "memory": self.memory.state_dict(),
            **self.validation.state_dict(),
            "rng": torch.get_rng_state(),
            "device_rng": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
        }
        with atomic_file(run / CHECKPOINT) as temporary, disk_errors(), temporary.open("wb") as file:
            torch.save(state, file)

    def load(self, run: Path) -> int:
        """Take over a run's checkpoint.

        Returns:
            The step that the run goes on with: 0 if it was cut off before its first checkpoint.

        Raises:
            DataError: the file is damaged, or does not hold what this run needs.
        """
        state = read_checkpoint(run)
        if state is None:
            return 0
        device = self.model.mean.device
        try:
            self.model.load_state_dict(state["model"])
            self.loss.load_state_dict(state["loss"])
            self.optimizer.load_state_dict(state["optimizer"])
            if self.memory.size:
                self.memory.load_state_dict(state["memory"])
            self.validation.load_state_dict(state)
            torch.set_rng_state(state["rng"])
            if state["device_rng"] is not None and device.type == "cuda":
                torch.cuda.set_rng_state(state["device_rng"], device)
            return int(state["step"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise DataError(
                f"The checkpoint {run / CHECKPOINT} does not fit the run ({type(error).__name__}: {str(error)[:200]}); "
                "delete it to start over."
            ) from None


def read_checkpoint(run: Path) -> dict[str, Any] | None:
    """What the checkpoint of a run holds, or None when the run was cut off before its first.

    Raises:
        DataError: the file is damaged: cut short, or not what was written.
    """
    path = run / CHECKPOINT
    if not path.exists():
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            if (part := archive.testzip()) is not None:  # torch.load looks at no checksum
                raise DataError(f"The checksum of {part!r} is wrong")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen types for a damaged file
        why = str(error) if isinstance(error, DataError) else type(error).__name__
        raise DataError(f"The checkpoint {path} is damaged ({why}); delete it to start over.") from None
    return state


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Errors of the disk as such: torch and safetensors hide them in errors of their own."""
    from safetensors import SafetensorError

    try:
        yield
    except (RuntimeError, SafetensorError) as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        if found := re.search(r"\(os error (\d+)\)", str(error)):
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from None
        raise
