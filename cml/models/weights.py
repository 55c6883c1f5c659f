"""Weights for a backbone from a user's .safetensors file."""

from pathlib import Path

from torch import nn

from cml.errors import DataError
from cml.storage.atomic import text_path

FILE = ".safetensors"
# Names of classifiers in torchvision, timm and the packaged networks: a file may hold one, a backbone has none.
_CLASSIFIERS = {"fc", "_fc", "classifier", "head", "heads", "head_dist", "aux1", "aux2", "AuxLogits", "last_linear"}


def load_weights(module: nn.Module, path: str, name: str) -> None:
    """Load a file with a backbone's tensors, or the ``model.safetensors`` of a run.

    Args:
        module: The backbone.
        path: The file; tensors of a classifier in it are ignored.
        name: The name of the backbone, for errors.

    Raises:
        DataError: the file is missing or damaged, or its names or shapes do not fit.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if not Path(path).is_file():
        raise DataError(f"The weights {path} of the backbone {name!r} are missing.")
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
    # files of older versions of torch lack these counters; no result depends on them here
    counts = {key: value for key, value in wanted.items() if key.endswith("num_batches_tracked")}
    found = counts | found
    faults = [
        *(f"it lacks {key}" for key in wanted if key not in found),
        *(f"it also has {key}" for key in found if key not in wanted),
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
