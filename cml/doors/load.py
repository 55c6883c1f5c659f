"""Opening the model of a run folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from torch import nn

from cml import distances
from cml.data.input_form import Collate
from cml.distances import LabelDistance
from cml.doors.model import Model
from cml.doors.search_model import SearchModel, is_of_search
from cml.errors import UserError
from cml.export.sentence_folder import QUERIES
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel
from cml.processes.device import pick_device
from cml.storage.downloads import names_of_a_run, resolve_run
from cml.training.saved_model import RunConfig, explain_missing_plugins, load_model


def load(
    folder: Path | str,
    *,
    device: str = "auto",
    label_distance: LabelDistance | Callable[[Any, Any], float] | NDArray[Any] | None = None,
    backbone: nn.Module | Backbone | tuple[nn.Module | None, nn.Module | None] | None = None,
    collate: Collate | tuple[Collate | None, Collate | None] | None = None,
    allow_download: bool = False,
) -> Model:
    """Load the trained model of a run folder, or of a folder that ``model.save`` or ``cml export hub`` wrote.

    Args:
        folder: The folder, or ``hf:user/name@revision``, as ``cml.storage.downloads.resolve_run`` takes it.
        device: "auto", "cpu", "cuda" or another device of torch.
        label_distance: The label distance of the run, where it was the user's own and has no registered name; only
            ``evaluate`` needs it.
        backbone: The module that the run was trained with, where that was the user's own; it gets the trained weights.
            Of a model with a network for queries and one for documents, both in this order, None for one of cml's.
        collate: The function that the run joined items to batches with, if it did; of two networks likewise.
        allow_download: Download what the run itself names, such as the model of ``sentences(...)``, if it is not in the
            cache; otherwise that is an error where it is needed. ``hf:user/name`` is downloaded in both cases.

    Returns:
        The model; a ``cml.SearchModel`` of a run that learned from ``cml.Grades``.

    Raises:
        UserError: not a finished run folder, no such device, or the hub has no such model.

    Example:
        >>> model = cml.load("runs/mine")
        >>> model.embed(["photos/0.png", "photos/1.png"]).shape
        (2, 128)
    """
    folder = resolve_run(folder)
    has_two = (folder / QUERIES).is_dir()
    if not has_two and (isinstance(backbone, tuple) or isinstance(collate, tuple)):
        raise UserError(f"{folder} holds one network, so that it takes one 'backbone' and one 'collate'.")
    backbones = backbone if isinstance(backbone, tuple) else (backbone, backbone)
    collates = collate if isinstance(collate, tuple) else (collate, collate)
    common: dict[str, Any] = {"device": device, "label_distance": label_distance, "allow_download": allow_download}
    model = _load(folder, backbone=backbones[1], collate=collates[1], **common)
    if not is_of_search(model.run_config):
        return model
    queries = _load(folder / QUERIES, backbone=backbones[0], collate=collates[0], **common) if has_two else None
    return SearchModel.of(model, queries)


def _load(
    folder: Path,
    *,
    device: str,
    label_distance: LabelDistance | Callable[[Any, Any], float] | NDArray[Any] | None,
    backbone: nn.Module | Backbone | None,
    collate: Collate | None,
    allow_download: bool,
) -> Model:
    """Load one network."""
    run = RunConfig.load(folder)
    with explain_missing_plugins(run, folder):
        with names_of_a_run(allow_download=allow_download):
            network = load_model(folder, run.model, pick_device(device), backbone)
        _check_collate(network, collate)
        network.set_collate(collate)
        own_distance = None if label_distance is None else distances.as_label_distance(label_distance)
        return Model(network, run, own_distance, allow_download=allow_download, history=folder, folder=folder)


def _check_collate(network: EmbeddingModel, collate: Collate | None) -> None:
    """Check that a function that joins items is there for a model of items, and for no other."""
    form = network.config.inputs
    if form.kind == "items" and collate is None:
        raise UserError(
            "The inputs of this model are items that a function of its author's own joins to batches, which was not "
            "saved. Give it: cml.load(path, backbone=module, collate=function)."
        )
    if form.kind != "items" and collate is not None:
        raise UserError(f"The model takes {form}, which need no 'collate': leave it out.")
    if collate is not None and not callable(collate):
        raise UserError(f"'collate' must be a function of a list of inputs. Got {type(collate).__name__} instead.")
