"""The preprocessing of an ONNX graph: what the caller does to an image, and what the graph does itself."""

from dataclasses import asdict
from typing import Any

from cml.data.images import RESIZING, stored_size
from cml.models.embedding import EmbeddingModel
from cml.version import __version__

INPUT, OUTPUT = "images", "embeddings"
VECTORS_INPUT = "vectors"


def describe_preprocessing(model: EmbeddingModel) -> dict[str, Any]:
    """Describe what a program does to an image before the graph, what the graph does then, and what comes out."""
    if model.config.inputs.kind == "vectors":
        return _describe_standardization(model)
    height, width = stored_size(model.config.image_size, model.config.crop)
    pillow = f"image.resize(({width}, {height}), Image.Resampling.BILINEAR)"
    shape, normalized = ["batch", model.config.dimension], model.config.normalize
    return {
        "cml": __version__,
        "input": {
            "name": INPUT,
            "type": "uint8",
            "shape": ["batch", height, width, 3],
            "meaning": "RGB pixels 0..255, rows first, upright, transparent parts on white, 16 bits divided by 257",
            "decode": "at full size: JPEG files without a draft, which gives other pixels",
            "resize": {"height": height, "width": width, "how": RESIZING, "pillow": pillow},
        },
        "in_the_graph": {
            "centre_box": list(model.config.image_size),
            "mean": [round(value, 6) for value in model.mean.flatten().tolist()],
            "std": [round(value, 6) for value in model.std.flatten().tolist()],
        },
        "output": {"name": OUTPUT, "type": "float32", "shape": shape, "distance": "L2", "normalized": normalized},
        "model": asdict(model.config),
    }


def _describe_standardization(model: EmbeddingModel) -> dict[str, Any]:
    """The description for a model of vectors, whose graph standardises them."""
    form = model.config.inputs
    missing = "NaN is taken for the mean of its column" if form.missing == "mean" else "none may be missing"
    return {
        "cml": __version__,
        "input": {
            "name": VECTORS_INPUT,
            "type": "float32",
            "shape": ["batch", *form.shape],
            "meaning": f"the numbers of each item as they were given at training; {missing}",
            "columns": list(form.columns),
        },
        "in_the_graph": {"mean": model.mean.tolist(), "std": model.std.tolist()},
        "output": {
            "name": OUTPUT,
            "type": "float32",
            "shape": ["batch", model.config.dimension],
            "distance": "L2",
            "normalized": model.config.normalize,
        },
        "model": asdict(model.config),
    }
