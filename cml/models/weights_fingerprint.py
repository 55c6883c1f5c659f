"""Digests of networks, by which results that a network made are told from those of another one."""

import hashlib
import json
from dataclasses import asdict

import torch
from torch import nn

from cml.models.embedding import EmbeddingModel


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
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
