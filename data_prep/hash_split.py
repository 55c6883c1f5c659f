"""The split by hash: the role of an item depends on its id alone."""

import hashlib


def split_by_hash(item_id: str, test_fraction: float, query_fraction: float) -> str:
    """A role that depends on the item's id alone: another item never moves this one from train to test."""
    digests = (hashlib.sha256(f"{salt}:{item_id}".encode()).digest() for salt in ("test", "query"))
    test, query = (int.from_bytes(digest[:6]) / 2**48 for digest in digests)
    return "train" if test >= test_fraction else "query" if query < query_fraction else "gallery"
