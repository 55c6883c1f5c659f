"""Features of a frozen backbone: computed once for a set of images, then read from a cache.

They are the ImageNet row of every evaluation, and ``freeze_backbone`` trains its head on them. The cache lies in
``$CML_CACHE`` (default ``~/.cache/cml``). Its keys depend on the image files, the backbone, all weights and the size.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cml.data.images import PIXELS
from cml.models.embedding import EmbeddingModel
from cml.storage.atomic import cache_folder
from cml.storage.npy import cached_rows


def backbone_fingerprint(model: EmbeddingModel) -> str:
    """Digest of the backbone; a run with a frozen backbone has that of the published network."""
    constants = [model.mean.flatten().tolist(), model.std.flatten().tolist()]
    return weights_fingerprint(model.backbone, f"{model.config.backbone} {constants}")


def weights_fingerprint(network: nn.Module, shape: str) -> str:
    """Digest of a network's weights and of ``shape``, a text of everything else that its results depend on."""
    digest = hashlib.sha256(shape.encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def frozen_features(model: EmbeddingModel, paths: Sequence[Path], *, bar: str = "") -> NDArray[np.float32]:
    """Backbone features (N, F) of N image files, as of ``extract``; those of published weights are cached."""
    path = features_file(model, paths)
    if path is None:
        return model.extract(paths, bar=bar)
    return cached_rows(path, len(paths), lambda: model.extract(paths, bar=bar))


def features_file(model: EmbeddingModel, paths: Sequence[Path]) -> Path | None:
    """The file of the cache for the features of image files; None if they are not cached."""
    config = model.config
    if config.weights == "none":
        return None
    digest = hashlib.sha256(f"{backbone_fingerprint(model)} {config.image_size} {config.crop} {PIXELS}".encode())
    for path in paths:
        try:
            stat = path.stat()
        except OSError:  # reading the image will say what is wrong
            return None
        digest.update(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    return cache_folder() / "features" / f"{digest.hexdigest()[:32]}.npy"
