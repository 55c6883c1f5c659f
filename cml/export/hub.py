"""``cml export hub``: a folder to upload or share, with weights, config and model card; ``cml.load`` reads it.

The card says what the model was trained on and with, how to load it, and how well it retrieves.
"""

import html
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cml.data.dataset_info import DatasetInfo
from cml.data.prepared import PreparedDataset
from cml.errors import DataError
from cml.export.sentence_folder import QUERIES, write_routes, write_sentence_folder
from cml.models.embedding import EmbeddingModel
from cml.reporting.visible_text import visible_text
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
    query_model: EmbeddingModel | None = None,  # the same of the queries, where they have a network of their own
) -> list[str]:
    """Write a finished run as a folder to share: weights, calibration, config without local paths, and model card."""
    config = RunConfig.load(run)
    has_two = (run / QUERIES).is_dir()
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
    card = build_model_card(name, config, licence=licence, data=info, evaluation=evaluation, place=place, two=has_two)
    with atomic_folder(out) as folder:
        _share_network(run, folder, model)
        if has_two:
            (folder / QUERIES).mkdir()
            _share_network(run / QUERIES, folder / QUERIES, query_model)
            write_routes(folder)
        (folder / "README.md").write_text(card, encoding="utf-8", newline="\n")
    return gaps


def _share_network(run: Path, folder: Path, model: EmbeddingModel | None) -> None:
    """Write a network with its calibration and config, so that it loads like a run, without paths of this machine."""
    config = RunConfig.load(run)
    model = load_model(run, config.model, torch.device("cpu")) if model is None else model
    calibration = load_calibration(run, model)
    shared = {**read_json(run / "config.json", "the run's config"), "dataset": "", "made_of": {}, "library_name": "cml"}
    for part in ("train", "model"):
        shared[part]["weights"] = Path(shared[part]["weights"]).name
    shared["train"]["features"] = ""
    save_finished(folder, model)
    write_sentence_folder(folder, model)
    if calibration is not None:
        save_calibration(folder, calibration, model)
    write_json(folder / "config.json", shared)


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


_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|~$])")


def build_model_card(
    name: str,
    config: RunConfig,
    *,
    licence: str = "other",
    data: DatasetInfo | None = None,  # what dataset.json says of the training data; None if that is not at hand
    evaluation: Evaluation | None = None,  # the evaluation of the run; None if it was not evaluated
    place: str = "PATH OF THIS FOLDER",
    two: bool = False,  # whether queries have a network of their own
) -> str:
    """Write the README.md of a model: Markdown with a YAML header, as the Hugging Face hub reads it."""
    header: dict[str, Any] = {  # its values are written as JSON, a subset of YAML, so that no text can break its line
        "library_name": "cml",
        "license": licence,
        "pipeline_tag": "image-feature-extraction",
        "tags": ["metric-learning", "image-retrieval", "embeddings", config.task or "arrays"],
    }
    if config.model.inputs.kind != "images":
        header |= {
            "pipeline_tag": "feature-extraction",
            "tags": ["metric-learning", "embeddings", config.task or "arrays"],
        }
    if evaluation is not None and "embedding" in evaluation.rows:
        row = evaluation.rows["embedding"]
        last = {metric.partition("@")[0]: metric for metric in row}  # of each kind the one with the largest K
        result = {
            "task": {"type": header["pipeline_tag"], "name": "retrieval"},
            "dataset": {"type": "cml", "name": visible_text("held-out items" if data is None else data.name, 100)},
            "metrics": [
                {"type": metric, "value": round(row[metric].mean, 6), "name": metric}
                for metric in last.values()
                if math.isfinite(row[metric].mean)
            ],
        }
        header["model-index"] = [{"name": visible_text(name, 100), "results": [result]}]
    model, train = config.model, config.train
    takes_images, form = model.inputs.kind == "images", str(model.inputs)
    example = '["a.jpg", "b.jpg"]' if takes_images else "inputs"
    of_queries = '\nqueries = model.embed(queries, side="queries")' if two else ""
    trunk = "head trained on frozen features" if train.freeze_backbone else "trained as a whole"
    trunk = f"trained by adapters of rank {train.lora}, merged" if train.lora else trunk
    facts = {
        "task": _plain(config.task or "arrays"),
        "label distance": _code(config.label_distance),
        "loss": "chosen on held-out items (tune)"
        if train.tune
        else f"{_code(train.loss)}, batches {_code(train.sampler)}, {train.steps} steps",
        "backbone": f"{_code(model.backbone)}, {trunk}, seed {train.seed}",
        "inputs": "images, {} x {} pixels (height x width)".format(*model.image_size) if takes_images else form,
    }
    if train.decode != "exact":
        facts["decoding in training"] = train.decode
    about_data = "Not stated: the dataset was not available when this folder was made."
    if data is not None:
        facts_of_data = {
            "name": data.name,
            "source": data.source,
            "licence": data.licence,
            "items": ", ".join(f"{data.counts[role]:,} {role}" for role in data.roles if role in data.counts),
            "label": f"{data.label_column} ({data.label_unit})" if data.label_unit else data.label_column,
            "frame": data.frame,
        }
        about_data = _table({key: _plain(text) for key, text in facts_of_data.items() if text})
    results = "Not measured: `cml evaluate` was not run before this folder was made."
    if evaluation is not None:
        known = data is not None and data.queries_are_known
        measured = "Held-out judgements of the training items" if known else "Retrieval on held-out items"
        results = f"{measured}; `embedding` is this model, `oracle` ranks by the labels themselves.\n\n"
        results += html.escape("\n".join(evaluation.table(markdown=True).splitlines()), quote=False)
    values = "\n".join(f"{key}: {json.dumps(value)}" for key, value in header.items())
    return f"""---
{values}
---
# {_plain(name)}

An {"image " if takes_images else ""}embedding of {model.dimension} numbers\
{" of length 1" if model.normalize else ""}, trained with cml so that distances between embeddings mirror distances \
between labels: near items have similar labels.

{_table(facts)}

## How to load it

```python
import cml

model = cml.load({json.dumps(place)})
embeddings = model.embed({example})  # ({2 if takes_images else "N"}, {model.dimension}) float32{of_queries}
```

`cml embed`, `cml index` and `cml export onnx` take this folder as their run.

## Data

{about_data}

## Evaluation

{results}
"""


def _table(facts: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {key} | {text} |" for key, text in facts.items())])


def _plain(text: str) -> str:
    """Text that Markdown and HTML show as it is."""
    return html.escape(_SPECIAL.sub(r"\\\1", visible_text(text, 400)), quote=False)


def _code(text: str) -> str:
    """Text as inline code."""
    shown = visible_text(text, 400).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`"
