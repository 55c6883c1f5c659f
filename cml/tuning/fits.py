"""The fits of a run with ``tune``, kept in its folder until it is finished, so that an interrupted one continues."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from cml.training.linear_map import LinearMap
from cml.training.saved_model import save_tensors

TUNE_FITS = "checkpoints/tune"  # folder of a run


def fit_once(
    folder: Path | None,  # the run folder, whose options and data are those of the fit; None keeps nothing
    name: str,
    fit: Callable[[], dict[str, LinearMap]],
) -> dict[str, LinearMap]:
    """Read a fit from the run folder, or make it and keep it there."""
    if folder is None:
        return fit()
    path = folder / TUNE_FITS / f"{name}.safetensors"
    if kept := _read_fit(path):
        return kept
    maps = fit()
    tensors = {}
    for number, (title, part) in enumerate(maps.items()):
        tensors[f"{number:06} weight {title}"] = torch.from_numpy(np.ascontiguousarray(part.weight))
        tensors[f"{number:06} bias {title}"] = torch.from_numpy(np.ascontiguousarray(part.bias))
        tensors[f"{number:06} normalize {title}"] = torch.tensor(part.normalize)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_tensors(path, tensors)
    return maps


def _read_fit(path: Path) -> dict[str, LinearMap]:
    """The maps of a file; none if it is missing or damaged, so that they are fitted anew."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not path.is_file():
        return {}
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError):
        return {}
    maps = {}
    for key in sorted(key for key in tensors if " weight " in key[:14]):
        number, _, title = key.split(" ", 2)
        bias, normalize = (tensors[f"{number} {part} {title}"] for part in ("bias", "normalize"))
        maps[title] = LinearMap(tensors[key].numpy(), bias.numpy(), bool(normalize))
    return maps
