"""Weights of networks: under the names of the module itself, also where torch.compile or DataParallel has wrapped it.

Their digests tell results that a network made from those of another one.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from cml.models.embedding import EmbeddingModel
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


def plain_state(network: nn.Module) -> dict[str, Tensor]:
    """The weights of a network by their names without those of wrappers."""
    names = _plain_names(network)
    return {names[name]: value for name, value in network.state_dict().items()}


def load_plain_state(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Load weights of ``plain_state`` into a network, wrapped or not."""
    wrapped = {plain: name for name, plain in _plain_names(network).items()}
    network.load_state_dict({wrapped.get(name, name): value for name, value in weights.items()})


def _plain_names(network: nn.Module) -> dict[str, str]:
    """Name to plain name of each tensor of the state."""
    inner = []  # paths of modules in wrappers, the outermost first
    for path, module in network.named_modules():
        compiled = getattr(module, "_orig_mod", None)  # of torch.compile, whose class is not public
        if isinstance(compiled, nn.Module):
            inner.append((f"{path}._orig_mod.", f"{path}."))
        elif isinstance(module, DataParallel | DistributedDataParallel):
            inner.append((f"{path}.module.", f"{path}."))
    inner = [(begin.lstrip("."), end.lstrip(".")) for begin, end in inner]
    names = {}
    for name in network.state_dict():
        plain = name
        for begin, end in reversed(inner):  # the innermost first, since the others' paths begin theirs
            plain = end + plain.removeprefix(begin) if plain.startswith(begin) else plain
        names[name] = plain
    return names
