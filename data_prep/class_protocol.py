"""The published retrieval protocol of a dataset of classes, as dataset.json states it."""

from typing import Any


def protocol(*recall_ks: int, own_gallery: bool = False) -> dict[str, Any]:
    """What dataset.json says of the K of Recall@K; without a gallery each test image is searched among all others."""
    return {"recall_ks": list(recall_ks), **({} if own_gallery else {"gallery": "queries"})}
