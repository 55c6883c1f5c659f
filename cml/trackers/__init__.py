"""Experiment trackers by name: ``cml.trackers.get("wandb(project=poses)")``.

A tracker gets the metrics and images of a run during training, and those of its evaluation later. The run's name
there is derived from its folder, so that a resumed run continues the same entry.
"""

from cml.registry import Registry
from cml.trackers.guarded import GuardedTracker
from cml.trackers.tracker import TrackedRun, Tracker

registry: Registry[Tracker] = Registry(
    "tracker",
    {
        "mlflow": "cml.trackers.mlflow:MLflow",
        "tensorboard": "cml.trackers.tensorboard:TensorBoard",
        "trackio": "cml.trackers.trackio:Trackio",
        "wandb": "cml.trackers.wandb:WandB",
    },
    group="cml.trackers",
)
get = registry.get
names = registry.names
register = registry.register

__all__ = ["GuardedTracker", "TrackedRun", "Tracker", "get", "names", "register", "registry"]
