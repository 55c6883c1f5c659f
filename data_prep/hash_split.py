"""The split by hash: the role of an item depends on its id alone."""

import hashlib


def split_by_hash(item_id: str, test_fraction: float, query_fraction: float) -> str:
    """Choose the role of an item by a hash of its id, so that other items never move it from training to test."""
    digests = (hashlib.sha256(f"{salt}:{item_id}".encode()).digest() for salt in ("test", "query"))
    test, query = (int.from_bytes(digest[:6]) / 2**48 for digest in digests)
    return "train" if test >= test_fraction else "query" if query < query_fraction else "gallery"
