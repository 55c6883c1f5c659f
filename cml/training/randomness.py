"""torch's random numbers of a run: its own, so that training neither reads nor moves those of the process.

The first weights come from the run's own generator. What torch draws in C++ (dropout, the random augmentation of
torchvision v2) knows the process's global generators only: they hold the run's state while the network runs, and get
theirs back after each step. Such runs in several threads take turns there. Another thread that draws at that moment
still moves them: with dropout, a run repeats bit for bit only if no other thread draws.
A data set of the user's own draws, as for augmentation, by seed, step and process.
"""

import contextlib
import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.processes.own_generator import draw_from

_NO_DRAWS = ("cml.", "pytorch_metric_learning.")  # packages whose modules draw nothing when they are called
_TORCH_NO_DRAWS = (
    *("batchnorm", "container", "conv", "distance", "flatten", "instancenorm", "linear", "loss", "module"),
    *("normalization", "padding", "pixelshuffle", "pooling", "sparse", "upsampling"),
)
_ACTIVATIONS_THAT_DRAW = (nn.RReLU, nn.MultiheadAttention)


class RunRandomness:
    """The random state of a run."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._on_cpu = torch.Generator().manual_seed(seed)
        self._device = device
        self._on_device = None if device.type == "cpu" else torch.Generator(device).manual_seed(seed)

    @contextlib.contextmanager
    def initializing(self) -> Iterator[None]:
        """Draw first weights from the run's generator in the block."""
        state = self._on_cpu.clone_state()
        with self.lent(), draw_from(state):
            yield
        self._on_cpu = state

    @contextlib.contextmanager
    def lent(
        self,
        needed: bool = True,  # False does nothing
    ) -> Iterator[None]:
        """Give the process's global generators the run's state in the block."""
        if not needed:
            yield
            return
        with take_turns():
            before = torch.get_rng_state(), self._global_device_state()
            self._set_global(self._on_cpu.get_state(), None if self._on_device is None else self._on_device.get_state())
            try:
                yield
            finally:
                self._on_cpu.set_state(torch.get_rng_state())
                own = self._global_device_state()
                if self._on_device is not None and own is not None:
                    self._on_device.set_state(own)
                self._set_global(*before)

    def state_dict(self) -> dict[str, Tensor | None]:
        """The state for a checkpoint: ``rng`` of the CPU, ``device_rng`` of a GPU."""
        on_device = self._on_device if self._device.type == "cuda" else None
        return {"rng": self._on_cpu.get_state(), "device_rng": None if on_device is None else on_device.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a ``state_dict``; further entries are ignored."""
        self._on_cpu.set_state(state["rng"])
        if state["device_rng"] is not None and self._on_device is not None and self._device.type == "cuda":
            self._on_device.set_state(state["device_rng"])

    def _global_device_state(self) -> Tensor | None:
        if self._device.type == "cuda":
            return torch.cuda.get_rng_state(self._device)
        return torch.mps.get_rng_state() if self._device.type == "mps" else None

    def _set_global(self, on_cpu: Tensor, on_device: Tensor | None) -> None:
        torch.set_rng_state(on_cpu)
        if on_device is not None and self._device.type == "cuda":
            torch.cuda.set_rng_state(on_device, self._device)
        elif on_device is not None and self._device.type == "mps":
            torch.mps.set_rng_state(on_device)


def may_draw(
    *modules: nn.Module,
) -> bool:  # False if all parts are layers of torch and cml that draw none; True for what is not known
    """Whether modules may draw random numbers when they are called, as dropout does."""
    return any(_may_draw(part) for module in modules for part in module.modules())


def _may_draw(module: nn.Module) -> bool:
    home = type(module).__module__
    if home == "torch.nn.modules.activation":
        return isinstance(module, _ACTIVATIONS_THAT_DRAW)
    return not home.startswith(_NO_DRAWS) and home not in {f"torch.nn.modules.{name}" for name in _TORCH_NO_DRAWS}


WORDS = 4  # random numbers that seed all generators

_lock = threading.RLock()


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread that is not in the fork may hold it
    os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def take_turns() -> Iterator[None]:
    """Let one thread at a time set and restore the process's global generators."""
    with _lock:
        yield


@contextlib.contextmanager
def seeded_randomness(*key: int) -> Iterator[None]:
    """Seed the global generators of Python, NumPy and torch in the block, and restore them after it.

    So the same seed gives the same augmentation, for any number of data workers and after a continued run. Generators
    that a data set has made for itself are its own affair.
    """
    with restore_randomness():
        seed_generators(np.random.SeedSequence(key).generate_state(WORDS))
        yield


def seed_generators(
    words: NDArray[np.unsignedinteger],  # (WORDS,) random numbers of a ``SeedSequence``
) -> None:
    """Seed the global generators of Python, NumPy and torch."""
    numbers = words.tolist()
    random.seed(numbers[0])
    np.random.seed(numbers[1])  # noqa: NPY002
    torch.default_generator.manual_seed(numbers[2] << 32 | numbers[3])


@contextlib.contextmanager
def restore_randomness() -> Iterator[None]:
    """Restore the global generators of Python, NumPy and torch after the block; one thread at a time is in it."""
    with take_turns(), _restore_generators():
        yield


@contextlib.contextmanager
def _restore_generators() -> Iterator[None]:
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002 - data sets still use it
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        torch.set_rng_state(states[2])
