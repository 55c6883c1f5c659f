"""The models of a run folder: weights as safetensors, with a checksum that reveals damage."""

import hashlib
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from cml.errors import DataError
from cml.models import Backbone
from cml.models.embedding import EmbeddingModel, ModelConfig
from cml.storage.atomic import atomic_file
from cml.storage.regular_file import text_path

MODEL = "model.safetensors"
KEPT = "checkpoints/step-{}.safetensors"  # the models that keep_models keeps
_CHECKSUM = "sha256"  # in the metadata of a safetensors file, whose format has no checksum
_RENEW = "Delete it and write it again from the last checkpoint: cml train TASK --out {run} --resume."


def save_model(path: Path, model: EmbeddingModel) -> None:
    """Write the weights of a model, atomically."""
    save_tensors(path, model.state_dict())


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by their names as safetensors, atomically."""
    from safetensors.torch import save

    # copies: safetensors refuses tensors that share memory
    state = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    with atomic_file(path) as temporary:
        temporary.write_bytes(save(state, {_CHECKSUM: _checksum(state)}))


def kept_models(run: Path) -> dict[int, str]:
    """List the models that were kept during training."""
    steps = (path.stem.removeprefix("step-") for path in run.glob(KEPT.format("*")))
    return {step: KEPT.format(step) for step in sorted(int(step) for step in steps if step.isdecimal())}


def load_model(
    run: Path,
    config: ModelConfig,
    device: torch.device,
    backbone: nn.Module | Backbone | None = None,
    *,
    file_name: str = MODEL,
) -> EmbeddingModel:
    """Load a trained model of a run."""
    from safetensors import SafetensorError, safe_open

    path = run / file_name
    if not path.is_file():
        raise DataError(
            f"{path} is missing: the run is not finished. Continue it: cml train TASK --out {run} --resume, or a run "
            "of cml.fit by the same call with resume=True."
        )
    try:
        with text_path(path) as name, safe_open(name, "pt") as file:
            checksum = (file.metadata() or {}).get(_CHECKSUM)
            # checked before a network of the size in the config is made
            head = file.get_slice("head.weight").get_shape() if "head.weight" in file.keys() else []  # noqa: SIM118
            if head[:1] != [config.dimension]:
                raise RuntimeError(f"head.weight has the shape {head}, the config the dimension {config.dimension}.")
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118
            if backbone is None:
                _check_shapes(config, shapes)
            weights: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except RuntimeError as error:
        raise DataError(f"{path} does not fit the run's config: {error}") from None
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is damaged ({error}). {_RENEW.format(run=run)}") from None
    if checksum is not None and checksum != _checksum(weights):
        raise DataError(f"{path} is damaged: its checksum is wrong. {_RENEW.format(run=run)}")
    try:
        first = "head.parts.weight" if config.parts else "head.weight"
        features = shapes[first][1] if config.inputs.kind == "items" else None
        model = EmbeddingModel(config, pretrained=False, backbone=backbone, features=features)
        model.load_state_dict(weights)
    except RuntimeError as error:
        lines = str(error).splitlines()
        raise DataError(f"{path} does not fit the run's config: {' '.join(lines[:2])[:300]}") from None
    return model.to(device).eval()


def _check_shapes(config: ModelConfig, shapes: Mapping[str, list[int]]) -> None:
    """Compare with the network of a config, made without memory: a config of a few bytes may ask for gigabytes."""
    try:
        with torch.device("meta"), warnings.catch_warnings(action="ignore"):
            wanted = EmbeddingModel(config, pretrained=False).state_dict()
    except Exception:  # a network that needs memory to be made: its shapes are compared when it is
        return
    for name, tensor in wanted.items():
        if name not in shapes:
            raise RuntimeError(f"it lacks {name}.")
        if shapes[name] != list(tensor.shape):
            raise RuntimeError(f"{name} has the shape {shapes[name]}, the config's network {list(tensor.shape)}.")
    if more := sorted(shapes.keys() - wanted.keys()):
        raise RuntimeError(f"it also has {more[0]}.")


def _checksum(state: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(state.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
