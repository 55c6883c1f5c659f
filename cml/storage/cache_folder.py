"""The cache folder: everything in it can be recomputed and may be deleted."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the folder for label distances, features and embeddings that are worth keeping but can be recomputed."""
    return Path(os.environ.get("CML_CACHE") or Path.home() / ".cache" / "cml")
