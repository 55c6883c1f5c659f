"""What a label distance made of others has from them. Not for: how they are put together (sets, combined)."""

import hashlib
import json
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from cml.distances.label_distance import LabelDistance
from cml.registry import Choice


class Composed(LabelDistance):
    """Base of a label distance made of others."""

    @property
    @abstractmethod
    def _parts(self) -> Mapping[str, LabelDistance]:
        """The others by name."""

    @property
    def is_symmetric(self) -> bool:
        """True if all parts are."""
        return all(part.is_symmetric for part in self._parts.values())

    @property
    def is_costly(self) -> bool | None:
        """True if a part is; None if a part is still to be measured."""
        known = [part.is_costly for part in self._parts.values()]
        return True if True in known else None if None in known else False

    @property
    def is_stored(self) -> bool:
        """True if all parts are."""
        return all(part.is_stored for part in self._parts.values())

    def _texts(self) -> dict[str, str]:
        """The parts, each written with all of its settings."""
        return {name: str(Choice(part.name, part.settings())) for name, part in self._parts.items()}

    def _fingerprint(self, **own: Any) -> str:  # noqa: ANN401 - settings
        """Hex digest of name, parts and the settings that are not parts."""
        parts = {name: part.fingerprint() for name, part in self._parts.items()}
        return hashlib.sha256(json.dumps([self.name, parts, own], sort_keys=True).encode()).hexdigest()
