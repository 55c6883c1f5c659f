"""The preprocessing of an ONNX graph: what the caller does to an image, and what the graph does itself."""

from dataclasses import asdict
from typing import Any

from cml.data.augmentation import stored_size
from cml.data.images import RESIZING
from cml.models.embedding import EmbeddingModel
from cml.version import __version__

INPUT, OUTPUT = "images", "embeddings"


def describe_preprocessing(model: EmbeddingModel) -> dict[str, Any]:
    """Describe what a program does to an image before the graph, what the graph does then, and what comes out.

    Args:
        model: The exported model.

    Returns:
        The contents of config.json beside the graph: "input" with the resizing, which is the caller's, "in_the_graph"
        with the centre crop and the normalisation, "output", and the model's own config.
    """
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
