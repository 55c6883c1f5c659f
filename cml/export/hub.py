"""``cml export hub``: a folder to upload or share, with weights, config and model card; ``cml.load`` reads it."""

from pathlib import Path

import torch

from cml.data.dataset_info import DatasetInfo
from cml.data.prepared import PreparedDataset
from cml.errors import DataError
from cml.export.model_card import build_model_card
from cml.export.sentence_folder import write_sentence_folder
from cml.models.embedding import EmbeddingModel
from cml.retrieval.results import Evaluation
from cml.retrieval.saved_calibration import load_calibration, save_calibration
from cml.storage.atomic import atomic_folder
from cml.storage.json_file import read_json, write_json
from cml.training.saved_model import RunConfig, load_model, save_finished


def export_hub(
    run: Path,
    out: Path,
    *,
    name: str = "",
    licence: str = "other",
    data: Path | None = None,
    repository: str = "",  # where the folder will be uploaded, ``user/name``; "" if it is not
    model: EmbeddingModel | None = None,  # the run's model, where it has a module of the user's own; None to load it
) -> list[str]:
    """Write a finished run as a folder to share: weights, calibration, config without local paths, and model card."""
    config = RunConfig.load(run)
    model = load_model(run, config.model, torch.device("cpu")) if model is None else model
    calibration = load_calibration(run, model)
    gaps, info = [], _dataset_info(config, data)
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
    card = build_model_card(name, config, licence=licence, data=info, evaluation=evaluation, place=place)
    # the run's config, so that it loads like a run, without the paths of this machine
    shared = {**read_json(run / "config.json", "the run's config"), "dataset": "", "made_of": {}, "library_name": "cml"}
    for part in ("train", "model"):
        shared[part]["weights"] = Path(shared[part]["weights"]).name
    shared["train"]["features"] = ""
    with atomic_folder(out) as folder:
        save_finished(folder, model)
        write_sentence_folder(folder, model)
        if calibration is not None:
            save_calibration(folder, calibration, model)
        write_json(folder / "config.json", shared)
        (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")
    return gaps


def _dataset_info(config: RunConfig, data: Path | None) -> DatasetInfo | None:
    """dataset.json of the run's dataset; None if that is missing or has changed."""
    folder = data if data is not None else Path(config.dataset) if config.dataset else None
    if folder is None or not folder.is_dir():
        return None
    try:
        dataset = PreparedDataset.open(folder)
        if why := config.other_data(dataset.fingerprint, dataset.made_of):
            raise DataError(f"{folder} is not the dataset that the run was trained on ({why}).")
    except DataError:
        if data is not None:
            raise
        return None
    return dataset.info
