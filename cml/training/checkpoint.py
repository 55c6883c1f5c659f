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
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor

from cml.errors import DataError, UserError
from cml.losses.loss import Loss
from cml.losses.memory import CrossBatchMemory
from cml.models.embedding import EmbeddingModel
from cml.storage.atomic import atomic_file, open_regular
from cml.storage.saved_options import Count, record
from cml.training.average import Average
from cml.training.validation import Validation

CHECKPOINT = "checkpoints/last.pt"


@dataclass(frozen=True)
class Checkpoint:
    """What a run consists of between two steps, beside torch's random numbers, which belong to it too.

    A file is held against ``steps``, those of the whole run, and ``items``, those that it trains on.
    """

    model: EmbeddingModel
    loss: Loss
    optimizer: torch.optim.Optimizer
    memory: CrossBatchMemory
    average: Average
    validation: Validation
    steps: int
    items: int

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
            "average": self.average.state_dict(),
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
            self._check(state)
            self.model.load_state_dict(state["model"])
            self.loss.load_state_dict(state["loss"])
            groups = self.optimizer.state_dict()["param_groups"]  # the options say it, and they are the same
            self.optimizer.load_state_dict({"state": state["optimizer"]["state"], "param_groups": groups})
            if self.memory.size:
                self.memory.load_state_dict(state["memory"])
            self.average.load_state_dict(state.get("average", {}))
            self.validation.load_state_dict(state)
            torch.set_rng_state(state["rng"])
            if state["device_rng"] is not None and device.type == "cuda":
                torch.cuda.set_rng_state(state["device_rng"], device)
            return int(state["step"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, UserError) as error:
            why = " ".join(str(error).split())[:200]
            raise DataError(
                f"The checkpoint {run / CHECKPOINT} does not fit the run ({type(error).__name__}: {why}); "
                "delete it to start over."
            ) from None

    def _check(self, state: dict[str, Any]) -> None:
        """Look at what is used only later: ValueError or UserError says what does not fit."""
        numbers = {name: state[name] for name in ("step", "best_step", "waited")}
        record(numbers, dict[str, Annotated[int, Meta(ge=0, le=self.steps)]], "a number of steps", "one of this run")
        record({name: state[name] for name in ("best", "worst")}, dict[str, float], "a score", "a number")
        if state["best_weights"] is not None and not _is_like(state["best_weights"], self.model.state_dict()):
            raise ValueError("the best weights are of another model")
        if not _is_like(state.get("average", {}), self.average.state_dict()):
            raise ValueError("the average is of another model")
        stored = state["memory"]["items"], state["memory"]["embeddings"]
        fits = stored[0].dtype == torch.int64 and stored[0].ndim == 1 and len(stored[0]) <= self.memory.size
        if len(stored[0]) and not (
            fits
            and stored[1].shape == (len(stored[0]), self.model.config.dimension)
            and 0 <= stored[0].min() <= stored[0].max() < self.items
        ):
            raise ValueError("the memory is not of these items")
        parameters = [one for group in self.optimizer.param_groups for one in group["params"]]
        names = (
            {"momentum_buffer"} if isinstance(self.optimizer, torch.optim.SGD) else {"step", "exp_avg", "exp_avg_sq"}
        )
        for number, entry in state["optimizer"]["state"].items():
            shape = parameters[record(number, Count, "a parameter", "a number")].shape
            if entry.keys() != names or any(entry[name].shape != ((), shape)[name != "step"] for name in names):
                raise ValueError(f"the optimizer's state of parameter {number} is of another one")


def _is_like(found: object, model: dict[str, Tensor]) -> bool:
    """Whether tensors by name are such as a model's."""
    if not isinstance(found, dict) or found.keys() != model.keys():
        return False
    return all(isinstance(one, Tensor) and one.shape == model[name].shape for name, one in found.items())


def read_checkpoint(run: Path) -> dict[str, Any] | None:
    """What the checkpoint of a run holds, or None when the run was cut off before its first.

    Raises:
        DataError: the file is damaged: cut short, or not what was written.
    """
    path = run / CHECKPOINT
    if not path.exists():
        return None
    try:
        with open_regular(path) as file:
            with zipfile.ZipFile(file) as archive:
                if (part := archive.testzip()) is not None:  # torch.load looks at no checksum
                    raise DataError(f"The checksum of {part!r} is wrong")
            file.seek(0)
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
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
