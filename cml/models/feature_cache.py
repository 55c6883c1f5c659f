"""Features of a frozen backbone: computed once for a set of image files, then read from a cache.

They are the ImageNet row of every evaluation, and ``freeze_backbone`` trains its head on them. The cache is a folder
below ``$CML_CACHE`` (default ``~/.cache/cml``). Its keys depend on the image files, the backbone, all weights and the
image size.
"""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from cml.data.images import PIXELS
from cml.models.embedding import EmbeddingModel
from cml.storage.cache_folder import cache_folder
from cml.storage.npy import load_or_compute_rows

Float32 = NDArray[np.float32]


def backbone_fingerprint(model: EmbeddingModel) -> str:
    """Compute a digest of the backbone; a run with a frozen backbone has that of the published network.

    Args:
        model: The model.

    Returns:
        SHA-256 in hexadecimal.
    """
    constants = [model.mean.flatten().tolist(), model.std.flatten().tolist()]
    return weights_fingerprint(model.backbone, f"{model.config.backbone} {constants}")


def weights_fingerprint(network: nn.Module, shape: str) -> str:
    """Compute a digest of a network.

    Args:
        network: The network, whose weights and buffers count.
        shape: A text of everything else that its results depend on.

    Returns:
        SHA-256 in hexadecimal.
    """
    digest = hashlib.sha256(shape.encode())
    for name, value in sorted(network.state_dict().items()):
        digest.update(f"\n{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def frozen_features(model: EmbeddingModel, paths: Sequence[Path], *, bar: str = "") -> Float32:
    """Compute the backbone features of image files, or read them from the cache if the weights are published ones.

    Args:
        model: The model.
        paths: N image files.
        bar: Title of a progress bar; "" for none.

    Returns:
        Features (N, F), those of ``model.extract``.
    """
    compute = functools.partial(model.extract, paths, bar=bar)
    path = features_file(model, paths)
    return compute() if path is None else load_or_compute_rows(path, len(paths), compute)


def features_file(model: EmbeddingModel, paths: Sequence[Path]) -> Path | None:
    """Name the file of the cache for the features of image files.

    Args:
        model: The model.
        paths: The image files.

    Returns:
        The file, which may not exist yet; None if the features are not cached.
    """
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
