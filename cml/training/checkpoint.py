"""The checkpoint of a run: everything that the next step depends on, and nothing else.

``checkpoints/last.pt`` contains:

- ``step``: steps done;
- ``model``, ``projector``, ``loss``: their weights and constants;
- ``optimizer``: its momenta, by the number of the parameter;
- ``rates``: the state of a scheduler of the user's own;
- ``memory``: embeddings and items of earlier batches;
- ``average``: the averaged weights, with ``ema_decay``;
- ``best``, ``best_step``, ``worst``, ``waited``, ``best_weights``: the course of validation;
- ``rng``, ``device_rng``: the run's random state for the CPU and for the GPU.

It makes a resumed run equal to one that was never interrupted, bit for bit on the CPU. It is read without pickle
(``weights_only=True``), and its checksums reveal damage.
"""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor

from cml.errors import DataError, UserError
from cml.losses.cross_batch_memory import CrossBatchMemory
from cml.losses.loss import Loss
from cml.models.embedding import EmbeddingModel
from cml.processes.out_of_memory import is_out_of_memory
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import open_regular
from cml.storage.saved_options import Count, record
from cml.training.averaged_weights import AveragedWeights
from cml.training.learning_rate import LearningRates
from cml.training.projector import Projector
from cml.training.run_randomness import RunRandomness
from cml.training.validation import Validation

CHECKPOINT = "checkpoints/last.pt"


@dataclass(frozen=True)
class Checkpoint:
    """The parts of a run whose state is saved between two steps, torch's random state among them.

    Attributes:
        model: The model.
        loss: The loss.
        optimizer: The optimiser.
        memory: The memory of earlier embeddings.
        average: The averaged weights.
        validation: The course of validation.
        randomness: torch's random state of the run.
        steps: Steps of the whole run, against which a file is checked.
        items: Number of training items, likewise.
        projector: The projector, if there is one.
        rates: The learning rates, which a scheduler of the user's own may set.
        is_own_optimizer: Whether the optimiser is of the user's own, whose state may be of any kind.
        is_own_schedule: Whether its groups are changed by a scheduler of the user's own.
    """

    model: EmbeddingModel
    loss: Loss
    optimizer: torch.optim.Optimizer
    memory: CrossBatchMemory
    average: AveragedWeights
    validation: Validation
    randomness: RunRandomness
    steps: int
    items: int
    projector: Projector | None = None
    rates: LearningRates | None = None
    is_own_optimizer: bool = False
    is_own_schedule: bool = False

    def save(self, run: Path | None, step: int) -> None:
        """Write the checkpoint, atomically.

        Args:
            run: The run folder; None writes nothing.
            step: Steps done so far.

        Raises:
            OSError: The disk is full or refuses the file.
        """
        if run is None:
            return
        state = {
            "step": step,
            "model": self.model.state_dict(),
            "projector": {} if self.projector is None else self.projector.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rates": {} if self.rates is None else self.rates.state_dict(),
            "memory": self.memory.state_dict(),
            "average": self.average.state_dict(),
            **self.validation.state_dict(),
            **self.randomness.state_dict(),
        }
        with atomic_file(run / CHECKPOINT) as temporary, temporary.open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # in which torch hides an error of the disk
                raise error.__context__ if isinstance(error.__context__, OSError) else error from None

    def load(self, run: Path) -> int:
        """Restore the checkpoint of a run.

        Args:
            run: The run folder.

        Returns:
            The step to continue with: 0 if there is no checkpoint.

        Raises:
            DataError: The file is damaged, or does not fit this run.
        """
        state = read_checkpoint(run)
        if state is None:
            return 0
        try:
            self._check(state)
            self.model.load_state_dict(state["model"])
            if self.projector is not None:
                self.projector.load_state_dict(state["projector"])
            self.loss.load_state_dict(state["loss"])
            groups = self.optimizer.state_dict()["param_groups"]  # given by the options, which are the same
            if self.is_own_optimizer or self.is_own_schedule:  # which may keep a state there
                groups = state["optimizer"]["param_groups"]
            self.optimizer.load_state_dict({"state": state["optimizer"]["state"], "param_groups": groups})
            if self.rates is not None:
                self.rates.load_state_dict(state.get("rates", {}))
            if self.memory.size:
                self.memory.load_state_dict(state["memory"])
            self.average.load_state_dict(state.get("average", {}))
            self.validation.load_state_dict(state)
            self.randomness.load_state_dict(state)
            return int(state["step"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, UserError) as error:
            if is_out_of_memory(error):
                raise
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"The checkpoint {run / CHECKPOINT} does not fit the run ({type(error).__name__}: {reason}); "
                "delete it to start over."
            ) from None

    def _check(self, state: dict[str, Any]) -> None:
        """Check what is used only later; a ValueError or UserError says what does not fit."""
        numbers = {name: state[name] for name in ("step", "best_step", "waited")}
        record(numbers, dict[str, Annotated[int, Meta(ge=0, le=self.steps)]], "a number of steps", "one of this run")
        record({name: state[name] for name in ("best", "worst")}, dict[str, float], "a score", "a number")
        if state["best_weights"] is not None and not _is_like(state["best_weights"], self.model.state_dict()):
            raise ValueError("the best weights are of another model")
        if not _is_like(state.get("average", {}), self.average.state_dict()):
            raise ValueError("the average is of another model")
        items, embeddings = state["memory"]["items"], state["memory"]["embeddings"]
        fits = items.dtype == torch.int64 and items.ndim == 1 and len(items) <= self.memory.size
        width = self.model.config.dimension if self.projector is None else self.projector.width
        fits = fits and embeddings.shape == (len(items), width)
        if len(items) and not (fits and 0 <= items.min() <= items.max() < self.items):
            raise ValueError("the memory is not of these items")
        if self.is_own_optimizer:
            return
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        is_sgd = isinstance(self.optimizer, torch.optim.SGD)
        names = {"momentum_buffer"} if is_sgd else {"step", "exp_avg", "exp_avg_sq"}
        for number, entry in state["optimizer"]["state"].items():
            shape = parameters[record(number, Count, "a parameter", "a number")].shape
            if entry.keys() != names or any(entry[name].shape != ((), shape)[name != "step"] for name in names):
                raise ValueError(f"the optimizer's state of parameter {number} is of another one")


def read_checkpoint(run: Path) -> dict[str, Any] | None:
    """Read the checkpoint of a run.

    Args:
        run: The run folder.

    Returns:
        Its contents, as the module's text lists them; None if there is none.

    Raises:
        DataError: The file is damaged.
    """
    path = run / CHECKPOINT
    if not path.exists():
        return None
    try:
        with open_regular(path) as file:
            with zipfile.ZipFile(file) as archive:
                unpacked = sum(entry.file_size for entry in archive.infolist())
                if unpacked > path.stat().st_size:  # torch packs nothing
                    raise DataError(f"It unpacks to {unpacked:,} bytes, more than its own size")
                damaged = archive.testzip()  # torch.load checks no checksum
                if damaged is not None:
                    raise DataError(f"The checksum of {damaged!r} is wrong")
            file.seek(0)
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen types for a damaged file
        if is_out_of_memory(error):
            raise
        reason = str(error) if isinstance(error, DataError) else type(error).__name__
        raise DataError(f"The checkpoint {path} is damaged ({reason}); delete it to start over.") from None
    return state


def _is_like(state: object, model: dict[str, Tensor]) -> bool:
    """Whether ``state`` holds tensors with a model's names and shapes."""
    if not isinstance(state, dict) or state.keys() != model.keys():
        return False
    return all(isinstance(tensor, Tensor) and tensor.shape == model[name].shape for name, tensor in state.items())
