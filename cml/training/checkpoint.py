"""The checkpoint of a run: everything that the next step depends on, and nothing else.

``checkpoints/last.pt`` contains:

- ``step``: steps done;
- ``network``: the weights of the model, and of a projector around it; ``loss``: its weights and constants;
- ``frozen``: the digest of a frozen backbone, whose weights ``network`` leaves out; "" for none;
- ``optimizer``: its momenta, by the number of the parameter;
- ``parts``: the state of each part of the loop by its name (``parts.py``), such as averaged weights;
- ``rng``, ``device_rng``: the run's random state for the CPU and for the GPU.

It makes a resumed run equal to one that was never interrupted, bit for bit on the CPU. It is read without pickle
(``weights_only=True``), and its checksums reveal damage.
"""

import functools
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from msgspec import Meta
from torch import Tensor

from cml.errors import DataError, UserError
from cml.models.weights import weights_fingerprint
from cml.processes.memory import is_out_of_memory
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import open_regular
from cml.storage.saved_options import Count, record
from cml.training import optimizers
from cml.training.parts import Part
from cml.training.training import Training

CHECKPOINT = "checkpoints/last.pt"


@dataclass(frozen=True)
class Checkpoint:
    """What is saved of a training between two steps, torch's random state among it."""

    training: Training
    parts: Sequence[Part]  # the parts of its loop

    def save(
        self,
        run: Path | None,  # the run folder; None writes nothing
        step: int,
    ) -> None:
        """Write the checkpoint, atomically."""
        training = self.training
        weights = training.network.state_dict()
        state = {
            "step": step,
            "network": {name: value for name, value in weights.items() if not self._is_frozen(name)},
            "frozen": self._digest,
            "loss": training.loss.state_dict(),
            "optimizer": training.optimizer.state_dict(),
            "parts": {part.name: dict(part.state_dict()) for part in self.parts},
            **training.randomness.state_dict(),
        }
        if run is None:
            return
        with atomic_file(run / CHECKPOINT) as temporary, temporary.open("wb") as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:  # in which torch hides an error of the disk
                raise error.__context__ if isinstance(error.__context__, OSError) else error from None

    def load(self, run: Path) -> int:
        """Restore the checkpoint of a run."""
        state = read_checkpoint(run)
        if state is None:
            return 0
        try:
            training, own = self.training, self.training.own
            steps = Annotated[int, Meta(ge=0, le=training.config.steps)]
            record(state["step"], steps, "the steps", "those of this run")
            _check_numbers(
                {"network": state["network"], "loss": state["loss"], "optimizer": state["optimizer"]["state"]}
            )
            if state["frozen"] != self._digest:
                raise ValueError("the frozen backbone has other weights")
            weights = training.network.state_dict()
            frozen = {name: value for name, value in weights.items() if self._is_frozen(name)}
            training.network.load_state_dict({**frozen, **state["network"]})
            training.loss.load_state_dict(state["loss"])
            groups = training.optimizer.state_dict()["param_groups"]  # given by the options, which are the same
            if own.optimizer is not None or own.schedule is not None:  # which may keep a state there
                groups = state["optimizer"]["param_groups"]
            if own.optimizer is None:
                self._check_optimizer(state["optimizer"]["state"])
            training.optimizer.load_state_dict({"state": state["optimizer"]["state"], "param_groups": groups})
            for part in self.parts:
                part.load_state_dict(state["parts"][part.name])
            training.randomness.load_state_dict(state)
            return int(state["step"])
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, UserError) as error:
            if is_out_of_memory(error):
                raise
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"The checkpoint {run / CHECKPOINT} does not fit the run ({type(error).__name__}: {reason}); "
                "delete it to start over."
            ) from None

    @functools.cached_property
    def _frozen(self) -> str:
        """What the names of the weights of a frozen backbone begin with; "" for none."""
        if not self.training.config.freeze_backbone:
            return ""
        backbone = self.training.model.backbone
        return next(f"{name}." for name, module in self.training.network.named_modules() if module is backbone)

    def _is_frozen(self, name: str) -> bool:
        return bool(self._frozen) and name.startswith(self._frozen)

    @functools.cached_property
    def _digest(self) -> str:
        return weights_fingerprint(self.training.model.backbone, "") if self._frozen else ""

    def _check_optimizer(self, state: dict[int, dict[str, Tensor]]) -> None:
        """Check what torch uses only later; a ValueError says what does not fit."""
        optimizer = self.training.optimizer
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        names = optimizers.get(self.training.config.optimizer).state
        for number, entry in state.items():
            shape = parameters[record(number, Count, "a parameter", "a number")].shape
            if entry.keys() != names or any(entry[name].shape != ((), shape)[name != "step"] for name in names):
                raise ValueError(f"the optimizer's state of parameter {number} is of another one")


def _check_numbers(tree: Any, name: str = "") -> None:  # noqa: ANN401 - tensors by their names, at any depth
    """Refuse NaN, of which the next step would say that it learned too fast; a ValueError names the tensor."""
    if isinstance(tree, Tensor) and tree.is_floating_point() and tree.isnan().any():
        raise ValueError(f"{name} holds NaN")
    if isinstance(tree, dict):
        for key, value in tree.items():
            _check_numbers(value, f"{name}.{key}".strip("."))


def read_checkpoint(
    run: Path,
) -> dict[str, Any] | None:  # its contents, as the module's text lists them; None if there is none
    """Read the checkpoint of a run."""
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
                # no checksum covers the marks of entries, and of one that is marked as a folder torch reads nothing
                if any(entry.external_attr for entry in archive.infolist()):
                    raise DataError("The entries of its directory differ in form")
            file.seek(0)
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises half a dozen types for a damaged file
        if is_out_of_memory(error):
            raise
        reason = str(error) if isinstance(error, DataError) else type(error).__name__
        raise DataError(f"The checkpoint {path} is damaged ({reason}); delete it to start over.") from None
    return state
