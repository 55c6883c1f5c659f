"""Where tensors live: the accelerator if there is one."""

import torch

from cml.errors import UserError


def pick_device(name: str) -> torch.device:
    """Pick the device to compute on.

    Args:
        name: A device of torch, such as "cpu" or "cuda:1"; "auto" takes an accelerator if there is one.

    Returns:
        The device.

    Raises:
        UserError: the device is not available.
    """
    if name == "auto":
        accelerator = torch.accelerator.current_accelerator(check_available=True)
        return accelerator if accelerator is not None else torch.device("cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device).cpu()  # fails for "meta", which computes nothing
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as error:
        raise UserError(f"The device {name!r} is not available here: {str(error).splitlines()[0]}") from None
    return device
