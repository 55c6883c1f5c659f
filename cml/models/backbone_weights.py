"""Initial weights of a backbone from a file, and the error for weights that it does not have."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import DataError, UserError, did_you_mean
from cml.storage.regular_file import text_path

WEIGHTS_FILES = (".safetensors", ".pth")  # of the second kind, by torch, nothing but tensors is read
_WRAPPED = "network."  # begins the names of weights in a backbone that wraps a network of a package
# Names of classifiers in torchvision, timm and the packaged networks: a file may hold one, a backbone has none.
_CLASSIFIERS = {"fc", "_fc", "classifier", "head", "heads", "head_dist", "aux1", "aux2", "AuxLogits", "last_linear"}


def load_weights_file(module: nn.Module, path: str, name: str) -> None:
    """Load the weights of a backbone from a file, which may hold a classifier too, or from a run."""
    if not Path(path).is_file():
        raise DataError(f"The weights {path} of the backbone {name!r} are missing.")
    weights = _read_tensors(path, name)
    of_run = {key.removeprefix("backbone."): value for key, value in weights.items() if key.startswith("backbone.")}
    if of_run and "head.weight" in weights:
        weights = of_run
    wanted = module.state_dict()
    weights = {
        key: value for key, value in weights.items() if key in wanted or key.partition(".")[0] not in _CLASSIFIERS
    }
    is_wrapped = all(key.startswith(_WRAPPED) for key in wanted)
    if is_wrapped and not any(key.startswith(_WRAPPED) for key in weights):
        weights = {_WRAPPED + key: value for key, value in weights.items()}
    # files of older versions of torch lack these counters; no result depends on them here
    weights = {key: value for key, value in wanted.items() if key.endswith("num_batches_tracked")} | weights
    faults = [f"it lacks {key}" for key in wanted if key not in weights]
    faults += [f"it also has {key}" for key in weights if key not in wanted]
    wrong = [key for key in wanted if key in weights and weights[key].shape != wanted[key].shape]
    faults += [f"{key} has the shape {tuple(weights[key].shape)}, not {tuple(wanted[key].shape)}" for key in wrong]
    if faults:
        more = f"(and {len(faults) - 1} more faults)"
        raise DataError(f"The weights {path} do not fit the backbone {name!r}: {faults[0]} {more}.")
    module.load_state_dict(weights)


def _read_tensors(path: str, name: str) -> dict[str, Tensor]:
    """Read the tensors of a file by their names; code in it is never run."""
    import pickle

    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        with text_path(Path(path)) as named:
            if path.endswith(WEIGHTS_FILES[0]):
                return load_file(named)
            tensors: Any = torch.load(named, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"The weights {path} of the backbone {name!r} are damaged or hold more than weights ({reason})."
        ) from None
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise DataError(f"The weights {path} of the backbone {name!r} must be a dictionary of tensors by their names.")
    return dict(tensors)


def unknown_weights(name: str, weights: str, known: list[str]) -> UserError:
    """Make the error for weights that a backbone does not have."""
    also = f", one of {', '.join(known)}," if known else ""
    return UserError(
        f"The backbone {name!r} has no weights {weights!r}.{did_you_mean(weights, known)} Set weights to 'imagenet', "
        f"'none'{also} or the path of a {WEIGHTS_FILES[0]} file."
    )
