"""``cml export hub``: a folder to upload or share, with weights, config and model card; ``cml.load`` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cml.errors import DataError
from cml.export.model_card import model_card
from cml.storage.atomic import atomic_folder, read_json, write_json

if TYPE_CHECKING:
    from cml.data.dataset_info import DatasetInfo
    from cml.training.run_config import RunConfig


def export_hub(
    run: Path, out: Path, *, name: str = "", licence: str = "other", data: Path | None = None, repository: str = ""
) -> list[str]:
    """Write the folder.

    Args:
        run: A finished run folder.
        out: The new folder.
        name: Name of the model on its card; by default that of the run folder.
        licence: Licence of the weights, as an identifier of the hub (``mit``, ``cc-by-4.0``, ..).
        data: The dataset's folder, if it was moved after training; only its dataset.json is read.
        repository: The hub's repository, ``user/name``, for the card.

    Returns:
        One sentence for each gap in the card.

    Raises:
        DataError: the run is not finished or damaged, or its evaluation.json is.
        UserError: ``out`` is taken.
    """
    import torch

    from cml.retrieval.results import Evaluation
    from cml.training.run_config import RunConfig
    from cml.training.run_folder import MODEL, load_model, save_model

    config = RunConfig.load(run)
    model = load_model(run, config.model, torch.device("cpu"))
    gaps = []
    info = _dataset_info(config, data)
    if info is None:
        gaps.append(f"the dataset is not at {data or config.dataset or 'hand (the run was trained on arrays)'}")
    evaluation = None
    if (run / "evaluation.json").exists():
        evaluation = Evaluation.from_json(read_json(run / "evaluation.json", "what 'cml evaluate' found"))
    else:
        gaps.append(f"the run was not evaluated (cml evaluate {run})")
    if licence == "other":
        gaps.append("the weights' licence is not chosen (--licence)")
    place = f"hf:{repository}" if repository else "PATH OF THIS FOLDER"
    name = name or repository.rpartition("/")[2] or run.resolve().name
    card = model_card(name, config, licence=licence, data=info, evaluation=evaluation, place=place)
    # the run's config, so that it loads like a run, without the paths of this machine
    shared = {**read_json(run / "config.json", "the run's config"), "dataset": "", "made_of": {}, "library_name": "cml"}
    for part in ("train", "model"):
        shared[part]["weights"] = Path(shared[part]["weights"]).name
    with atomic_folder(out) as folder:
        save_model(folder / MODEL, model)
        write_json(folder / "config.json", shared)
        (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")
    return gaps


def _dataset_info(config: RunConfig, data: Path | None) -> DatasetInfo | None:
    """dataset.json of the run's dataset; None if that is missing or has changed."""
    from cml.data.prepared import PreparedDataset

    folder = data if data is not None else Path(config.dataset) if config.dataset else None
    if folder is None or not folder.is_dir():
        return None
    try:
        dataset = PreparedDataset.open(folder)
    except DataError:
        if data is not None:
            raise
        return None
    if why := config.other_data(dataset.fingerprint, dataset.made_of):
        if data is not None:
            raise DataError(f"{data} is not the dataset that the run was trained on ({why}).")
        return None
    return dataset.info
