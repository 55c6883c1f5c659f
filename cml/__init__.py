"""cml: image embeddings whose distances mirror label distances.

``cml.fit`` trains on your images and labels, ``cml.load`` brings a trained model back, ``cml.open_run`` opens a run to
evaluate and draw it. ``cml.prepare``, ``cml.open_dataset``, ``cml.train`` and ``cml.compare`` work on prepared datasets
as the command line does. The parts are made by name, ``cml.losses.get("log-ratio")``, or by class,
``cml.losses.LogRatioLoss()``. Importing cml imports no torch; what needs it imports it when asked for.
"""

import importlib
from typing import TYPE_CHECKING, Any

from cml.version import __version__

if TYPE_CHECKING:
    from cml import distances, losses, models, retrieval, sampling, sklearn, trackers
    from cml.data.prepared import open_dataset
    from cml.errors import UserError
    from cml.plugins import load as load_plugin
    from cml.runs.compare import compare
    from cml.runs.model import Model, load
    from cml.runs.prepare import prepare
    from cml.runs.run import Run, open_run
    from cml.runs.train import fit, train
    from cml.training.callbacks import Callback
    from cml.training.config import TrainConfig

_LAZY = {
    "Callback": "cml.training.callbacks",
    "Model": "cml.runs.model",
    "Run": "cml.runs.run",
    "TrainConfig": "cml.training.config",
    "UserError": "cml.errors",
    "compare": "cml.runs.compare",
    "fit": "cml.runs.train",
    "load": "cml.runs.model",
    "load_plugin": "cml.plugins:load",
    "open_dataset": "cml.data.prepared",
    "open_run": "cml.runs.run",
    "prepare": "cml.runs.prepare",
    "train": "cml.runs.train",
}
_MODULES = ("distances", "losses", "models", "retrieval", "sampling", "sklearn", "trackers")

__all__ = ["Callback", "Model", "Run", "TrainConfig", "UserError", "__version__", "compare", "distances", "fit", "load"]
__all__ += [
    "load_plugin",
    "losses",
    "models",
    "open_dataset",
    "open_run",
    "prepare",
    "retrieval",
    "sampling",
    "sklearn",
]
__all__ += ["trackers", "train"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    if name in _MODULES:
        return importlib.import_module(f"cml.{name}")
    if name in _LAZY:
        module, _, attribute = _LAZY[name].partition(":")
        return getattr(importlib.import_module(module), attribute or name)
    raise AttributeError(f"module 'cml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
