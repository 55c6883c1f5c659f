"""cml: image embeddings whose distances mirror label distances.

``cml.fit`` trains on arrays, ``cml.load`` brings a trained run back, ``cml.TrainConfig`` holds all options. The
pieces are made by name: ``cml.distances.get``, ``cml.losses.get``, ``cml.sampling.get``. Importing cml imports no
torch; what needs it imports it when asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cml.training.arrays import fit as fit
    from cml.training.config import TrainConfig as TrainConfig
    from cml.training.run_folder import load as load

from cml.version import __version__ as __version__

_LAZY = {
    "fit": "cml.training.arrays",
    "load": "cml.training.run_folder",
    "TrainConfig": "cml.training.config",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'cml' has no attribute {name!r}")
