"""Weights from a .safetensors file of the user's: into a backbone, if they fit. Not for: published weights."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from cml.errors import DataError
from cml.storage.atomic import text_path

FILE = ".safetensors"
# What classifiers are called in torchvision, timm and the packaged networks: a file may hold one that no backbone has.
_CLASSIFIERS = {"fc", "_fc", "classifier", "head", "heads", "head_dist", "aux1", "aux2", "AuxLogits", "last_linear"}


def load_weights(module: nn.Module, path: str, name: str) -> None:
    """Load a file that holds a backbone's tensors by their names there, or the ``model.safetensors`` of a run.

    Args:
        module: The backbone.
        path: The file; beside the backbone's tensors it may hold a classifier's, which are left out.
        name: What the backbone is called, for errors.

    Raises:
        DataError: the file is missing or damaged, or its names or shapes are another network's.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not Path(path).is_file():
        raise DataError(f"The weights {path} of the backbone {name!r} are not there.")
    try:
        with text_path(Path(path)) as named:
            found = load_file(named)
    except (SafetensorError, OSError) as error:
        raise DataError(f"The weights {path} of the backbone {name!r} are damaged ({error}).") from None
    of_run = {key.removeprefix("backbone."): value for key, value in found.items() if key.startswith("backbone.")}
    if of_run and "head.weight" in found:
        found = of_run
    wanted = module.state_dict()
    found = {key: value for key, value in found.items() if key in wanted or key.partition(".")[0] not in _CLASSIFIERS}
    # counts of batches that files of older versions of torch leave out; no result depends on them here
    counts = {key: value for key, value in wanted.items() if key.endswith("num_batches_tracked")}
    found = counts | found
    faults = [
        *(f"it lacks {key}" for key in wanted if key not in found),
        *(f"it has {key} besides" for key in found if key not in wanted),
        *(
            f"{key} has the shape {tuple(found[key].shape)}, not {tuple(value.shape)}"
            for key, value in wanted.items()
            if key in found and found[key].shape != value.shape
        ),
    ]
    if faults:
        raise DataError(
            f"The weights {path} do not fit the backbone {name!r}: {faults[0]} (and {len(faults) - 1} more faults)."
        )
    module.load_state_dict(found)
