"""Where tensors live: the accelerator if there is one."""

from typing import Any

import numpy as np
import torch

from cml.errors import UserError


def pick_device(name: str) -> torch.device:
    """Pick the device to compute on."""
    if name == "auto":
        available = {"cuda": torch.cuda, "xpu": torch.xpu, "mps": torch.backends.mps}  # ROCm calls itself cuda
        kinds = (kind for kind, backend in available.items() if backend.is_available())
        return torch.device(next(kinds, "cpu"))
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()  # fails for "meta", which computes nothing
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
        raise UserError(f"The device {name!r} is not available here: {str(error).splitlines()[0]}") from None
    return device


def has_float64(device: torch.device) -> bool:
    """Whether a device computes in float64, which those of Apple and some of Intel do not."""
    if device.type == "xpu":
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type != "mps"


def device_of_float64(device: torch.device) -> torch.device:
    """The device itself, or the processor, where the device has no float64."""
    return device if has_float64(device) else torch.device("cpu")


def to_device(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 - a batch of any kind
    """Move a batch to a device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, np.ndarray):
        return torch.from_numpy(batch).to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        parts = [to_device(value, device) for value in batch]
        if hasattr(batch, "_fields"):  # a named tuple
            return type(batch)(*parts)
        return tuple(parts) if isinstance(batch, tuple) else parts
    return batch.to(device) if hasattr(batch, "to") else batch


def pin_batch(batch: Any, device: torch.device) -> Any:  # noqa: ANN401 - a batch of any kind
    """Put arrays for a CUDA device into pinned memory, from which they are copied while it computes."""
    if device.type != "cuda" or not isinstance(batch, np.ndarray):
        return batch
    return torch.from_numpy(batch).pin_memory()


def check_batch_size(
    device: torch.device,
    batch_size: int | None,  # images per forward pass; None for the default of the device
    threads: int,
    on_gpu: int,
    on_cpu: int,
) -> int:
    """Check the number of images per forward pass, or choose it."""
    if batch_size is None:
        batch_size = on_cpu if device.type == "cpu" else on_gpu
    if batch_size < 1 or threads < 1:
        raise UserError(f"'batch_size' and 'threads' must be 1 or more. Got {batch_size} and {threads} instead.")
    return batch_size
