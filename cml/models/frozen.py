"""Features of a frozen backbone: computed once for a set of images, then read from a cache.

They are the ImageNet row of every evaluation and what ``freeze_backbone`` trains its head on. The cache lies in
``$CML_CACHE`` (default ``~/.cache/cml``) and is keyed by the image files, the backbone, every number of its weights
and the size; deleting it costs only time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cml.data.images import PIXELS
from cml.models.embedding import EmbeddingModel
from cml.storage.atomic import atomic_file, cache_folder
from cml.storage.npy import map_array


def backbone_fingerprint(model: EmbeddingModel) -> str:
    """Digest of the backbone: equal for a run with a frozen backbone and the published network that it froze."""
    constants = [model.mean.flatten().tolist(), model.std.flatten().tolist()]
    return weights_fingerprint(model.backbone, f"{model.config.backbone} {constants}")


def weights_fingerprint(network: nn.Module, shape: str) -> str:
    """Digest of the weights of a network and of a text that says what else its results depend on."""
    digest = hashlib.sha256(shape.encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def frozen_features(model: EmbeddingModel, paths: Sequence[Path]) -> NDArray[np.float32]:
    """Backbone features (N, F) of image files, from the cache if they are there.

    Args:
        model: The model; a network that starts from no weights is never cached.
        paths: Image files.

    Raises:
        DataError: an image cannot be read.
    """
    cached = features_file(model, paths)
    if cached is None:
        return model.extract(paths)
    try:
        features: NDArray[np.float32] = map_array(cached)
        if features.ndim == 2 and len(features) == len(paths):
            return np.array(features)
    except (OSError, ValueError):
        pass  # not there yet, or damaged: compute it
    features = model.extract(paths)
    try:
        with atomic_file(cached) as temporary:
            np.save(temporary, features, allow_pickle=False)
    except OSError:
        pass  # a cache that cannot be written costs time only
    return features


def features_file(model: EmbeddingModel, paths: Sequence[Path]) -> Path | None:
    """Where the cache has, or will have, the features of image files; None where they are not kept."""
    config = model.config
    if config.weights == "none":
        return None
    digest = hashlib.sha256(f"{backbone_fingerprint(model)} {config.image_size} {config.crop} {PIXELS}".encode())
    for path in paths:
        try:
            stat = path.stat()
        except OSError:  # whoever reads it says what is wrong
            return None
        digest.update(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return cache_folder() / "features" / f"{digest.hexdigest()[:32]}.npy"
