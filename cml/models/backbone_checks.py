"""Checks of what a backbone accepts and returns, by a pass over blank inputs."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cml.errors import DataError, UserError, did_you_mean
from cml.processes.device import to_device
from cml.processes.memory import is_out_of_memory
from cml.storage.regular_file import text_path

LARGEST_TRIED = 384  # pixels; the largest default size of a torchvision classifier


def check_features(out: object, name: str, features: int | None = None) -> Tensor:
    """Check that the output of a backbone is (B, F)."""
    subject = f"The backbone {name!r} gives"
    if not isinstance(out, Tensor):
        raise UserError(f"{subject} a {type(out).__name__}: let its forward return one tensor of features (B, F).")
    if out.ndim == 2 and out.is_floating_point() and out.shape[1] == (features or max(1, out.shape[1])):
        return out
    mend = "let it return one row of floats per input"
    if out.ndim in (3, 4):
        pool = "pool its map, as in nn.Sequential(module, nn.AdaptiveAvgPool2d(1), nn.Flatten())"
        mend = pool if out.ndim == 4 else "take one token per input, or the mean of the tokens"
    kind = str(out.dtype).removeprefix("torch.")
    raise UserError(f"{subject} {kind} {tuple(out.shape)} instead of features (B, {features or 'F'}): {mend}.")


def first_line(error: Exception) -> str:
    """Take the first line of an error's message, without its details."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".:")


def least_side(
    module: nn.Module,
    size: tuple[int, int],  # (height, width) in pixels that it should accept
    channels: int = 3,
) -> int | None:  # their side in pixels; None if it accepts ``size``, or none that is tried
    """Try out which square images are the smallest that a backbone accepts."""

    def takes(height: int, width: int) -> bool:
        try:
            embed_blank(module, (channels, height, width))
        except (RuntimeError, AssertionError) as error:  # vision transformers assert
            if is_out_of_memory(error):
                raise
            return False
        return True

    return None if takes(*size) else next((side for side in range(1, LARGEST_TRIED + 1) if takes(side, side)), None)


def check_rows(rows: int, items: int) -> None:  # rows: the rows of features or embeddings
    """Check that a batch has a row for each of its items."""
    if rows != items:
        raise UserError(
            f"A batch of {items} items gives {rows} rows of features: let 'collate' keep each item once, in its order, "
            "and the backbone return one row for each."
        )


def describe_batch(batch: Any) -> str:  # noqa: ANN401 - a batch of any kind
    """Describe a batch in messages."""
    if isinstance(batch, Tensor):
        return f"inputs of shape {tuple(batch.shape)}"
    values = list(batch.values()) if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else []
    shapes = [str(tuple(value.shape)) for value in values[:4] if isinstance(value, Tensor)]
    return f"a batch of type {type(batch).__name__}" + (f" with tensors {', '.join(shapes)}" if shapes else "")


@torch.no_grad()  # not in inference mode: some modules keep tensors of their first pass
def embed_batch(
    module: nn.Module,
    batch: Any,  # noqa: ANN401 - a batch of any kind
) -> object:  # what it returns, in evaluation mode and without a graph
    """Run a backbone on a batch."""
    first = next(module.parameters(), torch.zeros(()))
    with evaluating(module):
        return module(to_device(batch, first.device))


@torch.no_grad()  # not in inference mode: some modules keep tensors of their first pass
def embed_blank(
    module: nn.Module,
    shape: tuple[int, ...],  # the shape of an input: (3, height, width) for an image
    *,
    whole: bool = False,  # whether inputs are whole numbers, as int64
) -> object:  # what it returns, in evaluation mode and without a graph
    """Run a backbone on two blank inputs."""
    first = next(module.parameters(), torch.zeros(()))
    with evaluating(module):
        return module(torch.zeros(2, *shape, device=first.device, dtype=torch.int64 if whole else first.dtype))


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into evaluation mode for the block, then back into its former mode."""
    training = module.training
    try:
        module.eval()
        yield
    finally:
        module.train(training)


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
