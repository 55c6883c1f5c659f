"""The base of label distances made of others (combined, sets)."""

import functools
import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cml.distances import as_label_distance, registry
from cml.distances.label_distance import LabelDistance, holds_text
from cml.registry import Choice


class Composed(LabelDistance):
    """Base of a label distance made of others, which are its first setting."""

    @property
    @abstractmethod
    def _parts(self) -> Mapping[str, LabelDistance]:
        """The others by name."""

    @property
    def is_symmetric(self) -> bool:
        """True if all parts are."""
        return all(part.is_symmetric for part in self._parts.values())

    @property
    def is_partial(self) -> bool:
        """True if a part is."""
        return any(part.is_partial for part in self._parts.values())

    @property
    def is_costly(self) -> bool | None:
        """True if a part is; None if a part is still to be measured."""
        costs = [part.is_costly for part in self._parts.values()]
        if True in costs:
            return True
        return None if None in costs else False

    @property
    def is_stored(self) -> bool:
        """True if all parts are."""
        return all(part.is_stored for part in self._parts.values())

    def fingerprint(self) -> str:
        """Return a hex digest of name, parts and the settings that are not parts."""
        parts = {name: part.fingerprint() for name, part in self._parts.items()}
        own = dict(list(self.settings().items())[1:])
        return hashlib.sha256(json.dumps([self.name, parts, own], sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ComposedOfOne(Composed):
    """Base of a label distance made of one other, its setting ``base``."""

    base: str | LabelDistance

    @classmethod
    def is_self_contained(cls, settings: Mapping[str, Any]) -> bool:
        """Whether the base is."""
        return has_only_self_contained_parts({"base": settings.get("base", getattr(cls, "base", None))})

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "base", self._base)

    @functools.cached_property
    def _base(self) -> LabelDistance:
        return as_label_distance(self.base)

    @property
    def _parts(self) -> dict[str, LabelDistance]:
        return {"base": self._base}


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


def has_only_self_contained_parts(
    parts: object,
) -> bool:  # True if each part is a text and ``is_self_contained`` holds for it
    """Whether all parts of a distance made of others are self-contained."""
    return isinstance(parts, Mapping) and all(
        isinstance(part, str) and is_self_contained(part) for part in parts.values()
    )
