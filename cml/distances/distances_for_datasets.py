"""Which label distances a dataset.json, which may come from a stranger, can name: those that read nothing else."""

from collections.abc import Mapping

from cml.distances import registry
from cml.distances.label_distance import LabelDistance, holds_text
from cml.registry import Choice


def is_self_contained(
    choice: str | Choice,  # the label distance with its settings, as in ``"circular(period=24)"``
) -> bool:
    """Whether a label distance reads no file outside the dataset and never the network.

    The class of the distance decides by ``LabelDistance.is_self_contained``; a registered function has no settings
    that could name a file. The distance is not made for it.

    Example:
        >>> is_self_contained("circular(period=24)"), is_self_contained("precomputed(path='/etc/passwd')")
        (True, False)
    """
    choice = Choice.parse(choice) if isinstance(choice, str) else choice
    entry = registry.entry(choice.name)
    if isinstance(entry, type) and issubclass(entry, LabelDistance):
        return entry.is_self_contained(choice.settings)
    return not holds_text(choice.settings)


def are_self_contained(parts: object) -> bool:  # True if each part is a text and ``is_self_contained`` holds for it
    """Whether all parts of a distance made of others are self-contained."""
    return isinstance(parts, Mapping) and all(
        isinstance(part, str) and is_self_contained(part) for part in parts.values()
    )
