"""Features of a frozen backbone: computed once for a set of images, then read from a cache.

They are the ImageNet row of every evaluation and what ``freeze_backbone`` trains its head on. The cache lies in
``$CML_CACHE`` (default ``~/.cache/cml``) and is keyed by the image files, the backbone and the size; deleting it
costs only time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cml.models.embedding import EmbeddingModel
from cml.storage.atomic import atomic_file, cache_folder
from cml.storage.npy import map_array


def frozen_features(model: EmbeddingModel, paths: Sequence[Path]) -> NDArray[np.float32]:
    """Backbone features (N, F) of image files, from the cache if they are there.

    Args:
        model: Its backbone must still hold its published weights; a network without any is never cached.
        paths: Image files.

    Raises:
        DataError: an image cannot be read.
    """
    config = model.config
    if config.weights == "none":
        return model.extract(paths)
    digest = hashlib.sha256(f"{config.backbone} {config.weights} {config.image_size} {config.crop}".encode())
    for path in paths:
        stat = path.stat()
        digest.update(f"{path.resolve()} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="surrogateescape"))
    cached = cache_folder() / "features" / f"{digest.hexdigest()[:32]}.npy"
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
