"""The model card of a shared model: what it was trained on and with, how to load it, and how well it retrieves."""

import html
import json
import math
import re
from collections.abc import Mapping
from typing import Any

from cml.data.dataset_info import DatasetInfo
from cml.reporting.visible_text import visible_text
from cml.retrieval.results import Evaluation
from cml.training.saved_model import RunConfig

_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|~$])")


def build_model_card(
    name: str,
    config: RunConfig,
    *,
    licence: str = "other",
    data: DatasetInfo | None = None,  # what dataset.json says of the training data; None if that is not at hand
    evaluation: Evaluation | None = None,  # the evaluation of the run; None if it was not evaluated
    place: str = "PATH OF THIS FOLDER",
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
embeddings = model.embed({example})  # ({2 if takes_images else "N"}, {model.dimension}) float32
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
