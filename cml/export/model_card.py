"""The README.md of a shared model: its training, data and evaluation, and how to load it.

Every text from data is quoted or escaped, since a card is rendered as a web page.
"""

from __future__ import annotations

import html
import json
import math
import re
from typing import TYPE_CHECKING, Any

from cml.reporting.visible_text import visible_text

if TYPE_CHECKING:
    from cml.data.dataset_info import DatasetInfo
    from cml.retrieval.results import Evaluation
    from cml.training.run_config import RunConfig

_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|~$])")


def model_card(
    name: str,
    config: RunConfig,
    *,
    licence: str = "other",
    data: DatasetInfo | None = None,
    evaluation: Evaluation | None = None,
    place: str = "PATH OF THIS FOLDER",
) -> str:
    """The card as Markdown with a YAML header.

    Args:
        name: Name of the model.
        config: The run's config.
        licence: Licence of the weights, as an identifier of the hub.
        data: dataset.json of the dataset; None if it is missing or there was none.
        evaluation: The result of ``cml evaluate``; None if it was not run.
        place: The argument of ``cml.load``.
    """
    model, train = config.model, config.train
    height, width = model.image_size
    unit = " of length 1" if model.normalize else ""
    trunk = "head trained on frozen features" if train.freeze_backbone else "trained as a whole"
    trunk = f"trained by adapters of rank {train.lora}, merged" if train.lora else trunk
    lines = [
        _header(name, config, licence, data, evaluation),
        f"# {_plain(name)}",
        "",
        f"An image embedding of {model.dimension} numbers{unit}, trained with cml so "
        "that distances between embeddings mirror distances between labels: near images have similar labels.",
        "",
        "| | |",
        "|---|---|",
        f"| task | {_plain(config.task or 'arrays')} |",
        f"| label distance | {_code(config.label_distance)} |",
        f"| loss | {_code(train.loss)}, batches {_code(train.sampler)} |",
        f"| backbone | {_code(model.backbone)}, {trunk}, {train.steps} steps, seed {train.seed} |",
        f"| images | {height} x {width} pixels (height x width) |",
        "",
        "## How to load it",
        "",
        "```python",
        "import cml",
        "",
        f"model = cml.load({json.dumps(place)})",
        'embeddings = model.embed(["a.jpg", "b.jpg"])  # (2, ' + str(model.dimension) + ") float32",
        "```",
        "",
        "`cml embed`, `cml index` and `cml export onnx` take this folder as their run.",
        "",
        "## Data",
        "",
        *_data(data),
        "",
        "## Evaluation",
        "",
        *_evaluation(evaluation),
    ]
    return "\n".join(lines) + "\n"


def _header(name: str, config: RunConfig, licence: str, data: DatasetInfo | None, evaluation: Evaluation | None) -> str:
    """The YAML header; values are JSON, a subset of YAML, so that no text can break its line."""
    values: dict[str, Any] = {
        "library_name": "cml",
        "license": licence,
        "pipeline_tag": "image-feature-extraction",
        "tags": ["metric-learning", "image-retrieval", "embeddings", config.task or "arrays"],
    }
    if evaluation is not None and "embedding" in evaluation.rows:
        source = {"type": "cml", "name": visible_text(data.name if data is not None else "held-out items", 100)}
        row = evaluation.rows["embedding"]
        last = {metric.partition("@")[0]: metric for metric in row}  # of each kind the one with the largest K
        metrics = [
            {"type": metric, "value": round(row[metric].mean, 6), "name": metric}
            for metric in last.values()
            if math.isfinite(row[metric].mean)
        ]
        task = {"type": "image-feature-extraction", "name": "retrieval"}
        values["model-index"] = [
            {"name": visible_text(name, 100), "results": [{"task": task, "dataset": source, "metrics": metrics}]}
        ]
    return "\n".join(["---", *(f"{key}: {json.dumps(value)}" for key, value in values.items()), "---"])


def _data(data: DatasetInfo | None) -> list[str]:
    if data is None:
        return ["Not stated: the dataset was not available when this folder was made."]
    counts = ", ".join(f"{data.counts[role]:,} {role}" for role in data.roles if role in data.counts)
    facts = {
        "name": data.name,
        "source": data.source,
        "licence": data.licence,
        "items": counts,
        "label": f"{data.label_column} ({data.label_unit})" if data.label_unit else data.label_column,
        "frame": data.frame,
    }
    return ["| | |", "|---|---|", *(f"| {key} | {_plain(text)} |" for key, text in facts.items() if text)]


def _evaluation(evaluation: Evaluation | None) -> list[str]:
    if evaluation is None:
        return ["Not measured: `cml evaluate` was not run before this folder was made."]
    return [
        "Retrieval on held-out items; `embedding` is this model, `oracle` ranks by the labels themselves.",
        "",
        *(html.escape(line, quote=False) for line in evaluation.table(markdown=True).splitlines()),
    ]


def _plain(text: str) -> str:
    """Text that Markdown and HTML show as it is."""
    return html.escape(_SPECIAL.sub(r"\\\1", visible_text(text, 400)), quote=False)


def _code(text: str) -> str:
    """Text as inline code."""
    shown = visible_text(text, 400).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`"
