"""Options that have another name today: read under their old names from saved files, refused on a command line."""

from collections.abc import Container, Mapping
from typing import TypeVar

T = TypeVar("T")

RENAMED: dict[str, str] = {
    "average": "ema_decay",
    "backbone_rate": "backbone_lr_scale",
    "count_lone": "singletons_as_misses",
    "query_share": "query_fraction",
    "roles": "splits",
    "test_share": "test_fraction",
    "validation_share": "validation_fraction",
    "vary": "search_space",
}
"""The old name of a field -> its name today. A row counts only where the new name is known and the old one is not."""


def current_name(name: str, known: Container[str]) -> str | None:
    """Look up what an option is called today.

    Args:
        name: The name of an option, perhaps an old one.
        known: The options of today.

    Returns:
        The option of ``known`` that was called ``name`` once, or None if there is none.

    Example:
        >>> current_name("average", {"ema_decay", "steps"})
        'ema_decay'
    """
    renamed = RENAMED.get(name)
    return renamed if renamed in known and name not in known else None


def with_current_names(values: Mapping[str, T], known: Container[str]) -> dict[str, T]:
    """Give options that were saved by an earlier version the names of today.

    Args:
        values: Saved values by option.
        known: The options of today.

    Returns:
        The values in their order; an option of which both names are given keeps both, for the caller to refuse.
    """
    current = {name: current_name(name, known) for name in values}
    return {
        renamed if (renamed := current[name]) is not None and renamed not in values else name: value
        for name, value in values.items()
    }
