"""``cml export onnx``: the model as an ONNX graph, from pixels or vectors to embeddings, checked against torch."""

import copy
import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from cml.data.images import RESIZING, stored_size
from cml.errors import UserError, require_extra
from cml.models.embedding import EmbeddingModel
from cml.storage.atomic import atomic_file, atomic_folder
from cml.storage.json_file import write_json
from cml.version import __version__

LEAST_COSINE, LARGEST_ERROR = 0.99999, 1e-4  # limits of the difference between the graph and torch


@dataclass(frozen=True)
class OnnxExport:
    """The written graph and its difference from torch."""

    path: Path  # file of the graph
    cosine: float  # smallest cosine between the embeddings of the graph and of torch
    error: float  # largest difference between two numbers, relative to the largest number if that is above 1


def export_onnx(
    model: EmbeddingModel,
    out: Path,  # a file, such as model.onnx, with the config beside it in model.json
) -> OnnxExport:
    """Write a model as an ONNX graph, and check it against torch."""
    form = model.config.inputs
    if form.kind != "vectors" and (form.kind != "images" or form.channels != 3):
        raise UserError(f"An ONNX graph is written of models of RGB images or vectors. This one takes {form}.")
    if hasattr(model.backbone, "sentence_transformer"):
        raise UserError("The preprocessing of a model of sentence-transformers is no part of a graph: export its own.")
    model = copy.deepcopy(model).cpu().eval()
    config = describe_preprocessing(model)
    if out.suffix == ".onnx":
        with atomic_file(out) as temporary:
            checked = _write(model, config, temporary)
        write_json(out.with_suffix(".json"), config)
        return OnnxExport(out, *checked)
    with atomic_folder(out) as folder:
        checked = _write(model, config, folder / "model.onnx")
        write_json(folder / "config.json", config)
    return OnnxExport(out / "model.onnx", *checked)


class _Graph(nn.Module):
    """From images (B, H, W, 3) uint8 of the stored size to embeddings (B, D)."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        height, width = self.model.config.image_size
        top, left = (images.shape[1] - height) // 2, (images.shape[2] - width) // 2
        boxes = images[:, top : top + height, left : left + width].permute(0, 3, 1, 2)
        embeddings: Tensor = self.model(boxes)
        return embeddings


class _VectorGraph(nn.Module):
    """From vectors (B, F) float32 to embeddings (B, D)."""

    def __init__(self, model: EmbeddingModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, vectors: Tensor) -> Tensor:
        embeddings: Tensor = self.model(vectors)
        return embeddings


def _write(model: EmbeddingModel, config: dict[str, Any], path: Path) -> tuple[float, float]:
    """Write the graph and compare it with torch: the smallest cosine and the largest difference."""
    with require_extra("onnx", "ONNX"):
        import onnx  # noqa: F401 - torch's exporter needs both, but its message is less readable
        import onnxruntime
        import onnxscript  # noqa: F401
    takes_images = model.config.inputs.kind == "images"
    graph = (_Graph(model) if takes_images else _VectorGraph(model)).eval()
    name = INPUT if takes_images else VECTORS_INPUT
    batches = _image_batches(model) if takes_images else _vector_batches(model)
    with warnings.catch_warnings():  # of torch's exporter about itself
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            graph,
            (torch.from_numpy(batches[-1][:2]),),
            dynamo=True,  # the older exporter cannot pool adaptively
            input_names=[name],
            output_names=[OUTPUT],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            verbose=False,
        )
    if program is None:
        raise UserError("torch's ONNX exporter gave no graph.")
    program.model.metadata_props.update({"cml": json.dumps(config)})
    program.save(str(path), external_data=False)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return _compare(graph, session, name, batches)


def _image_batches(model: EmbeddingModel) -> list[NDArray[Any]]:
    """Batches of several sizes, of noise and of smooth pictures."""
    height, width = stored_size(model.config.image_size, model.config.crop)
    rng = np.random.default_rng(0)
    ramp = np.add.outer(np.linspace(0, 127, height), np.linspace(0, 128, width))
    smooth = np.stack([ramp, ramp[::-1], 255 - ramp], axis=-1).astype(np.uint8)
    plain = [np.full((height, width, 3), value, np.uint8) for value in (0, 255)]
    batches = [rng.integers(0, 256, (count, height, width, 3), np.uint8) for count in (1, 5)]
    batches.append(np.stack([smooth, smooth[:, ::-1], *plain]))
    return batches


def _vector_batches(model: EmbeddingModel) -> list[NDArray[Any]]:
    """Batches of several sizes around the mean of the training vectors, with missing numbers if these are allowed."""
    rng, mean, std = np.random.default_rng(0), model.mean.numpy(), model.std.numpy()
    batches = [
        (mean + scale * std * rng.normal(size=(count, len(mean)))) for count, scale in ((1, 1), (5, 3), (4, 0.1))
    ]
    if model.config.inputs.missing == "mean":
        batches[1][0, 0] = np.nan
    return [batch.astype(np.float32) for batch in batches]


def _compare(
    graph: nn.Module,
    session: Any,  # noqa: ANN401 - of a library that may not be installed
    name: str,
    batches: list[NDArray[Any]],
) -> tuple[float, float]:
    """Least cosine and largest difference between graph and torch over some batches."""
    cosines, errors = [], []
    for batch in batches:
        with torch.inference_mode():
            wanted = graph(torch.from_numpy(batch)).numpy().astype(np.float64)
        got = session.run([OUTPUT], {name: batch})[0].astype(np.float64)
        sizes = np.linalg.norm(wanted, axis=1) * np.linalg.norm(got, axis=1)
        cosines.append(float(((wanted * got).sum(axis=1) / np.maximum(sizes, 1e-30)).min()))
        errors.append(float(np.abs(wanted - got).max() / max(1.0, np.abs(wanted).max())))
    cosine, error = min(cosines), max(errors)
    if not (cosine >= LEAST_COSINE and error <= LARGEST_ERROR):
        raise UserError(
            f"The ONNX graph differs from torch: least cosine {cosine:.6f} (at least {LEAST_COSINE} is asked for), "
            f"largest difference {error:.2g} (at most {LARGEST_ERROR:g}). Nothing was written."
        )
    return cosine, error


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
