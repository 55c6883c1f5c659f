"""The model of a run on the workers of a Dask cluster: ``cml embed RUN ... --scheduler tcp://host:port``."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cml.doors.model import load
from cml.errors import UserError
from cml.models.embedding import EmbeddingModel
from cml.models.weights_fingerprint import model_fingerprint

if TYPE_CHECKING:
    from cml.processes.dask_client import JobWorkers


def connect_workers(address: str, model: EmbeddingModel, run: Path, device: str) -> "JobWorkers":
    """Connect to workers that each load the model of a run, under the same path."""
    from cml.processes.dask_client import JobWorkers

    recipe = {"run": str(run.absolute()), "model": model_fingerprint(model), "device": device}
    return JobWorkers(address, _load_model, recipe)


def _load_model(recipe: Mapping[str, Any]) -> EmbeddingModel:
    """Load the model in a worker."""
    try:
        model = load(recipe["run"], device=recipe["device"]).network.eval()
    except UserError as error:
        raise UserError(f"A worker of the cluster cannot open the run: {error}") from None
    if model_fingerprint(model) != recipe["model"]:
        raise UserError(f"A worker of the cluster has another model in {recipe['run']}: give all the same run folder.")
    return model
