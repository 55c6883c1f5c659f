"""Digests of networks, by which results that a network made are told from those of another one."""

import hashlib
import json
from dataclasses import asdict

import torch
from torch import nn

from cml.models.embedding import EmbeddingModel
from cml.models.plain_state import plain_state
from cml.registry import Choice


def model_fingerprint(model: EmbeddingModel) -> str:
    """Digest of a model's shape and weights; equal for a run and its shared copy."""
    return weights_fingerprint(model, json.dumps(asdict(model.config) | {"weights": ""}, sort_keys=True))


def backbone_fingerprint(model: EmbeddingModel) -> str:
    """Compute a digest of the backbone; a run with a frozen backbone has that of the published network."""
    constants = [model.mean.flatten().tolist(), model.std.flatten().tolist()]
    return weights_fingerprint(model.backbone, f"{model.config.backbone} {constants}")


def weights_fingerprint(
    network: nn.Module,
    shape: str,  # a text of everything else that its results depend on
) -> str:
    """Compute a digest of a network."""
    digest = hashlib.sha256(shape.encode())
    for name, value in sorted(plain_state(network).items()):
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


_LITE = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}


def published_size(
    backbone: str,  # name of the backbone, as ``cml.models.get`` takes it
) -> tuple[int, int] | None:  # (height, width) in pixels; None if it is not known
    """Look up the image size of a backbone's default published weights."""
    name = Choice.parse(backbone).name
    if name in _LITE:
        return _LITE[name], _LITE[name]
    kind, slash, model = name.partition("/")
    if slash and kind == "timm":
        import timm

        config = timm.get_pretrained_cfg(model, allow_unregistered=True)
        return None if config is None else (int(config.input_size[1]), int(config.input_size[2]))
    import torchvision

    if name not in torchvision.models.list_models(module=torchvision.models):
        return None
    crop = torchvision.models.get_model_weights(name).DEFAULT.transforms().crop_size
    return int(crop[0]), int(crop[-1])


def name_frozen(backbone: str, image_size: tuple[int, int]) -> str:  # image_size (height, width) in pixels
    """Name the row of a backbone's frozen features, with the image size unless it is the published one."""
    size = "" if image_size == published_size(backbone) else " at {} x {} pixels".format(*image_size)
    return f"frozen {backbone}{size}"
