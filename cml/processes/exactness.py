"""What is given up for speed, by name: exact pixels, and the precision that networks compute in.

Precisions are float32, bfloat16 by autocast, or TF32 of GPUs.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # options of commands are named without torch
    import torch

Decode = Literal["exact", "fast"]  # see cml.data.fast_decoding
Precision = Literal["float32", "bfloat16", "tf32"]


@contextlib.contextmanager
def use_precision(precision: Precision, device: "torch.device") -> Iterator[None]:
    """Let networks compute in a precision within the block."""
    import torch

    is_half = precision == "bfloat16"
    with use_tf32(precision), torch.autocast(device.type, torch.bfloat16) if is_half else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def use_tf32(precision: Precision) -> Iterator[None]:
    """Let GPUs compute in TF32 within the block, forward and backward, if the precision is that."""
    import torch

    settings: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [setting.allow_tf32 for setting in settings]
    try:
        if precision == "tf32":
            for setting in settings:
                setting.allow_tf32 = True
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.allow_tf32 = value
