"""The split by hash: the role of an item depends on its id alone."""

import hashlib
from collections.abc import Iterable


def split_by_hash(item_id: str, test_fraction: float, query_fraction: float) -> str:
    """Choose the role of an item by a hash of its id, so that other items never move it from training to test.

    Args:
        item_id: Id of the item.
        test_fraction: Probability that an item is not for training.
        query_fraction: Probability that a test item is a query.

    Returns:
        "train", "query" or "gallery".
    """
    digests = (hashlib.sha256(f"{salt}:{item_id}".encode()).digest() for salt in ("test", "query"))
    test, query = (int.from_bytes(digest[:6]) / 2**48 for digest in digests)
    return "train" if test >= test_fraction else "query" if query < query_fraction else "gallery"


def hold_by_hash(names: Iterable[str], test_fraction: float) -> frozenset[str]:
    """Hold out an exact fraction of names by their hashes, so that a few names always give both sides of a split.

    Args:
        names: Two or more names, such as those of classes.
        test_fraction: Fraction of the names that are held out, rounded; at least one name is, and one is not.

    Returns:
        The names that are held out.
    """
    ordered = sorted(set(names), key=lambda name: hashlib.sha256(f"test:{name}".encode()).digest())
    count = min(max(round(test_fraction * len(ordered)), 1), len(ordered) - 1)
    return frozenset(ordered[:count])
